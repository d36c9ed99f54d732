//go:build !linux

package node

import "time"

// sinceBoot is the time since the process started.
func sinceBoot() time.Duration { return time.Since(processStart) }

var processStart = time.Now()
