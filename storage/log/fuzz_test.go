package log

import (
	"bytes"
	"testing"

	"tidewire/internal/model"
)

func FuzzCheckpoint(f *testing.F) {
	c := checkpoint{generation: 3, points: map[logKey]model.Offset{{testID, 1}: 9, {testID, 0}: 4}}
	kinds := append([]string{cleanerFile}, checkpointFiles[:]...)
	for _, kind := range kinds {
		f.Add(c.encode(kind))
	}
	f.Add([]byte("crc32c 00000000\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, data := range [][]byte{b, appendCRC(bytes.Clone(b))} {
			for _, kind := range kinds {
				c, err := decodeCheckpoint(data, kind)
				if err != nil {
					continue
				}
				again, err := decodeCheckpoint(c.encode(kind), kind)
				if err != nil || len(again.points) != len(c.points) || again.generation != c.generation {
					t.Fatalf("%v: %+v %+v", err, c, again)
				}
			}
		}
	})
}

func FuzzMetadata(f *testing.F) {
	f.Add(encodeMetadata(testID))
	f.Fuzz(func(t *testing.T, b []byte) {
		if id, err := decodeMetadata(b); err == nil && !bytes.Equal(encodeMetadata(id), bytes.TrimSuffix(b, []byte("\n"))) {
			t.Fatalf("%q is not what %s encodes to", b, id)
		}
	})
}
