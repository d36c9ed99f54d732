package log

import (
	"bytes"
	"testing"

	"tidewire/storage/checkpoint"
)

func FuzzMetadata(f *testing.F) {
	f.Add(checkpoint.EncodeMetadata(testID))
	f.Fuzz(func(t *testing.T, b []byte) {
		if id, err := checkpoint.DecodeMetadata(b); err == nil && !bytes.Equal(checkpoint.EncodeMetadata(id), bytes.TrimSuffix(b, []byte("\n"))) {
			t.Fatalf("%q is not what %s encodes to", b, id)
		}
	})
}
