package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"tidewire/internal/client"
	"tidewire/internal/lifecycle"

	"github.com/gorilla/websocket"
)

const (
	openers      = 32               // handshakes at once
	socketBuffer = 256 << 10        // bytes taken from a socket at a time
	silenceLimit = 30 * time.Second // without a byte for any reader: it has failed
)

// socket is one WebSocket that reads a topic.
type socket struct {
	conn     net.Conn // nil once it is read by its descriptor
	fd       int
	frames   frames
	assigned bool      // its partitions were told
	err      error     // why it has ended
	full     time.Time // when it had all records
}

// sockets are those of one measurement.
type sockets struct {
	all  []*socket
	want int64 // records for each; 0: nobody waits for any
	c    *client.Client

	watchers []chan struct{} // woken after bytes came; complete before follow is called

	mu sync.Mutex // guards what came over the sockets
}

// watch returns a channel that is woken after bytes came.
func (s *sockets) watch() <-chan struct{} {
	w := make(chan struct{}, 1)
	s.watchers = append(s.watchers, w)
	return w
}

// wake wakes who watches, if they are not woken already.
func (s *sockets) wake() {
	for _, w := range s.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// openSockets opens n sockets and subscribes each to the latest of a topic. The sockets
// that were opened are returned with an error too.
func openSockets(ctx context.Context, c *client.Client, o *Options) (*sockets, error) {
	s := &sockets{c: c, all: make([]*socket, o.Connections)}
	var frame bytes.Buffer
	topic, err := json.Marshal(o.Topic)
	if err != nil {
		return s, err
	}
	fmt.Fprintf(&frame, `{"op":"subscribe","topics":[%s],"from":"latest"`, topic)
	if o.MaxRecords > 0 {
		fmt.Fprintf(&frame, `,"max_records":%d`, o.MaxRecords)
	}
	frame.WriteByte('}')
	g := lifecycle.New(ctx)
	todo, errs := make(chan int), make(chan error, openers)
	for i := range openers {
		g.Go(fmt.Sprintf("open %d", i), func(ctx context.Context) {
			var err error
			for n := range todo {
				if err != nil {
					continue
				}
				if s.all[n], err = s.open(ctx, frame.Bytes()); err == nil && o.Records == 0 {
					o.note(1)
				}
			}
			errs <- err
		})
	}
	for n := range s.all {
		todo <- n
	}
	close(todo)
	for range openers {
		err = errors.Join(err, <-errs)
	}
	return s, errors.Join(err, g.Stop(dialTimeout))
}

func (s *sockets) open(ctx context.Context, subscribe []byte) (*socket, error) {
	conn, err := s.c.DialWebSocket(ctx, "/v1/ws/consume")
	if err != nil {
		return nil, err
	}
	// The server says nothing before it is asked to, so the library's buffer is empty and
	// the connection can be read without it.
	if err := conn.WriteMessage(websocket.TextMessage, subscribe); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &socket{conn: conn.NetConn(), fd: -1}, nil
}

func (x *socket) close() {
	if x.conn != nil {
		_ = x.conn.Close()
	}
	x.closeDescriptor()
}

func (x *socket) write(b []byte) error {
	if x.conn == nil {
		return x.writeDescriptor(b)
	}
	_, err := x.conn.Write(b)
	return err
}

func (s *sockets) close() {
	for _, x := range s.all {
		if x != nil {
			x.close() // the measurement is over
		}
	}
}

// took is told that bytes came in for a socket, or why it has ended.
func (s *sockets) took(x *socket, b []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if err == nil {
		err = x.frames.take(b, now, func(e event) error { return x.on(e) })
	}
	if err != nil && x.err == nil {
		x.err = err
	}
	if s.want > 0 && x.full.IsZero() && x.frames.records >= s.want {
		x.full = now
	}
}

// on follows what came besides records.
func (x *socket) on(e event) error {
	switch {
	case e.op == opClose:
		return closing(e.payload)
	case e.op == opPing:
		return x.write(pong(e.payload))
	case e.op == opPong, bytes.HasPrefix(e.payload, subscribed), bytes.HasPrefix(e.payload, expiring):
		return nil
	case bytes.HasPrefix(e.payload, assigned):
		x.assigned = true
		return nil
	}
	return fmt.Errorf("the server sent %.300s", e.payload)
}

// state is what the sockets have come to.
type state struct {
	assigned, ended, full int
	records, slowest      int64 // slowest: of those that have not ended
	err                   error // the first of those that have ended
}

func (s *sockets) state() state {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := state{slowest: -1}
	for _, x := range s.all {
		st.records += x.frames.records
		if x.assigned {
			st.assigned++
		}
		switch {
		case x.err != nil:
			st.ended++
			if st.err == nil {
				st.err = x.err
			}
			continue
		case !x.full.IsZero():
			st.full++
		}
		if st.slowest < 0 || x.frames.records < st.slowest {
			st.slowest = x.frames.records
		}
	}
	return st
}

// await waits until what the sockets have come to is enough, and asks after each time
// that bytes came in, signalled by changed. An error from failed ends it.
func (s *sockets) await(ctx context.Context, changed <-chan struct{}, enough func(state) bool, failed <-chan error) error {
	quiet := time.NewTimer(silenceLimit)
	defer quiet.Stop()
	for last := int64(-1); ; {
		st := s.state()
		if enough(st) {
			return nil
		}
		if sum := st.records + int64(st.assigned+st.ended); sum != last {
			last = sum
			quiet.Reset(silenceLimit)
		}
		select {
		case <-changed:
		case err := <-failed:
			return err
		case <-quiet.C:
			return fmt.Errorf("nothing came for %s: %d of %d sockets are open, with %d records in all", silenceLimit, st.assigned-st.ended, len(s.all), st.records)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// followAlone reads all sockets until the context ends, each by a goroutine.
func (s *sockets) followAlone(ctx context.Context) error {
	g := lifecycle.New(ctx)
	for i, x := range s.all {
		g.Go(fmt.Sprintf("socket %d", i), func(ctx context.Context) {
			defer context.AfterFunc(ctx, func() { _ = x.conn.Close() })()
			buf := make([]byte, socketBuffer/4)
			for {
				n, err := x.conn.Read(buf)
				s.took(x, buf[:n], err)
				s.wake()
				if err != nil {
					return
				}
			}
		})
	}
	<-ctx.Done()
	return g.Stop(dialTimeout)
}
