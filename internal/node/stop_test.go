package node_test

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/testkit/nodekit"
)

// Everything behind the HTTP port still has to stop, so the port must not use up the time.
func TestAClientThatNeverEndsItsRequestDoesNotKeepTheNodeFromStopping(t *testing.T) {
	t.Parallel()
	n := nodekit.Start(t)
	token := n.Admin()
	n.Must(201, nodekit.Request{Method: "POST", Path: "/v1/topics", Token: token, Body: `{"name":"t"}`})
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.URL, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.Write([]byte("POST /v1/topics/t/records HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
		"Authorization: Bearer " + token + "\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n"))
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "100 Continue", "the handler waits for the body")

	n.StopWithin(2 * time.Second)
	require.NotContains(t, n.Log.String(), "not a clean stop")
	n.Restart()
	n.Must(200, nodekit.Request{Method: "GET", Path: "/v1/topics/t", Token: n.Admin()})
}
