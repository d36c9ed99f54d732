package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var keyA, keyB = bytes.Repeat([]byte{1}, KeyBytes), bytes.Repeat([]byte{2}, KeyBytes)

// town is a set of ports that find each other.
type town struct {
	mu    sync.Mutex
	addrs map[string]string // guarded by mu: storage id → address
}

func (n *town) set(storage, address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addrs[storage] = address
}

func (n *town) resolve(storage string) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, ok := n.addrs[storage]
	return a, ok
}

func newTown() *town { return &town{addrs: map[string]string{}} }

type options struct {
	key     []byte
	cluster string
	handler Handler
	data    Handler
	log     io.Writer
}

func (n *town) start(t *testing.T, storage string, o options) *Port {
	t.Helper()
	if o.key == nil {
		o.key = keyA
	}
	if o.log == nil {
		o.log = io.Discard
	}
	if o.handler == nil {
		o.handler = func(_ context.Context, r Request) ([]byte, error) { return r.Payload, nil }
	}
	keys, err := NewKeys(o.key)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p, err := Start(Config{
		Keys: keys, Listener: l, Resolve: n.resolve, Handler: o.handler, Data: o.data, Streams: []string{RaftProtocol},
		Self:   func() Identity { return Identity{Node: 7, Storage: storage, Cluster: o.cluster, Binary: "test"} },
		Logger: slog.New(slog.NewTextHandler(o.log, nil)),
	})
	require.NoError(t, err)
	n.set(storage, l.Addr().String())
	t.Cleanup(func() { require.NoError(t, p.Stop(10*time.Second)) })
	return p
}

func TestACallIsAnsweredAndTheCallerIsKnown(t *testing.T) {
	t.Parallel()
	n := newTown()
	asked := make(chan Request, 1)
	n.start(t, "s-2", options{cluster: "c", handler: func(_ context.Context, r Request) ([]byte, error) {
		asked <- r
		return append([]byte("re: "), r.Payload...), nil
	}})
	p := n.start(t, "s-1", options{})
	got, err := p.Call(t.Context(), "s-2", 9, []byte("hello"))
	require.NoError(t, err)
	require.Equal(t, "re: hello", string(got))
	r := <-asked
	require.Equal(t, Method(9), r.Method)
	require.Equal(t, Identity{Node: 7, Storage: "s-1", Binary: "test"}, r.From)
	who, err := p.Greet(t.Context(), "s-2")
	require.NoError(t, err)
	require.Equal(t, "c", who.Cluster)
}

func TestAnswersComeOutOfOrderOnOneConnection(t *testing.T) {
	t.Parallel()
	n := newTown()
	release := make(chan struct{})
	n.start(t, "s-2", options{handler: func(ctx context.Context, r Request) ([]byte, error) {
		if r.Method == 1 {
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		return r.Payload, nil
	}})
	p := n.start(t, "s-1", options{})
	slow := make(chan error, 1)
	p.group.Go("test", func(ctx context.Context) {
		_, err := p.Call(ctx, "s-2", 1, []byte("slow"))
		slow <- err
	})
	big := bytes.Repeat([]byte{7}, MaxPayload)
	got, err := p.Call(t.Context(), "s-2", 2, big)
	require.NoError(t, err, "a request behind one that waits")
	require.True(t, bytes.Equal(big, got))
	select {
	case err := <-slow:
		t.Fatalf("it was not to be answered yet: %v", err)
	default:
	}
	close(release)
	require.NoError(t, <-slow)
	_, err = p.Call(t.Context(), "s-2", 2, append(big, 0))
	require.True(t, model.HasCode(err, model.RequestTooLarge))
}

func TestAnErrorCrossesWithItsCodeAndOutcome(t *testing.T) {
	t.Parallel()
	n := newTown()
	n.start(t, "s-2", options{handler: func(context.Context, Request) ([]byte, error) {
		return nil, model.Errorf(model.CommitUnknown, "who knows")
	}})
	p := n.start(t, "s-1", options{})
	_, err := p.Call(t.Context(), "s-2", 1, nil)
	require.True(t, model.HasCode(err, model.CommitUnknown), "%v", err)
	require.Equal(t, "who knows", model.AsError(err).Detail)
	require.Equal(t, model.Unknown, model.AsError(err).EffectiveOutcome())
}

func TestTheOtherSideIsToldWhenACallIsGivenUp(t *testing.T) {
	t.Parallel()
	n := newTown()
	begun, ended := make(chan struct{}), make(chan error, 1)
	n.start(t, "s-2", options{handler: func(ctx context.Context, _ Request) ([]byte, error) {
		close(begun)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, nil
	}})
	p := n.start(t, "s-1", options{})
	ctx, cancel := context.WithCancel(t.Context())
	p.group.Go("test", func(context.Context) { <-begun; cancel() })
	_, err := p.Call(ctx, "s-2", 1, nil)
	var call *CallError
	require.ErrorAs(t, err, &call)
	require.True(t, call.Sent)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, <-ended, context.Canceled, "not by its deadline of 30 s")
}

func TestTheDeadlineCrosses(t *testing.T) {
	t.Parallel()
	n := newTown()
	left := make(chan time.Duration, 1)
	n.start(t, "s-2", options{handler: func(ctx context.Context, _ Request) ([]byte, error) {
		at, _ := ctx.Deadline()
		left <- time.Until(at)
		return nil, nil
	}})
	p := n.start(t, "s-1", options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := p.Call(ctx, "s-2", 1, nil)
	require.NoError(t, err)
	require.InDelta(t, 10*time.Second, <-left, float64(10*time.Second))
}

func TestACallSaysWhetherItMayHaveArrived(t *testing.T) {
	t.Parallel()
	n := newTown()
	var other *Port
	stop := make(chan struct{})
	other = n.start(t, "s-2", options{handler: func(ctx context.Context, r Request) ([]byte, error) {
		if r.Method == 1 {
			close(stop)
			<-ctx.Done()
		}
		return nil, nil
	}})
	p := n.start(t, "s-1", options{})
	p.group.Go("test", func(context.Context) { <-stop; _ = other.Stop(10 * time.Second) })
	_, err := p.Call(t.Context(), "s-2", 1, nil)
	var call *CallError
	require.ErrorAs(t, err, &call)
	require.True(t, call.Sent, "%v", err)

	_, err = p.Call(t.Context(), "s-2", 2, nil)
	require.ErrorAs(t, err, &call)
	require.False(t, call.Sent, "nobody listens any more: %v", err)

	_, err = p.Call(t.Context(), "s-3", 2, nil)
	require.ErrorIs(t, err, ErrNoAddress)
}

func TestACallGoesOnAfterTheOtherNodeCameBackElsewhere(t *testing.T) {
	t.Parallel()
	n := newTown()
	first := n.start(t, "s-2", options{})
	p := n.start(t, "s-1", options{})
	_, err := p.Call(t.Context(), "s-2", 1, nil)
	require.NoError(t, err)
	require.NoError(t, first.Stop(10*time.Second))
	n.start(t, "s-2", options{})
	require.Eventually(t, func() bool {
		_, err := p.Call(t.Context(), "s-2", 1, nil)
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
}

func TestAnotherNodeAtTheAddressIsNotTakenForTheOneMeant(t *testing.T) {
	t.Parallel()
	n := newTown()
	n.start(t, "s-2", options{})
	p := n.start(t, "s-1", options{})
	address, _ := n.resolve("s-2")
	n.set("s-9", address)
	_, err := p.Call(t.Context(), "s-9", 1, nil)
	require.ErrorIs(t, err, ErrOtherNode)
}

func TestAWrongKeyIsRefusedOnBothSidesWithOneLine(t *testing.T) {
	t.Parallel()
	n := newTown()
	log := &logged{}
	n.start(t, "s-2", options{key: keyB, log: log})
	p := n.start(t, "s-1", options{})
	for range 3 {
		_, err := p.Call(t.Context(), "s-2", 1, nil)
		require.ErrorIs(t, err, ErrKey)
		require.NotContains(t, err.Error(), "\n")
	}
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "refused") }, 5*time.Second, time.Millisecond)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), "%s", log)
}

func TestAConnectionWithoutACertificateGetsNoAnswer(t *testing.T) {
	t.Parallel()
	n := newTown()
	served := make(chan Request, 1)
	n.start(t, "s-2", options{handler: func(_ context.Context, r Request) ([]byte, error) { served <- r; return nil, nil }})
	address, _ := n.resolve("s-2")
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{requestProtocol}, MinVersion: tls.VersionTLS13})
	if err == nil { // in TLS 1.3 the refusal comes with the first read
		_ = writeHello(c, greeting(Identity{Storage: "s-1"}))
		_, err = readHello(c)
		_ = c.Close()
	}
	require.Error(t, err)
	require.Empty(t, served)
}

func TestAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()
	n := newTown()
	log := &logged{}
	n.start(t, "s-2", options{cluster: "c-2", log: log})
	p := n.start(t, "s-1", options{cluster: "c-1"})
	_, err := p.Call(t.Context(), "s-2", 1, nil)
	require.ErrorIs(t, err, ErrOtherCluster)
	require.Contains(t, err.Error(), "c-1")
	require.Contains(t, err.Error(), "c-2")
	_, err = p.Streams(RaftProtocol).Dial("s-2", time.Second)
	require.ErrorIs(t, err, ErrOtherCluster, "raft's connections too")
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "c-1") }, 5*time.Second, time.Millisecond)
	n.start(t, "s-3", options{})
	_, err = p.Call(t.Context(), "s-3", 1, nil)
	require.NoError(t, err, "one that belongs to none yet may join")
}

func TestVersionsThatDoNotOverlapAreRefused(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		version, oldest int
		refused         bool
	}{
		"same":                  {Version, Oldest, false},
		"newer that speaks us":  {Version + 5, Version, false},
		"newer that does not":   {Version + 5, Version + 1, true},
		"older than we speak":   {Oldest - 1, Oldest - 1, true},
		"no version whatsoever": {0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mine, theirs := greeting(Identity{}), hello{Version: x.version, Oldest: x.oldest, Node: 3}
			why := judge(mine, theirs)
			require.Equal(t, x.refused, why == refusedVersion)
			if x.refused {
				require.ErrorIs(t, refusal(why, mine, theirs), ErrVersion)
			}
		})
	}
}

func TestStreamsCarryBytesBothWaysBesideRequests(t *testing.T) {
	t.Parallel()
	n := newTown()
	other := n.start(t, "s-2", options{})
	p := n.start(t, "s-1", options{})
	p.group.Go("test", func(context.Context) {
		c, err := other.Streams(RaftProtocol).Accept()
		if err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	})
	c, err := p.Streams(RaftProtocol).Dial("s-2", 5*time.Second)
	require.NoError(t, err)
	_, err = c.Write([]byte("ping"))
	require.NoError(t, err)
	got := make([]byte, 4)
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, "ping", string(got))
	require.NoError(t, c.Close())
	require.NoError(t, other.Streams(RaftProtocol).Close())
	_, err = other.Streams(RaftProtocol).Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestManyCallsAtOnceAreEachAnsweredWithTheirOwn(t *testing.T) {
	t.Parallel()
	n := newTown()
	n.start(t, "s-2", options{})
	p := n.start(t, "s-1", options{})
	errs := make(chan error, 400)
	for i := range cap(errs) {
		p.group.Go("test", func(ctx context.Context) {
			want := bytes.Repeat([]byte{byte(i)}, i*7)
			got, err := p.Call(ctx, "s-2", 1, want)
			if err == nil && !bytes.Equal(want, got) {
				err = errors.New("the answer of another call")
			}
			errs <- err
		})
	}
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
}

func TestFramesAreTheGoldenOnes(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]frame{
		"\x00\x00\x00\x11\x01\x00\x00\x00\x00\x00\x00\x01\x02\x00\x03\x00\x00\x05\xdchi": {kind: kindRequest, id: 258, method: 3, wait: 1500 * time.Millisecond, payload: []byte("hi")},
		"\x00\x00\x00\x0b\x02\x00\x00\x00\x00\x00\x00\x00\x01ok":                         {kind: kindAnswer, id: 1, payload: []byte("ok")},
		"\x00\x00\x00\x09\x04\x00\x00\x00\x00\x00\x00\x00\x01":                           {kind: kindCancel, id: 1, payload: []byte{}},
	} {
		require.Equal(t, want, string(f.encode()))
		b, err := readFrame(strings.NewReader(want), MaxPayload)
		require.NoError(t, err)
		got, err := decodeFrame(b)
		require.NoError(t, err)
		require.Equal(t, f, got)
	}
	require.Equal(t, `{"code":"timeout","outcome":"unknown","detail":"late"}`, string(EncodeFault(model.Errorf(model.Timeout, "late"))))
	require.Equal(t, "tidewire-peer tidewire-raft", requestProtocol+" "+RaftProtocol)
}

func FuzzFrame(f *testing.F) {
	f.Add(frame{kind: kindRequest, id: 1, method: 2, wait: time.Second, payload: []byte("x")}.encode())
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		body, err := readFrame(bytes.NewReader(b), 1<<16)
		if err != nil {
			return
		}
		got, err := decodeFrame(body)
		if err == nil && got.wait < 1<<31*time.Millisecond {
			require.Equal(t, b[:4+len(body)], got.encode())
		}
	})
}

func FuzzHello(f *testing.F) {
	var b bytes.Buffer
	require.NoError(f, writeHello(&b, greeting(Identity{Storage: "s"})))
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := readHello(bytes.NewReader(b)); err == nil {
			mine := greeting(Identity{Cluster: "c"})
			require.Equal(t, judge(mine, h) == "", refusal(judge(mine, h), mine, h) == nil)
		}
	})
}

// logged is a log that tests read while it is written.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
