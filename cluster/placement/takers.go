package placement

import "tidewire/cluster/metadata"

// Takers are the brokers that may get replicas: online, and not draining.
func Takers(img *metadata.Image) []*metadata.Broker {
	var nodes []*metadata.Broker
	for br := range img.Brokers() {
		if !br.Fenced && br.State == metadata.BrokerActive {
			nodes = append(nodes, br)
		}
	}
	return nodes
}
