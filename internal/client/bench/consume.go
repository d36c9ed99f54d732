package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"tidewire/internal/client"
)

// topicShape is what is needed of a topic's description.
type topicShape struct {
	Partitions []struct {
		Partition int `json:"partition"`
	} `json:"partitions"`
}

func partitionsOf(ctx context.Context, c *client.Client, topic string) (int, error) {
	var shape topicShape
	if err := c.Call(ctx, client.Request{Method: http.MethodGet, Path: client.Path("v1", "topics", topic)}, &shape); err != nil {
		return 0, err
	}
	if len(shape.Partitions) == 0 {
		return 0, fmt.Errorf("topic %s has no partitions", topic)
	}
	return len(shape.Partitions), nil
}

func fetchPath(topic string, partition int, offset string, o Options, wait time.Duration) string {
	path := client.Path("v1", "topics", topic, "partitions", strconv.Itoa(partition), "records")
	path += "?offset=" + offset + "&max_records=" + strconv.Itoa(o.Batch) + "&wait_ms=" + strconv.FormatInt(wait.Milliseconds(), 10)
	if o.MaxBytes > 0 {
		path += "&max_bytes=" + strconv.FormatInt(o.MaxBytes, 10)
	}
	return path
}

var (
	nextMark = []byte(`"next_offset":`)
	errShape = errors.New("the answer is no page of records")
)

// nextOffset finds the member next_offset, which stands behind the records.
func nextOffset(answer []byte) (int64, error) {
	i := bytes.LastIndex(answer, nextMark)
	if i < 0 {
		return 0, errShape
	}
	rest := bytes.TrimLeft(answer[i+len(nextMark):], " ")
	n := 0
	for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
		n++
	}
	return strconv.ParseInt(string(rest[:n]), 10, 64)
}

// discardSize is into how much memory bodies are read that nobody looks at.
const discardSize = 256 << 10

// Consume reads the topic's partitions from their starts, dealt among connections,
// until o.Records records came or the ends are reached, o.Rounds times. Records of JSON
// are counted by how each begins, so values that hold whole fetched records count more than
// once; of stored batches by their offsets, and the bytes are read and dropped.
func Consume(ctx context.Context, c *client.Client, o Options) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	parts, err := partitionsOf(ctx, c, o.Topic)
	if err != nil {
		return nil, err
	}
	o.Connections = min(o.Connections, parts)
	mark := []byte(`{"topic":"` + o.Topic + `","partition":`)
	var got atomic.Int64
	total, took, err := fanOut(ctx, c, o.Connections, func(ctx context.Context, n int, cn *conn, t *tally) {
		read := t.read
		if o.Format == FormatBinary {
			cn.accept, cn.discard = "application/vnd.kafka.record-batches", make([]byte, discardSize)
			read = t.readBatches
		}
		for p := n; p < parts*max(o.Rounds, 1); p += o.Connections {
			for at := "earliest"; at != ""; {
				if o.Records > 0 && got.Load() >= o.Records || ctx.Err() != nil || t.errors >= maxErrors {
					return
				}
				before := t.records
				at = read(ctx, cn, reading{fetchPath(o.Topic, p%parts, at, o, 0), at, mark, o.Batch})
				got.Add(t.records - before)
				o.note(t.records - before)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return total.report(Report{Kind: "consume", Topic: o.Topic, Connections: o.Connections, Batch: o.Batch}, took), nil
}

var errNoNext = errors.New("the answer has no Tidewire-Next-Offset")

// readBatches is read for stored batches.
func (t *tally) readBatches(ctx context.Context, cn *conn, r reading) string {
	start := time.Now()
	_, err := cn.do(ctx, r.path, nil)
	if ctx.Err() != nil {
		return ""
	}
	t.requests++
	if err == nil && cn.next < 0 {
		err = errNoNext
	}
	if err != nil {
		t.fail(err)
		return r.at
	}
	to := strconv.FormatInt(cn.next, 10)
	if cn.length == 0 && (to == r.at || r.at == "earliest") {
		return ""
	}
	t.hist.add(time.Since(start))
	t.bytes += cn.length
	if from, err := strconv.ParseInt(r.at, 10, 64); err == nil {
		t.records += cn.next - from
	} else { // earliest: the topic begins with what the answer has
		t.records += min(cn.next, int64(r.most))
	}
	return to
}

// reading is one fetch: where from, how each record begins, and how many come at most.
type reading struct {
	path, at string
	mark     []byte
	most     int
}

// read fetches a page, counts it and returns the next offset, or "" at the end.
func (t *tally) read(ctx context.Context, cn *conn, r reading) string {
	start := time.Now()
	answer, err := cn.do(ctx, r.path, nil)
	if ctx.Err() != nil {
		return ""
	}
	t.requests++
	var next int64
	if err == nil {
		next, err = nextOffset(answer)
	}
	if err != nil {
		t.fail(err)
		return r.at
	}
	n := bytes.Count(answer, r.mark)
	if n > 0 {
		t.hist.add(time.Since(start))
		t.records += int64(n)
		t.bytes += int64(len(answer))
	}
	if to := strconv.FormatInt(next, 10); n > 0 || to != r.at {
		return to
	}
	return ""
}
