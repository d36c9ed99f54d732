package index

import (
	"testing"

	"tidewire/internal/fsx"
	"tidewire/storage/files"
)

// A lookup in any bytes gives an entry with a key not above what is asked, or a
// refusal.
func FuzzIndex(f *testing.F) {
	f.Add([]byte{0, 0, 0, 3, 0, 0, 0, 89, 0, 0, 0, 5, 0, 0, 0, 178}, int64(4), false)
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0x0b, 0xb8, 0, 0, 0, 3}, int64(3000), true)
	f.Fuzz(func(t *testing.T, b []byte, key int64, isTime bool) {
		mem := fsx.NewMem()
		if err := fsx.WriteFile(mem, "/x", b); err != nil {
			t.Fatal(err)
		}
		kind := Offset
		if isTime {
			kind = Time
		}
		x := New(files.New(mem, 0), "/x", kind, NewBuffers())
		if len(b)%kind.EntrySize() != 0 || x.Open(int64(len(b))) != nil {
			return
		}
		e, ok, err := x.Floor(key)
		if err != nil {
			return
		}
		if ok && e.Key > key {
			t.Fatalf("%+v is above %d", e, key)
		}
		for i := range len(b) / kind.EntrySize() {
			if d := x.decode(b[i*kind.EntrySize():]); d.Key <= key && (!ok || d.Key > e.Key) {
				t.Fatalf("%+v was not found for %d", d, key)
			}
		}
	})
}
