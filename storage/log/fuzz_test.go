package log

import (
	"bytes"
	"testing"
)

func FuzzMetadata(f *testing.F) {
	f.Add(encodeMetadata(testID))
	f.Fuzz(func(t *testing.T, b []byte) {
		if id, err := decodeMetadata(b); err == nil && !bytes.Equal(encodeMetadata(id), bytes.TrimSuffix(b, []byte("\n"))) {
			t.Fatalf("%q is not what %s encodes to", b, id)
		}
	})
}
