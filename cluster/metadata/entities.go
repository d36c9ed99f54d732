package metadata

import (
	"slices"
	"strconv"
	"time"

	"tidewire/internal/model"
)

// Millis is a point in time in milliseconds since 1970, as commands carry it. Zero
// means "none" where a field says so.
type Millis int64

// MillisOf converts a time, dropping what is below a millisecond.
func MillisOf(t time.Time) Millis { return Millis(t.UnixMilli()) }

// Time converts back, in UTC.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

// ETag names one state of an entity. In commands an empty ETag means "whatever the
// state is". It has no quotes; the HTTP door adds them.
type ETag string

func etagOf(version uint64) ETag { return ETag(strconv.FormatUint(version, 36)) }

// Cluster is what belongs to the cluster as a whole. Before the first command its ID
// is empty and it has metadata version 0.
type Cluster struct {
	ID              string            `json:"id"` // UUID text, the first thing ever committed
	Name            string            `json:"name"`
	MetadataVersion MetadataVersion   `json:"metadata_version"`
	CreatedAt       Millis            `json:"created_at"`
	Config          map[string]string `json:"config"`           // overrides only; see ConfigDefs
	SetupTokenHash  []byte            `json:"setup_token_hash"` // nil: no setup open
	NextProducerID  int64             `json:"next_producer_id"` // first id of the next block
	ConfigVersion   uint64            `json:"config_version"`   // raft index of the last change of Config
	Version         uint64            `json:"version"`          // raft index of the last change of anything else
}

// ConfigETag is the etag of the cluster's config.
func (c *Cluster) ConfigETag() ETag { return etagOf(c.ConfigVersion) }

// Broker is one registered node.
type Broker struct {
	ID           model.BrokerID `json:"id"`
	StorageID    string         `json:"storage_id"`  // of the data folder
	Incarnation  uint64         `json:"incarnation"` // random, one per process start
	Epoch        int64          `json:"epoch"`       // raft index of the registration (KIP-497, 903)
	Host         string         `json:"host"`
	HTTPAddr     string         `json:"http_addr"` // addresses as host:port, "" when off
	KafkaAddr    string         `json:"kafka_addr"`
	PeerAddr     string         `json:"peer_addr"`
	GossipAddr   string         `json:"gossip_addr"`
	Rack         string         `json:"rack"`           // "" when none
	BinaryVer    string         `json:"binary_version"` // of the Tidewire binary
	RegisteredAt Millis         `json:"registered_at"`
	Fenced       bool           `json:"fenced"` // may neither lead nor enter an ISR
	State        BrokerState    `json:"state"`
	Drain        *Drain         `json:"drain,omitempty"` // while State is BrokerDraining
	Version      uint64         `json:"version"`
}

// Drain is the wish that a broker holds nothing any more.
type Drain struct {
	Since     Millis `json:"since"`
	Replicas  int    `json:"replicas"`            // that it held then
	Bytes     int64  `json:"bytes,omitempty"`     // of record data in them; 0: not known
	Principal string `json:"principal,omitempty"` // who asked for it
}

// BrokerState is the wish of an operator for a broker, beside Fenced, which is what
// failure detection says.
type BrokerState string

// States of a broker.
const (
	BrokerActive   BrokerState = "active"
	BrokerDraining BrokerState = "draining"
)

// ETag is the broker's etag.
func (b *Broker) ETag() ETag { return etagOf(b.Version) }

// NoLeader is the leader of a partition that has none.
const NoLeader model.BrokerID = -1

// Topic is a topic with its partitions. Partition i is Partitions[i].
type Topic struct {
	ID            model.TopicID     `json:"id"`
	Name          string            `json:"name"`
	Internal      bool              `json:"internal"`
	CreatedAt     Millis            `json:"created_at"`
	Overrides     map[string]string `json:"overrides"` // normalised; only what was set on the topic
	Partitions    []Partition       `json:"partitions"`
	ConfigVersion uint64            `json:"config_version"`
	Version       uint64            `json:"version"`

	// Config holds every setting in force, parsed. It derives from Overrides, the
	// cluster's config and the replication factor and is never nil in an image.
	Config *TopicConfig `json:"-"`
}

// ReplicationFactor is the number of replicas that every partition has at least, also before
// and after what moves has moved: a topic that gets more replicas has them when the last
// partition has.
func (t *Topic) ReplicationFactor() int {
	least := 0
	for i := range t.Partitions {
		p := &t.Partitions[i]
		n := len(p.Replicas)
		if p.Move != nil {
			n = min(len(p.Move.From), len(p.Move.To))
		}
		if i == 0 || n < least {
			least = n
		}
	}
	return least
}

// ETag is the topic's etag. It does not change with leaders, in-sync replicas or
// config.
func (t *Topic) ETag() ETag { return etagOf(t.Version) }

// ConfigETag is the etag of the topic's config.
func (t *Topic) ConfigETag() ETag { return etagOf(t.ConfigVersion) }

// Partition is the replicated state of one partition.
type Partition struct {
	Leader         model.BrokerID    `json:"leader"` // NoLeader when there is none
	LeaderEpoch    model.LeaderEpoch `json:"leader_epoch"`
	PartitionEpoch int32             `json:"partition_epoch"` // one more at each change (KIP-497)
	Replicas       []model.BrokerID  `json:"replicas"`        // the first is the preferred leader
	ISR            []model.BrokerID  `json:"isr"`
	ELR            []model.BrokerID  `json:"elr"` // eligible leader replicas (KIP-966)
	Move           *Move             `json:"move,omitempty"`
}

// Move is a reassignment that is under way (KIP-455). Meanwhile the partition's replicas are
// To, and behind them those of From that are not in To.
type Move struct {
	From  []model.BrokerID `json:"from"` // the replicas before, which a cancellation brings back
	To    []model.BrokerID `json:"to"`   // the replicas afterwards
	Since Millis           `json:"since"`
	// By is who asked for it, "" for the controller.
	By string `json:"by,omitempty"`
}

// Target is the replicas that the partition is to have.
func (p *Partition) Target() []model.BrokerID {
	if p.Move != nil {
		return p.Move.To
	}
	return p.Replicas
}

// Origin is the replicas that the partition has without what is only being added.
func (p *Partition) Origin() []model.BrokerID {
	if p.Move != nil {
		return p.Move.From
	}
	return p.Replicas
}

// Adding is the replicas that a move adds, in order; empty without one.
func (p *Partition) Adding() []model.BrokerID { return missing(p.Replicas, p.Origin()) }

// Removing is the replicas that a move takes away in the end, in order; empty without one.
func (p *Partition) Removing() []model.BrokerID { return missing(p.Replicas, p.Target()) }

// missing are those of all that are not in some.
func missing(all, some []model.BrokerID) []model.BrokerID {
	out := []model.BrokerID{}
	for _, id := range all {
		if !slices.Contains(some, id) {
			out = append(out, id)
		}
	}
	return out
}

// User is somebody, or something, that can log in.
type User struct {
	Name      string `json:"name"`
	Admin     bool   `json:"admin"`
	Disabled  bool   `json:"disabled"`
	CreatedAt Millis `json:"created_at"`
	Credentials
	// CredentialsEpoch is the raft index of the creation, password change or
	// disabling that came last. Access tokens carry it: one with a lower epoch is
	// dead, also when the user was deleted and created again.
	CredentialsEpoch uint64 `json:"credentials_epoch"`
	Version          uint64 `json:"version"`
}

// Credentials is what a password leaves behind. The SCRAM verifiers are sealed by
// the proposer and opaque here.
type Credentials struct {
	PasswordHash string `json:"password_hash"` // argon2id, PHC string
	SCRAMSHA256  []byte `json:"scram_sha_256"`
	SCRAMSHA512  []byte `json:"scram_sha_512"`
}

// ETag is the user's etag.
func (u *User) ETag() ETag { return etagOf(u.Version) }

// ACL is one rule. Its fields other than ID, CreatedAt and Version identify it: there are
// never two rules with equal fields.
type ACL struct {
	ID string `json:"id"`
	ACLFields
	CreatedAt Millis `json:"created_at"`
	Version   uint64 `json:"version"`
}

// ACLFields are the fields of a rule, or of a filter over rules, where "" matches all.
type ACLFields struct {
	Principal    string       `json:"principal"` // "User:alice", "User:*" for everyone
	ResourceType ResourceType `json:"resource_type"`
	ResourceName string       `json:"resource_name"` // "*" with PatternLiteral: all
	Pattern      Pattern      `json:"pattern"`
	Operation    Operation    `json:"operation"`
	Permission   Permission   `json:"permission"`
	Host         string       `json:"host"` // "*" for any
}

// ResourceType says what kind of thing a rule is about.
type ResourceType string

// Resource types. ResourceCluster has the one resource name ClusterResource.
const (
	ResourceTopic           ResourceType = "topic"
	ResourceGroup           ResourceType = "group"
	ResourceTransactionalID ResourceType = "transactional-id"
	ResourceCluster         ResourceType = "cluster"
)

// ClusterResource is the resource name under which authorisation asks for the
// cluster, as Kafka names it.
const ClusterResource = "kafka-cluster"

// Pattern says how a resource name is compared.
type Pattern string

// Patterns (KIP-290).
const (
	PatternLiteral  Pattern = "literal"
	PatternPrefixed Pattern = "prefixed"
)

// Operation is what a rule allows or denies.
type Operation string

// Operations, as Kafka's.
const (
	OpRead            Operation = "read"
	OpWrite           Operation = "write"
	OpCreate          Operation = "create"
	OpDelete          Operation = "delete"
	OpAlter           Operation = "alter"
	OpDescribe        Operation = "describe"
	OpDescribeConfigs Operation = "describe-configs"
	OpAlterConfigs    Operation = "alter-configs"
	OpClusterAction   Operation = "cluster-action"
	OpIdempotentWrite Operation = "idempotent-write"
	OpAll             Operation = "all"
)

// Permission is the outcome of a matching rule.
type Permission string

// Permissions; deny wins.
const (
	Allow Permission = "allow"
	Deny  Permission = "deny"
)

// DefaultQuota is the name under which the limits of all users lie that have none of their
// own. No user can have it.
const DefaultQuota = "*"

// MaxQuota is the largest limit: what JSON numbers hold exactly.
const MaxQuota = 1<<53 - 1

// QuotaLimits are what a user may do on each node, per second; nil: as DefaultQuota says, or
// without limit.
type QuotaLimits struct {
	ProduceBytesPerS *int64 `json:"produce_bytes_per_s"`
	FetchBytesPerS   *int64 `json:"fetch_bytes_per_s"`
	RequestsPerS     *int64 `json:"requests_per_s"`
}

// Quota is the limits of one user, or of all under DefaultQuota.
type Quota struct {
	User string `json:"user"`
	QuotaLimits
	Version uint64 `json:"version"`
}

// ETag is the etag of the limits.
func (q *Quota) ETag() ETag { return etagOf(q.Version) }

// Session is one login: a family of refresh tokens with all its rotations, or a browser's
// cookie, whose value stays the same.
type Session struct {
	ID           string `json:"id"`
	User         string `json:"user"`
	CurrentHash  []byte `json:"current_hash"`  // of the refresh token that is valid now, or of the cookie
	PreviousHash []byte `json:"previous_hash"` // of the one before; nil before the first rotation
	CreatedAt    Millis `json:"created_at"`
	RotatedAt    Millis `json:"rotated_at"` // last rotation or renewal
	ExpiresAt    Millis `json:"expires_at"`
	Revoked      bool   `json:"revoked"` // dead; kept until it expires
	Version      uint64 `json:"version"`
	// UsedTickets were used and have not expired yet; nil for none.
	UsedTickets []UsedTicket `json:"used_tickets,omitempty"`
}

// UsedTicket is a one-time ticket that must not be used again.
type UsedTicket struct {
	ID        string `json:"id"`
	ExpiresAt Millis `json:"expires_at"`
}

// Scope narrows an API token: the token may do what its user may and a scope allows.
type Scope struct {
	ResourceType ResourceType `json:"resource_type"`
	ResourceName string       `json:"resource_name"`
	Pattern      Pattern      `json:"pattern"`
	Operation    Operation    `json:"operation"`
}

// APIToken is a long-lived token of a user; the token itself is a JWT with ID as jti.
type APIToken struct {
	ID        string  `json:"id"`
	User      string  `json:"user"`
	Name      string  `json:"name"`
	Scopes    []Scope `json:"scopes"` // nil: all of the user's rights; empty: none
	Hash      []byte  `json:"hash"`   // of the token, when the proposer keeps one
	CreatedAt Millis  `json:"created_at"`
	ExpiresAt Millis  `json:"expires_at"` // 0: never
	Version   uint64  `json:"version"`    // does not change with use
	// LastUsedAt is about when the token was used last, 0: never.
	LastUsedAt  Millis       `json:"last_used_at,omitempty"`
	UsedTickets []UsedTicket `json:"used_tickets,omitempty"` // as a session's
}

// ETag is the token's etag.
func (t *APIToken) ETag() ETag { return etagOf(t.Version) }

// SigningKey is a key pair that signs access tokens.
type SigningKey struct {
	KID           string `json:"kid"`
	PublicKey     []byte `json:"public_key"`
	SealedPrivate []byte `json:"sealed_private_key"` // opaque here
	CreatedAt     Millis `json:"created_at"`
	SignUntil     Millis `json:"sign_until"`   // no new token after it
	VerifyUntil   Millis `json:"verify_until"` // the last token it signed has expired by then
	Version       uint64 `json:"version"`
}
