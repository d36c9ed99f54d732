package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// world is what a node was given.
type world struct {
	n      *node
	o      options
	rounds int // records in each partition
}

const clients = 8

// eachTopic runs fn for every topic, some at a time, and gives the first error.
func (w *world) eachTopic(fn func(topic string) error) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make(chan error, clients)
	for range clients {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(w.o.topics); i = next.Add(1) - 1 {
				if err := fn(fmt.Sprintf("scale-%04d", i)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// fill makes the topics and their first records.
func (w *world) fill(ctx context.Context) error {
	began := time.Now()
	err := w.eachTopic(func(topic string) error {
		_, err := w.n.call(ctx, "POST", "/v1/topics", map[string]any{"name": topic, "partitions": w.o.partitions})
		return err
	})
	if err != nil {
		return err
	}
	line("create the topics", seconds(time.Since(began)), "")
	if err := w.round(ctx); err != nil { // waits until the partitions are open
		return err
	}
	line("create the topics, until a record was acknowledged in every partition", seconds(time.Since(began)), "")
	began = time.Now()
	for w.rounds < w.o.records {
		if err := w.round(ctx); err != nil {
			return err
		}
	}
	line("a further record in every partition, acks=all, one request a topic", seconds(time.Since(began)/time.Duration(max(w.o.records-1, 1))), "")
	return nil
}

type wireRecord struct {
	Partition int    `json:"partition"`
	Value     string `json:"value"`
}

// round adds one record to every partition, acknowledged by all.
func (w *world) round(ctx context.Context) error {
	w.rounds++
	body := map[string][]wireRecord{}
	for p := range w.o.partitions {
		body["records"] = append(body["records"], wireRecord{p, fmt.Sprintf("%s %d", strings.Repeat("x", w.o.bytes), w.rounds)})
	}
	return w.eachTopic(func(topic string) error {
		for tries := 0; ; tries++ {
			_, err := w.n.call(ctx, "POST", "/v1/topics/"+topic+"/records", body)
			if err == nil || tries == 10 {
				return err
			}
		}
	})
}

// verify makes sure that every partition has its records: by offsets, and of one partition
// of each topic by reading them.
func (w *world) verify(ctx context.Context) error {
	return w.eachTopic(func(topic string) error {
		raw, err := w.n.call(ctx, "GET", "/v1/topics/"+topic, nil)
		if err != nil {
			return err
		}
		var d struct {
			Partitions []struct {
				HighWatermark int `json:"high_watermark"`
			} `json:"partitions"`
		}
		if err := json.Unmarshal(raw, &d); err != nil {
			return err
		}
		for p, x := range d.Partitions {
			if x.HighWatermark < w.rounds {
				return fmt.Errorf("partition %d of %s has %d records, not %d", p, topic, x.HighWatermark, w.rounds)
			}
		}
		raw, err = w.n.call(ctx, "GET", "/v1/topics/"+topic+"/partitions/"+strconv.Itoa(w.o.partitions/2)+"/records?offset=earliest&max_bytes=16777216", nil)
		if err != nil {
			return err
		}
		if got := strings.Count(string(raw), strings.Repeat("x", w.o.bytes)); got < w.rounds {
			return fmt.Errorf("of partition %d of %s %d records are read, not %d", w.o.partitions/2, topic, got, w.rounds)
		}
		return nil
	})
}

const longTopic, segmentBytes = "long", 64 << 10

// fillSegments makes one partition of many small segments and tells how many.
func (w *world) fillSegments(ctx context.Context) (int, error) {
	_, err := w.n.call(ctx, "POST", "/v1/topics", map[string]any{
		"name": longTopic, "partitions": 1, "config": map[string]any{"segment.bytes": segmentBytes},
	})
	if err != nil {
		return 0, err
	}
	const perSegment = 10
	body := map[string][]wireRecord{}
	for range perSegment {
		body["records"] = append(body["records"], wireRecord{0, strings.Repeat("y", segmentBytes/perSegment-200)})
	}
	for range w.o.segments {
		if _, err := w.n.call(ctx, "POST", "/v1/topics/"+longTopic+"/records?acks=leader", body); err != nil {
			return 0, err
		}
		w.rounds += perSegment
	}
	raw, err := w.n.call(ctx, "GET", "/v1/topics/"+longTopic, nil)
	if err != nil {
		return 0, err
	}
	var d struct {
		Partitions []struct {
			Segments int `json:"segments"`
		} `json:"partitions"`
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return 0, err
	}
	if len(d.Partitions) != 1 || d.Partitions[0].Segments < w.o.segments {
		return 0, fmt.Errorf("not %d segments: %s", w.o.segments, raw)
	}
	return d.Partitions[0].Segments, nil
}

// verifySegments reads the partition from end to end.
func (w *world) verifySegments(ctx context.Context) error {
	got := 0
	for off := 0; off < w.rounds; {
		raw, err := w.n.call(ctx, "GET", fmt.Sprintf("/v1/topics/%s/partitions/0/records?offset=%d&max_records=10000&max_bytes=16777216", longTopic, off), nil)
		if err != nil {
			return err
		}
		var d struct {
			Records []struct{} `json:"records"`
			Next    int        `json:"next_offset"`
		}
		if err := json.Unmarshal(raw, &d); err != nil {
			return err
		}
		if d.Next <= off {
			return fmt.Errorf("reading stands at offset %d of %d", off, w.rounds)
		}
		got, off = got+len(d.Records), d.Next
	}
	if got < w.rounds {
		return fmt.Errorf("%d records are read, not %d", got, w.rounds)
	}
	return nil
}
