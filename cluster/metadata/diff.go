package metadata

import (
	"reflect"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"tidewire/internal/model"
)

// Diff compares two images entity by entity, for when there is no run of commands
// between them: a restored snapshot.
func Diff(old, next *Image) Delta {
	var d Delta
	d.Topics = diffTrees(old.topicsByID, next.topicsByID, func(t *Topic) model.TopicID { return t.ID })
	d.Brokers = diffTrees(old.brokers, next.brokers, func(b *Broker) model.BrokerID { return b.ID })
	d.Users = diffTrees(old.users, next.users, func(u *User) string { return u.Name })
	d.Sessions = diffTrees(old.sessions, next.sessions, func(s *Session) string { return s.ID })
	d.APITokens = diffTrees(old.tokens, next.tokens, func(t *APIToken) string { return t.ID })
	d.SigningKeys = diffTrees(old.keys, next.keys, func(k *SigningKey) string { return k.KID })
	d.Quotas = diffTrees(old.quotas, next.quotas, func(q *Quota) string { return q.User })
	d.ACLs = diffTrees(old.aclsByID, next.aclsByID, func(r *ACL) string { return r.ID })
	d.Cluster = !reflect.DeepEqual(old.cluster, next.cluster)
	d.ClusterConfig = !reflect.DeepEqual(old.cluster.Config, next.cluster.Config)
	return d
}

func diffTrees[T any, K comparable](old, next *iradix.Tree[*T], key func(*T) K) map[K]Change {
	var out map[K]Change
	next.Root().Walk(func(k []byte, n *T) bool {
		o, ok := old.Get(k)
		switch {
		case !ok:
			note(&out, key(n), Created)
		case o != n && !reflect.DeepEqual(o, n):
			note(&out, key(n), Changed)
		}
		return false
	})
	old.Root().Walk(func(k []byte, o *T) bool {
		if _, ok := next.Get(k); !ok {
			note(&out, key(o), Deleted)
		}
		return false
	})
	return out
}
