package lines

import (
	"encoding/json"
	"strconv"
	"strings"

	"tidewire/api/problem"
	"tidewire/broker"
	"tidewire/broker/partition"
	"tidewire/internal/model"
)

// summary counts what became of the lines.
type summary struct {
	records, failed int64
	unknown         bool   // of some line it is not known whether it is stored
	offsets         []span // by partition
	old             int    // records older than retention.ms
}

// span is the lowest and the highest offset that a partition's records were given.
type span struct {
	first, last model.Offset
	any         bool
}

func (s *summary) stored(r *broker.RecordResult) {
	s.records++
	p := int(r.Partition)
	for len(s.offsets) <= p {
		s.offsets = append(s.offsets, span{})
	}
	at := &s.offsets[p]
	if !at.any {
		*at = span{r.Offset, r.Offset, true}
	}
	at.first, at.last = min(at.first, r.Offset), max(at.last, r.Offset)
}

// answer tells what became of a flight's lines. With why set it is not waited for.
func (s *server) answer(f *flight, why error) {
	var results []broker.RecordResult
	if f.batch.Len() > 0 {
		results = f.batch.Result(why).Results
	}
	b := s.scratch[:0]
	refused := f.refused
	for i := f.first; i < f.first+f.lines; i++ {
		if len(refused) > 0 && refused[0].index == i {
			b = s.appendProblem(b, i, refused[0].why) // counted when it was decoded
			refused = refused[1:]
			continue
		}
		r := &results[0]
		results = results[1:]
		if r.Err != nil {
			s.failed()
			s.sum.unknown = s.sum.unknown || model.AsError(r.Err).EffectiveOutcome() == model.Unknown
			b = s.appendProblem(b, i, r.Err)
			continue
		}
		s.sum.stored(r)
		if s.c.Results == All {
			b = s.appendResult(b, i, r)
		}
	}
	clear(f.refused)
	if s.scratch = b; len(b) > 0 {
		s.out.put(b)
	}
}

func (s *server) appendResult(b []byte, index int64, r *broker.RecordResult) []byte {
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, index, 10)
	if s.c.Acks == partition.AcksNone { // where it went is not told
		return append(b, `,"partition":null,"offset":null,"timestamp":null}`+"\n"...)
	}
	b = append(b, ',')
	at := len(b)
	b = s.results.Append(b, r.Partition, r.Offset, r.Timestamp)
	copy(b[at:], b[at+1:]) // without the brace that Append begins with
	b[len(b)-1] = '\n'
	return b
}

func (s *server) appendProblem(b []byte, index int64, err error) []byte {
	if s.c.Results == None {
		return b
	}
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, index, 10)
	b = append(b, `,"problem":`...)
	b = append(b, s.problem(err)...)
	return append(b, '}', '\n')
}

// problem is an error as lines tell it, bounded in size whatever the client sent.
func (s *server) problem(err error) []byte {
	p, failed := json.Marshal(problem.Of(clipped(model.AsError(err)), s.c.At))
	if failed != nil { // an extra member that JSON does not have: say the rest
		p, _ = json.Marshal(problem.Of(model.Errorf(model.AsError(err).Code, ""), s.c.At))
	}
	return p
}

// Bounds of a problem in a line.
const (
	maxDetail = 300 // bytes of a text
	maxFields = 4
)

func clipped(e *model.Error) *model.Error {
	out := *e
	out.Detail = clip(e.Detail)
	out.Fields = nil
	for _, f := range e.Fields[:min(len(e.Fields), maxFields)] {
		out.Fields = append(out.Fields, model.FieldError{Pointer: clip(f.Pointer), Detail: clip(f.Detail)})
	}
	return &out
}

func clip(s string) string {
	if len(s) <= maxDetail {
		return s
	}
	return strings.ToValidUTF8(s[:maxDetail], "") + "…"
}

// spanView is a partition's offsets in the summary.
type spanView struct {
	Partition   int          `json:"partition"`
	FirstOffset model.Offset `json:"first_offset"`
	LastOffset  model.Offset `json:"last_offset"`
}

type summaryView struct {
	Records int64      `json:"records"`
	Failed  int64      `json:"failed"`
	Stopped *string    `json:"stopped"`
	Warning *string    `json:"warning"`
	Offsets []spanView `json:"offsets"`
}

// ofAll is why the answer ends early. Its outcome is that of the request: once a line was
// stored, or may have been, sending everything again would store it twice.
func (s *server) ofAll(why error) error {
	if s.sum.records > 0 || s.sum.unknown {
		return model.AsError(why).WithOutcome(model.Unknown)
	}
	return why
}

// summary is the end of the answer: why it ended early, if it did, and the counts.
func (s *server) summary() []byte {
	var b []byte
	switch {
	case s.cause != nil:
		b = append(append(append(b, `{"problem":`...), s.problem(s.ofAll(s.cause))...), '}', '\n')
	case s.stopped == stopsNode:
		b = append(b, `{"end":{"reason":"node-stopping"}}`+"\n"...)
	}
	v := summaryView{Records: s.sum.records, Failed: s.sum.failed, Offsets: []spanView{}}
	if s.stopped != "" {
		v.Stopped = &s.stopped
	}
	if s.sum.old > 0 {
		v.Warning = new(broker.OldWarning(s.sum.old))
	}
	if s.c.Acks == partition.AcksNone {
		v.Offsets = nil
	} else {
		for p, at := range s.sum.offsets {
			if at.any {
				v.Offsets = append(v.Offsets, spanView{p, at.first, at.last})
			}
		}
	}
	line, _ := json.Marshal(v) // numbers and texts: it cannot fail
	b = append(append(append(b, `{"summary":`...), line...), '}', '\n')
	return b
}
