package replication

import (
	"tidewire/internal/model"
)

// Position is where a follower is when it fetches.
type Position struct {
	Epoch     model.LeaderEpoch // the leader epoch that it follows
	LogEnd    model.Offset
	LastEpoch model.LeaderEpoch // of its last batch; NoEpoch for an empty log
	StableEnd model.Offset
	LogStart  model.Offset // durable
}

// LeaderLog is what Serve asks of a leader's log; *log.Log is one.
type LeaderLog interface {
	LogStart() model.Offset
	LogEnd() model.Offset
	LogEndEpoch() model.LeaderEpoch
	EpochEnd(epoch model.LeaderEpoch) (model.LeaderEpoch, model.Offset)
}

// Verdict is what a fetch is answered with.
type Verdict uint8

// Verdicts.
const (
	Serving    Verdict = iota // the follower's log is a prefix of the leader's
	Diverged                  // it is not: Epoch and End say where to cut (KIP-595)
	OutOfRange                // it must begin anew at LogStart
)

// Answer is a verdict with what belongs to it.
type Answer struct {
	Verdict Verdict
	// Epoch is the largest that the leader has at or below the follower's last, End where it
	// ended in the leader's log; for Diverged.
	Epoch model.LeaderEpoch
	End   model.Offset
	// LogStart is the leader's.
	LogStart model.Offset
}

// Serve compares a follower's position with the leader's log. The epochs of request and
// leader have been found to be equal.
func Serve(l LeaderLog, p Position) Answer {
	a := Answer{LogStart: l.LogStart()}
	end := l.LogEnd()
	switch {
	case p.LogEnd < a.LogStart: // also where the epochs part: what would be cut is gone here (KAFKA-12996)
		a.Verdict = OutOfRange
		return a
	case p.LastEpoch == model.NoEpoch:
		if p.LogEnd > end {
			a.Verdict = OutOfRange
		}
		return a
	}
	asked := p.LastEpoch
	if latest := l.LogEndEpoch(); asked > latest {
		asked = latest // the leader's own epoch may have written nothing yet
	}
	if a.Epoch, a.End = l.EpochEnd(asked); a.Epoch == model.NoEpoch {
		a.End = end
	}
	if a.Epoch != p.LastEpoch || a.End < p.LogEnd {
		a.Verdict = Diverged
	}
	return a
}

// FollowerLog is what Next asks of a follower's log; *log.Log is one.
type FollowerLog interface {
	LogStart() model.Offset
	LogEnd() model.Offset
	CutFor(leader model.LeaderEpoch, leaderEnd model.Offset) (to model.Offset, agreed bool)
}

// Action is what a follower does with an answer.
type Action uint8

// Actions.
const (
	Append   Action = iota // what came with the answer, if anything
	Truncate               // to To, and fetch again
	Restart                // empty, at To, and fetch again
)

// Step is an action with its offset.
type Step struct {
	Action Action
	To     model.Offset
}

// SameLog reports whether a follower's log is still what it was at a fetch: an answer to another
// log, which came late or twice, must not be acted on. The log end alone does not tell; with the
// epoch of the last batch it does, since one leader has written that batch behind one prefix.
func SameLog(end model.Offset, last model.LeaderEpoch, at Position) bool {
	return end == at.LogEnd && last == at.LastEpoch
}

// Next decides what a follower does with the answer to its last fetch, when its log is SameLog.
func Next(l FollowerLog, a Answer) Step {
	switch a.Verdict {
	case Diverged:
		to, _ := l.CutFor(a.Epoch, a.End)
		if to < a.LogStart || to < l.LogStart() || to >= l.LogEnd() {
			return Step{Restart, a.LogStart} // nothing that both have is left at the leader, or here
		}
		return Step{Truncate, to}
	case OutOfRange:
		return Step{Restart, a.LogStart}
	}
	return Step{Action: Append}
}
