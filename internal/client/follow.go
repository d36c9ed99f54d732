package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"tidewire/internal/model"
)

// silence is how long a stream may bring nothing: the server gives a sign of life every
// 15 s.
const silence = 45 * time.Second

// following is one topic as one stream, which goes on by its cursor where it broke.
type following struct {
	r      *reader
	topic  string
	cursor string // of the last progress; "": none yet
	// next is what follows the last record of each partition: behind the cursor of a
	// progress records come again.
	next map[model.PartitionID]model.Offset
	line []byte // one that is longer than the reader's buffer
}

// followTopic reads a topic until the context ends, there were enough records, a fault does
// not pass, or, without Follow, its end is reached.
func (r *reader) followTopic(ctx context.Context, topic string) error {
	f := &following{r: r, topic: topic, next: map[model.PartitionID]model.Offset{}}
	p := pause{wait: retryFirst}
	for {
		lines, err := f.stream(ctx)
		if lines > 0 {
			p.wait = retryFirst
		}
		var why *Problem
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errAtEnd):
			return nil
		case errors.Is(err, errLater), mayPass(err):
		case lines > 0 && errors.As(err, &why) && why.Status == http.StatusUnauthorized: // the next request renews the token
		default:
			return err
		}
		r.warn("%s: %v; going on", topic, err)
		if err := p.sleep(ctx, err); err != nil {
			return err
		}
	}
}

// errLater ends a stream that may go on by another request.
var errLater = errors.New("the stream has ended")

// errAtEnd ends a stream that has brought all there is.
var errAtEnd = errors.New("the stream is at its end")

// stream makes one request and reads its lines. The error is never nil.
func (f *following) stream(ctx context.Context) (lines int, _ error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := f.r.c.open(ctx, message{
		method: http.MethodGet, path: Path("v1", "topics", f.topic, "records"), query: f.query(), accept: "application/x-ndjson",
	})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	quiet := time.AfterFunc(silence, cancel)
	defer quiet.Stop()
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := f.readLine(in)
		if err != nil {
			return lines, fmt.Errorf("%w: %w", errLater, err)
		}
		quiet.Reset(silence)
		if err := f.take(line); err != nil {
			return lines, err
		}
		lines++
	}
}

func (f *following) query() url.Values {
	q := url.Values{}
	if f.r.o.Follow {
		q.Set("follow", "true")
	}
	for name, v := range map[string]string{"to": f.r.o.Search.To, "q": f.r.o.Search.Q, "q_in": f.r.o.Search.QIn, "key": f.r.o.Search.Key} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if f.cursor != "" {
		q.Set("cursor", f.cursor)
	} else {
		q.Set("from", f.r.o.From)
	}
	if f.r.o.Partitions != nil {
		words := make([]string, len(f.r.o.Partitions))
		for i, p := range f.r.o.Partitions {
			words[i] = strconv.Itoa(int(p))
		}
		q.Set("partitions", strings.Join(words, ","))
	}
	return q
}

// readLine reads a line, valid until the next call. A line that breaks off is not one.
func (f *following) readLine(in *bufio.Reader) ([]byte, error) {
	f.line = f.line[:0]
	for {
		part, err := in.ReadSlice('\n')
		switch {
		case err == nil && len(f.line) == 0:
			return part, nil
		case err == nil:
			return append(f.line, part...), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(f.line) > maxLine:
			return nil, io.ErrShortBuffer
		}
		f.line = append(f.line, part...)
	}
}

var recordLine = []byte(`{"record":`)

// take does what a line says.
func (f *following) take(line []byte) error {
	line = bytes.TrimSpace(line)
	if raw, ok := bytes.CutPrefix(line, recordLine); ok && len(raw) > 0 {
		return f.record(raw[:len(raw)-1])
	}
	var other struct {
		Progress *struct{ Cursor string }
		End      *struct{ Reason, Cursor string }
		Problem  json.RawMessage
	}
	if err := json.Unmarshal(line, &other); err != nil {
		return fmt.Errorf("a line of the stream cannot be read: %w", err)
	}
	switch {
	case other.Progress != nil:
		f.cursor = other.Progress.Cursor
	case other.End != nil:
		f.cursor = other.End.Cursor
		if !f.r.o.Follow && other.End.Reason == "latest" {
			return errAtEnd
		}
		return fmt.Errorf("%w: %s", errLater, other.End.Reason)
	case other.Problem != nil:
		p := &Problem{Raw: other.Problem}
		if err := json.Unmarshal(other.Problem, p); err != nil {
			return fmt.Errorf("a problem cannot be read: %w", err)
		}
		return p
	}
	return nil
}

func (f *following) record(raw []byte) error {
	var at struct {
		Partition model.PartitionID `json:"partition"`
		Offset    model.Offset      `json:"offset"`
	}
	if err := json.Unmarshal(raw, &at); err != nil {
		return fmt.Errorf("a record of the stream cannot be read: %w", err)
	}
	if at.Offset < f.next[at.Partition] {
		return nil // it came before the stream broke
	}
	f.next[at.Partition] = at.Offset + 1
	return f.r.one(raw)
}

// one hands out a record that came by itself.
func (r *reader) one(raw []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return errEnough
	}
	return r.oneLocked(raw)
}
