package forward

import (
	"context"
	"encoding/binary"
	"encoding/json"

	"tidewire/cluster/peer"
	"tidewire/internal/model"
)

// Methods of requests between brokers. Numbers are part of the protocol: never reuse one.
// Those from 64 on are the coordinators'.
const (
	MethodEnds      peer.Method = 1  // offsets of partitions
	MethodRead      peer.Method = 2  // stored batches, for readers that decode them
	MethodAt        peer.Method = 3  // the offset of a time
	MethodAborted   peer.Method = 4  // aborted transactions
	MethodWatch     peer.Method = 5  // answered when offsets have moved
	MethodProduce   peer.Method = 6  // slices of a produce call
	MethodKeys      peer.Method = 7  // slices of an Idempotency-Key
	MethodDelete    peer.Method = 8  // log starts are moved up
	MethodDescribe  peer.Method = 9  // sizes and rates of topics
	MethodStored    peer.Method = 10 // stored batches, as a client gets them
	MethodNode      peer.Method = 11 // how the node is
	MethodHistory   peer.Method = 12 // what the node has measured lately
	FirstOfGroups   peer.Method = 64
	maxHead                     = 8 << 20
	headLengthBytes             = 4
)

// join is a message of a head and a body, which it copies.
func join(head any, body ...[]byte) ([]byte, error) {
	h, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	n := headLengthBytes + len(h)
	for _, b := range body {
		n += len(b)
	}
	out := binary.BigEndian.AppendUint32(make([]byte, 0, n), uint32(len(h)))
	out = append(out, h...)
	for _, b := range body {
		out = append(out, b...)
	}
	return out, nil
}

// split reads a message; the body is part of b.
func split(b []byte, head any) (body []byte, err error) {
	if len(b) < headLengthBytes {
		return nil, malformed(nil)
	}
	n := binary.BigEndian.Uint32(b)
	if b = b[headLengthBytes:]; n > maxHead || int(n) > len(b) {
		return nil, malformed(nil)
	}
	if err := json.Unmarshal(b[:n], head); err != nil {
		return nil, malformed(err)
	}
	return b[n:], nil
}

func malformed(err error) error {
	return model.Errorf(model.Internal, "a message between nodes does not read").WithCause(err)
}

// Fault is an error within an answer; nil: none.
type Fault struct{ Err error }

// MarshalJSON implements json.Marshaler.
func (f Fault) MarshalJSON() ([]byte, error) {
	if f.Err == nil {
		return []byte("null"), nil
	}
	return peer.EncodeFault(f.Err), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *Fault) UnmarshalJSON(b []byte) error {
	f.Err = nil
	if string(b) != "null" {
		f.Err = peer.DecodeFault(b)
	}
	return nil
}

// Mux answers requests of other nodes by their method. It is filled before it serves.
type Mux struct {
	by map[peer.Method]peer.Handler
}

// NewMux returns one that answers nothing yet.
func NewMux() *Mux { return &Mux{by: map[peer.Method]peer.Handler{}} }

// Serve answers a request; it is a peer.Handler.
func (m *Mux) Serve(ctx context.Context, r peer.Request) ([]byte, error) {
	h := m.by[r.Method]
	if h == nil {
		return nil, model.Errorf(model.NotImplemented, "this node does not know request %d between brokers", r.Method)
	}
	return h(ctx, r)
}

// Handle has a method's requests answered, whose head and answer are JSON.
func Handle[Q, A any](m *Mux, method peer.Method, answer func(ctx context.Context, q Q) (A, error)) {
	m.by[method] = func(ctx context.Context, r peer.Request) ([]byte, error) {
		var q Q
		if err := json.Unmarshal(r.Payload, &q); err != nil {
			return nil, malformed(err)
		}
		a, err := answer(ctx, q)
		if err != nil {
			return nil, err
		}
		return json.Marshal(a)
	}
}

// HandleBytes is Handle for answers with bytes behind them.
func HandleBytes[Q, A any](m *Mux, method peer.Method, answer func(ctx context.Context, q Q) (A, []byte, error)) {
	m.by[method] = func(ctx context.Context, r peer.Request) ([]byte, error) {
		var q Q
		if err := json.Unmarshal(r.Payload, &q); err != nil {
			return nil, malformed(err)
		}
		a, body, err := answer(ctx, q)
		if err != nil {
			return nil, err
		}
		return join(a, body)
	}
}

// AskBytes is Ask for answers of HandleBytes.
func AskBytes[Q, A any](ctx context.Context, n Network, to model.BrokerID, m peer.Method, q Q) (a A, body []byte, err error) {
	payload, err := json.Marshal(q)
	if err != nil {
		return a, nil, err
	}
	b, err := n.CallBroker(ctx, to, m, payload)
	if err != nil {
		return a, nil, err
	}
	body, err = split(b, &a)
	return a, body, err
}

// Network reaches other brokers.
type Network interface {
	// CallBroker asks a broker. The error is what the other one's handler has returned, a
	// *model.Error, or a *peer.CallError where there was no answer. The payload is not changed
	// any more from then on.
	CallBroker(ctx context.Context, to model.BrokerID, m peer.Method, payload []byte) ([]byte, error)
}

// Ask sends a request whose head and answer are JSON. Errors: as of Network.CallBroker.
func Ask[Q, A any](ctx context.Context, n Network, to model.BrokerID, m peer.Method, q Q) (a A, err error) {
	payload, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	b, err := n.CallBroker(ctx, to, m, payload)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return a, malformed(err)
	}
	return a, nil
}
