package forward

import (
	"context"

	"tidewire/broker/partition"
	"tidewire/internal/model"
)

// byLog tells a refusal by what a leader's log holds. One that was cut off, and does not know that
// another leads, holds less than the other: what it refuses may be right.
func byLog(err error) bool {
	for _, c := range []model.Code{model.OutOfOrderSequence, model.UnknownProducer, model.Fenced, model.OffsetMismatch, model.OffsetOutOfRange} {
		if model.HasCode(err, c) {
			return true
		}
	}
	return false
}

// Confirmed is a refusal by what the log of a partition holds that was led at a place, or
// leader-unavailable where the metadata, brought up to date, does not name that place any more, or
// cannot be. Other errors stay, as do those of partitions that nobody else can lead.
func (c *Client) Confirmed(ctx context.Context, k Key, at Place, refusal error) error {
	if !byLog(refusal) || !c.others(k) {
		return refusal
	}
	now, err := c.refreshed(ctx, k)
	if err == nil && now == at {
		return refusal
	}
	return model.Errorf(model.LeaderUnavailable, "another node may lead partition %d by now, and have what node %d does not", k.Partition, at.Node).WithCause(refusal)
}

// placeOf is where a partition of this node is led, as it was told last.
func (c *Client) placeOf(p *partition.Partition) (Key, Place) {
	return Key{Topic: p.TopicID, Partition: p.ID}, Place{c.self, p.Leadership().Epoch}
}

// ConfirmSlices has the refusals of slices confirmed that ended here; a nil partition is elsewhere.
func (c *Client) ConfirmSlices(ctx context.Context, parts []*partition.Partition, slices []partition.Slice) {
	for i, p := range parts {
		if p != nil && slices[i].Err != nil {
			k, at := c.placeOf(p)
			slices[i].Err = c.Confirmed(ctx, k, at, slices[i].Err)
		}
	}
}

// ConfirmRead is Confirmed of a read of a partition: of one of this node where p is a
// *partition.Partition, else of one of the leader's that the metadata names.
func (c *Client) ConfirmRead(ctx context.Context, k Key, p any, refusal error) error {
	own, here := p.(*partition.Partition)
	if here {
		k, at := c.placeOf(own)
		return c.Confirmed(ctx, k, at, refusal)
	}
	at, err := LeaderOf(c.meta.Image(), k)
	if err != nil {
		return err
	}
	return c.Confirmed(ctx, k, at, refusal)
}
