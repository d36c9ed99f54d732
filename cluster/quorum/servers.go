package quorum

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// Server is a server of the quorum.
type Server struct {
	Storage string
	Voter   bool
}

// changeTime bounds how long a change of the servers waits to enter the log.
const changeTime = 5 * time.Second

// Servers are those of the newest configuration that this node knows.
func (q *Quorum) Servers() []Server {
	var out []Server
	for _, s := range q.raft.GetConfiguration().Configuration().Servers {
		out = append(out, Server{Storage: string(s.ID), Voter: s.Suffrage == raft.Voter})
	}
	return out
}

// A server's address in the configuration is its storage id: where it is, the streams know.

// AddFollower makes a node a server without a vote. This and the changes below are for the
// leader; they return when the change is committed.
func (q *Quorum) AddFollower(ctx context.Context, storageID string) error {
	return q.await(ctx, q.raft.AddNonvoter(raft.ServerID(storageID), raft.ServerAddress(storageID), 0, changeTime))
}

// Promote gives a server a vote.
func (q *Quorum) Promote(ctx context.Context, storageID string) error {
	return q.await(ctx, q.raft.AddVoter(raft.ServerID(storageID), raft.ServerAddress(storageID), 0, changeTime))
}

// Demote takes a server's vote; it goes on following.
func (q *Quorum) Demote(ctx context.Context, storageID string) error {
	return q.await(ctx, q.raft.DemoteVoter(raft.ServerID(storageID), 0, changeTime))
}

// Remove takes a server out.
func (q *Quorum) Remove(ctx context.Context, storageID string) error {
	return q.await(ctx, q.raft.RemoveServer(raft.ServerID(storageID), 0, changeTime))
}

// Found founds a quorum of this node alone, on files without state.
func (q *Quorum) Found(ctx context.Context) error {
	servers := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(q.storageID), Address: raft.ServerAddress(q.storageID)}}}
	if err := q.await(ctx, q.raft.BootstrapCluster(servers)); err != nil {
		return fmt.Errorf("found the metadata quorum: %w", err)
	}
	q.leadAtOnce()
	return nil
}

// leadAtOnce spares the only voter the wait for a leader that cannot be there.
func (q *Quorum) leadAtOnce() {
	if !q.IsSoleVoter() {
		return
	}
	id := raft.ServerID(q.storageID)
	req := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: []byte(id),
	}}
	if err := q.trans.TimeoutNow(id, raft.ServerAddress(id), req, new(raft.TimeoutNowResponse)); err != nil {
		q.logger.log.Debug("the only voter waits for its election", "error", err)
	}
}

// HandTo has a voter lead in place of this node, which leads.
func (q *Quorum) HandTo(ctx context.Context, storageID string) error {
	return q.await(ctx, q.raft.LeadershipTransferToServer(raft.ServerID(storageID), raft.ServerAddress(storageID)))
}

// handOver lets another voter lead, when this node leads and stops.
func (q *Quorum) handOver(ctx context.Context) {
	if !q.IsLeader() || q.IsSoleVoter() {
		return
	}
	if err := q.await(ctx, q.raft.LeadershipTransfer()); err != nil {
		q.logger.log.Info("the leadership of the metadata quorum was not handed over", "error", err)
	}
}
