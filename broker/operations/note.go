package operations

import "slices"

// Note keeps an operation that this node has not done but seen, and that has ended: one of the
// cluster, which has its account in the metadata while it runs. Its EndedAt is now.
func (r *Registry) Note(v View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v.EndedAt = r.now()
	v.Spec.Probe = nil
	r.ended = slices.DeleteFunc(r.ended, func(o View) bool { return o.ID == v.ID })
	r.ended = append(r.ended, v)
	r.changed = true
	r.pruneLocked()
}
