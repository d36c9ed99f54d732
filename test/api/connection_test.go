package api

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAConnectionThatSendsTheSameAgainLosesWhatItsUserLoses sends the very same bytes over
// and over on one connection, of which the node remembers the head and the token.
func TestAConnectionThatSendsTheSameAgainLosesWhatItsUserLoses(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for what, e := range endings { // see identity_test.go
		for _, kind := range []string{"access token", "API token"} {
			if what == "password change" && kind == "API token" {
				continue // it does not end one
			}
			t.Run(what+" "+kind, func(t *testing.T) {
				t.Parallel()
				a := a.with(t)
				user := "again." + strings.ReplaceAll(what+"."+kind, " ", ".")
				path := a.topic(user, 1, nil)
				a.user(user)
				a.rule(user, rule{"allow", "literal", "read", "topic", user})
				h := a.holders(user)[kind]
				c, err := net.Dial("tcp", strings.TrimPrefix(a.URL, "http://"))
				require.NoError(t, err)
				defer func() { _ = c.Close() }() // the test may have failed before
				require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
				in := bufio.NewReader(c)
				ask := func() int {
					_, err := fmt.Fprintf(c, "GET %s/partitions/0/records?offset=0 HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n\r\n", path, h.ask["Authorization"])
					require.NoError(t, err)
					r, err := http.ReadResponse(in, nil)
					require.NoError(t, err)
					require.NoError(t, r.Body.Close())
					return r.StatusCode
				}
				require.Equal(t, 200, ask())
				require.Equal(t, 200, ask())
				e.end(a, user, h.out)
				require.Equal(t, e.poll, ask())
				require.Equal(t, e.poll, ask())
			})
		}
	}
}

// TestAnAcceptedQueryIsNoPassForAnother alternates queries, of which a route remembers one.
func TestAnAcceptedQueryIsNoPassForAnother(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	path := a.topic("t", 1, nil) + "/records"
	body := object{"records": []object{{"value": "v"}}}
	for range 20 {
		for _, row := range []struct {
			query  string
			status int
		}{
			{"?acks=leader", 200}, {"?acks=leader&acks=all", 422}, {"", 200}, {"?acks=leader&more=1", 422}, {"?acks=leader", 200},
			{"?acks=few", 422}, {"?acks=few", 422}, {"?results=all", 422}, {"?acks=none", 202}, {"?ticket=x", 422},
		} {
			wants(t, a.post(path+row.query, body), row.status, "")
		}
	}
}
