package auth

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// stopTimeout bounds waiting for goroutines that have been told to end.
const stopTimeout = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
