package rest

import (
	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/internal/model"
)

const (
	idempotencyHeader = "Idempotency-Key"
	maxIdempotencyKey = 255
)

// idempotencyKey reads the key that stands for a request; "": none.
func idempotencyKey(c *route.Call) (string, error) {
	given := c.Request.Header[idempotencyHeader]
	switch {
	case len(given) == 0:
		return "", nil
	case len(given) > 1:
		return "", model.Invalid("header:"+idempotencyHeader, "%s is given more than once", idempotencyHeader)
	}
	key := given[0]
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return "", model.Invalid("header:"+idempotencyHeader, "%s has a character that is not printable ASCII", idempotencyHeader)
		}
	}
	if key == "" || len(key) > maxIdempotencyKey {
		return "", model.Invalid("header:"+idempotencyHeader, "%s has %d characters; 1 to %d are allowed", idempotencyHeader, len(key), maxIdempotencyKey)
	}
	if _, both := c.Request.Header[producerIDHeader]; both {
		return "", model.Invalid("header:"+idempotencyHeader, "%s and %s are two ways to the same end; give one of them", idempotencyHeader, producerIDHeader)
	}
	return key, nil
}

// tellReplayed says how much of the request was stored before.
func tellReplayed(c *route.Call, r broker.Replayed) {
	switch r {
	case broker.ReplayedAll:
		c.Header("Idempotency-Replayed", "true")
	case broker.ReplayedPart:
		c.Header("Idempotency-Replayed", "partial")
	}
}
