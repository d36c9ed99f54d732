package producer

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"reflect"
	"testing"

	"tidewire/internal/model"
)

// A snapshot that is accepted is what it encodes to, and holds no more than its bytes do.
func FuzzSnapshot(f *testing.F) {
	s := Snapshot{byID: map[model.ProducerID]*Producer{
		5: {Epoch: 1, coord: -1, lastTs: 9, TxnFirst: 4, n: 2, batches: [keptBatches]Batch{{3, 0, 1, 0}, {7, 2, 9, 1}}},
		6: {Epoch: 0, coord: 3, lastTs: 8, TxnFirst: -1},
	}, Txns: []TxnSummary{{0, 3, 77}}}
	f.Add(s.Encode()[snapshotHead:])
	f.Add((&Snapshot{}).Encode()[snapshotHead:])
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1, 2, 3})
	f.Fuzz(func(t *testing.T, body []byte) {
		const off = 1 << 40
		whole := binary.BigEndian.AppendUint32([]byte{0, snapshotVersion}, crc32.Checksum(body, castagnoli))
		for _, b := range [][]byte{body, append(whole, body...)} {
			s, err := DecodeSnapshot(b, off)
			if err != nil {
				continue
			}
			if len(s.byID)*snapshotEntrySize+len(s.Txns)*txnSummarySize > len(b) {
				t.Fatalf("%d producers and %d indexes of %d bytes", len(s.byID), len(s.Txns), len(b))
			}
			again, err := DecodeSnapshot(s.Encode(), off)
			if err != nil || !reflect.DeepEqual(s.byID, again.byID) || len(s.Txns) != len(again.Txns) {
				t.Fatalf("%v: %x", err, b)
			}
		}
	})
}

func FuzzAborted(f *testing.F) {
	f.Add(AbortedTransaction{7, 0, 3, 2}.Append(nil), int64(0))
	f.Add(AbortedTransaction{7, 9, 12, 13}.Append(AbortedTransaction{1, 2, 5, 6}.Append(nil)), int64(3))
	f.Fuzz(func(t *testing.T, b []byte, base int64) {
		all, err := DecodeAborted(b, model.Offset(base))
		if err != nil {
			return
		}
		var again []byte
		for i, a := range all {
			again = a.Append(again)
			if a.FirstOffset >= a.LastOffset || i > 0 && a.LastOffset <= all[i-1].LastOffset {
				t.Fatalf("%+v", all)
			}
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("%x came back as %x", b, again)
		}
	})
}
