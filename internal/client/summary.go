package client

import (
	"cmp"
	"errors"
	"slices"

	"tidewire/internal/model"
)

// SummaryView is a ProduceSummary as the interface tells it at the end of a body of
// lines, with more counts.
type SummaryView struct {
	Records  int64       `json:"records"` // stored as acks asks; with none, taken
	Failed   int64       `json:"failed"`  // refused, or unknown
	Stopped  *model.Code `json:"stopped"` // null: the input was read to its end
	Offsets  []SpanView  `json:"offsets"` // null with acks=none
	Unknown  int64       `json:"unknown"` // of those that failed
	Lines    int64       `json:"lines"`
	Requests int64       `json:"requests"`
	Retries  int64       `json:"retries"`
}

// SpanView is the lowest and highest offset that a partition's records were given.
type SpanView struct {
	Partition   model.PartitionID `json:"partition"`
	FirstOffset model.Offset      `json:"first_offset"`
	LastOffset  model.Offset      `json:"last_offset"`
}

// View is the summary of a run of Produce that ended with err.
func (s *ProduceSummary) View(acks string, err error) SummaryView {
	v := SummaryView{
		Records: s.Stored + s.Accepted, Failed: s.Failed + s.Unknown, Unknown: s.Unknown,
		Lines: s.Lines, Requests: s.Requests, Retries: s.Retries, Stopped: stoppedBy(err),
	}
	if acks == "none" {
		return v
	}
	v.Offsets = []SpanView{}
	for p, at := range s.Partitions {
		v.Offsets = append(v.Offsets, SpanView{p, at.First, at.Last})
	}
	slices.SortFunc(v.Offsets, func(a, b SpanView) int { return cmp.Compare(a.Partition, b.Partition) })
	return v
}

// stoppedBy is the code of what ended reading: the server's, or the one that the server
// has for such a fault.
func stoppedBy(err error) *model.Code {
	var p *Problem
	var line *LineError
	var t *TransportError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p) && p.Code != "":
		return &p.Code
	case errors.As(err, &line):
		return new(model.MalformedBody)
	case errors.As(err, &t) && t.NotSent:
		return new(model.LeaderUnavailable)
	case errors.As(err, &t):
		return new(model.Timeout)
	}
	return new(model.Internal)
}
