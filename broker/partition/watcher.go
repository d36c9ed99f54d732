package partition

// Watcher is woken when something a reader may wait for has changed: the high
// watermark rose, the leadership changed, the partition closed. One watcher may watch
// many partitions. It holds no goroutine and no lock while it waits.
type Watcher struct {
	c    chan struct{}
	call func() // in place of c; nil: c
}

// NewWatcher returns a watcher that watches nothing yet.
func NewWatcher() *Watcher { return &Watcher{c: make(chan struct{}, 1)} }

// NewCaller returns a watcher that calls a function after each change instead, so that who
// waits needs no goroutine. The function is called under locks: it may not block, and not
// call the broker.
func NewCaller(call func()) *Watcher { return &Watcher{call: call} }

// C receives after one or more changes; never where a function is called.
func (w *Watcher) C() <-chan struct{} { return w.c }

// Wake makes C receive, or calls.
func (w *Watcher) Wake() {
	if w.call != nil {
		w.call()
		return
	}
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// Watch adds w to those woken, until Unwatch. Changes from before are not reported: read
// the bounds after Watch.
func (p *Partition) Watch(w *Watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers[w] = struct{}{}
}

// Unwatch takes w out again.
func (p *Partition) Unwatch(w *Watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watchers, w)
}

func (p *Partition) wakeLocked() {
	for w := range p.watchers {
		w.Wake()
	}
}
