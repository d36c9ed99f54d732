package checkpoint

import (
	"bytes"
	"testing"

	"tidewire/internal/model"
)

const kind = "recovery-point"

func FuzzCheckpoint(f *testing.F) {
	id := model.TopicID{1, 2, 3}
	c := File{Generation: 3, Points: map[Key]model.Offset{{id, 1}: 9, {id, 0}: 4}}
	f.Add(c.Encode(kind))
	f.Add([]byte("crc32c 00000000\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, data := range [][]byte{b, Seal(bytes.Clone(b))} {
			c, err := Decode(data, kind)
			if err != nil {
				continue
			}
			again, err := Decode(c.Encode(kind), kind)
			if err != nil || len(again.Points) != len(c.Points) || again.Generation != c.Generation {
				t.Fatalf("%v: %+v %+v", err, c, again)
			}
		}
	})
}
