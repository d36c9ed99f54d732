package metadata

import (
	"tidewire/internal/model"
)

// Kind names a kind of command. Kinds are persisted: never rename or reuse one.
type Kind string

// MetadataVersion gates commands, fields, rules and config keys, so that nodes of
// different versions decide alike. It is part of the image.
type MetadataVersion int32

// Metadata versions known to this binary.
const (
	MetadataVersion1       MetadataVersion = 1
	CurrentMetadataVersion                 = MetadataVersion1
)

// Command is a change that raft orders. Each kind is one exported struct of this
// package; kinds.go registers them.
type Command interface {
	Kind() Kind
}

// Result is what became of a command, equal on every node.
type Result struct {
	Index   uint64       // raft index of the command
	Refusal *model.Error // nil: done
	// Value is what the command's documentation promises, nil if nothing or refused.
	Value any
}

// BootstrapCluster gives the cluster its id. It is the first command; a second one
// is refused as conflict. Value: *Cluster.
type BootstrapCluster struct {
	ClusterID       string          `json:"cluster_id"`
	Name            string          `json:"name"`
	MetadataVersion MetadataVersion `json:"metadata_version"`
	Now             Millis          `json:"now"`
}

// RegisterBroker binds a node id to a data folder and a process. A new incarnation
// gets a new broker epoch, is fenced until UnfenceBroker, and leaves ISRs and leads as by
// FenceBroker; what it has the only replica of it goes on to lead, in a new leader epoch. The same incarnation again only updates
// addresses. Another storage id under a live node id is a conflict; under a fenced one
// the node has lost its data, and leaves every ISR and ELR (KIP-903, 966).
// Value: *Broker.
type RegisterBroker struct {
	ID            model.BrokerID `json:"id"`
	StorageID     string         `json:"storage_id"`
	Incarnation   uint64         `json:"incarnation"`
	Host          string         `json:"host"`
	HTTPAddr      string         `json:"http_addr"`
	KafkaAddr     string         `json:"kafka_addr"`
	PeerAddr      string         `json:"peer_addr"`
	GossipAddr    string         `json:"gossip_addr"`
	Rack          string         `json:"rack"`
	BinaryVersion string         `json:"binary_version"`
	Now           Millis         `json:"now"`
}

// UnfenceBroker says that a broker has applied its registration of this epoch. Partitions
// without a leader that it may lead get it.
// Another epoch than the registered one is refused as fenced. Value: *Broker.
type UnfenceBroker struct {
	ID    model.BrokerID `json:"id"`
	Epoch int64          `json:"epoch"`
}

// FenceBroker says that a broker of this epoch is gone: it leaves every ISR that has another
// member, into the ELR where fewer than min.insync.replicas are left (KIP-966), and what it
// led gets another leader, or none. Another epoch than the registered one is refused as
// fenced. Value: *Broker.
type FenceBroker struct {
	ID    model.BrokerID `json:"id"`
	Epoch int64          `json:"epoch"`
}

// AlterPartitions changes the in-sync replicas of partitions that a broker leads (KIP-497): the
// leader proposes, and what is committed counts. Another epoch of the broker than the
// registered one is refused as fenced, and so is a broker that is fenced. Each partition is
// decided on by itself. Value: []PartitionAltered, one for each change.
type AlterPartitions struct {
	Broker  model.BrokerID    `json:"broker"`
	Epoch   int64             `json:"epoch"`
	Changes []PartitionChange `json:"changes"`
}

// PartitionChange names the in-sync replicas that a partition is to have. A leader that is not
// among them resigns: another of them is elected. It holds for one
// leader epoch and one partition epoch. A member that is fenced, or that has registered again
// since, refuses it whole (KIP-841, 903).
type PartitionChange struct {
	Topic          model.TopicID     `json:"topic"`
	Partition      model.PartitionID `json:"partition"`
	LeaderEpoch    model.LeaderEpoch `json:"leader_epoch"`
	PartitionEpoch int32             `json:"partition_epoch"`
	ISR            []InSync          `json:"isr"`
}

// InSync is a member of an ISR in a life of its node.
type InSync struct {
	ID    model.BrokerID `json:"id"`
	Epoch int64          `json:"epoch"` // of the registration under which it has fetched; of those that join
}

// PartitionAltered is what became of one PartitionChange. Refusals: fenced (another leader or
// leader epoch), conflict (another partition epoch, or a member that is fenced or has registered
// again), unknown-partition, invalid-argument.
type PartitionAltered struct {
	Refusal   *model.Error // nil: done
	Partition Partition    // as it is now; empty where it is unknown
}

// AlterReassignments moves partitions to other replicas (KIP-455). Each is decided on by itself.
// One that moves already goes to the new target instead: what only the old one added leaves at
// once. What has all of its target in sync is there at once. Throttle, where it is given, is
// what reassignment.max.bytes.per.second becomes, 0 for no limit, also where a partition is
// refused. Value: []PartitionAltered, one for each move.
type AlterReassignments struct {
	Moves    []Reassignment `json:"moves"`
	Throttle *int64         `json:"throttle,omitempty"` // bytes per second; nil: as it is
	By       string         `json:"by,omitempty"`       // who asks for it, "" for the controller
	Now      Millis         `json:"now"`
}

// Reassignment names the replicas that a partition is to have, the preferred leader first.
// Refusals: unknown-partition; invalid-argument (none, one twice, one that is no broker, fewer
// than the topic's min.insync.replicas); conflict (a new one is fenced or draining, another
// partition epoch, or only what would leave at once is in sync).
type Reassignment struct {
	Topic     model.TopicID     `json:"topic"`
	Partition model.PartitionID `json:"partition"`
	Replicas  []model.BrokerID  `json:"replicas"`
	IfEpoch   *int32            `json:"if_epoch,omitempty"` // the partition's; nil: whatever it is
}

// CancelReassignments takes moves back: partitions have the replicas again that they had before.
// Refusals of each: unknown-partition; not-found (it does not move); conflict (only what it would
// lose is in sync). Value: []PartitionAltered.
type CancelReassignments struct {
	Partitions []PartitionRef `json:"partitions"`
}

// PartitionRef names a partition.
type PartitionRef struct {
	Topic     model.TopicID     `json:"topic"`
	Partition model.PartitionID `json:"partition"`
}

// ElectLeaders elects leaders by hand (KIP-460). Preferred: the first replica, which must be in
// sync and live. Unclean: of a partition without a leader, the first that is live, in sync or
// not: records may be lost. Refusals of each: unknown-partition, conflict (not needed, or
// nobody may lead). Value: []PartitionAltered.
type ElectLeaders struct {
	Type       ElectionType   `json:"type"`
	Partitions []PartitionRef `json:"partitions"`
}

// ElectionType says who is elected.
type ElectionType string

// Types of elections, as Kafka's.
const (
	ElectPreferred ElectionType = "preferred"
	ElectUnclean   ElectionType = "unclean"
)

// SetBrokerState notes the wish of an operator for a broker: draining ones get no new
// replicas, and the controller moves away what they have. Refusals: unknown-broker,
// etag-mismatch, invalid-argument. Value: *Broker.
type SetBrokerState struct {
	ID        model.BrokerID `json:"id"`
	State     BrokerState    `json:"state"`
	Principal string         `json:"principal,omitempty"`
	Bytes     int64          `json:"bytes,omitempty"` // that a draining one holds; 0: not known
	IfMatch   ETag           `json:"if_match,omitempty"`
	Now       Millis         `json:"now"`
}

// UnregisterBroker forgets a broker that is gone for good. Refusals: unknown-broker,
// etag-mismatch, conflict (it is not fenced, or has replicas). Value: *Broker as it was.
type UnregisterBroker struct {
	ID      model.BrokerID `json:"id"`
	IfMatch ETag           `json:"if_match,omitempty"`
}

// CreateTopic creates a topic. Assignments[i] are the replicas of partition i, the
// first being its leader. Refusals: topic-exists (also for a name that differs only in
// "." and "_", with the other name as extra "existing"), invalid-argument with
// pointers. Value: *Topic.
type CreateTopic struct {
	ID          model.TopicID      `json:"id"`
	Name        string             `json:"name"`
	Internal    bool               `json:"internal"`
	Assignments [][]model.BrokerID `json:"assignments"`
	Config      map[string]string  `json:"config"`
	Now         Millis             `json:"now"`
}

// DeleteTopic deletes a topic. A zero ID means whichever has the name; another ID is
// unknown-topic. Refusals: unknown-topic, etag-mismatch. Value: *Topic as it was.
type DeleteTopic struct {
	Name    string        `json:"name"`
	ID      model.TopicID `json:"id"`
	IfMatch ETag          `json:"if_match"`
}

// CreatePartitions adds partitions, whose replicas are Assignments in order. From is
// the number of partitions the proposer saw; if it is another by now the command is
// refused as conflict. Value: *Topic.
type CreatePartitions struct {
	Name        string             `json:"name"`
	ID          model.TopicID      `json:"id"`
	From        int                `json:"from"`
	Assignments [][]model.BrokerID `json:"assignments"`
	IfMatch     ETag               `json:"if_match"`
}

// AlterTopicConfig sets and unsets the named keys and leaves the others. What
// changes nothing writes nothing. Refusals: unknown-topic, etag-mismatch (against the
// config's etag), invalid-argument with pointers /set/KEY, /unset/N. Value: *Topic.
type AlterTopicConfig struct {
	Name    string            `json:"name"`
	ID      model.TopicID     `json:"id"`
	Set     map[string]string `json:"set"`
	Unset   []string          `json:"unset"`
	IfMatch ETag              `json:"if_match"`
}

// AlterClusterConfig does the same for the cluster's config. Value: *Cluster.
type AlterClusterConfig struct {
	Set     map[string]string `json:"set"`
	Unset   []string          `json:"unset"`
	IfMatch ETag              `json:"if_match"`
}

// CreateUser creates a user. With OnlyIfNoUsers it is refused as conflict once there
// is any user. With a SetupTokenHash it is refused as bad-credentials unless that is
// the open setup token. The first user of a cluster closes the setup. Refusals
// otherwise: user-exists, invalid-argument. Value: *User.
type CreateUser struct {
	Name           string      `json:"name"`
	Admin          bool        `json:"admin"`
	Credentials    Credentials `json:"credentials"`
	OnlyIfNoUsers  bool        `json:"only_if_no_users"`
	SetupTokenHash []byte      `json:"setup_token_hash"`
	Now            Millis      `json:"now"`
}

// AlterUser changes what is not nil. Disabling raises the credentials epoch and
// revokes the user's sessions. Refusals: unknown-user, etag-mismatch, last-admin.
// Value: *User.
type AlterUser struct {
	Name     string `json:"name"`
	Admin    *bool  `json:"admin"`
	Disabled *bool  `json:"disabled"`
	IfMatch  ETag   `json:"if_match"`
}

// SetPassword replaces the credentials, raises the credentials epoch and revokes the
// user's sessions; API tokens stay. IfEpoch, when not 0, is the credentials epoch that
// the proposer checked the old password against; another one is a conflict.
// Refusals: unknown-user. Value: *User.
type SetPassword struct {
	Name        string      `json:"name"`
	Credentials Credentials `json:"credentials"`
	IfEpoch     uint64      `json:"if_epoch"`
}

// DeleteUser deletes a user with its sessions, its API tokens, its quota and the ACL rules
// of its principal: a later user of that name is somebody else. Refusals: unknown-user,
// etag-mismatch, last-admin. Value: *User as it was.
type DeleteUser struct {
	Name    string `json:"name"`
	IfMatch ETag   `json:"if_match"`
}

// SetQuota gives a user, or with the name DefaultQuota all users, the limits. They replace
// those that were there; equal ones stay as they are. Refusals: unknown-user, etag-mismatch
// (also when IfMatch is set and there are none yet), invalid-argument with pointers.
// Value: QuotaSet.
type SetQuota struct {
	User    string      `json:"user"`
	Limits  QuotaLimits `json:"limits"`
	IfMatch ETag        `json:"if_match"`
}

// QuotaSet is the value of SetQuota.
type QuotaSet struct {
	Quota   *Quota
	Existed bool // there were limits before
}

// DeleteQuota takes a user's limits away. Refusals: unknown-user, not-found, etag-mismatch.
// Value: *Quota as it was.
type DeleteQuota struct {
	User    string `json:"user"`
	IfMatch ETag   `json:"if_match"`
}

// CreateACL adds a rule. An equal rule stays as it is. Value: ACLCreated.
type CreateACL struct {
	ID   string    `json:"id"`
	Rule ACLFields `json:"rule"`
	Now  Millis    `json:"now"`
}

// ACLCreated is the value of CreateACL.
type ACLCreated struct {
	ACL     *ACL
	Existed bool // the rule was there before
}

// DeleteACLs deletes the rules whose fields equal every field of Filter that is not
// empty; an empty filter is invalid-argument. Value: []*ACL, those deleted, maybe none.
type DeleteACLs struct {
	Filter ACLFields `json:"filter"`
}

// CreateSession starts a session. IfEpoch is the user's credentials epoch at the time of
// the login. It also removes expired sessions and, where the user has MaxSessions or more,
// as many others of the user as make room: revoked ones first, then those that were not
// rotated or renewed for longest; 0 is no limit. Refusals: bad-credentials when the user is
// gone, disabled or of another epoch. Value: *Session.
type CreateSession struct {
	ID          string `json:"id"`
	User        string `json:"user"`
	IfEpoch     uint64 `json:"if_epoch"`
	RefreshHash []byte `json:"refresh_hash"`
	ExpiresAt   Millis `json:"expires_at"`
	Now         Millis `json:"now"`
	MaxSessions int    `json:"max_sessions,omitempty"`
}

// RotateSession replaces the refresh token. Any other hash than the current one is
// taken as the reuse of an old token and revokes the session (RFC 9700 §4.14.2), so the
// proposer must have checked that the token was issued by this cluster. Refusals:
// bad-credentials (unknown, revoked, reused, user gone or disabled), token-expired.
// Value: *Session.
type RotateSession struct {
	ID          string `json:"id"`
	CurrentHash []byte `json:"current_hash"`
	NextHash    []byte `json:"next_hash"`
	ExpiresAt   Millis `json:"expires_at"`
	Now         Millis `json:"now"`
}

// RenewSession puts a session's end off without replacing what it is known by: a browser's
// cookie stays the same. Hash must be the session's current one. It never moves RotatedAt
// or ExpiresAt back. Refusals: bad-credentials (unknown, revoked, another hash, user gone or
// disabled), token-expired. Value: *Session.
type RenewSession struct {
	ID        string `json:"id"`
	Hash      []byte `json:"hash"`
	ExpiresAt Millis `json:"expires_at"`
	Now       Millis `json:"now"`
}

// UseTicket uses a one-time ticket, which belongs to a session or an API token. Refusals:
// bad-credentials when it was used, has expired, or what it belongs to is gone;
// rate-limited when more than 256 of it were used within their time.
type UseTicket struct {
	ID        string `json:"id"`
	SessionID string `json:"session_id"` // this or TokenID
	TokenID   string `json:"token_id"`
	ExpiresAt Millis `json:"expires_at"` // of the ticket
	Now       Millis `json:"now"`
}

// TouchAPITokens notes when API tokens were last used. Those that are gone, or were used
// later, stay as they are, and etags do not change. Value: int, the number noted.
type TouchAPITokens struct {
	Uses []TokenUse `json:"uses"`
}

// TokenUse is the last use of an API token.
type TokenUse struct {
	ID string `json:"id"`
	At Millis `json:"at"`
}

// RevokeSessions revokes one session, or with an empty ID all of User. One that does
// not exist is no error. Value: int, the number revoked.
type RevokeSessions struct {
	ID   string `json:"id"`
	User string `json:"user"`
}

// CreateAPIToken adds a token and removes expired ones. Refusals: unknown-user, conflict
// for a taken id and where the user has MaxTokens already (0: no limit), invalid-argument.
// Value: *APIToken.
type CreateAPIToken struct {
	ID        string  `json:"id"`
	User      string  `json:"user"`
	Name      string  `json:"name"`
	Scopes    []Scope `json:"scopes"`
	Hash      []byte  `json:"hash"`
	ExpiresAt Millis  `json:"expires_at"`
	Now       Millis  `json:"now"`
	MaxTokens int     `json:"max_tokens,omitempty"`
}

// DeleteAPIToken revokes a token of a user. Refusals: not-found, etag-mismatch.
// Value: *APIToken as it was.
type DeleteAPIToken struct {
	ID      string `json:"id"`
	User    string `json:"user"`
	IfMatch ETag   `json:"if_match,omitempty"`
}

// AddSigningKey adds a key and removes those past their VerifyUntil. IfNewest is the
// kid that the proposer saw as the newest, "" for none; another one by now is a
// conflict, so that two nodes do not rotate twice. Value: *SigningKey.
type AddSigningKey struct {
	KID           string `json:"kid"`
	PublicKey     []byte `json:"public_key"`
	SealedPrivate []byte `json:"sealed_private_key"`
	SignUntil     Millis `json:"sign_until"`
	VerifyUntil   Millis `json:"verify_until"`
	IfNewest      string `json:"if_newest"`
	Now           Millis `json:"now"`
}

// Prune removes sessions and tokens that have expired and keys past their
// VerifyUntil. Value: int, the number removed.
type Prune struct {
	Now Millis `json:"now"`
}

// Reseal replaces sealed values by the same under another secret, each where it is still what the
// proposer has opened. No version changes: what is sealed stays what it was. Value: int, the number
// of keys and users changed.
type Reseal struct {
	SigningKeys []ResealedKey  `json:"signing_keys"`
	Users       []ResealedUser `json:"users"`
}

// Resealed is a value sealed anew; an empty From changes nothing.
type Resealed struct {
	From []byte `json:"from"`
	To   []byte `json:"to"`
}

// ResealedKey is a signing key's private key.
type ResealedKey struct {
	KID     string   `json:"kid"`
	Private Resealed `json:"private_key"`
}

// ResealedUser is a user's verifiers.
type ResealedUser struct {
	Name        string   `json:"name"`
	SCRAMSHA256 Resealed `json:"scram_sha_256"`
	SCRAMSHA512 Resealed `json:"scram_sha_512"`
}

// SetSetupToken opens the setup under a token, replacing an earlier one; an empty
// hash closes it. It is refused as conflict once there is a user.
type SetSetupToken struct {
	Hash []byte `json:"hash"`
}

// AllocateProducerIDs hands a block of producer ids to a broker. Refusals: fenced
// for another broker epoch, invalid-argument. Value: ProducerIDBlock.
type AllocateProducerIDs struct {
	Broker model.BrokerID `json:"broker"`
	Epoch  int64          `json:"epoch"`
	Size   int            `json:"size"`
}

// ProducerIDBlock is the value of AllocateProducerIDs: Size ids from First.
type ProducerIDBlock struct {
	First model.ProducerID
	Size  int
}
