//go:build !linux

package bench

import (
	"context"
	"time"
)

// produceLoop needs epoll.
func produceLoop(context.Context, *target, job) (*tally, time.Duration, bool, error) {
	return nil, 0, false, nil
}
