package metadata

import "tidewire/internal/model"

// Change says what happened to an entity between two images.
type Change uint8

// Changes.
const (
	Created Change = iota + 1
	Changed
	Deleted
)

// Delta names what differs between two images. A deleted entity is found in the old
// image, the others in the new one. Deltas of a batch are merged: what was created
// and deleted within it is not in the delta, what was deleted and created again
// under its old key is Changed.
type Delta struct {
	Topics      map[model.TopicID]Change
	Brokers     map[model.BrokerID]Change
	Users       map[string]Change // by name
	ACLs        map[string]Change // by rule id
	Sessions    map[string]Change // by id
	APITokens   map[string]Change // by id
	SigningKeys map[string]Change // by kid
	Quotas      map[string]Change // by user
	Cluster     bool              // Cluster() differs in anything
	// ClusterConfig is set when the cluster's config changed. The config in force of
	// any topic may then have changed without the topic being listed in Topics.
	ClusterConfig bool
}

// IsEmpty reports whether nothing differs.
func (d *Delta) IsEmpty() bool {
	return len(d.Topics) == 0 && len(d.Brokers) == 0 && len(d.Users) == 0 && len(d.ACLs) == 0 &&
		len(d.Sessions) == 0 && len(d.APITokens) == 0 && len(d.SigningKeys) == 0 &&
		len(d.Quotas) == 0 &&
		!d.Cluster && !d.ClusterConfig
}

// Merge adds what happened after d.
func (d *Delta) Merge(next Delta) {
	mergeChanges(&d.Topics, next.Topics)
	mergeChanges(&d.Brokers, next.Brokers)
	mergeChanges(&d.Users, next.Users)
	mergeChanges(&d.ACLs, next.ACLs)
	mergeChanges(&d.Sessions, next.Sessions)
	mergeChanges(&d.APITokens, next.APITokens)
	mergeChanges(&d.SigningKeys, next.SigningKeys)
	mergeChanges(&d.Quotas, next.Quotas)
	d.Cluster = d.Cluster || next.Cluster
	d.ClusterConfig = d.ClusterConfig || next.ClusterConfig
}

func mergeChanges[K comparable](into *map[K]Change, next map[K]Change) {
	for k, c := range next {
		note(into, k, c)
	}
}

// note records that c happened to k after whatever the map already says of it.
func note[K comparable](into *map[K]Change, k K, c Change) {
	if *into == nil {
		*into = map[K]Change{}
	}
	before, seen := (*into)[k]
	switch {
	case !seen:
		(*into)[k] = c
	case before == Created && c == Deleted:
		delete(*into, k)
	case before == Created:
		// still new to whoever saw the old image
	case before == Deleted && c == Created:
		(*into)[k] = Changed
	default:
		(*into)[k] = c
	}
}
