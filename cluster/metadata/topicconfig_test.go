package metadata

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

func TestDefinitionsAreSortedAndTheirDefaultsAreLegal(t *testing.T) {
	t.Parallel()
	defs := TopicConfigDefs()
	require.True(t, slices.IsSortedFunc(defs, func(a, b ConfigDef) int { return compareStrings(a.Name, b.Name) }))
	for _, d := range defs {
		for _, rf := range []int{1, 2, 3, 5} {
			text, problem := d.Normalise(d.DefaultAt(rf))
			require.Empty(t, problem, d.Name)
			require.Equal(t, d.DefaultAt(rf), text, "%s: the default is not in canonical form", d.Name)
		}
		require.NotEmpty(t, d.Doc, d.Name)
		require.Equal(t, MetadataVersion(1), d.Since)
	}
}

func compareStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func TestDefaultsInForce(t *testing.T) {
	t.Parallel()
	c, err := Effective(nil, nil, 3)
	require.NoError(t, err)
	require.Equal(t, &TopicConfig{
		CleanupPolicy: CleanupPolicy{Delete: true}, CompressionType: "producer", GzipLevel: -1, LZ4Level: 9, ZstdLevel: 3,
		DedupeWindowMs: 300_000, DeleteRetentionMs: 86_400_000, FileDeleteDelayMs: 60_000, FlushMessages: 1<<63 - 1, FlushMs: 1<<63 - 1,
		IndexIntervalBytes: 4096, MaxCompactionLagMs: 1<<63 - 1, MaxMessageBytes: 1_048_588, TimestampAfterMaxMs: 3_600_000,
		TimestampBeforeMaxMs: 1<<63 - 1, TimestampType: "CreateTime", MinCleanableDirtyRatio: 0.5, MinInsyncReplicas: 2,
		RetentionBytes: -1, RetentionMs: 604_800_000, SegmentBytes: 500 << 20, SegmentIndexBytes: 10 << 20, SegmentMs: 604_800_000,
	}, c)
	for rf, want := range map[int]int64{1: 1, 2: 1, 3: 2, 4: 3, 5: 3} {
		c, err := Effective(nil, nil, rf)
		require.NoError(t, err)
		require.Equal(t, want, c.MinInsyncReplicas, "replication factor %d", rf)
	}
}

func TestValuesAreNormalisedOrRefused(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ key, in, want string }{
		{"retention.ms", "604800000", "604800000"}, {"retention.ms", " 5 ", "5"}, {"retention.ms", "1e3", "1000"},
		{"retention.ms", "-1", "-1"}, {"retention.ms", "-2", ""}, {"retention.ms", "1.5", ""}, {"retention.ms", "", ""},
		{"retention.ms", "9223372036854775807", "9223372036854775807"}, {"retention.ms", "9223372036854775808", ""},
		{"segment.bytes", "65536", "65536"}, {"segment.bytes", "65535", ""}, {"segment.bytes", "2147483648", ""},
		{"write.caching", "TRUE", "true"}, {"write.caching", "1", ""},
		{"cleanup.policy", "compact , delete,compact", "compact,delete"}, {"cleanup.policy", "", ""}, {"cleanup.policy", "drop", ""},
		{"compression.type", "zstd", "zstd"}, {"compression.type", "Zstd", ""},
		{"min.cleanable.dirty.ratio", "0.50", "0.5"}, {"min.cleanable.dirty.ratio", "1.1", ""}, {"min.cleanable.dirty.ratio", "NaN", ""},
		{"no.such.key", "1", ""},
	} {
		got, refusal := CheckTopicConfig("/set", map[string]string{row.key: row.in}, 1, 1)
		if row.want == "" {
			require.NotNil(t, refusal, "%s=%q", row.key, row.in)
			require.Equal(t, model.InvalidArgument, refusal.Code)
			require.Equal(t, "/set/"+row.key, refusal.Fields[0].Pointer)
			continue
		}
		require.Nil(t, refusal, "%s=%q", row.key, row.in)
		require.Equal(t, row.want, got[row.key])
	}
}

func TestEveryWrongKeyIsNamed(t *testing.T) {
	t.Parallel()
	_, refusal := CheckTopicConfig("/config", map[string]string{"b/c~": "1", "retention.ms": "x", "segment.ms": "5"}, 1, 1)
	require.Len(t, refusal.Fields, 2)
	require.Equal(t, "/config/b~1c~0", refusal.Fields[0].Pointer)
	require.Equal(t, "/config/retention.ms", refusal.Fields[1].Pointer)
}

func TestConfigTextTakesStringsNumbersAndBooleans(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		in   any
		want string
		ok   bool
	}{
		{"5", "5", true}, {json.Number("9223372036854775807"), "9223372036854775807", true}, {5.0, "5", true},
		{true, "true", true}, {nil, "", false}, {[]any{}, "", false}, {map[string]any{}, "", false},
	} {
		got, ok := ConfigText(row.in)
		require.Equal(t, row.ok, ok)
		require.Equal(t, row.want, got)
	}
}
