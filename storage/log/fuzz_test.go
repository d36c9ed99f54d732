package log

import (
	"bytes"
	"sync"
	"testing"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
)

func FuzzCheckpoint(f *testing.F) {
	c := checkpoint{generation: 3, points: map[logKey]model.Offset{{testID, 1}: 9, {testID, 0}: 4}}
	f.Add(c.encode(recoveryPointFile))
	f.Add([]byte("crc32c 00000000\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, data := range [][]byte{b, appendCRC(bytes.Clone(b))} {
			c, err := decodeCheckpoint(data, recoveryPointFile)
			if err != nil {
				continue
			}
			again, err := decodeCheckpoint(c.encode(recoveryPointFile), recoveryPointFile)
			if err != nil || len(again.points) != len(c.points) || again.generation != c.generation {
				t.Fatalf("%v: %+v %+v", err, c, again)
			}
		}
	})
}

func FuzzEpochs(f *testing.F) {
	f.Add(epochs{{0, 0}, {3, 17}}.encode())
	f.Add([]byte("0\n0\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeEpochs(b)
		if err != nil {
			return
		}
		again, err := decodeEpochs(e.encode())
		if err != nil || len(again) != len(e) {
			t.Fatal(err)
		}
		for i := range e {
			if got, end := e.end(e[i].epoch, 1<<62); got != e[i].epoch || end <= e[i].start {
				t.Fatalf("%v: %d %d", e, got, end)
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
		x := index{fs: mem, path: "/x", entrySz: offsetEntrySize, bufs: &sync.Pool{New: func() any { return new([tailBytes]byte) }}}
		if isTime {
			x.entrySz = timeEntrySize
		}
		if len(b)%x.entrySz != 0 || x.open(int64(len(b))) != nil {
			return
		}
		e, ok, err := x.floor(key)
		if err != nil {
			return
		}
		if ok && e.key > key {
			t.Fatalf("%+v is above %d", e, key)
		}
		for i := range len(b) / x.entrySz {
			if d := x.decode(b[i*x.entrySz:]); d.key <= key && (!ok || d.key > e.key) {
				t.Fatalf("%+v was not found for %d", d, key)
			}
		}
	})
}
