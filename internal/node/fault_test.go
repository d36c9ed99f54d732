package node

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// A fault ends a start that waits, with what has failed.
func TestAFaultEndsAStart(t *testing.T) {
	t.Parallel()
	n := &Node{failed: make(chan error, 1)}
	ctx, abort := context.WithCancelCause(t.Context())
	n.abort = abort
	require.ErrorIs(t, n.fault(context.Canceled), context.Canceled)
	broken := errors.New("the log is broken")
	n.fatal(broken)
	n.fatal(errors.New("another"))
	require.ErrorIs(t, context.Cause(ctx), broken)
	require.ErrorIs(t, n.fault(context.Canceled), broken)
}
