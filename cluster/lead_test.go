package cluster

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAClosedPortIsToldFromOneThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.False(t, closed(t.Context(), l.Addr().String()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, closed(ended, l.Addr().String()))
	require.NoError(t, l.Close())
	require.True(t, closed(t.Context(), l.Addr().String()))
}
