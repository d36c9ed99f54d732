package offsetslog

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

// The numbers come from another implementation of Java's String.hashCode.
func TestAGroupIsInThePartitionThatKafkasToolsLookIn(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]model.PartitionID{
		"":                     0,
		"a":                    47,
		"my-group":             12, // a negative hash
		"polygenelubricants":   0,  // the smallest int32, which has no positive counterpart
		"ü":                    2,  // one UTF-16 unit, two bytes
		"\U0001F600":           49, // two UTF-16 units
		"Aa":                   12, // the hash of "BB"
		"BB":                   12,
		"console-consumer-123": 47,
		"the quick brown fox":  21,
	} {
		require.Equal(t, want, PartitionOf(name, Partitions), "%q", name)
	}
}
