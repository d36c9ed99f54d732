package meta

import (
	"encoding/json"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// The rows mirror the tables of schema.go. No field is named CreatedAt, UpdatedAt or
// DeletedAt, which GORM would fill or interpret by itself.

type stateRow struct {
	ID            int `gorm:"primaryKey;autoIncrement:false"`
	FormatVersion int
	ClusterID     string
	AppliedIndex  int64
	ImageIndex    int64
	Checksum      []byte
}

func (stateRow) TableName() string { return "state" }

type clusterRow struct {
	ID              int `gorm:"primaryKey;autoIncrement:false"`
	ClusterID       string
	Name            string
	MetadataVersion int32
	Created         int64 `gorm:"column:created_at"`
	Config          string
	SetupTokenHash  []byte
	NextProducerID  int64
	ConfigVersion   int64
	Version         int64
}

func (clusterRow) TableName() string { return "cluster" }

func toClusterRow(c *metadata.Cluster) clusterRow {
	return clusterRow{
		ID: 1, ClusterID: c.ID, Name: c.Name, MetadataVersion: int32(c.MetadataVersion), Created: int64(c.CreatedAt),
		Config: text(c.Config), SetupTokenHash: blob(c.SetupTokenHash), NextProducerID: c.NextProducerID,
		ConfigVersion: int64(c.ConfigVersion), Version: int64(c.Version),
	}
}

func (r clusterRow) entity() (*metadata.Cluster, error) {
	c := &metadata.Cluster{
		ID: r.ClusterID, Name: r.Name, MetadataVersion: metadata.MetadataVersion(r.MetadataVersion),
		CreatedAt: metadata.Millis(r.Created), SetupTokenHash: blob(r.SetupTokenHash), NextProducerID: r.NextProducerID,
		ConfigVersion: uint64(r.ConfigVersion), Version: uint64(r.Version),
	}
	return c, json.Unmarshal([]byte(r.Config), &c.Config)
}

type brokerRow struct {
	ID            int32 `gorm:"primaryKey;autoIncrement:false"`
	StorageID     string
	Incarnation   int64
	Epoch         int64
	Host          string
	HTTPAddr      string `gorm:"column:http_addr"`
	KafkaAddr     string
	PeerAddr      string
	GossipAddr    string
	Rack          string
	BinaryVersion string
	Registered    int64 `gorm:"column:registered_at"`
	Fenced        bool
	State         string
	Drain         string
	Version       int64
}

func (brokerRow) TableName() string { return "brokers" }

func toBrokerRow(b *metadata.Broker) brokerRow {
	return brokerRow{
		ID: int32(b.ID), StorageID: b.StorageID, Incarnation: int64(b.Incarnation), Epoch: b.Epoch, Host: b.Host,
		HTTPAddr: b.HTTPAddr, KafkaAddr: b.KafkaAddr, PeerAddr: b.PeerAddr, GossipAddr: b.GossipAddr, Rack: b.Rack,
		BinaryVersion: b.BinaryVer, Registered: int64(b.RegisteredAt), Fenced: b.Fenced, State: string(b.State),
		Drain: text(b.Drain), Version: int64(b.Version),
	}
}

func (r brokerRow) entity() (*metadata.Broker, error) {
	b := &metadata.Broker{
		ID: model.BrokerID(r.ID), StorageID: r.StorageID, Incarnation: uint64(r.Incarnation), Epoch: r.Epoch, Host: r.Host,
		HTTPAddr: r.HTTPAddr, KafkaAddr: r.KafkaAddr, PeerAddr: r.PeerAddr, GossipAddr: r.GossipAddr, Rack: r.Rack,
		BinaryVer: r.BinaryVersion, RegisteredAt: metadata.Millis(r.Registered), Fenced: r.Fenced,
		State: metadata.BrokerState(r.State), Version: uint64(r.Version),
	}
	return b, json.Unmarshal([]byte(r.Drain), &b.Drain)
}

type topicRow struct {
	ID            string `gorm:"primaryKey"`
	Name          string
	Internal      bool
	Created       int64 `gorm:"column:created_at"`
	Overrides     string
	ConfigVersion int64
	Version       int64
}

func (topicRow) TableName() string { return "topics" }

func toTopicRow(t *metadata.Topic) topicRow {
	return topicRow{
		ID: t.ID.String(), Name: t.Name, Internal: t.Internal, Created: int64(t.CreatedAt),
		Overrides: text(t.Overrides), ConfigVersion: int64(t.ConfigVersion), Version: int64(t.Version),
	}
}

// entity gives the topic without its partitions.
func (r topicRow) entity() (*metadata.Topic, error) {
	id, err := model.ParseTopicID(r.ID)
	if err != nil {
		return nil, err
	}
	t := &metadata.Topic{
		ID: id, Name: r.Name, Internal: r.Internal, CreatedAt: metadata.Millis(r.Created),
		ConfigVersion: uint64(r.ConfigVersion), Version: uint64(r.Version),
	}
	return t, json.Unmarshal([]byte(r.Overrides), &t.Overrides)
}

type partitionRow struct {
	TopicID        string `gorm:"primaryKey"`
	Partition      int32  `gorm:"primaryKey;autoIncrement:false"`
	Leader         int32
	LeaderEpoch    int32
	PartitionEpoch int32
	Replicas       string
	ISR            string `gorm:"column:isr"`
	ELR            string `gorm:"column:elr"`
	Move           string
}

func (partitionRow) TableName() string { return "partitions" }

func toPartitionRow(topicID string, number int, p *metadata.Partition) partitionRow {
	return partitionRow{
		TopicID: topicID, Partition: int32(number), Leader: int32(p.Leader), LeaderEpoch: int32(p.LeaderEpoch),
		PartitionEpoch: p.PartitionEpoch, Replicas: text(p.Replicas), ISR: text(p.ISR), ELR: text(p.ELR), Move: text(p.Move),
	}
}

func (r partitionRow) entity() (*metadata.Partition, error) {
	p := &metadata.Partition{
		Leader: model.BrokerID(r.Leader), LeaderEpoch: model.LeaderEpoch(r.LeaderEpoch), PartitionEpoch: r.PartitionEpoch,
	}
	if err := json.Unmarshal([]byte(r.Replicas), &p.Replicas); err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(r.ISR), &p.ISR); err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(r.Move), &p.Move); err != nil {
		return nil, err
	}
	return p, json.Unmarshal([]byte(r.ELR), &p.ELR)
}

type userRow struct {
	Name             string `gorm:"primaryKey"`
	Admin            bool
	Disabled         bool
	Created          int64 `gorm:"column:created_at"`
	PasswordHash     string
	SCRAMSHA256      []byte `gorm:"column:scram_sha_256"`
	SCRAMSHA512      []byte `gorm:"column:scram_sha_512"`
	CredentialsEpoch int64
	Version          int64
}

func (userRow) TableName() string { return "users" }

func toUserRow(u *metadata.User) userRow {
	return userRow{
		Name: u.Name, Admin: u.Admin, Disabled: u.Disabled, Created: int64(u.CreatedAt), PasswordHash: u.PasswordHash,
		SCRAMSHA256: blob(u.SCRAMSHA256), SCRAMSHA512: blob(u.SCRAMSHA512), CredentialsEpoch: int64(u.CredentialsEpoch),
		Version: int64(u.Version),
	}
}

func (r userRow) entity() (*metadata.User, error) {
	return &metadata.User{
		Name: r.Name, Admin: r.Admin, Disabled: r.Disabled, CreatedAt: metadata.Millis(r.Created),
		Credentials: metadata.Credentials{
			PasswordHash: r.PasswordHash, SCRAMSHA256: blob(r.SCRAMSHA256), SCRAMSHA512: blob(r.SCRAMSHA512),
		},
		CredentialsEpoch: uint64(r.CredentialsEpoch), Version: uint64(r.Version),
	}, nil
}

type aclRow struct {
	ID           string `gorm:"primaryKey"`
	Principal    string
	ResourceType string
	ResourceName string
	Pattern      string
	Operation    string
	Permission   string
	Host         string
	Created      int64 `gorm:"column:created_at"`
	Version      int64
}

func (aclRow) TableName() string { return "acls" }

func toACLRow(a *metadata.ACL) aclRow {
	return aclRow{
		ID: a.ID, Principal: a.Principal, ResourceType: string(a.ResourceType), ResourceName: a.ResourceName,
		Pattern: string(a.Pattern), Operation: string(a.Operation), Permission: string(a.Permission), Host: a.Host,
		Created: int64(a.CreatedAt), Version: int64(a.Version),
	}
}

func (r aclRow) entity() (*metadata.ACL, error) {
	return &metadata.ACL{
		ID: r.ID,
		ACLFields: metadata.ACLFields{
			Principal: r.Principal, ResourceType: metadata.ResourceType(r.ResourceType), ResourceName: r.ResourceName,
			Pattern: metadata.Pattern(r.Pattern), Operation: metadata.Operation(r.Operation),
			Permission: metadata.Permission(r.Permission), Host: r.Host,
		},
		CreatedAt: metadata.Millis(r.Created), Version: uint64(r.Version),
	}, nil
}

type sessionRow struct {
	ID           string `gorm:"primaryKey"`
	UserName     string
	CurrentHash  []byte
	PreviousHash []byte
	Created      int64 `gorm:"column:created_at"`
	Rotated      int64 `gorm:"column:rotated_at"`
	Expires      int64 `gorm:"column:expires_at"`
	Revoked      bool
	UsedTickets  string
	Version      int64
}

func (sessionRow) TableName() string { return "sessions" }

func toSessionRow(s *metadata.Session) sessionRow {
	return sessionRow{
		ID: s.ID, UserName: s.User, CurrentHash: blob(s.CurrentHash), PreviousHash: blob(s.PreviousHash), Created: int64(s.CreatedAt),
		Rotated: int64(s.RotatedAt), Expires: int64(s.ExpiresAt), Revoked: s.Revoked,
		UsedTickets: text(s.UsedTickets), Version: int64(s.Version),
	}
}

func (r sessionRow) entity() (*metadata.Session, error) {
	s := &metadata.Session{
		ID: r.ID, User: r.UserName, CurrentHash: blob(r.CurrentHash), PreviousHash: blob(r.PreviousHash),
		CreatedAt: metadata.Millis(r.Created), RotatedAt: metadata.Millis(r.Rotated),
		ExpiresAt: metadata.Millis(r.Expires), Revoked: r.Revoked, Version: uint64(r.Version),
	}
	return s, json.Unmarshal([]byte(r.UsedTickets), &s.UsedTickets)
}

type tokenRow struct {
	ID       string `gorm:"primaryKey"`
	UserName string
	Name     string
	Scopes   string
	Hash     []byte
	Created  int64 `gorm:"column:created_at"`
	Expires  int64 `gorm:"column:expires_at"`
	LastUsed int64 `gorm:"column:last_used_at"`

	UsedTickets string
	Version     int64
}

func (tokenRow) TableName() string { return "api_tokens" }

func toTokenRow(t *metadata.APIToken) tokenRow {
	return tokenRow{
		ID: t.ID, UserName: t.User, Name: t.Name, Scopes: text(t.Scopes), Hash: blob(t.Hash),
		Created: int64(t.CreatedAt), Expires: int64(t.ExpiresAt), LastUsed: int64(t.LastUsedAt),
		UsedTickets: text(t.UsedTickets), Version: int64(t.Version),
	}
}

func (r tokenRow) entity() (*metadata.APIToken, error) {
	t := &metadata.APIToken{
		ID: r.ID, User: r.UserName, Name: r.Name, Hash: blob(r.Hash),
		CreatedAt: metadata.Millis(r.Created), ExpiresAt: metadata.Millis(r.Expires),
		LastUsedAt: metadata.Millis(r.LastUsed), Version: uint64(r.Version),
	}
	if err := json.Unmarshal([]byte(r.UsedTickets), &t.UsedTickets); err != nil {
		return nil, err
	}
	return t, json.Unmarshal([]byte(r.Scopes), &t.Scopes)
}

type quotaRow struct {
	UserName         string `gorm:"primaryKey"`
	ProduceBytesPerS *int64 `gorm:"column:produce_bytes_per_s"`
	FetchBytesPerS   *int64 `gorm:"column:fetch_bytes_per_s"`
	RequestsPerS     *int64 `gorm:"column:requests_per_s"`
	Version          int64
}

func (quotaRow) TableName() string { return "quotas" }

func toQuotaRow(q *metadata.Quota) quotaRow {
	return quotaRow{
		UserName: q.User, ProduceBytesPerS: q.ProduceBytesPerS, FetchBytesPerS: q.FetchBytesPerS,
		RequestsPerS: q.RequestsPerS, Version: int64(q.Version),
	}
}

func (r quotaRow) entity() (*metadata.Quota, error) {
	return &metadata.Quota{
		User: r.UserName,
		QuotaLimits: metadata.QuotaLimits{
			ProduceBytesPerS: r.ProduceBytesPerS, FetchBytesPerS: r.FetchBytesPerS, RequestsPerS: r.RequestsPerS,
		},
		Version: uint64(r.Version),
	}, nil
}

type keyRow struct {
	KID              string `gorm:"column:kid;primaryKey"`
	PublicKey        []byte
	SealedPrivateKey []byte
	Created          int64 `gorm:"column:created_at"`
	SignUntil        int64
	VerifyUntil      int64
	Version          int64
}

func (keyRow) TableName() string { return "signing_keys" }

func toKeyRow(k *metadata.SigningKey) keyRow {
	return keyRow{
		KID: k.KID, PublicKey: blob(k.PublicKey), SealedPrivateKey: blob(k.SealedPrivate), Created: int64(k.CreatedAt),
		SignUntil: int64(k.SignUntil), VerifyUntil: int64(k.VerifyUntil), Version: int64(k.Version),
	}
}

func (r keyRow) entity() (*metadata.SigningKey, error) {
	return &metadata.SigningKey{
		KID: r.KID, PublicKey: blob(r.PublicKey), SealedPrivate: blob(r.SealedPrivateKey),
		CreatedAt: metadata.Millis(r.Created), SignUntil: metadata.Millis(r.SignUntil),
		VerifyUntil: metadata.Millis(r.VerifyUntil), Version: uint64(r.Version),
	}, nil
}

// text gives the JSON of a list or map for a TEXT column.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("meta: a list or map of plain values does not encode: " + err.Error())
	}
	return string(b)
}

// blob gives nil for an empty blob: in the image there is one form for "none".
func blob(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
