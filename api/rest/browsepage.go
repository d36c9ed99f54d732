package rest

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"tidewire/api/recordjson"
	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/broker/browse"
)

// scanWork is how much of a page is read until the clock and the client are looked at
// again: some milliseconds' worth.
const scanWork = 1 << 20

// pages are the buffers of pages; those that grew beyond maxPooledPage are not kept.
var pages = sync.Pool{New: func() any { b := make([]byte, 0, 64<<10); return &b }}

const maxPooledPage = 4 << 20

// browsePage answers with one page of JSON.
func (a *API) browsePage(c *route.Call, q *browsing, x *broker.Browse) error {
	buf := pages.Get().(*[]byte)
	b := append((*buf)[:0], `{"records":[`...)
	defer func() {
		if cap(b) <= maxPooledPage {
			*buf = b
			pages.Put(buf)
		}
	}()
	f := &fit{q: q}
	meta := recordjson.Meta{Topic: q.req.Topic}
	first := len(b)
	var ends []int // where each record ends in b
	reason, err := a.fillPage(c.Request.Context(), q, x, func(it browse.Item) browse.Verdict {
		verdict := f.admit(it)
		if verdict == browse.StopBefore || q.count {
			return verdict
		}
		if len(b) > first {
			b = append(b, ',')
		}
		meta.Partition, meta.LogAppendTime = it.Partition, it.LogAppendTime
		b = recordjson.AppendRecord(b, &meta, it.Record, q.enc)
		ends = append(ends, len(b))
		return verdict
	})
	if err != nil {
		return err
	}
	if reason == "" {
		reason = f.reason
	}
	if x.Reversed() {
		reverse(b, first, ends)
	}
	b = appendPageEnd(append(b, ']'), x, f, reason)
	c.Bytes(http.StatusOK, route.JSONOnly[0], b)
	return nil
}

// fillPage scans until the page is full, which the visitor knows, or the reason that it
// returns ends it.
func (a *API) fillPage(ctx context.Context, q *browsing, x *broker.Browse, visit func(browse.Item) browse.Verdict) (reason string, _ error) {
	began := time.Now()
	for {
		progress, err := x.Scan(scanWork, visit)
		switch {
		case err != nil:
			return "", err
		case progress == browse.Stopped:
			return "", nil
		case progress == browse.Dry:
			return edge(x.Reading()), nil
		case time.Since(began) >= q.maxTime:
			return "max-time", nil
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		}
		select {
		case <-a.broker.Draining():
			return "node-stopping", nil
		default:
		}
	}
}

// reverse turns the order of JSON values around that are separated by single commas, the
// first of which begins at first. Turning all bytes around and then each value gives it
// without another buffer.
func reverse(b []byte, first int, ends []int) {
	slices.Reverse(b[first:])
	total := len(b)
	at := first
	for i := len(ends) - 1; i >= 0; i-- {
		from := first
		if i > 0 {
			from = ends[i-1] + 1
		}
		n := ends[i] - from
		slices.Reverse(b[at : at+n])
		at = min(at+n+1, total)
	}
}

func appendPageEnd(b []byte, x *broker.Browse, f *fit, reason string) []byte {
	pages := x.Pages()
	left := pages.Next
	if x.Reversed() {
		left = pages.Prev
	}
	if left == nil && f.reason != "" {
		reason = edge(x.Reading()) // full, and nothing is left
	}
	b = append(b, `,"next_cursor":`...)
	b = appendCursor(b, pages.Next)
	b = append(b, `,"prev_cursor":`...)
	b = appendCursor(b, pages.Prev)
	b = append(b, `,"end":`...)
	b = appendEnd(b, reason, pages.Resume, f)
	b = append(b, `,"count":`...)
	b = f.appendCount(b)
	scanned := x.Scanned()
	b = append(b, `,"scanned":{"records":`...)
	b = strconv.AppendInt(b, scanned.Records, 10)
	b = append(b, `,"bytes":`...)
	b = strconv.AppendInt(b, scanned.Bytes, 10)
	b = append(b, `,"partitions":[`...)
	for i, r := range x.Ranges() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"partition":`...)
		b = strconv.AppendInt(b, int64(r.Partition), 10)
		b = append(b, `,"from":`...)
		b = strconv.AppendInt(b, int64(r.From), 10)
		b = append(b, `,"to":`...)
		b = strconv.AppendInt(b, int64(r.To), 10)
		b = append(b, '}')
	}
	return append(b, "]}}\n"...)
}

func appendCursor(b []byte, c *browse.Cursor) []byte {
	if c == nil {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = c.Append(b)
	return append(b, '"')
}

// appendEnd appends {"reason", "cursor", "count"}.
func appendEnd(b []byte, reason string, at *browse.Cursor, f *fit) []byte {
	b = append(b, `{"reason":"`...)
	b = append(b, reason...)
	b = append(b, `","cursor":`...)
	b = appendCursor(b, at)
	b = append(b, `,"count":`...)
	b = f.appendCount(b)
	return append(b, '}')
}
