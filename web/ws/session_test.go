package ws

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"tidewire/auth"
	"tidewire/internal/model"
)

func TestAFrameThatCannotBeFollowedIsRefusedWithItsIDOrEndsTheSocket(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		c := n.connect(dialOptions{})
		for id, code := range map[string]model.Code{
			`"a/b"`: model.InvalidArgument, `1e400`: model.InvalidArgument, `-12345678901234567890`: model.InvalidArgument, `"\u00e9\n"`: model.InvalidArgument,
		} {
			c.send(`{"op":"nope","id":%s}`, id)
			p := c.refused(id, code)
			require.Equal(t, "/op", p.Errors[0].Pointer)
			require.Equal(t, "/v1/ws/consume", p.Instance)
			require.Equal(t, "req-1", p.RequestID)
		}
		c.send(`{"op":"nope"}`)
		c.fails(model.InvalidArgument, closeBadFrame)
	})
}

func TestWhatIsNoFrameEndsTheSocket(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		for _, text := range []string{``, `{`, `[]`, `null`, `"x"`, `{"op":"subscribe"}{}`, "{\"op\":\"\xff\"}", `{'op':1}`, `{"id":1`} {
			c := n.connect(dialOptions{})
			c.send("%s", text)
			c.fails(model.MalformedBody, closeBadFrame)
		}
		c := n.connect(dialOptions{})
		require.NoError(t, c.ws.WriteMessage(websocket.BinaryMessage, []byte(`{"op":"unsubscribe","id":1}`)))
		c.fails(model.MalformedBody, closeBadFrame)

		c = n.connect(dialOptions{})
		c.send(`{"op":"nope","id":1,"x":"%s"}`, strings.Repeat("x", maxFrameBytes))
		c.fails(model.RequestTooLarge, closeBadFrame)
	})
}

// A ticket is for who authenticates the caller, before the handshake comes here.
func TestATicketInTheQueryIsNoSubscription(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		conn, _, err := n.handshake(dialOptions{query: "ticket=x"})
		require.NoError(t, err)
		require.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte(`{"op":"subscribe","topics":["t"]}`)))
		_, frame, err := conn.ReadMessage()
		require.NoError(t, err)
		require.Contains(t, string(frame), `"op":"subscribed"`, "nothing was subscribed by the query")
		require.NoError(t, conn.Close())
	})
}

func TestPingsComeAndTheirAnswersKeepTheSocketOpen(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		pinged := make(chan time.Time, 100)
		c := n.connect(dialOptions{lazy: true})
		answer := c.ws.PingHandler()
		c.ws.SetPingHandler(func(s string) error {
			pinged <- time.Now()
			return answer(s)
		})
		began := time.Now()
		readers := n.group
		require.True(t, readers.Go("client", func(context.Context) { c.pump() }))
		for i := 1; i <= 6; i++ {
			require.Equal(t, time.Duration(i)*20*time.Second, (<-pinged).Sub(began))
		}
		require.Equal(t, 1, n.handler.Open())
		require.NoError(t, c.ws.Close())
	})
}

func TestASocketWithoutPongsForAMinuteEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		c := n.connect(dialOptions{lazy: true})
		c.ws.SetPingHandler(func(string) error { return nil })
		began := time.Now()
		_, _, err := c.ws.ReadMessage()
		require.Error(t, err)
		require.Equal(t, time.Minute, time.Since(began))
		synctest.Wait()
		require.Zero(t, n.handler.Open())
	})
}

func TestPingsOfTheClientAreAnswered(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		pong := make(chan string, 1)
		c := n.connect(dialOptions{lazy: true})
		c.ws.SetPongHandler(func(s string) error {
			pong <- s
			return nil
		})
		require.True(t, n.group.Go("client", func(context.Context) { c.pump() }))
		require.NoError(t, c.ws.WriteControl(websocket.PingMessage, []byte("payload"), time.Now().Add(time.Second)))
		require.Equal(t, "payload", <-pong)
		require.NoError(t, c.ws.Close())
	})
}

func TestACloseOfTheClientIsAnsweredWithItsCode(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		for sent, want := range map[int]int{1000: 1000, 4242: 4242, websocket.CloseNoStatusReceived: 1000} {
			c := n.connect(dialOptions{})
			require.NoError(t, c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(sent, ""), time.Now().Add(time.Second)))
			c.closed(want)
			synctest.Wait()
			require.Zero(t, n.handler.Open())
		}
	})
}

func TestASocketEndsWithItsToken(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		began := time.Now()
		c := n.connect(dialOptions{query: "topics=t"})
		c.want("subscribed")
		c.want("assigned")
		f := c.frame15Minutes()
		require.Equal(t, "auth-expiring", f.Op)
		require.InDelta(t, (auth.DefaultAccessTTL - time.Minute).Seconds(), time.Since(began).Seconds(), 1)
		ends, err := time.Parse("2006-01-02T15:04:05.000Z", *f.ExpiresAt)
		require.NoError(t, err)
		require.WithinDuration(t, began.Add(auth.DefaultAccessTTL), ends, time.Second)
		c.waits(2*time.Minute, func() { c.fails(model.TokenExpired, closeAuthEnded) })
		require.Less(t, time.Since(ends), time.Second)
	})
}

func TestAuthRenewsTheToken(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.addUser("bob", true)
		first := n.token(root)
		c := n.connect(dialOptions{token: first})
		c.subscribe(`"topics":["t"]`)
		advance(10 * time.Minute)
		c.send(`{"op":"auth","id":"r","access_token":"%s"}`, n.token(root))
		f := c.want("authenticated")
		require.Equal(t, `"r"`, string(f.ID))
		ends, err := time.Parse("2006-01-02T15:04:05.000Z", *f.ExpiresAt)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(auth.DefaultAccessTTL), ends, 2*time.Second)

		advance(10 * time.Minute) // the first token has ended
		n.produce("t", 0, "a")
		require.Equal(t, []string{"0:a"}, c.records(1))
		require.Equal(t, "auth-expiring", c.frame15Minutes().Op, "told again for the new token")

		for token, code := range map[string]model.Code{
			n.token("bob"): model.Unauthenticated, "garbage": model.Unauthenticated, first: model.TokenExpired,
		} {
			c := n.connect(dialOptions{})
			c.send(`{"op":"auth","id":"r","access_token":"%s"}`, token)
			c.fails(code, closeAuthEnded)
		}
	})
}

func TestASocketEndsWithWhatItStandsOn(t *testing.T) {
	yes := true
	for name, x := range map[string]struct {
		change  func(t *testing.T, n *node)
		code    model.Code
		closing int
		idle    bool // also without a subscription
	}{
		"user disabled": {func(t *testing.T, n *node) {
			_, err := n.auth.Service.AlterUser(t.Context(), alice, auth.UserChange{Disabled: &yes})
			require.NoError(t, err)
		}, model.Unauthenticated, closeAuthEnded, true},
		"user deleted": {func(t *testing.T, n *node) {
			require.NoError(t, n.auth.Service.DeleteUser(t.Context(), alice, ""))
		}, model.Unauthenticated, closeAuthEnded, true},
		"password changed": {func(t *testing.T, n *node) {
			require.NoError(t, n.auth.Service.SetPassword(t.Context(), n.caller.Principal, auth.PasswordChange{Username: alice, Password: "another horse"}))
		}, model.Unauthenticated, closeAuthEnded, true},
		"rule deleted": {func(t *testing.T, n *node) {
			_, err := n.auth.Service.DeleteACLs(t.Context(), n.ruleOfAlice())
			require.NoError(t, err)
		}, model.Forbidden, closeNotAllowed, false},
		"deny rule added": {func(t *testing.T, n *node) {
			f := n.ruleOfAlice()
			f.Permission = "deny"
			_, _, err := n.auth.Service.CreateACL(t.Context(), f)
			require.NoError(t, err)
		}, model.Forbidden, closeNotAllowed, false},
		"topic deleted": {func(t *testing.T, n *node) {
			require.NoError(t, n.broker.DeleteTopic(t.Context(), n.caller, "t", ""))
		}, model.UnknownTopic, closeUnknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *node) {
				n.topic("t", 1)
				n.allow(alice, "t")
				idle := n.connect(dialOptions{user: alice})
				c := n.connect(dialOptions{user: alice, query: "topics=t"})
				c.want("subscribed")
				c.want("assigned")
				began := time.Now()
				x.change(t, n)
				c.fails(x.code, x.closing)
				if x.idle {
					idle.fails(x.code, x.closing)
				} else {
					idle.silent(time.Second)
				}
				require.LessOrEqual(t, time.Since(began), time.Second)
			})
		})
	}
}

func TestAStoppingNodeSaysSoAndRefusesNewSockets(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		idle := n.connect(dialOptions{})
		c := n.connect(dialOptions{query: "topics=t"})
		c.want("subscribed")
		c.want("assigned")
		require.NoError(t, n.handler.Shutdown(t.Context()))
		for _, c := range []*client{c, idle} {
			f := c.want("end")
			require.Equal(t, "node-stopping", f.Reason)
			c.closed(websocket.CloseGoingAway)
		}
		_, resp, err := n.handshake(dialOptions{})
		require.Error(t, err)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	})
}

func TestDrainingTheBrokerEndsTheSockets(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		c := n.connect(dialOptions{})
		n.broker.Drain()
		require.Equal(t, "node-stopping", c.want("end").Reason)
		c.closed(websocket.CloseGoingAway)
	})
}

func TestTheEndOfTheGroupEndsTheSockets(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		c := n.connect(dialOptions{})
		require.NoError(t, n.group.Stop(5*time.Second))
		require.Equal(t, "node-stopping", c.want("end").Reason)
		c.closed(websocket.CloseGoingAway)

		c = n.connect(dialOptions{}) // one that comes too late
		require.Equal(t, "node-stopping", c.want("end").Reason)
		c.closed(websocket.CloseGoingAway)
		synctest.Wait()
		require.Zero(t, n.handler.Open())
	})
}

func TestOneStuckClientDoesNotHoldUpTheStop(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, "a")
		n.connect(dialOptions{query: "topics=t&from=earliest", lazy: true})
		other := n.connect(dialOptions{})
		began := time.Now()
		require.NoError(t, n.handler.Shutdown(t.Context()))
		require.LessOrEqual(t, time.Since(began), 2*time.Second)
		other.want("end")
	})
}

func TestShutdownCutsWhatDoesNotEndInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.connect(dialOptions{query: "topics=t", lazy: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, n.handler.Shutdown(ctx), context.DeadlineExceeded)
		synctest.Wait()
		require.Zero(t, n.handler.Open())
	})
}

func TestASlowClientIsToldOnceItGoesOnReading(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, "a")
		c := n.connect(dialOptions{query: "topics=t&from=earliest", lazy: true})
		advance(11 * time.Second)
		n.group.Go("client", func(context.Context) { c.pump() })
		c.want("subscribed")
		require.Contains(t, c.fails(model.Timeout, closeSlow).Detail, "10s")
	})
}

func TestAClientThatTakesNothingIsCut(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, "a")
		n.connect(dialOptions{query: "topics=t&from=earliest", lazy: true})
		synctest.Wait()
		require.Equal(t, 1, n.handler.Open())
		advance(31 * time.Second)
		require.Zero(t, n.handler.Open())
	})
}

func TestAClientThatReadsSlowlyButSteadilyStays(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, strings.Repeat("x", 900<<10))
		c := n.connect(dialOptions{query: "topics=t&from=earliest", lazy: true})
		_, _, err := c.ws.ReadMessage()
		require.NoError(t, err)
		_, _, err = c.ws.ReadMessage()
		require.NoError(t, err)
		_, r, err := c.ws.NextReader()
		require.NoError(t, err)
		began, total, buf := time.Now(), 0, make([]byte, 30<<10)
		for {
			k, err := r.Read(buf)
			total += k
			if err != nil {
				break
			}
			advance(500 * time.Millisecond)
		}
		require.Greater(t, time.Since(began), 10*time.Second)
		require.Greater(t, total, 900<<10)
		n.produce("t", 0, "next")
		_, b, err := c.ws.ReadMessage()
		require.NoError(t, err)
		require.Contains(t, string(b), `"next"`)
	})
}

func TestASlowClientSlowsOnlyItself(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.connect(dialOptions{query: "topics=t", lazy: true})
		c := n.connect(dialOptions{query: "topics=t"})
		c.want("subscribed")
		c.want("assigned")
		began := time.Now()
		for range 100 {
			n.produce("t", 0, "a")
			c.records(1)
		}
		require.Less(t, time.Since(began), time.Second)
	})
}

func TestOverTCPASlowClientGetsWhatWasSentAndThen4408(t *testing.T) {
	overTCP(t, func(t *testing.T, n *node) {
		n.handler.times.slow = 50 * time.Millisecond
		n.topic("t", 1)
		for range 40 { // more than the buffers of the kernel take
			n.produce("t", 0, strings.Repeat("x", 900<<10))
		}
		c := n.connect(dialOptions{query: "topics=t&from=earliest", lazy: true})
		require.Eventually(t, func() bool { return n.listen.(*watched).stuck(100 * time.Millisecond) }, 20*time.Second, 5*time.Millisecond)
		n.group.Go("client", func(context.Context) { c.pump() })
		c.want("subscribed")
		c.want("assigned")
		got := 0
		for f := c.frame(); ; f = c.frame() {
			if f.Op == "error" {
				require.Equal(t, string(model.Timeout), f.Problem.Code)
				break
			}
			require.EqualValues(t, got, f.Records[0].Offset)
			got += len(f.Records)
		}
		require.Less(t, got, 40)
		c.closed(closeSlow)
	})
}

func TestOverTLSSocketsWorkToo(t *testing.T) {
	overTCP(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		server := httptest.NewTLSServer(http.HandlerFunc(n.serve))
		t.Cleanup(server.Close)
		n.dial = func() (net.Conn, error) {
			return tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		}
		c := n.connect(dialOptions{query: "topics=t"})
		c.want("subscribed")
		c.want("assigned")
		n.produce("t", 0, strings.Repeat("x", 300<<10))
		require.Len(t, c.records(1), 1)
		require.NoError(t, c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""), time.Now().Add(time.Second)))
		c.closed(1000)
	})
}

func TestManySocketsShareOneTopicWhileItIsWritten(t *testing.T) {
	overTCP(t, func(t *testing.T, n *node) {
		n.topic("t", 3)
		const sockets, rounds = 20, 30
		clients := make([]*client, sockets)
		for i := range clients {
			clients[i] = n.connect(dialOptions{})
			clients[i].subscribe(`"topics":["t"],"from":"earliest"`)
		}
		var wg sync.WaitGroup
		for p := range int32(3) {
			wg.Add(1)
			n.group.Go("producer", func(context.Context) {
				defer wg.Done()
				for range rounds {
					n.produce("t", p, "a", "b")
				}
			})
		}
		wg.Wait()
		for _, c := range clients {
			next := map[int32]int64{}
			for got := 0; got < 3*rounds*2; {
				for _, r := range c.want("records").Records {
					require.Equal(t, next[r.Partition], r.Offset)
					next[r.Partition]++
					got++
				}
			}
		}
	})
}

func TestCloseCodesFollowTheErrors(t *testing.T) {
	t.Parallel()
	for code, want := range map[model.Code]int{
		model.MalformedBody: 4400, model.InvalidArgument: 4400, model.NotImplemented: 4400, model.Conflict: 4400, model.OffsetOutOfRange: 4400,
		model.RequestTooLarge: 4400,
		model.Unauthenticated: 4401, model.TokenExpired: 4401, model.Forbidden: 4403, model.UnknownTopic: 4404, model.UnknownPartition: 4404,
		model.Fenced: 4409, model.RateLimited: 4429,
		model.LeaderUnavailable: 1013, model.QuorumUnavailable: 1013, model.Timeout: 1013, model.Internal: 1011, model.StorageError: 1011,
	} {
		require.Equal(t, want, closeCode(model.Errorf(code, "x")), code)
	}
}
