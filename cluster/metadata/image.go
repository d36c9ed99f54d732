package metadata

import (
	"encoding/binary"
	"iter"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"tidewire/internal/model"
)

// Image is the whole metadata at one raft index. It never changes; all methods are
// safe for concurrent use, take no lock and do no I/O. What they return must not be
// modified.
type Image struct {
	index   uint64
	cluster *Cluster

	topics     *iradix.Tree[*Topic] // by name
	topicsByID *iradix.Tree[*Topic] // by the 16 bytes of the id
	collisions *iradix.Tree[string] // model.TopicCollisionKey → name

	brokers  *iradix.Tree[*Broker] // by big-endian id
	users    *iradix.Tree[*User]   // by name
	aclsByID *iradix.Tree[*ACL]
	acls     *iradix.Tree[[]*ACL] // by aclResourceKey, each ordered by aclKey

	sessions       *iradix.Tree[*Session] // by id
	sessionsOf     *iradix.Tree[string]   // user NUL id → id
	sessionsExpiry *iradix.Tree[string]   // big-endian expiry, id → id
	tokens         *iradix.Tree[*APIToken]
	tokensOf       *iradix.Tree[string]
	tokensExpiry   *iradix.Tree[string]

	keys *iradix.Tree[*SigningKey] // by kid

	quotas *iradix.Tree[*Quota] // by user name, or DefaultQuota

	enabledAdmins int
}

// Empty is the image before the first command.
func Empty() *Image {
	return &Image{
		cluster:        &Cluster{Config: map[string]string{}},
		topics:         iradix.New[*Topic](),
		topicsByID:     iradix.New[*Topic](),
		collisions:     iradix.New[string](),
		brokers:        iradix.New[*Broker](),
		users:          iradix.New[*User](),
		acls:           iradix.New[[]*ACL](),
		aclsByID:       iradix.New[*ACL](),
		sessions:       iradix.New[*Session](),
		sessionsOf:     iradix.New[string](),
		sessionsExpiry: iradix.New[string](),
		tokens:         iradix.New[*APIToken](),
		tokensOf:       iradix.New[string](),
		tokensExpiry:   iradix.New[string](),
		keys:           iradix.New[*SigningKey](),
		quotas:         iradix.New[*Quota](),
	}
}

// Index is the raft index of the last command in the image, 0 before the first.
func (m *Image) Index() uint64 { return m.index }

// Cluster returns what belongs to the cluster as a whole; never nil.
func (m *Image) Cluster() *Cluster { return m.cluster }

// Topic returns the topic of that name, or nil.
func (m *Image) Topic(name string) *Topic {
	t, _ := m.topics.Get([]byte(name))
	return t
}

// TopicByID returns the topic of that id, or nil.
func (m *Image) TopicByID(id model.TopicID) *Topic {
	t, _ := m.topicsByID.Get(id[:])
	return t
}

// CollidingTopic returns the existing topic whose name equals name or differs from it
// only in "." and "_", or nil.
func (m *Image) CollidingTopic(name string) *Topic {
	other, ok := m.collisions.Get([]byte(model.TopicCollisionKey(name)))
	if !ok {
		return nil
	}
	return m.Topic(other)
}

// Topics yields the topics whose name starts with prefix, in byte order of names.
func (m *Image) Topics(prefix string) iter.Seq[*Topic] { return walk(m.topics, prefix) }

// SameTopics reports whether another image has the same topics, with all that belongs to them.
// It may miss that they are the same; it compares no two topics.
func (m *Image) SameTopics(o *Image) bool { return m.topics == o.topics }

// TopicCount is the number of topics, internal ones included.
func (m *Image) TopicCount() int { return m.topics.Len() }

// Broker returns the registered broker of that id, or nil.
func (m *Image) Broker(id model.BrokerID) *Broker {
	b, _ := m.brokers.Get(brokerKey(id))
	return b
}

// Brokers yields the registered brokers in order of their ids.
func (m *Image) Brokers() iter.Seq[*Broker] { return walk(m.brokers, "") }

// BrokerCount is the number of registered brokers.
func (m *Image) BrokerCount() int { return m.brokers.Len() }

// User returns the user of that name, or nil.
func (m *Image) User(name string) *User {
	u, _ := m.users.Get([]byte(name))
	return u
}

// Users yields the users whose name starts with prefix, in byte order of names.
func (m *Image) Users(prefix string) iter.Seq[*User] { return walk(m.users, prefix) }

// UserCount is the number of users.
func (m *Image) UserCount() int { return m.users.Len() }

// Session returns the session of that id, or nil. It may be revoked or expired.
func (m *Image) Session(id string) *Session {
	s, _ := m.sessions.Get([]byte(id))
	return s
}

// SessionsOf yields the sessions of a user in order of their ids.
func (m *Image) SessionsOf(user string) iter.Seq[*Session] {
	return follow(m.sessionsOf, m.sessions, user+"\x00")
}

// Sessions yields all sessions in order of their ids.
func (m *Image) Sessions() iter.Seq[*Session] { return walk(m.sessions, "") }

// APIToken returns the token of that id, or nil. It may have expired.
func (m *Image) APIToken(id string) *APIToken {
	t, _ := m.tokens.Get([]byte(id))
	return t
}

// APITokensOf yields the tokens of a user in order of their ids.
func (m *Image) APITokensOf(user string) iter.Seq[*APIToken] {
	return follow(m.tokensOf, m.tokens, user+"\x00")
}

// APITokens yields all tokens in order of their ids.
func (m *Image) APITokens() iter.Seq[*APIToken] { return walk(m.tokens, "") }

// SigningKey returns the key of that kid, or nil.
func (m *Image) SigningKey(kid string) *SigningKey {
	k, _ := m.keys.Get([]byte(kid))
	return k
}

// SigningKeys yields the keys in order of their kids.
func (m *Image) SigningKeys() iter.Seq[*SigningKey] { return walk(m.keys, "") }

// NewestSigningKey returns the key that was added last, or nil when there is none.
func (m *Image) NewestSigningKey() *SigningKey {
	var newest *SigningKey
	for k := range m.SigningKeys() {
		if newest == nil || k.Version > newest.Version {
			newest = k
		}
	}
	return newest
}

// Quota returns the limits of that user, or of all users under DefaultQuota; nil where
// none were set.
func (m *Image) Quota(user string) *Quota {
	q, _ := m.quotas.Get([]byte(user))
	return q
}

// Quotas yields the limits that were set, in byte order of users' names.
func (m *Image) Quotas() iter.Seq[*Quota] { return walk(m.quotas, "") }

// QuotaCount is the number of users that have limits of their own, the default included.
func (m *Image) QuotaCount() int { return m.quotas.Len() }

// ACLs yields all rules, in the order of their resource type, pattern, resource name
// and then the other fields.
func (m *Image) ACLs() iter.Seq[*ACL] { return m.aclsUnder(nil) }

// ACLsOfType yields the rules about one resource type.
func (m *Image) ACLsOfType(t ResourceType) iter.Seq[*ACL] {
	return m.aclsUnder([]byte(string(t) + "\x00"))
}

// ACL returns the rule of that id, or nil.
func (m *Image) ACL(id string) *ACL {
	r, _ := m.aclsByID.Get([]byte(id))
	return r
}

// ACLCount is the number of rules.
func (m *Image) ACLCount() int { return m.aclsByID.Len() }

func (m *Image) aclsUnder(prefix []byte) iter.Seq[*ACL] {
	return func(yield func(*ACL) bool) {
		m.acls.Root().WalkPrefix(prefix, func(_ []byte, rules []*ACL) bool {
			for _, r := range rules {
				if !yield(r) {
					return true
				}
			}
			return false
		})
	}
}

// MatchingACLs yields the rules whose resource covers a resource of this name:
// literal ones of the name and of "*", and prefixed ones of which the name's start is
// the pattern. The cost grows with the length of the name and the rules found, not with
// the number of rules.
func (m *Image) MatchingACLs(t ResourceType, name string) iter.Seq[*ACL] {
	return func(yield func(*ACL) bool) {
		each := func(_ []byte, rules []*ACL) bool {
			for _, r := range rules {
				if !yield(r) {
					return true
				}
			}
			return false
		}
		if rules, ok := m.acls.Get(aclResourceKey(t, PatternLiteral, name)); ok && each(nil, rules) {
			return
		}
		if name != "*" {
			if rules, ok := m.acls.Get(aclResourceKey(t, PatternLiteral, "*")); ok && each(nil, rules) {
				return
			}
		}
		m.acls.Root().WalkPath(aclResourceKey(t, PatternPrefixed, name), each)
	}
}

func walk[T any](tree *iradix.Tree[T], prefix string) iter.Seq[T] {
	return func(yield func(T) bool) {
		tree.Root().WalkPrefix([]byte(prefix), func(_ []byte, v T) bool { return !yield(v) })
	}
}

// follow yields the entities whose ids an index holds under prefix.
func follow[T any](index *iradix.Tree[string], entities *iradix.Tree[T], prefix string) iter.Seq[T] {
	return func(yield func(T) bool) {
		index.Root().WalkPrefix([]byte(prefix), func(_ []byte, id string) bool {
			v, ok := entities.Get([]byte(id))
			return ok && !yield(v)
		})
	}
}

// brokerKey orders broker ids as numbers; ids are not negative.
func brokerKey(id model.BrokerID) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(id))
}

func aclResourceKey(t ResourceType, p Pattern, name string) []byte {
	b := make([]byte, 0, len(t)+len(p)+len(name)+2)
	b = append(append(b, t...), 0)
	b = append(append(b, p...), 0)
	return append(b, name...)
}

func ownedKey(user, id string) []byte { return []byte(user + "\x00" + id) }

func expiryKey(at Millis, id string) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(at)), id...)
}
