package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// place is one partition of a topic.
type place struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

// position is the next offset to be read of a partition.
type position struct {
	place
	Next int64 `json:"next_offset"`
}

// delivered is a record as a member was given it.
type delivered struct {
	Topic string `json:"topic"`
	wireRecord
}

// ledger is what the members of one group were given and what they have committed. It
// judges each delivery as it comes.
type ledger struct {
	mu        sync.Mutex
	committed map[place]int64         // guarded by mu: acknowledged; the next to be read
	times     map[place]map[int64]int // guarded by mu: how often each offset was given
	records   []rec                   // guarded by mu: each once, as it came first
	total     int                     // guarded by mu: deliveries, repeats included
	by        map[string]int          // guarded by mu: deliveries to each member
	arrivals  map[place][]time.Time   // guarded by mu
	wrong     []string                // guarded by mu: what broke the promises
}

func newLedger() *ledger {
	return &ledger{committed: map[place]int64{}, times: map[place]map[int64]int{}, by: map[string]int{}, arrivals: map[place][]time.Time{}}
}

func (l *ledger) complain(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.complainLocked(format, args...)
}

func (l *ledger) complainLocked(format string, args ...any) {
	if len(l.wrong) < 20 {
		l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
	}
}

// floors is what is committed now. A read that begins after it must not give anything below.
func (l *ledger) floors() map[place]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[place]int64, len(l.committed))
	for p, n := range l.committed {
		out[p] = n
	}
	return out
}

// give notes what a member was given by one answer or frame, and returns the positions
// after it.
func (l *ledger) give(member string, records []delivered, floors map[place]int64) []position {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := map[place]int64{}
	for i := range records {
		r := &records[i]
		p := place{r.Topic, r.Partition}
		if before, ok := last[p]; ok && r.Offset <= before {
			l.complainLocked("%s: offset %d after %d of %v", member, r.Offset, before, p)
		}
		last[p] = r.Offset
		if r.Offset < floors[p] {
			l.complainLocked("%s was given offset %d of %v, which was committed up to %d before it asked", member, r.Offset, p, floors[p])
		}
		if l.times[p] == nil {
			l.times[p] = map[int64]int{}
		}
		l.times[p][r.Offset]++
		l.total++
		l.by[member]++
		l.arrivals[p] = append(l.arrivals[p], time.Now())
		if l.times[p][r.Offset] == 1 {
			s, err := r.stored()
			if err != nil {
				l.complainLocked("%s: %v", member, err)
			}
			l.records = append(l.records, s)
		}
	}
	var out []position
	for p, offset := range last {
		out = append(out, position{p, offset + 1})
	}
	return out
}

// commit notes what a commit's answer acknowledged.
func (l *ledger) commit(positions []position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range positions {
		l.committed[p.place] = max(l.committed[p.place], p.Next)
	}
}

func (l *ledger) distinct() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.records)
}

// inOrder is each record once, by partition and offset.
func (l *ledger) inOrder() []rec {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := slices.Clone(l.records)
	slices.SortFunc(out, func(a, b rec) int {
		if a.Partition != b.Partition {
			return int(a.Partition - b.Partition)
		}
		return int(a.Offset - b.Offset)
	})
	return out
}

// consumer is a member that reads on, commits what it has read, and gives up what it is to
// give up, until its context ends. leave says whether it then leaves the group in order or
// is just gone.
type consumer struct {
	name, group string
	topics      []string
	session     time.Duration
	a           *api
	l           *ledger
	leave       func() bool
	pause       func() time.Duration // between two polls; nil: none

	mu  sync.Mutex
	ids []string // guarded by mu: of its memberships, in turn
}

func (c *consumer) path(member, verb string) string {
	p := "/v1/groups/" + url.PathEscape(c.group) + "/members"
	if member != "" {
		p += "/" + member
	}
	if verb != "" {
		p += "/" + verb
	}
	return p
}

func (c *consumer) joined(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids = append(c.ids, id)
}

// memberships is how often it has joined.
func (c *consumer) memberships() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ids)
}

// is tells whether it is the member of an id now.
func (c *consumer) is(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ids) > 0 && c.ids[len(c.ids)-1] == id
}

// call sends a request and tells whether the membership is over. A connection that broke is
// no answer: status 0.
func (c *consumer) call(ctx context.Context, method, path string, body, out any) (status int, gone bool) {
	status, answer, err := c.a.tryContext(ctx, method, path, body)
	if err != nil {
		sleep(ctx, 5*time.Millisecond) // nobody listens
		return 0, false
	}
	var p problem
	switch {
	case status < 300:
		if out != nil {
			if err := json.Unmarshal(answer, out); err != nil {
				c.l.complain("%s: %s %s: %v: %s", c.name, method, path, err, answer)
			}
		}
	case json.Unmarshal(answer, &p) != nil:
		c.l.complain("%s: %s %s: %d %s", c.name, method, path, status, answer)
	case p.Code == "unknown-member" || p.Code == "member-expired" || p.Code == "fenced":
		return status, true
	case status >= 500 && p.Retryable:
		sleep(ctx, 5*time.Millisecond)
	case p.Code == "not-owner": // a commit that came too late
	default:
		c.l.complain("%s: %s %s: %d %s", c.name, method, path, status, answer)
	}
	return status, false
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// join tries until it is a member.
func (c *consumer) join(ctx context.Context) string {
	for ctx.Err() == nil {
		var m struct {
			ID string `json:"member_id"`
		}
		status, _ := c.call(ctx, "POST", c.path("", ""), map[string]any{
			"topics": c.topics, "session_timeout_ms": c.session.Milliseconds(), "auto_offset_reset": "earliest", "client_id": c.name,
		}, &m)
		if status == http.StatusCreated && m.ID != "" {
			c.joined(m.ID)
			return m.ID
		}
	}
	return ""
}

// memberAnswer is the answer of a member's GET of records, and an event of its stream.
type memberAnswer struct {
	Records    []delivered `json:"records"`
	Cursor     string      `json:"cursor"`
	Assignment struct {
		Epoch      int64   `json:"epoch"`
		Partitions []place `json:"partitions"`
		Revoking   []place `json:"revoking"`
		Pending    bool    `json:"pending"`
	} `json:"assignment"`
	Positions []position `json:"positions"`
}

// commitCursor commits what a cursor covers; false when the membership is over.
func (c *consumer) commitCursor(ctx context.Context, member, cursor string) bool {
	var done struct {
		Offsets []position `json:"offsets"`
	}
	status, gone := c.call(ctx, "POST", c.path(member, "commit"), map[string]any{"cursor": cursor}, &done)
	if status == http.StatusOK {
		c.l.commit(done.Offsets)
	}
	return !gone
}

func (c *consumer) quit(member string) {
	if member != "" && c.leave() {
		c.call(context.Background(), "DELETE", c.path(member, ""), nil, nil)
	}
}

// byPolls consumes by one GET after the other.
func (c *consumer) byPolls(ctx context.Context) {
	for ctx.Err() == nil {
		member := c.join(ctx)
		for cursor := ""; ctx.Err() == nil; {
			floors := c.l.floors()
			var m memberAnswer
			q := url.Values{"wait_ms": {"1000"}, "max_records": {"300"}}
			if cursor != "" {
				q.Set("cursor", cursor)
			}
			status, gone := c.call(ctx, "GET", c.path(member, "records")+"?"+q.Encode(), nil, &m)
			if gone {
				break
			}
			if status != http.StatusOK {
				continue // the same again
			}
			c.l.give(c.name, m.Records, floors)
			cursor = m.Cursor
			if c.pause != nil {
				sleep(ctx, c.pause())
			}
			if (len(m.Records) > 0 || len(m.Assignment.Revoking) > 0) && !c.commitCursor(ctx, member, cursor) {
				break
			}
		}
		if ctx.Err() != nil {
			c.quit(member)
		}
	}
}

// bySSE consumes by a stream of events; commits are calls beside it.
func (c *consumer) bySSE(ctx context.Context) {
	for ctx.Err() == nil {
		member := c.join(ctx)
		for cursor := ""; ctx.Err() == nil; {
			var over bool
			if cursor, over = c.stream(ctx, member, cursor); over {
				break
			}
			sleep(ctx, 5*time.Millisecond)
		}
		if ctx.Err() != nil {
			c.quit(member)
		}
	}
}

// stream reads one stream to its end and returns the last cursor, and whether the
// membership is over.
func (c *consumer) stream(ctx context.Context, member, cursor string) (string, bool) {
	floors := c.l.floors()
	req, err := http.NewRequestWithContext(ctx, "GET", c.a.n.URL()+c.path(member, "records"), nil)
	if err != nil {
		c.l.complain("%s: %v", c.name, err)
		return cursor, true
	}
	req.Header.Set("Authorization", "Bearer "+c.a.token)
	req.Header.Set("Accept", "text/event-stream")
	if cursor != "" {
		req.Header.Set("Last-Event-ID", cursor)
	}
	resp, err := (&http.Client{Transport: c.a.http.Transport}).Do(req)
	if err != nil {
		return cursor, false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return cursor, resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone || resp.StatusCode == http.StatusConflict
	}
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(nil, 64<<20)
	var event, id, data string
	for sc.Scan() {
		field, value, _ := strings.Cut(sc.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case field == "event":
			event = value
		case field == "id":
			id = value
		case field == "data":
			data += value
		case sc.Text() == "" && event != "":
			if id != "" {
				cursor = id
			}
			switch event {
			case "records":
				var m memberAnswer
				if err := json.Unmarshal([]byte(data), &m); err != nil {
					c.l.complain("%s: %v: %s", c.name, err, data)
				}
				c.l.give(c.name, m.Records, floors)
				if len(m.Records) > 0 && !c.commitCursor(ctx, member, cursor) {
					return cursor, true
				}
			case "revoked":
				if !c.commitCursor(ctx, member, cursor) {
					return cursor, true
				}
			case "problem":
				var p problem
				if err := json.Unmarshal([]byte(data), &p); err != nil {
					c.l.complain("%s: %v: %s", c.name, err, data)
				}
				return cursor, p.Code == "unknown-member" || p.Code == "member-expired" || p.Code == "fenced"
			case "end":
				return cursor, false
			}
			event, id, data = "", "", ""
		}
	}
	return cursor, false
}

// memberFrame is a frame that a member's socket gets.
type memberFrame struct {
	Op         string      `json:"op"`
	ID         string      `json:"id"`
	Member     string      `json:"member_id"`
	Records    []delivered `json:"records"`
	Partitions []position  `json:"partitions"`
	Offsets    []position  `json:"offsets"`
	Problem    *problem    `json:"problem"`
}

// bySocket consumes by a WebSocket. A socket that was cut is followed by one that resumes
// the membership.
func (c *consumer) bySocket(ctx context.Context) {
	member := ""
	for ctx.Err() == nil {
		var over bool
		if member, over = c.socket(ctx, member); over {
			member = ""
		}
		sleep(ctx, 5*time.Millisecond)
	}
}

// socket runs one socket to its end; it returns the membership, and whether it is over.
func (c *consumer) socket(ctx context.Context, member string) (string, bool) {
	floors := c.l.floors()
	d := websocket.Dialer{Subprotocols: []string{"tidewire.v1.json"}, HandshakeTimeout: 10 * time.Second}
	conn, resp, err := d.DialContext(ctx, "ws"+strings.TrimPrefix(c.a.n.URL(), "http")+"/v1/ws/consume", http.Header{"Authorization": {"Bearer " + c.a.token}})
	if err != nil {
		return member, false
	}
	defer conn.Close()
	_ = resp.Body.Close()
	subscribe := map[string]any{"op": "subscribe", "topics": c.topics, "group": c.group, "session_timeout_ms": c.session.Milliseconds(), "auto_offset_reset": "earliest"}
	if member != "" {
		subscribe["member_id"] = member
	}
	if conn.WriteJSON(subscribe) != nil {
		return member, false
	}
	stop := context.AfterFunc(ctx, func() {
		if c.leave() {
			_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
			time.AfterFunc(5*time.Second, func() { _ = conn.Close() })
			return
		}
		_ = conn.NetConn().Close()
	})
	defer stop()
	next := map[place]int64{}
	for {
		var f memberFrame
		if err := conn.ReadJSON(&f); err != nil {
			var ce *websocket.CloseError
			return member, errors.As(err, &ce) && ce.Code == 4409
		}
		var answer map[string]any
		switch f.Op {
		case "subscribed":
			if f.Member != member {
				member = f.Member
				c.joined(member)
			}
		case "assigned":
			for _, p := range f.Partitions {
				next[p.place] = p.Next
			}
		case "records":
			after := c.l.give(c.name, f.Records, floors)
			for _, p := range after {
				next[p.place] = p.Next
			}
			answer = map[string]any{"op": "commit", "id": "c", "offsets": after}
		case "revoked":
			answer = map[string]any{"op": "released", "partitions": f.Partitions}
			places := make([]place, len(f.Partitions))
			for i, p := range f.Partitions {
				places[i] = p.place
				delete(next, p.place)
			}
			answer["partitions"] = places
		case "committed":
			c.l.commit(f.Offsets)
		case "error":
			switch {
			case f.Problem == nil:
				c.l.complain("%s: an error without problem", c.name)
			case f.Problem.Code == "unknown-member" || f.Problem.Code == "member-expired" || f.Problem.Code == "fenced":
				return member, true
			case f.Problem.Code != "not-owner" && !f.Problem.Retryable:
				c.l.complain("%s: %+v", c.name, *f.Problem)
			}
		}
		if answer != nil && conn.WriteJSON(answer) != nil {
			return member, false
		}
	}
}
