package metadata

import (
	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"tidewire/internal/model"
)

// Batch folds a run of commands into an image. It is for one goroutine and one Commit.
type Batch struct{ t *tx }

// NewBatch starts from an image, which stays as it is.
func NewBatch(base *Image) *Batch { return &Batch{t: newTx(base)} }

// Apply folds one command in; indexes must grow. A nil command (an ignorable kind of a
// newer version) changes nothing.
func (b *Batch) Apply(index uint64, c Command) Result {
	res := Result{Index: index}
	b.t.index = index
	if c == nil {
		return res
	}
	r, ok := kindTable[c.Kind()]
	switch have := b.t.cluster.MetadataVersion; {
	case !ok:
		// DecodeCommand yields no such command: a caller made one up.
		panic("metadata: command kind without a row: " + string(c.Kind()))
	case have == 0 && r.since > 0:
		res.Refusal = model.Errorf(model.Conflict, "the cluster has no id yet")
	case have < r.since:
		res.Refusal = model.Errorf(model.NotImplemented, "needs metadata version %d, the cluster has %d", r.since, have)
	default:
		res.Value, res.Refusal = r.apply(b.t, c)
	}
	return res
}

// Commit returns the new image and what differs from the base. Without any command it
// returns the base.
func (b *Batch) Commit() (*Image, Delta) {
	if b.t.index == b.t.base.index {
		return b.t.base, Delta{}
	}
	return b.t.commit(), b.t.delta
}

// Apply folds one command into an image.
func Apply(m *Image, index uint64, c Command) (*Image, Delta, Result) {
	b := NewBatch(m)
	res := b.Apply(index, c)
	next, d := b.Commit()
	return next, d, res
}

// tx is an image under change. Apply functions decide first and change afterwards:
// after a refusal nothing may have been touched (RotateSession, which revokes, excepted).
type tx struct {
	base  *Image
	index uint64 // of the command being applied
	delta Delta

	cluster *Cluster

	topics     *iradix.Txn[*Topic]
	topicsByID *iradix.Txn[*Topic]
	collisions *iradix.Txn[string]
	brokers    *iradix.Txn[*Broker]
	users      *iradix.Txn[*User]
	acls       *iradix.Txn[[]*ACL]
	aclsByID   *iradix.Txn[*ACL]

	sessions owned[*Session]
	tokens   owned[*APIToken]

	keys   *iradix.Txn[*SigningKey]
	quotas *iradix.Txn[*Quota]

	enabledAdmins int
}

// owned is a set of entities that belong to a user and expire, with its two indexes.
type owned[T any] struct {
	byID   *iradix.Txn[T]
	byUser *iradix.Txn[string]
	expiry *iradix.Txn[string]
}

func newTx(m *Image) *tx {
	return &tx{
		base:          m,
		index:         m.index,
		cluster:       m.cluster,
		topics:        m.topics.Txn(),
		topicsByID:    m.topicsByID.Txn(),
		collisions:    m.collisions.Txn(),
		brokers:       m.brokers.Txn(),
		users:         m.users.Txn(),
		acls:          m.acls.Txn(),
		aclsByID:      m.aclsByID.Txn(),
		sessions:      owned[*Session]{m.sessions.Txn(), m.sessionsOf.Txn(), m.sessionsExpiry.Txn()},
		tokens:        owned[*APIToken]{m.tokens.Txn(), m.tokensOf.Txn(), m.tokensExpiry.Txn()},
		keys:          m.keys.Txn(),
		quotas:        m.quotas.Txn(),
		enabledAdmins: m.enabledAdmins,
	}
}

func (t *tx) commit() *Image {
	return &Image{
		index:          t.index,
		cluster:        t.cluster,
		topics:         t.topics.CommitOnly(),
		topicsByID:     t.topicsByID.CommitOnly(),
		collisions:     t.collisions.CommitOnly(),
		brokers:        t.brokers.CommitOnly(),
		users:          t.users.CommitOnly(),
		acls:           t.acls.CommitOnly(),
		aclsByID:       t.aclsByID.CommitOnly(),
		sessions:       t.sessions.byID.CommitOnly(),
		sessionsOf:     t.sessions.byUser.CommitOnly(),
		sessionsExpiry: t.sessions.expiry.CommitOnly(),
		tokens:         t.tokens.byID.CommitOnly(),
		tokensOf:       t.tokens.byUser.CommitOnly(),
		tokensExpiry:   t.tokens.expiry.CommitOnly(),
		keys:           t.keys.CommitOnly(),
		quotas:         t.quotas.CommitOnly(),
		enabledAdmins:  t.enabledAdmins,
	}
}

// editCluster returns a copy of the cluster entity that is part of the change.
func (t *tx) editCluster() *Cluster {
	c := *t.cluster
	t.cluster = &c
	t.delta.Cluster = true
	return t.cluster
}

func (t *tx) topic(name string) *Topic {
	p, _ := t.topics.Get([]byte(name))
	return p
}

func (t *tx) putTopic(p *Topic) {
	_, existed := t.topicsByID.Insert(p.ID[:], p)
	t.topics.Insert([]byte(p.Name), p)
	t.collisions.Insert([]byte(model.TopicCollisionKey(p.Name)), p.Name)
	note(&t.delta.Topics, p.ID, putChange(existed))
}

func (t *tx) removeTopic(p *Topic) {
	t.topics.Delete([]byte(p.Name))
	t.topicsByID.Delete(p.ID[:])
	t.collisions.Delete([]byte(model.TopicCollisionKey(p.Name)))
	note(&t.delta.Topics, p.ID, Deleted)
}

// allTopics collects the topics, so that they can be changed while looping.
func (t *tx) allTopics() []*Topic {
	out := make([]*Topic, 0, t.base.TopicCount())
	t.topics.Root().Walk(func(_ []byte, p *Topic) bool { out = append(out, p); return false })
	return out
}

func (t *tx) broker(id model.BrokerID) *Broker {
	b, _ := t.brokers.Get(brokerKey(id))
	return b
}

func (t *tx) putBroker(b *Broker) {
	_, existed := t.brokers.Insert(brokerKey(b.ID), b)
	note(&t.delta.Brokers, b.ID, putChange(existed))
}

func (t *tx) removeBroker(b *Broker) {
	t.brokers.Delete(brokerKey(b.ID))
	note(&t.delta.Brokers, b.ID, Deleted)
}

func (t *tx) user(name string) *User {
	u, _ := t.users.Get([]byte(name))
	return u
}

func (t *tx) putUser(u *User) {
	before, existed := t.users.Insert([]byte(u.Name), u)
	if existed {
		t.enabledAdmins -= countsAsAdmin(before)
	}
	t.enabledAdmins += countsAsAdmin(u)
	note(&t.delta.Users, u.Name, putChange(existed))
}

func (t *tx) removeUser(u *User) {
	t.users.Delete([]byte(u.Name))
	t.enabledAdmins -= countsAsAdmin(u)
	note(&t.delta.Users, u.Name, Deleted)
}

func countsAsAdmin(u *User) int {
	if u.Admin && !u.Disabled {
		return 1
	}
	return 0
}

func (t *tx) putSession(s *Session) {
	before, existed := t.sessions.byID.Insert([]byte(s.ID), s)
	if existed {
		t.sessions.expiry.Delete(expiryKey(before.ExpiresAt, s.ID))
	}
	t.sessions.byUser.Insert(ownedKey(s.User, s.ID), s.ID)
	t.sessions.expiry.Insert(expiryKey(s.ExpiresAt, s.ID), s.ID)
	note(&t.delta.Sessions, s.ID, putChange(existed))
}

func (t *tx) removeSession(s *Session) {
	t.sessions.byID.Delete([]byte(s.ID))
	t.sessions.byUser.Delete(ownedKey(s.User, s.ID))
	t.sessions.expiry.Delete(expiryKey(s.ExpiresAt, s.ID))
	note(&t.delta.Sessions, s.ID, Deleted)
}

func (t *tx) putToken(k *APIToken) {
	_, existed := t.tokens.byID.Insert([]byte(k.ID), k)
	t.tokens.byUser.Insert(ownedKey(k.User, k.ID), k.ID)
	if k.ExpiresAt != 0 {
		t.tokens.expiry.Insert(expiryKey(k.ExpiresAt, k.ID), k.ID)
	}
	note(&t.delta.APITokens, k.ID, putChange(existed))
}

func (t *tx) removeToken(k *APIToken) {
	t.tokens.byID.Delete([]byte(k.ID))
	t.tokens.byUser.Delete(ownedKey(k.User, k.ID))
	t.tokens.expiry.Delete(expiryKey(k.ExpiresAt, k.ID))
	note(&t.delta.APITokens, k.ID, Deleted)
}

// of collects the entities of a user.
func (o *owned[T]) of(user string) []T {
	var out []T
	o.byUser.Root().WalkPrefix([]byte(user+"\x00"), func(_ []byte, id string) bool {
		v, _ := o.byID.Get([]byte(id))
		out = append(out, v)
		return false
	})
	return out
}

// expired collects the entities whose expiry is not after now.
func (o *owned[T]) expired(now Millis) []T {
	var out []T
	limit := expiryKey(now+1, "")
	o.expiry.Root().Walk(func(k []byte, id string) bool {
		if string(k) >= string(limit) {
			return true
		}
		v, _ := o.byID.Get([]byte(id))
		out = append(out, v)
		return false
	})
	return out
}

func (t *tx) putKey(k *SigningKey) {
	_, existed := t.keys.Insert([]byte(k.KID), k)
	note(&t.delta.SigningKeys, k.KID, putChange(existed))
}

func (t *tx) removeKey(k *SigningKey) {
	t.keys.Delete([]byte(k.KID))
	note(&t.delta.SigningKeys, k.KID, Deleted)
}

func (t *tx) putQuota(q *Quota) {
	_, existed := t.quotas.Insert([]byte(q.User), q)
	note(&t.delta.Quotas, q.User, putChange(existed))
}

func (t *tx) removeQuota(q *Quota) {
	t.quotas.Delete([]byte(q.User))
	note(&t.delta.Quotas, q.User, Deleted)
}

func putChange(existed bool) Change {
	if existed {
		return Changed
	}
	return Created
}
