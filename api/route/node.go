package route

import (
	"strconv"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// PathBroker reads the path's {broker}, a node id.
func (c *Call) PathBroker() (model.BrokerID, error) {
	s := c.PathValue("broker")
	id, err := strconv.ParseInt(s, 10, 32)
	if err != nil || id < 0 {
		return 0, model.Invalid("path:broker", "a node id is a whole number from 0, not %q", s)
	}
	return model.BrokerID(id), nil
}

// Broker is a registered broker; that there is none (unknown-broker) is confirmed by a read
// barrier, whose errors are the quorum's.
func (c *Call) Broker(id model.BrokerID) (*metadata.Broker, error) {
	if b := c.gate.images.Image().Broker(id); b != nil {
		return b, nil
	}
	if err := c.gate.images.Barrier(c.Request.Context()); err != nil {
		return nil, err
	}
	if b := c.gate.images.Image().Broker(id); b != nil {
		return b, nil
	}
	return nil, model.Errorf(model.UnknownBroker, "there is no node %d", id)
}
