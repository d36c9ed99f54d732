package node

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is the time since the machine started, asleep or not. Go's own monotonic clock
// stands still while a machine sleeps, which would look like a wall clock that was set.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(processStart)
	}
	return time.Duration(ts.Nano())
}

var processStart = time.Now()
