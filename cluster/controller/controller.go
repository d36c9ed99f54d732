// Package controller decides what the leader of the metadata quorum wants: which nodes are
// servers of the quorum and which of them vote, and which brokers are fenced. It is pure and
// level-triggered: it compares what is with what it sees, and gives the next step. Its caller
// is cluster, which sees, takes the step and asks again.
package controller

import (
	"cmp"
	"slices"
	"time"

	"tidewire/internal/model"
)

// MaxVoters is the most servers of a quorum that vote; further nodes follow without a vote.
const MaxVoters = 5

// replaceAfter is how long a voter must be gone before another takes its vote.
const replaceAfter = 30 * time.Second

// removeAfter is how long a server without a broker must be gone before it is taken out.
const removeAfter = 5 * time.Second

// Server is a server of the quorum, with what is seen of it.
type Server struct {
	Storage string // its id in the quorum
	Node    model.BrokerID
	Known   bool // Node is known
	// Registered says that a broker is registered for it. One that was and is not any more has been
	// removed by an operator.
	Registered bool
	Voter      bool
	Alive      bool          // gossip sees it
	Gone       time.Duration // since when it is not alive; 0 while it is
	CaughtUp   bool          // it has applied what was committed a moment ago
	Full       bool          // its disk has no room for changes
}

// Candidate is a node that gossip sees alive and that is no server yet.
type Candidate struct {
	Storage string
	Node    model.BrokerID
}

// Action is what to do with a server.
type Action uint8

// Actions.
const (
	Keep Action = iota
	Add         // as a server without a vote
	Promote
	Demote
	Remove
)

// Voters is how many of n nodes vote once all are there: an odd number, MaxVoters at most.
func Voters(n int) int { return min((n-1)|1, MaxVoters) }

// Change is one step.
type Change struct {
	Action  Action
	Storage string
}

// NextServer gives the next change of the quorum's servers, Keep when there is none. One
// change at a time is safe in raft; the caller asks again when it is made.
//
// Voters stay odd: two that have caught up are promoted back to back. A voter goes only when
// its node came back with an empty data folder, or, gone for long, once its replacement votes, or
// when an operator has removed its broker.
func NextServer(self string, servers []Server, candidates []Candidate) Change {
	slices.SortFunc(servers, byNode)
	slices.SortFunc(candidates, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Storage, b.Storage))
	})
	if c := admit(self, servers, candidates); c.Action != Keep {
		return c
	}
	if s := removed(self, servers); s != "" {
		return Change{Remove, s}
	}
	return vote(self, servers)
}

func byNode(a, b Server) int {
	return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Storage, b.Storage))
}

// HandOver is the voter that is to lead where the leader's disk has no room for changes, "" when
// the leader has, or none of the others.
func HandOver(self string, servers []Server) string {
	to, full := "", false
	slices.SortFunc(servers, byNode)
	for _, s := range servers {
		switch {
		case s.Storage == self:
			full = s.Full
		case to == "" && s.Voter && s.Alive && s.CaughtUp && !s.Full:
			to = s.Storage
		}
	}
	if !full {
		return ""
	}
	return to
}

// removed is a server that is gone and whose broker nobody knows any more: it was removed, or it
// went before it had registered and is taken in anew when it comes back. Only a node that has
// registered gets a vote, so that a voter among them was removed.
func removed(self string, servers []Server) string {
	for _, s := range servers {
		if !s.Registered && !s.Alive && s.Gone >= removeAfter && s.Storage != self {
			return s.Storage
		}
	}
	return ""
}

// admit takes the first candidate in. What its node was before, with another data folder,
// goes first, unless that still lives: then one of two nodes was given a wrong id.
func admit(self string, servers []Server, candidates []Candidate) Change {
	for _, c := range candidates {
		i := slices.IndexFunc(servers, func(s Server) bool { return s.Known && s.Node == c.Node && s.Storage != c.Storage })
		switch {
		case i < 0:
			return Change{Add, c.Storage}
		case servers[i].Alive || servers[i].Storage == self:
			continue
		}
		return Change{Remove, servers[i].Storage}
	}
	return Change{}
}

// vote changes who votes.
func vote(self string, servers []Server) Change {
	voters := 0
	lost, ready := -1, []string{}
	for i, s := range servers {
		switch {
		case s.Voter:
			voters++
			if !s.Alive && s.Gone >= replaceAfter && s.Storage != self && lost < 0 {
				lost = i
			}
		case s.Alive && s.CaughtUp:
			ready = append(ready, s.Storage)
		}
	}
	even := voters%2 == 0
	switch {
	case even && lost >= 0:
		return Change{Demote, servers[lost].Storage}
	case even && voters < MaxVoters && len(ready) > 0,
		!even && voters < MaxVoters && len(ready) > 1,
		!even && lost >= 0 && len(ready) > 0:
		return Change{Promote, ready[0]}
	}
	return Change{}
}

// Broker is a registered broker, with what the leader has heard of it.
type Broker struct {
	ID     model.BrokerID
	Epoch  int64 // registered
	Fenced bool
	Voter  bool // its node votes in the quorum

	Silent  time.Duration // since its last heartbeat, or since the leader leads if that is less
	Gone    bool          // gossip says that it has failed or left
	Closed  bool          // its host refuses connections to its port: the process is gone
	Unheard bool          // there was no heartbeat since the leader leads
	Said    int64         // epoch in its last heartbeat; 0: there was none
	Applied uint64        // raft index in its last heartbeat
	// Stopping says that its last heartbeat wished to stop: its partitions get other leaders
	// before it does.
	Stopping bool
}

// Times of fencing: a broker that gossip lost too is fenced sooner, and one whose process is known
// to be gone as soon as it has missed a heartbeat.
const (
	silentAndClosed = 750 * time.Millisecond
	silentAndGone   = 1500 * time.Millisecond
	silent          = 6 * time.Second
)

// stops: this life of the broker, and not an earlier one, is about to end.
func (b Broker) stops() bool { return b.Stopping && b.Said == b.Epoch }

func (b Broker) lost() bool {
	return b.Silent >= silent || b.Gone && b.Silent >= silentAndGone || b.Closed && b.missed()
}

// missed: a heartbeat should have come. A new leader need not wait for one.
func (b Broker) missed() bool { return b.Unheard || b.Silent >= silentAndClosed }

// Suspect tells whether it matters if a broker's process is gone: it is worth a look at its port.
func (b Broker) Suspect() bool { return !b.Fenced && b.missed() && !b.lost() }

// Fencing is whom to fence and whom to let lead again.
type Fencing struct{ Fence, Unfence []model.BrokerID }

// NextFencing compares what is with what was heard. A leader that hears of fewer than a
// majority of the voters fences nobody: it may be the one that is cut off.
func NextFencing(brokers []Broker) Fencing {
	var f Fencing
	voters, heard := 0, 0
	for _, b := range brokers {
		if b.Voter {
			voters++
			if !b.lost() {
				heard++
			}
		}
	}
	for _, b := range brokers {
		switch {
		case !b.Fenced && (b.lost() || b.stops()) && 2*heard > voters:
			f.Fence = append(f.Fence, b.ID)
		case b.Fenced && !b.lost() && !b.stops() && b.Said == b.Epoch && b.Applied >= uint64(b.Epoch):
			f.Unfence = append(f.Unfence, b.ID)
		}
	}
	return f
}
