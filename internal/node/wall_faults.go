//go:build faultinject

package node

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unsafe"

	"tidewire/internal/config"
)

// wallClock is the machine's, off by what the file says that config.ClockOffsetVariable names,
// where it names one. The file is read again while the node runs.
func wallClock() (func() time.Time, error) {
	path := os.Getenv(config.ClockOffsetVariable)
	if path == "" {
		return time.Now, nil
	}
	c := &offClock{path: path}
	if err := c.read(); err != nil {
		return nil, err
	}
	return c.now, nil
}

// offsetEvery is how often the file is read at most.
const offsetEvery = 10 * time.Millisecond

type offClock struct {
	path string

	mu   sync.Mutex
	by   time.Duration // guarded by mu
	seen time.Time     // guarded by mu: when the file was read
}

func (c *offClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.seen) >= offsetEvery {
		c.seen = now
		_ = c.readLocked() // a file that is gone or does not read leaves the clock as it is
	}
	return set(now, c.by)
}

func (c *offClock) read() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.readLocked()
}

// readLocked reads a few bytes; nothing but the clock waits for it.
func (c *offClock) readLocked() error {
	b, err := os.ReadFile(c.path)
	if err != nil {
		return err
	}
	by, err := time.ParseDuration(strings.TrimSpace(string(b)))
	if err != nil {
		return fmt.Errorf("%s: %w", c.path, err)
	}
	c.by = by
	return nil
}

// set moves the wall clock's reading of t by whole seconds and leaves the monotonic one alone, as
// it is when a machine's clock is set. Add would move both, and differences with them. It knows
// the layout of a time that time.Now gives, which its test holds it to: its first word has the
// seconds above 30 bits of nanoseconds.
func set(t time.Time, by time.Duration) time.Time {
	first := (*uint64)(unsafe.Pointer(&t))
	*first += uint64(int64(by/time.Second)) << 30
	return t
}
