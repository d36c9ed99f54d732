package metadata

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestTheSameCommandsGiveTheSameBytesWhateverTheBatches(t *testing.T) {
	t.Parallel()
	want := Encode(fold(t, Empty(), 1, history(), 1))
	for _, batch := range []int{2, 3, 7, 1000} {
		require.True(t, bytes.Equal(want, Encode(fold(t, Empty(), 1, history(), batch))), "batches of %d", batch)
	}
}

func TestSnapshotAndTailGiveTheSameBytesAsTheWholeLog(t *testing.T) {
	t.Parallel()
	cmds := history()
	want := Encode(image(t, cmds...))
	for cut := range cmds {
		img, err := Decode(Encode(fold(t, Empty(), 1, cmds[:cut], 4)))
		require.NoError(t, err)
		got := Encode(fold(t, img, uint64(cut+1), cmds[cut:], 4))
		require.True(t, bytes.Equal(want, got), "snapshot at %d", cut)
	}
}

func TestTheEncodedImageIsTheGoldenOne(t *testing.T) {
	t.Parallel()
	got := Encode(image(t, history()...))
	path := filepath.Join("testdata", "image.golden")
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got), "the persisted form has changed; it needs a new format version")
	require.Equal(t, "TWIMAGE\x01", string(got[:8]))
}

// An image from before sessions and tokens had tickets reads, and comes out byte for byte.
func TestAnImageFromBeforeTicketsIsRead(t *testing.T) {
	t.Parallel()
	old, err := os.ReadFile(filepath.Join("testdata", "image-before-tickets.golden"))
	require.NoError(t, err)
	img, err := Decode(old)
	require.NoError(t, err)
	require.NotNil(t, img.Session("s1"))
	require.True(t, bytes.Equal(old, Encode(img)))
}

func TestEncodedCommandsAreTheGoldenOnes(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	seen := map[Kind]bool{}
	for _, c := range history() {
		b, err := EncodeCommand(c)
		require.NoError(t, err)
		fmt.Fprintf(&got, "%q\n", b)
		seen[c.Kind()] = true
	}
	golden := AlterPartitions{Broker: 1, Epoch: 2, Changes: []PartitionChange{{
		Topic: topicID(7), Partition: 3, LeaderEpoch: 4, PartitionEpoch: 5, ISR: []InSync{{ID: 1, Epoch: 2}, {ID: 3, Epoch: 6}},
	}}}
	moves := []Command{
		AlterReassignments{Moves: []Reassignment{{Topic: topicID(7), Partition: 3, Replicas: brokerIDs(4, 1), IfEpoch: new(int32(9))}}, Throttle: new(int64(1000)), By: "root", Now: t0},
		CancelReassignments{Partitions: []PartitionRef{{Topic: topicID(7), Partition: 3}}},
		ElectLeaders{Type: ElectUnclean, Partitions: []PartitionRef{{Topic: topicID(7), Partition: 3}}},
		SetBrokerState{ID: 1, State: BrokerDraining, Principal: "root", Now: t0},
		UnregisterBroker{ID: 1, IfMatch: "x"},
	}
	for _, c := range append([]Command{RevokeSessions{ID: "s", User: "u"}, DeleteAPIToken{ID: "t", User: "u"}, FenceBroker{ID: 1, Epoch: 2}, golden}, moves...) {
		b, err := EncodeCommand(c)
		require.NoError(t, err)
		fmt.Fprintf(&got, "%q\n", b)
		seen[c.Kind()] = true
	}
	for _, r := range kindRows {
		require.True(t, seen[r.kind], "kind %s has no golden form", r.kind)
	}
	path := filepath.Join("testdata", "commands.golden")
	if *update {
		require.NoError(t, os.WriteFile(path, got.Bytes(), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}

// The kinds are persisted: this list is not derived from the table.
func TestKindsKeepTheirNames(t *testing.T) {
	t.Parallel()
	var got []string
	for _, r := range kindRows {
		got = append(got, string(r.kind))
		require.False(t, r.ignorable)
	}
	require.Len(t, kindTable, len(kindRows), "two rows share a kind")
	require.Equal(t, []string{
		"bootstrap-cluster", "register-broker", "unfence-broker", "create-topic", "delete-topic", "create-partitions",
		"alter-topic-config", "alter-cluster-config", "create-user", "alter-user", "set-password", "delete-user",
		"create-acl", "delete-acls", "create-session", "rotate-session", "revoke-sessions", "create-api-token",
		"delete-api-token", "add-signing-key", "prune", "set-setup-token", "allocate-producer-ids",
		"renew-session", "use-ticket", "touch-api-tokens", "set-quota", "delete-quota", "fence-broker", "alter-partitions",
		"alter-reassignments", "cancel-reassignments", "elect-leaders", "set-broker-state", "unregister-broker", "reseal",
	}, got)
}

func TestAnUnknownKindStopsTheNodeUnlessItIsIgnorable(t *testing.T) {
	t.Parallel()
	unknown := append([]byte{1, 0, 3}, `new{}`...)
	_, err := DecodeCommand(unknown)
	require.ErrorIs(t, err, ErrUnknownKind)
	unknown[1] = 1
	c, err := DecodeCommand(unknown)
	require.NoError(t, err)
	require.Nil(t, c)
	m := image(t, founding()...)
	next, d, res := Apply(m, 100, c)
	require.Nil(t, res.Refusal)
	require.True(t, d.IsEmpty())
	require.Equal(t, uint64(100), next.Index())
}

func TestDecodeCommandRefusesWhatItWouldLose(t *testing.T) {
	t.Parallel()
	for name, b := range map[string][]byte{
		"empty":           nil,
		"another version": append([]byte{2, 0, 5}, `prune{"now":1}`...),
		"cut kind":        {1, 0, 9, 'p'},
		"unknown field":   append([]byte{1, 0, 5}, `prune{"now":1,"why":2}`...),
		"two values":      append([]byte{1, 0, 5}, `prune{"now":1}{}`...),
		"no body":         append([]byte{1, 0, 5}, `prune`...),
	} {
		_, err := DecodeCommand(b)
		require.Error(t, err, name)
	}
	_, err := EncodeCommand(SetSetupToken{Hash: make([]byte, MaxCommandBytes)})
	require.True(t, model.HasCode(err, model.RequestTooLarge))
}

func TestDecodeRefusesADamagedImage(t *testing.T) {
	t.Parallel()
	good := Encode(image(t, history()...))
	for i := 0; i < len(good); i += 7 {
		bad := slices.Clone(good)
		bad[i] ^= 0x10
		_, err := Decode(bad)
		require.ErrorIs(t, err, ErrImageForm, "byte %d", i)
		_, err = Decode(good[:i])
		require.ErrorIs(t, err, ErrImageForm, "cut at %d", i)
	}
}

func TestNewImageRefusesWhatNoCommandsLeadTo(t *testing.T) {
	t.Parallel()
	topic := func(id byte, name string) *Topic { return &Topic{ID: topicID(id), Name: name} }
	for name, c := range map[string]Contents{
		"no cluster":      {},
		"colliding names": {Cluster: &Cluster{}, Topics: []*Topic{topic(1, "a.b"), topic(2, "a_b")}},
		"one id twice":    {Cluster: &Cluster{}, Topics: []*Topic{topic(1, "a"), topic(1, "b")}},
		"config":          {Cluster: &Cluster{}, Topics: []*Topic{{ID: topicID(1), Name: "a", Overrides: map[string]string{"segment.ms": "x"}}}},
		"one user twice":  {Cluster: &Cluster{}, Users: []*User{{Name: "u"}, {Name: "u"}}},
		"one rule twice":  {Cluster: &Cluster{}, ACLs: []*ACL{{ID: "1"}, {ID: "2"}}},
	} {
		_, err := NewImage(c)
		require.ErrorIs(t, err, ErrImageForm, name)
	}
}

func TestDiffOfTwoImagesEqualsTheMergedDelta(t *testing.T) {
	t.Parallel()
	cmds := history()
	for cut := range cmds {
		old := fold(t, Empty(), 1, cmds[:cut], 1)
		var merged Delta
		next := old
		for i, c := range cmds[cut:] {
			var d Delta
			next, d, _ = Apply(next, uint64(cut+1+i), c)
			merged.Merge(d)
		}
		got := Diff(old, next)
		require.Equal(t, len(merged.Users), len(got.Users))
		for k, v := range merged.Users {
			require.Equal(t, v, got.Users[k], "user %s", k)
		}
		for k, v := range got.Sessions {
			require.Equal(t, v, merged.Sessions[k], "session %s", k)
		}
		require.Equal(t, nonNil(merged.Brokers), nonNil(got.Brokers))
		require.Equal(t, nonNil(merged.ACLs), nonNil(got.ACLs))
		require.Equal(t, nonNil(merged.SigningKeys), nonNil(got.SigningKeys))
		require.Equal(t, nonNil(merged.APITokens), nonNil(got.APITokens))
		require.Equal(t, merged.ClusterConfig, got.ClusterConfig)
	}
}

func nonNil[K comparable](m map[K]Change) map[K]Change {
	if m == nil {
		return map[K]Change{}
	}
	return m
}

func TestDeltasMerge(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ first, then, want Change }{
		{Created, Changed, Created}, {Created, Deleted, 0}, {Changed, Deleted, Deleted},
		{Deleted, Created, Changed}, {Changed, Changed, Changed},
	} {
		d := Delta{Users: map[string]Change{"u": row.first}}
		d.Merge(Delta{Users: map[string]Change{"u": row.then}, Cluster: true})
		require.Equal(t, row.want, d.Users["u"], "%v then %v", row.first, row.then)
		require.True(t, d.Cluster)
	}
}

func TestAnOldImageDoesNotChange(t *testing.T) {
	t.Parallel()
	m := image(t, founding()...)
	before := Encode(m)
	fold(t, m, 10, history()[9:], 3)
	require.True(t, bytes.Equal(before, Encode(m)))
}

func TestTopicsAreIteratedInOrderUnderAPrefix(t *testing.T) {
	t.Parallel()
	m := image(t, founding()...)
	b := NewBatch(m)
	for i := range 10_000 {
		name := fmt.Sprintf("bulk-%05d", (i*7919)%10_000)
		id := model.TopicID{0: 1, 14: byte(i >> 8), 15: byte(i)}
		require.Nil(t, b.Apply(uint64(100+i), CreateTopic{ID: id, Name: name, Assignments: one(1), Now: t0}).Refusal)
	}
	m, d := b.Commit()
	require.Len(t, d.Topics, 10_000)
	require.Equal(t, 10_001, m.TopicCount())
	i := 0
	for p := range m.Topics("bulk-0") {
		require.Equal(t, fmt.Sprintf("bulk-%05d", i), p.Name)
		require.Same(t, p, m.TopicByID(p.ID))
		i++
	}
	require.Equal(t, 10_000, i)
	again, err := Decode(Encode(m))
	require.NoError(t, err)
	require.True(t, bytes.Equal(Encode(m), Encode(again)))
}

func TestMatchingACLsAreThoseThatCoverTheName(t *testing.T) {
	t.Parallel()
	m := image(t, append(founding(),
		CreateACL{ID: "exact", Rule: rule("User:alice", "orders.eu", PatternLiteral)},
		CreateACL{ID: "all", Rule: rule("User:alice", "*", PatternLiteral)},
		CreateACL{ID: "p0", Rule: rule("User:alice", "o", PatternPrefixed)},
		CreateACL{ID: "p1", Rule: rule("User:bob", "orders.", PatternPrefixed)},
		CreateACL{ID: "longer", Rule: rule("User:bob", "orders.eu.x", PatternPrefixed)},
		CreateACL{ID: "other", Rule: rule("User:bob", "orders", PatternLiteral)},
	)...)
	var got []string
	for r := range m.MatchingACLs(ResourceTopic, "orders.eu") {
		got = append(got, r.ID)
	}
	require.Equal(t, []string{"exact", "all", "p0", "p1"}, got)
	for range m.MatchingACLs(ResourceGroup, "orders.eu") {
		t.Fatal("a rule about topics covers a group")
	}
	require.Equal(t, 6, m.ACLCount())
	n := 0
	for range m.ACLsOfType(ResourceTopic) {
		n++
	}
	require.Equal(t, 6, n)
}

func FuzzDecodeCommand(f *testing.F) {
	for _, c := range history() {
		b, _ := EncodeCommand(c)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCommand(b)
		if err != nil || c == nil {
			return
		}
		again, err := EncodeCommand(c)
		require.NoError(t, err)
		d, err := DecodeCommand(again)
		require.NoError(t, err)
		// Whatever the bytes were, applying them must neither panic nor depend on anything
		// else than the command.
		m := image(t, founding()...)
		x, _, _ := Apply(m, 100, c)
		y, _, _ := Apply(m, 100, d)
		require.True(t, bytes.Equal(Encode(x), Encode(y)))
		_, err = Decode(Encode(x))
		require.NoError(t, err)
	})
}

func FuzzDecodeImage(f *testing.F) {
	f.Add(Encode(Empty()))
	f.Add(Encode(image(f, history()...)))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(sealImage(b))
		if err != nil {
			return
		}
		again, err := Decode(Encode(m))
		require.NoError(t, err)
		require.True(t, bytes.Equal(Encode(m), Encode(again)))
	})
}

// sealImage puts the right checksum on, so that fuzzing gets past it.
func sealImage(b []byte) []byte {
	if len(b) < 4 {
		return b
	}
	e := encoder{buf: slices.Clone(b[:len(b)-4])}
	return e.seal()
}
