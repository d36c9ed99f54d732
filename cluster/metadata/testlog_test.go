package metadata

import (
	"testing"

	"tidewire/internal/model"
)

const (
	t0  = Millis(1_700_000_000_000)
	day = Millis(24 * 60 * 60 * 1000)
)

func topicID(n byte) model.TopicID { return model.TopicID{15: n} }

func creds(s string) Credentials {
	return Credentials{PasswordHash: "$argon2id$" + s, SCRAMSHA256: []byte("s256-" + s), SCRAMSHA512: []byte("s512-" + s)}
}

func one(n int) [][]model.BrokerID {
	out := make([][]model.BrokerID, n)
	for i := range out {
		out[i] = []model.BrokerID{1}
	}
	return out
}

func yes() *bool { v := true; return &v }
func no() *bool  { v := false; return &v }

func limit(n int64) *int64 { return &n }

func rule(principal, name string, p Pattern) ACLFields {
	return ACLFields{
		Principal: principal, ResourceType: ResourceTopic, ResourceName: name, Pattern: p,
		Operation: OpRead, Permission: Allow, Host: "*",
	}
}

// founding brings a cluster to two users, three brokers and one topic.
func founding() []Command {
	reg := func(id model.BrokerID, incarnation uint64) RegisterBroker {
		return RegisterBroker{
			ID: id, StorageID: "storage-" + string(rune('a'+id)), Incarnation: incarnation, Host: "h", HTTPAddr: "h:8080",
			KafkaAddr: "h:9092", PeerAddr: "h:7947", GossipAddr: "h:7946", Rack: "r", BinaryVersion: "1", Now: t0,
		}
	}
	return []Command{
		BootstrapCluster{ClusterID: "c-1", Name: "test", MetadataVersion: 1, Now: t0}, // 1
		reg(1, 11),                       // 2
		UnfenceBroker{ID: 1, Epoch: 2},   // 3
		reg(2, 21),                       // 4
		reg(3, 31),                       // 5
		SetSetupToken{Hash: []byte("s")}, // 6
		CreateUser{Name: "root", Admin: true, Credentials: creds("r"), OnlyIfNoUsers: true, SetupTokenHash: []byte("s"), Now: t0}, // 7
		CreateUser{Name: "alice", Credentials: creds("a"), Now: t0},                                                               // 8
		CreateTopic{ID: topicID(1), Name: "a_b", Assignments: one(2), Config: map[string]string{"retention.ms": " -1 "}, Now: t0}, // 9
	}
}

// history adds one of everything else, refusals included.
func history() []Command {
	return append(founding(),
		CreateTopic{ID: topicID(2), Name: "a.b", Assignments: one(1), Now: t0},                                     // 10: collides
		CreateTopic{ID: topicID(3), Name: "three", Assignments: [][]model.BrokerID{{1, 2, 3}, {2, 3, 1}}, Now: t0}, // 11
		CreateTopic{ID: topicID(4), Name: "gone", Internal: true, Assignments: one(1), Now: t0},
		CreatePartitions{Name: "a_b", From: 2, Assignments: one(3)},
		AlterTopicConfig{Name: "a_b", Set: map[string]string{"segment.bytes": "65536", "cleanup.policy": "compact, delete"}, Unset: []string{"retention.ms"}},
		AlterClusterConfig{Set: map[string]string{"max.message.bytes": "2000000", "min.insync.replicas": "2"}},
		DeleteTopic{Name: "gone"},
		CreateACL{ID: "r1", Rule: rule("User:alice", "a_b", PatternLiteral), Now: t0},
		CreateACL{ID: "r2", Rule: rule("User:alice", "a_b", PatternLiteral), Now: t0},
		CreateACL{ID: "r3", Rule: rule("User:*", "thr", PatternPrefixed), Now: t0},
		CreateSession{ID: "s1", User: "alice", IfEpoch: 8, RefreshHash: []byte("h1"), ExpiresAt: t0 + day, Now: t0},
		RotateSession{ID: "s1", CurrentHash: []byte("h1"), NextHash: []byte("h2"), ExpiresAt: t0 + 2*day, Now: t0 + 1},
		CreateSession{ID: "s2", User: "root", IfEpoch: 7, RefreshHash: []byte("x"), ExpiresAt: t0 + day, Now: t0},
		RotateSession{ID: "s2", CurrentHash: []byte("old"), NextHash: []byte("y"), ExpiresAt: t0 + day, Now: t0},
		CreateAPIToken{ID: "t1", User: "alice", Name: "ci", Scopes: []Scope{}, ExpiresAt: t0 + day, Now: t0},
		CreateAPIToken{ID: "t2", User: "root", Name: "x", Hash: []byte("th"), Now: t0},
		CreateSession{ID: "s3", User: "alice", IfEpoch: 8, RefreshHash: []byte("c"), ExpiresAt: t0 + day, Now: t0, MaxSessions: 9},
		RenewSession{ID: "s3", Hash: []byte("c"), ExpiresAt: t0 + 2*day, Now: t0 + 5},
		UseTicket{ID: "w1", SessionID: "s3", ExpiresAt: t0 + 30, Now: t0 + 6},
		UseTicket{ID: "w2", TokenID: "t2", ExpiresAt: t0 + 30, Now: t0 + 6},
		TouchAPITokens{Uses: []TokenUse{{ID: "t2", At: t0 + 7}, {ID: "gone", At: t0 + 7}}},
		AddSigningKey{KID: "k1", PublicKey: []byte("p"), SealedPrivate: []byte("s"), SignUntil: t0 + day, VerifyUntil: t0 + 2*day, Now: t0},
		AddSigningKey{KID: "k2", PublicKey: []byte("p2"), SealedPrivate: []byte("s2"), SignUntil: t0 + 9*day, VerifyUntil: t0 + 9*day, IfNewest: "k1", Now: t0 + day},
		AllocateProducerIDs{Broker: 1, Epoch: 2, Size: 1000},
		RegisterBroker{ID: 1, StorageID: "storage-b", Incarnation: 12, Now: t0 + day},
		RegisterBroker{ID: 2, StorageID: "other", Incarnation: 22, Now: t0 + day},
		SetQuota{User: "alice", Limits: QuotaLimits{ProduceBytesPerS: limit(1000), RequestsPerS: limit(5)}},
		SetQuota{User: DefaultQuota, Limits: QuotaLimits{FetchBytesPerS: limit(1 << 20)}},
		SetQuota{User: "nobody", Limits: QuotaLimits{FetchBytesPerS: limit(1)}},
		SetQuota{User: "root", Limits: QuotaLimits{FetchBytesPerS: limit(7)}},
		DeleteQuota{User: "root"},
		AlterUser{Name: "alice", Disabled: yes()},
		SetPassword{Name: "root", Credentials: creds("new")},
		Prune{Now: t0 + day},
		CreateUser{Name: "bob", Credentials: creds("b"), Now: t0},
		CreateACL{ID: "r4", Rule: rule("User:bob", "x", PatternLiteral), Now: t0},
		SetQuota{User: "bob", Limits: QuotaLimits{RequestsPerS: limit(1)}},
		DeleteUser{Name: "bob"},
		DeleteACLs{Filter: ACLFields{Principal: "User:nobody"}},
		Reseal{SigningKeys: []ResealedKey{{"k2", Resealed{[]byte("s2"), []byte("s3")}}}, Users: []ResealedUser{{Name: "nobody"}}},
	)
}

// fold applies commands as one node does: from their bytes, in batches of that size.
func fold(t testing.TB, m *Image, from uint64, cmds []Command, batch int) *Image {
	t.Helper()
	b := NewBatch(m)
	for i, c := range cmds {
		raw, err := EncodeCommand(c)
		if err != nil {
			t.Fatal(err)
		}
		d, err := DecodeCommand(raw)
		if err != nil {
			t.Fatal(err)
		}
		b.Apply(from+uint64(i), d)
		if (i+1)%batch == 0 {
			m, _ = b.Commit()
			b = NewBatch(m)
		}
	}
	m, _ = b.Commit()
	return m
}

func image(t testing.TB, cmds ...Command) *Image { return fold(t, Empty(), 1, cmds, len(cmds)+1) }
