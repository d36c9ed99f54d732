package cluster

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"

	"tidewire/cluster/founding"
	"tidewire/cluster/peer"
	"tidewire/internal/model"
)

// Requests between nodes. The numbers are part of the protocol.
const (
	methodPropose   peer.Method = 1 // an encoded command → its raft index, 8 bytes
	methodReadIndex peer.Method = 2 // nothing → a raft index, 8 bytes
	methodBeat      peer.Method = 3 // beat → beatAnswer, as JSON
	methodGrant     peer.Method = 4 // founding.Ask → founding.Reply, as JSON
	methodReach     peer.Method = 5 // {} → reachAnswer, as JSON
)

// handle answers requests of other nodes.
func (c *Cluster) handle(ctx context.Context, r peer.Request) ([]byte, error) {
	if r.Method == methodGrant {
		return answerJSON(r.Payload, c.granting)
	}
	select {
	case <-c.net.up:
	default:
		return nil, model.Errorf(model.QuorumUnavailable, "node %d is starting", c.cfg.NodeID)
	}
	switch r.Method {
	case methodPropose:
		if !c.roomFor(r.Payload) {
			return nil, model.Errorf(model.StorageFull, "the disk of the metadata's leader is full; deleting topics or records makes room")
		}
		return indexBytes(c.quorum.ApplyForOther(ctx, r.Payload))
	case methodReadIndex:
		return indexBytes(c.quorum.ReadIndexForOther(ctx))
	case methodBeat:
		return answerJSON(r.Payload, c.heard)
	case methodReach:
		return json.Marshal(c.reach(ctx, r.From.Storage))
	}
	return nil, model.Errorf(model.NotImplemented, "node %d does not know request %d between nodes", c.cfg.NodeID, r.Method)
}

func indexBytes(index uint64, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return binary.BigEndian.AppendUint64(nil, index), nil
}

func answerJSON[Q, A any](payload []byte, answer func(Q) (A, error)) ([]byte, error) {
	var q Q
	if err := json.Unmarshal(payload, &q); err != nil {
		return nil, model.Errorf(model.MalformedBody, "a request between nodes does not read").WithCause(err)
	}
	a, err := answer(q)
	if err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

// ask sends a request as JSON and reads its answer.
func ask[Q, A any](ctx context.Context, p *peer.Port, storage string, m peer.Method, q Q) (a A, err error) {
	payload, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	b, err := p.Call(ctx, storage, m, payload)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(b, &a)
}

// remote asks the leader on behalf of the quorum.
type remote struct{ port *peer.Port }

// Propose implements quorum.Remote.
func (r remote) Propose(ctx context.Context, leader string, cmd []byte) (uint64, error) {
	b, err := r.port.Call(ctx, leader, methodPropose, cmd)
	var call *peer.CallError
	if errors.As(err, &call) && call.Sent {
		return 0, model.Errorf(model.CommitUnknown, "whether the change was made is not known").WithCause(err)
	}
	return indexOf(b, err)
}

// ReadIndex implements quorum.Remote.
func (r remote) ReadIndex(ctx context.Context, leader string) (uint64, error) {
	return indexOf(r.port.Call(ctx, leader, methodReadIndex, nil))
}

func indexOf(b []byte, err error) (uint64, error) {
	var call *peer.CallError
	switch {
	case errors.As(err, &call):
		return 0, model.Errorf(model.QuorumUnavailable, "the leader of the metadata quorum does not answer").WithCause(err)
	case err != nil:
		return 0, err
	case len(b) != 8:
		return 0, model.Errorf(model.CommitUnknown, "the leader of the metadata quorum has answered with %d bytes", len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

// granting answers a node that wants to found a cluster.
func (c *Cluster) granting(a founding.Ask) (founding.Reply, error) {
	me := founding.Node{ID: c.cfg.NodeID, Storage: c.identityNow().StorageID}
	taken := c.takenIn()
	c.foundingMu.Lock()
	defer c.foundingMu.Unlock()
	if c.founder == nil || taken {
		return founding.Reply{From: me, Member: true}, nil
	}
	r := c.founder.Asked(a)
	if err := c.keepGrantLocked(); err != nil {
		return founding.Reply{}, err
	}
	return r, nil
}

// takenIn: this node is in a cluster, though it may not know its id yet.
func (c *Cluster) takenIn() bool {
	select {
	case <-c.net.up:
		return len(c.quorum.Servers()) > 0
	default:
		return c.identityNow().ClusterID != ""
	}
}
