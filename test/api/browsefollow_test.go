package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// live is a stream that is open.
type live struct {
	t    testing.TB
	body io.ReadCloser
	in   *bufio.Reader
}

// follow opens a stream and reads up to where it follows.
func (a *api) follow(token, mediaType, path string) *live {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), "GET", a.URL+path, nil)
	require.NoError(a.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", mediaType)
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	require.NoError(a.t, err)
	require.Equal(a.t, 200, res.StatusCode)
	l := &live{a.t, res.Body, bufio.NewReader(res.Body)}
	a.t.Cleanup(func() { _ = res.Body.Close() })
	for !strings.Contains(l.line(), `{"cursor":`) { // the progress that a stream that follows begins with
	}
	return l
}

// line reads one line.
func (l *live) line() string {
	l.t.Helper()
	s, err := l.in.ReadString('\n')
	require.NoError(l.t, err)
	return strings.TrimSuffix(s, "\n")
}

// record reads up to the next record and gives its value.
func (l *live) record() string {
	l.t.Helper()
	for {
		s := l.line()
		s = strings.TrimPrefix(s, "data: ")
		var v struct {
			Record *struct{ Value any }
			Value  any
		}
		if json.Unmarshal([]byte(s), &v) != nil {
			continue
		}
		switch {
		case v.Record != nil:
			return fmt.Sprint(v.Record.Value)
		case v.Value != nil:
			return fmt.Sprint(v.Value)
		}
	}
}

// last reads to the end of the stream and gives its last line that is not blank.
func (l *live) last() string {
	l.t.Helper()
	b, err := io.ReadAll(l.in)
	require.NoError(l.t, err)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

var streamTypes = []string{"application/x-ndjson", "text/event-stream"}

func TestFollowingGoesOnAtTheEnd(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("follow.on", 2, nil)
	a.records(path, object{"value": "before"})
	for i, media := range streamTypes {
		tail := a.follow(a.admin, media, path+"/records?follow=true")
		all := a.follow(a.admin, media, path+"/records?follow=true&from=earliest&q=before")
		require.Equal(t, "before", all.record())
		for n := range 3 {
			value := fmt.Sprint("live", i, n)
			a.records(path, object{"value": value})
			require.Equal(t, value, tail.record(), "latest is where following begins")
		}
		a.records(path, object{"value": "not this"}, object{"value": "before long"})
		require.Equal(t, "before long", all.record())
		require.Equal(t, []string{"not this", "before long"}, sorted(tail.record(), tail.record()))
	}
	bounded := a.follow(a.admin, streamTypes[0], path+"/records?follow=true&max_records=2")
	a.records(path, object{"value": "1"})
	a.records(path, object{"value": "2"})
	require.Contains(t, bounded.last(), `"end":{"reason":"max-records"`)
}

func sorted(a, b string) []string {
	if b > a {
		return []string{b, a}
	}
	return []string{a, b}
}

func TestFollowingSeesPartitionsThatAreAdded(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("follow.grows", 1, nil)
	all := a.follow(a.admin, streamTypes[0], path+"/records?follow=true")
	one := a.follow(a.admin, streamTypes[0], path+"/records?follow=true&partitions=0")
	wants(t, a.patch(path, object{"partitions": 3}), 200, "")
	a.records(path, object{"value": "in 2", "partition": 2})
	require.Equal(t, "in 2", all.record())
	a.records(path, object{"value": "in 0", "partition": 0})
	require.Equal(t, "in 0", all.record())
	require.Equal(t, "in 0", one.record())
}

func TestAStreamEndsWhenItsReasonIsGoneAndSaysSo(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for i, media := range streamTypes {
		name := fmt.Sprint("follow.ends", i)
		path := a.topic(name, 1, nil)
		target := path + "/records?follow=true"
		user := a.user(name)
		may := rule{"allow", "literal", "read", "topic", name}
		a.rule(name, may)
		ends := func(l *live, status int, code string) {
			t.Helper()
			line := l.last()
			_, text, _ := strings.Cut(line, ": ")
			if media == streamTypes[0] {
				text = strings.TrimSuffix(strings.TrimPrefix(line, `{"problem":`), "}")
			}
			var p struct {
				Status int
				Code   string
			}
			require.NoError(t, json.Unmarshal([]byte(text), &p), line)
			require.Equal(t, status, p.Status, line)
			require.Equal(t, code, p.Code)
		}
		token := a.login(name)
		l := a.follow(token, media, target)
		wants(t, a.as(token, "POST", "/v1/auth/logout", nil), 204, "")
		ends(l, 401, "unauthenticated")

		token = a.login(name)
		l = a.follow(token, media, target)
		wants(t, a.remove("/v1/acls?principal=User:"+name), 200, "")
		ends(l, 403, "forbidden")

		a.rule(name, may)
		l = a.follow(token, media, target)
		wants(t, a.patch(user, object{"disabled": true}), 200, "")
		ends(l, 401, "unauthenticated")

		l = a.follow(a.admin, media, target)
		wants(t, a.remove(path), 204, "")
		ends(l, 404, "unknown-topic")
	}
}

func TestAStreamEndsWhenTheNodeStops(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	path := a.topic("follow.stop", 1, nil)
	lines := a.follow(a.admin, streamTypes[0], path+"/records?follow=true")
	sse := a.follow(a.admin, streamTypes[1], path+"/records?follow=true")
	a.Stop()
	require.Contains(t, lines.last(), `{"end":{"reason":"node-stopping","cursor":"`)
	require.Contains(t, sse.last(), `data: {"reason":"node-stopping","cursor":"`)
}

// A client that stops reading holds up nobody, and is cut once its stream may not go on.
func TestAStreamWhoseClientReadsNothingIsCut(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("follow.stuck", 1, nil)
	addr := strings.TrimPrefix(a.URL, "http://")
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(64<<10))
	_, err = fmt.Fprintf(conn, "GET %s/records?follow=true&from=earliest HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\nAuthorization: Bearer %s\r\n\r\n", path, a.admin)
	require.NoError(t, err)
	batch := make([]object, 100)
	for i := range batch {
		batch[i] = object{"value": strings.Repeat("x", 8000)}
	}
	for range 48 { // 38 MB, more than the kernel takes for a client
		a.records(path, batch...)
	}
	reader := a.follow(a.admin, streamTypes[0], path+"/records?follow=true")
	a.records(path, object{"value": "others go on"})
	require.Equal(t, "others go on", reader.record())
	wants(t, a.remove(path), 204, "")
	require.Contains(t, reader.last(), `"code":"unknown-topic"`)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	if err == nil { // it went on reading in time to be told why
		require.Contains(t, string(body[max(0, len(body)-1000):]), `"code":"unknown-topic"`)
	} else {
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection has to end")
	}
	require.Less(t, len(body), 38<<20, "the stream ended before all was sent")
}
