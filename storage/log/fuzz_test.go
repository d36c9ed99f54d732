package log

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"reflect"
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

// A snapshot that is accepted is what it encodes to, and holds no more than its bytes do.
func FuzzSnapshot(f *testing.F) {
	s := snapshot{byID: map[model.ProducerID]*producer{
		5: {epoch: 1, coord: -1, lastTs: 9, txnFirst: 4, n: 2, batches: [keptBatches]producerBatch{{3, 1, 0, 0}, {7, 9, 2, 1}}},
		6: {epoch: 0, coord: 3, lastTs: 8, txnFirst: -1},
	}, txns: []txnSummary{{0, 3, 77}}}
	f.Add(s.encode()[snapshotHead:])
	f.Add((&snapshot{}).encode()[snapshotHead:])
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1, 2, 3})
	f.Fuzz(func(t *testing.T, body []byte) {
		const off = 1 << 40
		whole := binary.BigEndian.AppendUint32([]byte{0, snapshotVersion}, crc32.Checksum(body, castagnoli))
		for _, b := range [][]byte{body, append(whole, body...)} {
			s, err := decodeSnapshot(b, off)
			if err != nil {
				continue
			}
			if len(s.byID)*snapshotEntrySize+len(s.txns)*txnSummarySize > len(b) {
				t.Fatalf("%d producers and %d indexes of %d bytes", len(s.byID), len(s.txns), len(b))
			}
			again, err := decodeSnapshot(s.encode(), off)
			if err != nil || !reflect.DeepEqual(s.byID, again.byID) || len(s.txns) != len(again.txns) {
				t.Fatalf("%v: %x", err, b)
			}
		}
	})
}

func FuzzTxnIndex(f *testing.F) {
	f.Add(AbortedTransaction{7, 0, 3, 2}.append(nil), int64(0))
	f.Add(AbortedTransaction{7, 9, 12, 13}.append(AbortedTransaction{1, 2, 5, 6}.append(nil)), int64(3))
	f.Fuzz(func(t *testing.T, b []byte, base int64) {
		all, err := decodeTxnIndex(b, model.Offset(base))
		if err != nil {
			return
		}
		var again []byte
		for i, a := range all {
			again = a.append(again)
			if a.FirstOffset >= a.LastOffset || i > 0 && a.LastOffset <= all[i-1].LastOffset {
				t.Fatalf("%+v", all)
			}
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("%x came back as %x", b, again)
		}
	})
}
