//go:build !faultinject

package node

import "time"

// wallClock is the machine's.
func wallClock() (func() time.Time, error) { return time.Now, nil }
