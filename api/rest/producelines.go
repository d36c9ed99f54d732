package rest

import (
	"net/http"

	"tidewire/api/lines"
	"tidewire/api/problem"
	"tidewire/api/route"
	"tidewire/internal/model"
)

// ProduceLine is one line of the answer to a body of lines: what became of a record (index
// and either problem or partition, offset and timestamp, which are null under acks=none),
// why the answer ends early (problem without index, or end), or the summary, which is last.
type ProduceLine struct {
	Index     int64            `json:"index" extensions:"x-omittable"` // of the line in the body from 0, blank lines left out
	Partition *int32           `json:"partition" extensions:"x-omittable,x-nullable"`
	Offset    *int64           `json:"offset" extensions:"x-omittable,x-nullable"`
	Timestamp *int64           `json:"timestamp" extensions:"x-omittable,x-nullable"` // milliseconds since 1970
	Problem   *problem.Problem `json:"problem" extensions:"x-omittable"`
	End       *ProduceEnd      `json:"end" extensions:"x-omittable"`
	Summary   *ProduceSummary  `json:"summary" extensions:"x-omittable"`
}

// ProduceEnd tells why the node ended the request.
type ProduceEnd struct {
	Reason string `json:"reason" enums:"node-stopping"`
}

// ProduceSummary counts what became of the lines that were read.
type ProduceSummary struct {
	Records int64             `json:"records"`                         // stored as acks asks
	Failed  int64             `json:"failed"`                          // refused, or unknown
	Stopped *string           `json:"stopped" extensions:"x-nullable"` // why the lines behind were not read: too-many-failures, node-stopping or a problem's code
	Warning *string           `json:"warning" extensions:"x-nullable"` // what the producer should know though records were stored
	Offsets []ProducedOffsets `json:"offsets" extensions:"x-nullable"` // null under acks=none
}

// ProducedOffsets is the lowest and the highest offset that records got in a partition;
// records of others may lie between.
type ProducedOffsets struct {
	Partition   int32 `json:"partition"`
	FirstOffset int64 `json:"first_offset"`
	LastOffset  int64 `json:"last_offset"`
}

var resultsNames = map[string]lines.Results{"errors": lines.Errors, "all": lines.All, "none": lines.None}

// produceLines stores records that come one a line. What is known before the first line is
// a usual problem; then the status is 200.
func (a *API) produceLines(c *route.Call, path *model.PartitionID) error {
	acks, timeout, err := produceLevel(c)
	if err != nil {
		return err
	}
	if err := checkProduceParameters(c, mediaLines); err != nil {
		return err
	}
	if err := notForLines(c); err != nil {
		return err
	}
	name, given := c.Only("results")
	results, known := resultsNames[name]
	if given && !known {
		return model.Invalid("query:results", "results is errors, all or none, not %q", name)
	}
	p, err := a.broker.OpenProducer(c.Request.Context(), c.Caller(), c.PathValue("topic"), acks)
	if err != nil {
		return err
	}
	defer p.Close()
	if path != nil {
		if err := p.HasPartition(*path); err != nil {
			return err
		}
	}
	h := c.Writer.Header()
	h["Tidewire-Acks"] = acksNames[acks]
	h["Cache-Control"] = route.NoStore
	return lines.Serve(c.Request.Context(), lines.Config{
		Producer: p, Acks: acks, Timeout: timeout, Results: results, Partition: path,
		Body: c.Request.Body, Out: c.Writer, Control: http.NewResponseController(c.Writer), At: c.Occurrence(),
		Budget: a.inflight, Expires: c.Principal.ExpiresAt, Now: a.now, Draining: a.broker.Draining(),
	})
}
