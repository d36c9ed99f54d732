package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"tidewire/internal/lifecycle"

	"github.com/gorilla/websocket"
)

// Subprotocol is the one that the server speaks.
const Subprotocol = "tidewire.v1.json"

const (
	wsWriteTimeout = 30 * time.Second
	wsCloseWait    = 2 * time.Second
	wsFrameLimit   = 256 << 20
)

// WSOptions say when WebSocket ends; of those that are set the first to come true.
type WSOptions struct {
	Wait    time.Duration // after the input's end; negative: without end
	Count   int64         // after so many frames; 0: no bound
	Records int64         // once frames "records" have brought so many records; 0: no bound
}

// ErrWSIncomplete means that Wait was over before Count or Records was reached.
var ErrWSIncomplete = errors.New("the wait was over before all the frames asked for had come")

// WebSocket opens path, sends each line of in as a text frame, blank ones left out,
// and hands each frame that comes to emit, as one line of JSON. It closes the socket
// when the options say so. A close by the server other than the normal one is an error.
func (c *Client) WebSocket(ctx context.Context, path string, in io.Reader, o WSOptions, emit func([]byte) error) error {
	conn, err := c.DialWebSocket(ctx, path)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetReadLimit(wsFrameLimit)
	g := lifecycle.New(ctx)
	s := &socket{conn: conn, o: o, emit: emit, chunks: make(chan []byte), frames: make(chan []byte)}
	g.Go("read input", func(ctx context.Context) {
		defer close(s.chunks)
		s.inputErr = readChunks(ctx, in, s.chunks)
	})
	g.Go("read frames", s.readFrames)
	err = s.run(ctx)
	s.close()
	_ = g.Stop(0) // a Read of the input that blocks cannot be ended
	return err
}

// DialWebSocket opens a socket, which is the caller's to close; a refused token is renewed
// once. An answer that opens none is a *Problem.
func (c *Client) DialWebSocket(ctx context.Context, path string) (*websocket.Conn, error) {
	token, err := c.tokens.Token(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := c.handshake(ctx, path, token)
	var p *Problem
	if token == "" || !errors.As(err, &p) || p.Status != http.StatusUnauthorized {
		return conn, err
	}
	newer, rerr := c.tokens.Renew(ctx, token)
	switch {
	case rerr != nil:
		return nil, rerr
	case newer == "":
		return nil, err
	}
	return c.handshake(ctx, path, newer)
}

// handshake opens the socket; an answer that is none is a *Problem.
func (c *Client) handshake(ctx context.Context, path, token string) (*websocket.Conn, error) {
	u := *c.base
	u.Scheme = map[string]string{"http": "ws", "https": "wss"}[u.Scheme]
	d := websocket.Dialer{Subprotocols: []string{Subprotocol}, HandshakeTimeout: 15 * time.Second, Proxy: http.ProxyFromEnvironment}
	header := http.Header{"User-Agent": {"tidewire"}}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	conn, resp, err := d.DialContext(ctx, u.String()+path, header)
	if resp != nil {
		defer resp.Body.Close()
	}
	switch {
	case err == nil:
		return conn, nil
	case resp == nil:
		return nil, c.transportError(ctx, err)
	}
	return nil, problemOf(resp)
}

// socket is one run of WebSocket.
type socket struct {
	conn *websocket.Conn
	o    WSOptions
	emit func([]byte) error

	chunks   chan []byte // lines of the input; closed at its end
	inputErr error       // written before chunks is closed
	frames   chan []byte // closed when the socket has ended
	frameErr error       // written before frames is closed

	count, records int64
}

func (s *socket) readFrames(ctx context.Context) {
	defer close(s.frames)
	for {
		_, frame, err := s.conn.ReadMessage()
		if err != nil {
			s.frameErr = err
			return
		}
		select {
		case s.frames <- frame:
		case <-ctx.Done():
			s.frameErr = ctx.Err()
			return
		}
	}
}

func (s *socket) run(ctx context.Context) error {
	chunks := s.chunks
	var over <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-over:
			if s.o.Count > 0 || s.o.Records > 0 {
				return ErrWSIncomplete
			}
			return nil
		case chunk, ok := <-chunks:
			if !ok {
				if s.inputErr != nil {
					return s.inputErr
				}
				chunks = nil
				if s.o.Wait >= 0 {
					t := time.NewTimer(s.o.Wait)
					defer t.Stop()
					over = t.C
				}
				continue
			}
			if err := s.send(chunk); err != nil {
				return err
			}
		case frame, ok := <-s.frames:
			if !ok {
				return s.closed()
			}
			if done, err := s.take(frame); done || err != nil {
				return err
			}
		}
	}
}

func (s *socket) send(chunk []byte) error {
	for line := range bytes.Lines(chunk) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		_ = s.conn.SetWriteDeadline(time.Now().Add(wsWriteTimeout))
		if err := s.conn.WriteMessage(websocket.TextMessage, line); err != nil {
			return fmt.Errorf("a frame could not be sent: %w", err)
		}
	}
	return nil
}

// take prints a frame and reports whether it was the last one wanted.
func (s *socket) take(frame []byte) (done bool, err error) {
	if bytes.IndexByte(frame, '\n') >= 0 {
		var b bytes.Buffer
		if json.Compact(&b, frame) == nil {
			frame = b.Bytes()
		}
	}
	if s.o.Records > 0 {
		var f struct {
			Op      string            `json:"op"`
			Records []json.RawMessage `json:"records"`
		}
		if json.Unmarshal(frame, &f) == nil && f.Op == "records" {
			s.records += int64(len(f.Records))
		}
	}
	s.count++
	err = s.emit(frame)
	return s.o.Count > 0 && s.count >= s.o.Count || s.o.Records > 0 && s.records >= s.o.Records, err
}

// closed says how the server ended the socket.
func (s *socket) closed() error {
	var ce *websocket.CloseError
	switch {
	case !errors.As(s.frameErr, &ce):
		return fmt.Errorf("the socket broke: %w", s.frameErr)
	case ce.Code == websocket.CloseNormalClosure:
		return nil
	case ce.Text != "":
		return fmt.Errorf("the server closed the socket: %d %s", ce.Code, ce.Text)
	}
	return fmt.Errorf("the server closed the socket: %d", ce.Code)
}

// close says goodbye and waits a little for the server's.
func (s *socket) close() {
	bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = s.conn.WriteControl(websocket.CloseMessage, bye, time.Now().Add(wsCloseWait))
	_ = s.conn.SetReadDeadline(time.Now().Add(wsCloseWait))
	for range s.frames { // until the reader has ended
	}
}
