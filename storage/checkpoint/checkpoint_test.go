package checkpoint

import (
	"bytes"
	"testing"

	"tidewire/internal/model"
)

func FuzzCheckpoint(f *testing.F) {
	kinds := []string{"cleaner", "recovery-point", "replication", "log-start"}
	id := model.TopicID{1, 2, 3}
	c := File{Generation: 3, Points: map[Key]model.Offset{{id, 1}: 9, {id, 0}: 4}}
	for _, kind := range kinds {
		f.Add(c.Encode(kind))
	}
	f.Add([]byte("crc32c 00000000\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, data := range [][]byte{b, Seal(bytes.Clone(b))} {
			for _, kind := range kinds {
				c, err := Decode(data, kind)
				if err != nil {
					continue
				}
				again, err := Decode(c.Encode(kind), kind)
				if err != nil || len(again.Points) != len(c.Points) || again.Generation != c.Generation {
					t.Fatalf("%v: %+v %+v", err, c, again)
				}
			}
		}
	})
}
