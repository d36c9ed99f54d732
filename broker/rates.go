package broker

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"tidewire/storage/record"
)

// rates counts a topic's traffic and keeps its recent rate.
type rates struct {
	bytesIn, bytesOut     atomic.Int64 // of keys, values and header bytes, since the start
	recordsIn, recordsOut atomic.Int64
	recordsOld            atomic.Int64  // produced when they were already older than retention.ms
	inPerS, outPerS       atomic.Uint64 // float64 bits
	lastIn, lastOut       int64         // used by the rates goroutine alone
}

// in counts produced records and returns their bytes.
func (r *rates) in(recs []record.Record) int {
	n := 0
	for i := range recs {
		n += recordBytes(&recs[i])
	}
	r.bytesIn.Add(int64(n))
	r.recordsIn.Add(int64(len(recs)))
	return n
}

// inBatches counts records that came in ready-made batches.
func (r *rates) inBatches(records, bytes int) {
	r.bytesIn.Add(int64(bytes))
	r.recordsIn.Add(int64(records))
}

func (r *rates) out(records, bytes int) {
	r.bytesOut.Add(int64(bytes))
	r.recordsOut.Add(int64(records))
}

// recordBytes is the size of a record as limits and rates count it: the bytes of key,
// value and headers.
func recordBytes(r *record.Record) int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	return n
}

// previewBytes is recordBytes of a record whose key and values are cut to most bytes.
func previewBytes(r *record.Record, most int) int {
	n := min(len(r.Key), most) + min(len(r.Value), most)
	for i := range r.Headers {
		n += len(r.Headers[i].Name) + min(len(r.Headers[i].Value), most)
	}
	return n
}

// rateInterval is how often rates are taken; rateWindow is the time constant of their
// exponentially weighted average.
const (
	rateInterval = time.Second
	rateWindow   = 15 * time.Second
)

func (b *Broker) ratesLoop(ctx context.Context) {
	tick := time.NewTicker(rateInterval)
	defer tick.Stop()
	last := b.now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := b.now()
		elapsed := now.Sub(last).Seconds()
		last = now
		if elapsed <= 0 {
			continue
		}
		b.topics.Range(func(_, v any) bool {
			v.(*topic).rates.tick(elapsed)
			return true
		})
	}
}

func (r *rates) tick(elapsed float64) {
	weight := 1 - math.Exp(-elapsed/rateWindow.Seconds())
	step := func(total int64, last *int64, out *atomic.Uint64) {
		rate := float64(total-*last) / elapsed
		*last = total
		old := math.Float64frombits(out.Load())
		out.Store(math.Float64bits(old + weight*(rate-old)))
	}
	step(r.bytesIn.Load(), &r.lastIn, &r.inPerS)
	step(r.bytesOut.Load(), &r.lastOut, &r.outPerS)
}

func (r *rates) now() (in, out float64) {
	return math.Float64frombits(r.inPerS.Load()), math.Float64frombits(r.outPerS.Load())
}
