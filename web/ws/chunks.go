package ws

import (
	"slices"
	"sync"

	"tidewire/api/recordjson"
	"tidewire/broker"
	"tidewire/internal/model"
)

// Bounds of chunks.
const (
	maxChunksBytes = 16 << 20
	maxChunksKeys  = 8192
)

// chunkKey is what the text of a chunk follows from, its position in the log included.
type chunkKey struct {
	topic      model.TopicID
	partition  model.PartitionID
	from       model.Offset
	isolation  broker.Isolation
	encoding   recordjson.Encoding
	maxRecords int64
}

// chunk is a run of records of one partition as JSON, separated by commas. It is never
// changed.
type chunk struct {
	text []byte
	read broker.Read
}

// chunks shares what one socket has read and encoded with the others that come to the same
// place of the same partition and want the same of it, so that a topic with many readers is
// read and encoded once for all. Only text is shared: rights, the state of the partition,
// credit and quotas are looked at for each socket (broker.StreamTopic.TakeRead). What is
// visible at a place in the log does not change, but for what compaction and deletion take
// away; a chunk whose beginning is deleted is not given out any more.
//
// A place at which one socket alone asks is only noted, so that a topic with one reader
// costs no memory. Those asked for first go first.
type chunks struct {
	mu    sync.Mutex
	byKey map[chunkKey]asked // guarded by mu
	order []chunkKey         // guarded by mu: the keys of byKey, oldest first
	bytes int                // guarded by mu: of all texts
}

// asked is who asked for a key, and what is there for it.
type asked struct {
	by      uint64 // the socket that asked first
	several bool   // others did too
	chunk   *chunk // nil: nobody has put it
}

func newChunks() *chunks { return &chunks{byKey: map[chunkKey]asked{}} }

// get returns the chunk of a key, nil if there is none; wanted then tells that others ask
// for it too, so that who reads it should put it.
func (c *chunks) get(k chunkKey, by uint64) (_ *chunk, wanted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, known := c.byKey[k]
	switch {
	case !known:
		c.byKey[k] = asked{by: by}
		c.order = append(c.order, k)
		c.evictLocked()
	case a.by != by && !a.several:
		a.several = true
		c.byKey[k] = a
	}
	return a.chunk, a.several
}

// put stores a copy of what was read for a key that is wanted.
func (c *chunks) put(k chunkKey, text []byte, read broker.Read) {
	made := &chunk{slices.Clone(text), read}
	c.mu.Lock()
	defer c.mu.Unlock()
	a, known := c.byKey[k]
	if !known || a.chunk != nil || len(text) > maxChunksBytes/4 {
		return
	}
	a.chunk = made
	c.byKey[k] = a
	c.bytes += len(text)
	c.evictLocked()
}

func (c *chunks) evictLocked() {
	gone := 0
	for ; c.bytes > maxChunksBytes || len(c.order)-gone > maxChunksKeys; gone++ {
		k := c.order[gone]
		if a := c.byKey[k]; a.chunk != nil {
			c.bytes -= len(a.chunk.text)
		}
		delete(c.byKey, k)
	}
	if gone > 0 {
		c.order = c.order[gone:]
	}
}
