package rest

import (
	"net/http"

	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/broker/partition"
	"tidewire/internal/model"
)

// produceBatches stores record batches that the client has made, in one partition.
func (a *API) produceBatches(c *route.Call, path *model.PartitionID) error {
	req := broker.BatchRequest{Topic: c.PathValue("topic")}
	var err error
	if req.Acks, req.Timeout, err = produceLevel(c); err != nil {
		return err
	}
	if err := checkBatchParameters(c); err != nil {
		return err
	}
	to, err := rawPartition(c, path)
	if err != nil {
		return err
	}
	if !to.HasPartition {
		return model.Invalid("query:partition", "record batches are for one partition: give partition, or use the address of a partition")
	}
	if req.Expected, err = expectedOffset(c); err != nil {
		return err
	}
	if req.IdempotencyKey, err = idempotencyKey(c); err != nil {
		return err
	}
	req.Partition, req.Timestamps = to.Partition, req.Acks != partition.AcksNone
	return c.ReadBody(func(body []byte) error {
		req.Batches = body
		return a.broker.ProduceBatches(c.Request.Context(), c.Caller(), &req, func(res *broker.BatchResult) {
			a.answerBatches(c, &req, res)
		})
	})
}

// checkBatchParameters refuses what would say again, or otherwise, what batches say.
func checkBatchParameters(c *route.Call) error {
	if err := checkProduceParameters(c, mediaBatches); err != nil {
		return err
	}
	for _, name := range []string{keyHeader, producerIDHeader, producerEpochHeader, sequenceHeader, sequenceAlias} {
		if _, given := c.Request.Header[name]; given {
			return model.Invalid("header:"+name, "record batches say themselves what %s does", name)
		}
	}
	headers, err := rawHeaders(c.Request.Header)
	if err == nil && len(headers) > 0 {
		return model.Invalid("header:"+headerPrefix+string(headers[0].Name), "%s… belong to a raw body; record batches say them of each record", headerPrefix)
	}
	return err
}

// answerPiece is how much of an answer is made before it is sent: one that has a result for
// each of very many records is never in memory as a whole.
const answerPiece = 256 << 10

func (a *API) answerBatches(c *route.Call, req *broker.BatchRequest, res *broker.BatchResult) {
	c.Writer.Header()["Tidewire-Acks"] = acksNames[req.Acks]
	if res.Warning != "" {
		c.Header("Tidewire-Warning", res.Warning)
	}
	tellReplayed(c, res.Replayed)
	if req.Acks == partition.AcksNone {
		_ = c.JSON(http.StatusAccepted, Accepted{res.Records}) // a number can be encoded
		return
	}
	s := produceScratches.Get().(*produceScratch)
	defer s.release()
	b := append(s.answer[:0], `{"results":[`...)
	begun := false
	for i := range res.Records {
		if i > 0 {
			b = append(b, ',')
		}
		ts := res.AppendTime
		if ts < 0 {
			ts = res.Timestamps[i]
		}
		b = s.results.Append(b, res.Partition, res.Base+model.Offset(i), ts)
		if len(b) >= answerPiece {
			sendPiece(c, &begun, b)
			b = b[:0]
		}
	}
	s.answer = append(b, "]}\n"...)
	if begun {
		sendPiece(c, &begun, s.answer)
		return
	}
	c.Bytes(http.StatusOK, route.JSONOnly[0], s.answer)
}

// sendPiece sends a part of a JSON answer of unknown length.
func sendPiece(c *route.Call, begun *bool, b []byte) {
	if !*begun {
		*begun = true
		h := c.Writer.Header()
		h["Content-Type"], h["Cache-Control"] = route.JSONOnly, route.NoStore
		c.Writer.WriteHeader(http.StatusOK)
	}
	_, _ = c.Writer.Write(b) // the client may be gone
}
