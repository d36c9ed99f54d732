package ingest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidewire/internal/model"
	"tidewire/storage/record"
)

// What is taken is what the reader of stored batches reads, also once it is made anew; what
// is refused has an error of the table.
func FuzzCheck(f *testing.F) {
	for _, c := range codecs {
		small := &client{codec: c}
		small.add(now, []byte("k"), []byte("v"), kmsg.Header{Key: "h"})
		small.add(now-1, []byte{}, nil)
		raw := small.bytes(f)
		f.Add(raw, false, uint8(c))
		f.Add(append(bytes.Clone(raw), raw[:len(raw)-3]...), true, uint8(c+1))
	}
	p := newPool(1, record.NewBudget(32<<20), 1<<18) // a small limit keeps the fuzzer quick
	f.Fuzz(func(t *testing.T, data []byte, resign bool, mode uint8) {
		data = bytes.Clone(data)
		if resign && len(data) > record.HeaderSize {
			sign(data) // let the fuzzer past the checksum
		}
		rules := open()
		rules.Recompress, rules.Codec = mode&8 != 0, codecs[int(mode&7)%len(codecs)]
		rules.MaxMessageBytes = 1 << 18
		rules.LogAppendTime, rules.Compact = mode&16 != 0, mode&32 != 0
		out := new(Result)
		out.Reset(true)
		q, err := Parse(data, 100_000)
		if err == nil {
			err = p.Check(context.Background(), &q, &rules, now, out)
		}
		if err != nil {
			var me *model.Error
			if !errors.As(err, &me) || me.Code == model.Internal {
				t.Fatalf("not an error of a client: %v", err)
			}
			return
		}
		records := 0
		for rest := out.Bytes; len(rest) > 0; {
			b, more, err := record.ParseBatch(rest)
			if err != nil || b.VerifyCRC() != nil {
				t.Fatal("what was taken is no batch: ", err)
			}
			var it record.Iterator
			if err := b.Records(record.NewDecompressor(record.MaxInflated), &it); err != nil {
				t.Fatal(err)
			}
			for it.Next() {
				if r := it.Record(); !rules.LogAppendTime && (r.Timestamp != out.Timestamps[records] || r.Timestamp > b.Header.MaxTimestamp) {
					t.Fatalf("timestamp %d, said to be %d, of at most %d", r.Timestamp, out.Timestamps[records], b.Header.MaxTimestamp)
				}
				records++
			}
			if it.Err() != nil {
				t.Fatal(it.Err())
			}
			rest = more
		}
		if records != q.Records {
			t.Fatalf("%d records instead of %d", records, q.Records)
		}
	})
}
