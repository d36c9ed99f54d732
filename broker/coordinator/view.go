package coordinator

import (
	"iter"

	"tidewire/broker/group"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// view is the topics of one image, as groups see them.
type view struct {
	image      *metadata.Image
	generation uint64 // one more with each change of topics
}

// view is the topics as this node knows them now.
func (c *Coordinator) view() *view {
	for {
		img, v := c.meta.Image(), c.topics.Load()
		switch {
		case v != nil && (v.image == img || v.image.Index() > img.Index()):
			return v
		case v != nil && v.image.SameTopics(img):
			if now := (&view{img, v.generation}); c.topics.CompareAndSwap(v, now) {
				return now
			}
		case v != nil:
			if now := (&view{img, v.generation + 1}); c.topics.CompareAndSwap(v, now) {
				return now
			}
		default:
			if now := (&view{img, 1}); c.topics.CompareAndSwap(nil, now) {
				return now
			}
		}
	}
}

func topicOf(t *metadata.Topic) (group.Topic, bool) {
	if t == nil {
		return group.Topic{}, false
	}
	return group.Topic{ID: t.ID, Name: t.Name, Partitions: int32(len(t.Partitions)), Internal: t.Internal}, true
}

// ByName implements group.View.
func (v *view) ByName(name string) (group.Topic, bool) { return topicOf(v.image.Topic(name)) }

// ByID implements group.View.
func (v *view) ByID(id model.TopicID) (group.Topic, bool) { return topicOf(v.image.TopicByID(id)) }

// All implements group.View.
func (v *view) All() iter.Seq[group.Topic] {
	return func(yield func(group.Topic) bool) {
		for t := range v.image.Topics("") {
			if x, _ := topicOf(t); !yield(x) {
				return
			}
		}
	}
}

// Generation implements group.View.
func (v *view) Generation() uint64 { return v.generation }
