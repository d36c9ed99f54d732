package auth

import (
	"crypto/sha256"
	"sync"
)

// tokenHash is the SHA-256 of a token as it came: what the cache knows it by, so
// that a dump of the process's heap does not hold usable tokens for longer.
type tokenHash [sha256.Size]byte

// cacheShards spreads the lock; hashes are uniform.
const cacheShards = 16

// tokenCache remembers verified tokens, at most its capacity. It is safe for
// concurrent use, and a hit allocates nothing.
type tokenCache struct {
	perShard int
	shards   [cacheShards]cacheShard
}

type cacheShard struct {
	mu sync.RWMutex
	m  map[tokenHash]*verified // guarded by mu
}

func newTokenCache(capacity int) *tokenCache {
	c := &tokenCache{perShard: max(1, capacity/cacheShards)}
	for i := range c.shards {
		c.shards[i].m = map[tokenHash]*verified{}
	}
	return c
}

func (c *tokenCache) shard(h *tokenHash) *cacheShard { return &c.shards[h[0]%cacheShards] }

func (c *tokenCache) get(h *tokenHash) *verified {
	s := c.shard(h)
	s.mu.RLock()
	v := s.m[*h]
	s.mu.RUnlock()
	return v
}

// put adds an entry; a full shard first loses one that map order picks, which is
// random enough: what is evicted costs one verification more, not an error.
func (c *tokenCache) put(h *tokenHash, v *verified) {
	s := c.shard(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.m[*h]; !ok && len(s.m) >= c.perShard {
		for victim := range s.m {
			delete(s.m, victim)
			break
		}
	}
	s.m[*h] = v
}

func (c *tokenCache) remove(h *tokenHash) {
	s := c.shard(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, *h)
}

// drop removes every entry that gone says so of.
func (c *tokenCache) drop(gone func(*verified) bool) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for h, v := range s.m {
			if gone(v) {
				delete(s.m, h)
			}
		}
		s.mu.Unlock()
	}
}

func (c *tokenCache) len() int {
	n := 0
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		n += len(s.m)
		s.mu.RUnlock()
	}
	return n
}
