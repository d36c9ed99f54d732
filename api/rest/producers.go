package rest

import (
	"math"
	"net/http"

	"tidewire/api/route"
	"tidewire/broker/partition"
	"tidewire/internal/model"
)

// ProducerView is what an idempotent producer is known by.
type ProducerView struct {
	ProducerID    int64 `json:"producer_id"`
	ProducerEpoch int16 `json:"producer_epoch"`
}

// createProducer gives an idempotent producer its id.
//
//	@ID				createProducer
//	@Summary		Get a producer id
//	@Description	For records that must be stored once though their request is repeated: send them with Tidewire-Producer-Id, Tidewire-Producer-Epoch and Tidewire-Sequence, the number of the request's first record in what was sent to its partition, from 0. A repeat of one of the last five requests to a partition answers where its records are.
//	@Tags			Records
//	@Success		200	{object}	ProducerView
//	@Router			/v1/producers [post]
//	@x-errors		["quorum-unavailable","commit-unknown"]
func (a *API) createProducer(c *route.Call) error {
	id, err := a.broker.NewProducerID(c.Request.Context(), c.Caller())
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, ProducerView{ProducerID: int64(id)})
}

// Headers of idempotent producers and of conditional writes.
const (
	producerIDHeader    = "Tidewire-Producer-Id"
	producerEpochHeader = "Tidewire-Producer-Epoch"
	sequenceHeader      = "Tidewire-Sequence"
	// sequenceAlias is what the contract's short form for the three may be read as.
	sequenceAlias  = "Tidewire-Producer-Sequence"
	expectedHeader = "Tidewire-Expected-Offset"
)

// expectedOffset reads the log end that a write wants; nil for none.
func expectedOffset(c *route.Call) (*model.Offset, error) {
	n, err := c.HeaderInt(expectedHeader, math.MaxInt64)
	if n == nil {
		return nil, err
	}
	return new(model.Offset(*n)), nil
}

// sequence reads where a producer's records stand; nil for none. Its three headers go
// together.
func sequence(c *route.Call) (*partition.Sequence, error) {
	id, err := c.HeaderInt(producerIDHeader, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	epoch, err := c.HeaderInt(producerEpochHeader, math.MaxInt16)
	if err != nil {
		return nil, err
	}
	first, err := c.HeaderInt(sequenceHeader, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	alias, err := c.HeaderInt(sequenceAlias, math.MaxInt32)
	switch {
	case err != nil:
		return nil, err
	case first == nil:
		first = alias
	case alias != nil && *alias != *first:
		return nil, model.Invalid("header:"+sequenceAlias, "%s and %s differ", sequenceAlias, sequenceHeader)
	}
	if id == nil && epoch == nil && first == nil {
		return nil, nil
	}
	for i, v := range []*int64{id, epoch, first} {
		if v == nil {
			missing := [...]string{producerIDHeader, producerEpochHeader, sequenceHeader}[i]
			return nil, model.Invalid("header:"+missing, "%s, %s and %s go together", producerIDHeader, producerEpochHeader, sequenceHeader)
		}
	}
	return &partition.Sequence{ID: model.ProducerID(*id), Epoch: model.ProducerEpoch(*epoch), First: int32(*first)}, nil
}

// notForLines refuses, for a body of lines, the headers that are about one batch.
func notForLines(c *route.Call) error {
	if _, given := c.Request.Header[idempotencyHeader]; given {
		return model.Invalid("header:"+idempotencyHeader, "%s stands for one request that is stored whole; lines are stored as they come", idempotencyHeader)
	}
	for _, name := range []string{expectedHeader, producerIDHeader, producerEpochHeader, sequenceHeader, sequenceAlias} {
		if len(c.Request.Header[name]) > 0 {
			return model.Invalid("header:"+name, "%s is about one batch; a body of lines becomes many", name)
		}
	}
	return nil
}
