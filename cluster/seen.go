package cluster

import "tidewire/internal/model"

// Seen are the registered brokers that this node can reach, as gossip tells; it is one of them.
// It needs no quorum: where there is none it is all that is known of who is there.
func (c *Cluster) Seen() map[model.BrokerID]bool {
	out := map[model.BrokerID]bool{c.cfg.NodeID: true}
	if c.net == nil {
		return out
	}
	alive := map[string]bool{}
	for _, m := range c.net.alive() {
		alive[m.Storage] = true
	}
	for b := range c.Image().Brokers() {
		if alive[b.StorageID] {
			out[b.ID] = true
		}
	}
	return out
}
