package offsetslog

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"tidewire/broker/group"
	"tidewire/broker/group/assign"
	"tidewire/internal/model"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// The numbers are persisted. They are repeated here, so that a change of one is seen for what
// it is: a change of the format.
func TestPersistedNumbers(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 1, commitKeyVersion)
	require.EqualValues(t, 4, commitValueVersion)
	require.EqualValues(t, 1, valueVersion)
	require.EqualValues(t, 50, Partitions)
	require.Equal(t, map[group.Kind]int16{
		group.KindGroup: 0x5401, group.KindTopic: 0x5402, group.KindMember: 0x5403, group.KindTarget: 0x5404,
		group.KindCurrent: 0x5405, group.KindGone: 0x5406, group.KindStaged: 0x5407,
	}, keyVersions)
	require.EqualValues(t, 1, group.Expired)
	require.EqualValues(t, 2, group.Fenced)
	require.Equal(t, []string{"range", "roundrobin", "sticky"}, []string{string(assign.Range), string(assign.RoundRobin), string(assign.Sticky)})
	require.Equal(t, []string{"earliest", "latest", "none", "timestamp"},
		[]string{string(group.Earliest), string(group.Latest), string(group.Never), string(group.FromTime)})
}

var (
	topicA = model.TopicID{0xa1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	topicB = model.TopicID{0xb1, 15: 1}
)

// examples has each kind of record, and a tombstone of each.
func examples() []group.Record {
	offset := group.Offset{Topic: "orders", TopicID: topicA, Partition: 3, Next: 1 << 40, Epoch: 7, Metadata: "ü", CommitMs: 1_700_000_000_123}
	out := []group.Record{
		group.GroupInfo{Epoch: 9, TargetEpoch: 8, Assignor: assign.Sticky, EmptySinceMs: 1_700_000_000_000},
		group.TopicInfo{ID: topicA, Name: "orders", Initial: 6, Partitions: 12},
		group.Member{
			ID: "m-1", InstanceID: "i", ClientID: "c", Host: "10.0.0.1", User: "alice", Topics: []string{"a", "orders"},
			SessionTimeout: 10 * time.Second, Reset: group.Latest, AutoCommit: true, JoinedMs: 1_700_000_000_000,
		},
		group.Member{ID: "m-2", Pattern: "o.*", SessionTimeout: time.Second, Reset: group.FromTime, ResetFromMs: 5},
		group.Target{Member: "m-1", Topics: []group.TopicPartitions{{Topic: topicA, Partitions: []model.PartitionID{0, 1, 300}}, {Topic: topicB, Partitions: []model.PartitionID{2}}}},
		group.Current{Member: "m-1", Version: 1 << 20, Topics: []group.TopicGrants{{Topic: topicA, Grants: []group.Grant{{Index: 0, Since: 1}, {Index: 300, Since: 2, Revoked: 9}}}}},
		group.MemberGone{Member: "m-0", Reason: group.Fenced, AtMs: 1_700_000_000_000},
		offset,
		group.StagedOffset{Producer: 1 << 33, Offset: offset},
	}
	for _, r := range out[:len(out):len(out)] {
		out = append(out, group.Tombstone{Of: r.Key()})
	}
	return out
}

func TestTheFormatStaysWhatItIs(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, r := range examples() {
		key, value := Encode("a/b", r)
		fmt.Fprintf(&b, "%T %x %s\n", r, key, orNull(value))
	}
	path := filepath.Join("testdata", "records.golden")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String())
}

func orNull(b []byte) string {
	if b == nil {
		return "null"
	}
	return hex.EncodeToString(b)
}

func TestARecordComesBackAsItWas(t *testing.T) {
	t.Parallel()
	for _, r := range examples() {
		key, value := Encode("gü", r)
		id, back, ok, err := Decode(key, value)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "gü", id)
		require.Equal(t, r, back)
	}
}

func TestAnyMemberAndAssignmentComesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.Int32Range(0, 1<<31-1), 0, 50, rapid.ID).Draw(t, "partitions")
		parts, grants := make([]model.PartitionID, 0, len(ids)), make([]group.Grant, 0, len(ids))
		for _, p := range sorted(ids) {
			parts = append(parts, model.PartitionID(p))
			grants = append(grants, group.Grant{
				Index: model.PartitionID(p), Since: group.Version(rapid.Uint32().Draw(t, "since")), Revoked: group.Version(rapid.Uint32().Draw(t, "revoked")),
			})
		}
		member := rapid.String().Draw(t, "member")
		for _, r := range []group.Record{
			group.Target{Member: member, Topics: []group.TopicPartitions{{Topic: topicA, Partitions: parts}}},
			group.Current{Member: member, Version: 5, Topics: []group.TopicGrants{{Topic: topicB, Grants: grants}}},
			group.Member{ID: member, ClientID: rapid.String().Draw(t, "client"), JoinedMs: rapid.Int64().Draw(t, "joined")},
			group.Offset{Topic: "t", Next: model.Offset(rapid.Int64Min(0).Draw(t, "next")), Metadata: rapid.String().Draw(t, "metadata"), CommitMs: rapid.Int64().Draw(t, "at")},
		} {
			key, value := Encode(member, r)
			id, back, ok, err := Decode(key, value)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, member, id)
			require.Equal(t, r, back)
		}
	})
}

func sorted(ids []int32) []int32 {
	for i := range ids {
		for j := i; j > 0 && ids[j-1] > ids[j]; j-- {
			ids[j-1], ids[j] = ids[j], ids[j-1]
		}
	}
	return ids
}

// Committed offsets are Kafka's, byte for byte, and those that Kafka wrote before are read.
func TestCommittedOffsetsAreKafkas(t *testing.T) {
	t.Parallel()
	o := group.Offset{Topic: "t", TopicID: topicA, Partition: 1, Next: 42, Epoch: 3, Metadata: "m", CommitMs: 5}
	key, value := Encode("g", o)
	require.Equal(t, "0001"+"000167"+"000174"+"00000001", hex.EncodeToString(key))
	require.Equal(t, "0004"+"000000000000002a"+"00000003"+"026d"+"0000000000000005"+"01"+"00"+"10"+hex.EncodeToString(topicA[:]), hex.EncodeToString(value))
	for version := range int16(4) {
		v := kmsg.OffsetCommitValue{Version: version, Offset: 42, LeaderEpoch: 3, Metadata: "m", CommitTimestamp: 5, ExpireTimestamp: 9}
		_, r, ok, err := Decode(key, v.AppendTo(nil))
		require.NoError(t, err)
		require.True(t, ok)
		want := o
		want.TopicID = model.TopicID{}
		if version < 3 {
			want.Epoch = model.NoEpoch
		}
		require.Equal(t, want, r, "version %d", version)
	}
	old := kmsg.OffsetCommitKey{Version: 0, Group: "g", Topic: "t", Partition: 1}
	_, r, ok, err := Decode(old.AppendTo(nil), value)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, o, r)
}

func TestKafkasOwnGroupsArePassedOver(t *testing.T) {
	t.Parallel()
	for _, version := range []int16{2, 3, 8, 16, 100} {
		k := kmsg.GroupMetadataKey{Version: version, Group: "g"}
		_, _, ok, err := Decode(k.AppendTo(nil), []byte{0, 3})
		require.NoError(t, err)
		require.False(t, ok)
	}
}

func TestWhatIsDamagedOrOfALaterVersionIsAnError(t *testing.T) {
	t.Parallel()
	for _, r := range examples() {
		key, value := Encode("g", r)
		bad := [][2][]byte{{nil, value}, {key[:1], value}, {key[:len(key)-1], value}}
		if value != nil {
			bad = append(bad, [2][]byte{key, value[:len(value)-1]}, [2][]byte{key, {}}, [2][]byte{key, {0x7f}})
			if key[0] == 0x54 && key[1] != 0x07 { // Kafka reads over what follows, and so do we
				bad = append(bad, [2][]byte{key, append(bytes.Clone(value), 0)})
			}
		}
		for _, x := range bad {
			_, _, _, err := Decode(x[0], x[1])
			require.True(t, model.HasCode(err, model.StorageError), "%T: key %x value %x: %v", r, x[0], x[1], err)
		}
	}
	_, _, _, err := Decode([]byte{0x54, 0x55, 1, 'g'}, []byte{1})
	require.True(t, model.HasCode(err, model.StorageError))
	require.ErrorContains(t, err, "later version")
}

// FuzzDecode hands the decoder anything: it neither panics nor takes memory that the bytes do
// not pay for, and what it understands it would write as something that means the same.
func FuzzDecode(f *testing.F) {
	for _, r := range examples() {
		key, value := Encode("g", r)
		f.Add(key, value)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		id, r, ok, err := Decode(key, value)
		if err != nil || !ok {
			return
		}
		k, v := Encode(id, r)
		id2, r2, ok, err := Decode(k, v)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, id, id2)
		require.Equal(t, r, r2)
	})
}
