package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/auth"
	"tidewire/internal/testkit/nodekit"
	"tidewire/internal/testkit/openapitest"
	"tidewire/internal/testkit/racing"
)

const ndjson = "application/x-ndjson"

// lines produces lines and gives those of the answer.
func (a *api) lines(target, body string) []object {
	a.t.Helper()
	x := a.do("POST", target, []byte(body), headers{"Content-Type": ndjson})
	require.Equal(a.t, 200, x.Status, "%s", x.Body)
	require.Equal(a.t, ndjson, x.Header.Get("Content-Type"))
	return decodeLines(a.t, x.Body)
}

func decodeLines(t testing.TB, body []byte) []object {
	t.Helper()
	var out []object
	for line := range bytes.Lines(body) {
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		var v object
		require.NoError(t, d.Decode(&v), "%s", line)
		out = append(out, v)
	}
	return out
}

// summed is the summary, which is the last line.
func summed(t testing.TB, lines []object) object {
	t.Helper()
	require.NotEmpty(t, lines)
	s, ok := lines[len(lines)-1]["summary"].(object)
	require.True(t, ok, "%v", lines[len(lines)-1])
	return s
}

func counts(t testing.TB, summary object) (records, failed int64) {
	t.Helper()
	return number(t, summary["records"]), number(t, summary["failed"])
}

func num(n int) json.Number { return json.Number(fmt.Sprint(n)) }

func TestLinesAreStoredAndSummed(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("lines.sum", 2, nil)
	body := `{"key":"a","value":"1","partition":0}` + "\n\n \t\r\n" + `{"value":{"x":1},"partition":1,"timestamp":5,"headers":{"h":"v"}}` + "\r\n" + `{"value":null,"partition":0}`
	got := a.lines(path+"/records", body)
	require.Equal(t, []object{{"summary": object{"records": num(3), "failed": num(0), "stopped": nil, "warning": "1 records are older than retention.ms and may be deleted soon",
		"offsets": []any{
			object{"partition": num(0), "first_offset": num(0), "last_offset": num(1)},
			object{"partition": num(1), "first_offset": num(0), "last_offset": num(0)},
		}}}}, got)
	read := decoded(t, a.get(path+"/partitions/1/records?offset=0"), 200)["records"].([]any)[0].(object)
	require.Equal(t, object{"x": num(1)}, read["value"])
	require.Equal(t, num(5), read["timestamp"])
	require.Equal(t, []any{object{"name": "h", "value": "v", "encoding": "text"}}, read["headers"])
	read = decoded(t, a.get(path+"/partitions/0/records?offset=1"), 200)["records"].([]any)[0].(object)
	require.Nil(t, read["value"], "a last line needs no line end")
}

func TestNoLinesAreNoFailure(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("lines.none", 1, nil)
	for _, body := range []string{"", "\n", " \r\n\n\t"} {
		got := summed(t, a.lines(path+"/records", body))
		require.Equal(t, object{"records": num(0), "failed": num(0), "stopped": nil, "warning": nil, "offsets": []any{}}, got)
	}
}

func TestABadLineIsAFailureAndReadingGoesOn(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("lines.bad", 2, object{"max.message.bytes": 2000})
	compact := a.topic("lines.bad.compact", 1, object{"cleanup.policy": "compact"})
	for name, c := range map[string]struct {
		target, line, code, pointer string
		status                      int
	}{
		"no JSON":               {path, `records`, "malformed-body", "", 400},
		"an array":              {path, `[{"value":1}]`, "invalid-argument", "", 422},
		"a list of records":     {path, `{"records":[{"value":1}]}`, "invalid-argument", "/records", 422},
		"truncated":             {path, `{"value":1`, "malformed-body", "", 400},
		"two records":           {path, `{"value":1}{"value":2}`, "malformed-body", "", 400},
		"invalid UTF-8":         {path, "{\"value\":\"\xff\"}", "malformed-body", "", 400},
		"a byte order mark":     {path, "\ufeff{\"value\":1}", "malformed-body", "", 400},
		"a lone surrogate":      {path, `{"value":"\ud800"}`, "invalid-argument", "/value", 422},
		"an unknown member":     {path, `{"val":1}`, "invalid-argument", "/val", 422},
		"nested 513":            {path, `{"value":` + depth(512) + `}`, "invalid-argument", "", 422},
		"partition -1":          {path, `{"value":1,"partition":-1}`, "invalid-argument", "/partition", 422},
		"partition n":           {path, `{"value":1,"partition":2}`, "unknown-partition", "", 404},
		"a negative timestamp":  {path, `{"value":1,"timestamp":-1}`, "invalid-timestamp", "/timestamp", 422},
		"a timestamp far ahead": {path, `{"value":1,"timestamp":99999999999999}`, "invalid-timestamp", "/timestamp", 422},
		"too large":             {path, `{"value":"` + strings.Repeat("x", 2000) + `"}`, "record-too-large", "", 413},
		"far too large":         {path, `{"value":"` + strings.Repeat("x", 300_000) + `"}`, "record-too-large", "", 413},
		"another partition":     {path + "/partitions/0", `{"value":1,"partition":1}`, "invalid-argument", "/partition", 422},
		"no key in a compacted": {compact, `{"value":1}`, "invalid-argument", "/key", 422},
		"a long unknown member": {path, `{"` + strings.Repeat("m", 1500) + `":1}`, "invalid-argument", "/" + strings.Repeat("m", 299) + "…", 422},
	} {
		t.Run(name, func(t *testing.T) {
			a := a.with(t)
			target := c.target
			if !strings.Contains(target, "partitions") {
				target += "/partitions/0"
			}
			if c.code == "unknown-partition" || c.line == `{"value":1,"partition":-1}` {
				target = path // with a partition in the path another one is refused for that
			}
			good := `{"key":"k","value":"good"}` + "\n"
			got := a.lines(target+"/records", good+"\n"+c.line+"\n"+good)
			require.Len(t, got, 2)
			require.Equal(t, num(1), got[0]["index"], "blank lines are not counted")
			p := got[0]["problem"].(object)
			require.Equal(t, c.code, p["code"])
			require.Equal(t, num(c.status), p["status"])
			require.Equal(t, "not-applied", p["outcome"])
			errs := p["errors"].([]any)
			if c.pointer != "" {
				require.Equal(t, c.pointer, errs[0].(object)["pointer"])
			}
			records, failed := counts(t, summed(t, got))
			require.EqualValues(t, 2, records)
			require.EqualValues(t, 1, failed)
		})
	}
}

func TestResultsSayWhichLinesAreAnswered(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("lines.results", 1, nil)
	body := `{"value":1,"timestamp":1}` + "\nx\n" + `{"value":2,"timestamp":2}` + "\n"
	first := 0
	for results, want := range map[string]int{"": 2, "?results=errors": 2, "?results=all": 4, "?results=none": 1} {
		got := a.lines(path+"/records"+results, body)
		require.Len(t, got, want, results)
		if want == 4 {
			require.Equal(t, object{"index": num(0), "partition": num(0), "offset": num(first), "timestamp": num(1)}, got[0])
			require.Equal(t, num(1), got[1]["index"])
			require.Equal(t, "malformed-body", got[1]["problem"].(object)["code"])
			require.Equal(t, object{"index": num(2), "partition": num(0), "offset": num(first + 1), "timestamp": num(2)}, got[2])
		}
		first += 2
		records, failed := counts(t, summed(t, got))
		require.EqualValues(t, 2, records)
		require.EqualValues(t, 1, failed)
	}
}

func TestEveryLevelOfAcksAnswersLinesWith200(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("lines.acks", 1, nil)
	for given, want := range map[string]string{"all": "all", "-1": "all", "leader": "leader", "1": "leader", "none": "none", "0": "none"} {
		x := a.do("POST", path+"/records?results=all&acks="+given, []byte(`{"value":1}`+"\n"), headers{"Content-Type": ndjson})
		require.Equal(t, 200, x.Status, "%s", x.Body)
		require.Equal(t, want, x.Header.Get("Tidewire-Acks"))
		got := decodeLines(t, x.Body)
		require.Len(t, got, 2)
		if want == "none" {
			require.Equal(t, object{"index": num(0), "partition": nil, "offset": nil, "timestamp": nil}, got[0])
			require.Nil(t, summed(t, got)["offsets"])
		} else {
			require.Len(t, summed(t, got)["offsets"], 1)
		}
		records, _ := counts(t, summed(t, got))
		require.EqualValues(t, 1, records)
	}
	require.EqualValues(t, 6, a.logEnd(path, 0))
}

func TestLinesStopAfterAThousandFailures(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("lines.stop", 1, nil)
	for _, bad := range []string{"x\n", `{"value":1,"partition":7}` + "\n"} {
		end := a.logEnd(path, 0)
		body := `{"value":"before"}` + "\n" + strings.Repeat(bad, 999) + `{"value":"between"}` + "\n" + strings.Repeat(bad, 5000) +
			strings.Repeat(`{"value":"behind"}`+"\n", 200_000)
		got := a.lines(path+"/records", body)
		require.Len(t, got, 1001)
		s := summed(t, got)
		require.Equal(t, "too-many-failures", s["stopped"])
		records, failed := counts(t, s)
		require.EqualValues(t, 1000, failed)
		require.EqualValues(t, 2, records)
		require.Equal(t, end+2, a.logEnd(path, 0))
		require.Equal(t, num(1001), got[999]["index"])
	}
}

func TestWhatIsKnownBeforeTheFirstLineIsAUsualProblem(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("lines.before", 1, nil)
	user := a.login2("lines.nobody")
	for name, c := range map[string]struct {
		method, target, token, contentType string
		status                             int
		code, pointer                      string
	}{
		"no token":           {"POST", path + "/records", "", ndjson, 401, "unauthenticated", ""},
		"wrong user":         {"POST", path + "/records", user, ndjson, 403, "forbidden", ""},
		"no topic":           {"POST", "/v1/topics/lines.missing/records", a.admin, ndjson, 404, "unknown-topic", ""},
		"no such partition":  {"POST", path + "/partitions/1/records", a.admin, ndjson, 404, "unknown-partition", ""},
		"bad partition":      {"POST", path + "/partitions/-1/records", a.admin, ndjson, 422, "invalid-argument", "path:partition"},
		"bad acks":           {"POST", path + "/records?acks=2", a.admin, ndjson, 422, "invalid-argument", "query:acks"},
		"bad timeout":        {"POST", path + "/records?timeout_ms=0", a.admin, ndjson, 422, "invalid-argument", "query:timeout_ms"},
		"bad results":        {"POST", path + "/records?results=some", a.admin, ndjson, 422, "invalid-argument", "query:results"},
		"results of JSON":    {"POST", path + "/records?results=all", a.admin, "application/json", 422, "invalid-argument", "query:results"},
		"results of a value": {"POST", path + "/records?results=all", a.admin, "text/plain", 422, "invalid-argument", "query:results"},
		"a raw parameter":    {"POST", path + "/records?key=k", a.admin, ndjson, 422, "invalid-argument", "query:key"},
		"a charset":          {"POST", path + "/records", a.admin, ndjson + "; charset=latin1", 415, "unsupported-media-type", ""},
		"an encoding":        {"POST", path + "/records", a.admin, ndjson, 415, "unsupported-media-type", ""},
	} {
		h := headers{"Content-Type": c.contentType}
		if name == "an encoding" {
			h["Content-Encoding"] = "br"
		}
		x := wants(t, a.Do(request{Method: c.method, Path: c.target, Token: c.token, Header: h, Body: `{"value":1}` + "\n"}), c.status, c.code)
		require.Equal(t, c.pointer, strings.Join(pointers(t, x), " "), name)
	}
	require.Zero(t, a.logEnd(path, 0))
	a.rule("lines.nobody", rule{"allow", "literal", "write", "topic", "lines.before"})
	wants(t, a.Do(request{Method: "POST", Path: path + "/records", Token: user, Header: headers{"Content-Type": ndjson + "; charset=UTF-8"}, Body: `{"value":1}`}), 200, "")
}

// duplex is a request whose answer is read while it is written.
type duplex struct {
	a      *api
	target string
	body   *io.PipeWriter
	answer chan *http.Response
	lines  *bufio.Scanner
	whole  bytes.Buffer
	close  func() error
}

func (a *api) duplex(target, token string) *duplex {
	a.t.Helper()
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(a.t.Context(), "POST", a.URL+target, r)
	require.NoError(a.t, err)
	req.Header.Set("Content-Type", ndjson)
	req.Header.Set("Authorization", "Bearer "+token)
	d := &duplex{a: a, target: target, body: w, answer: make(chan *http.Response, 1)}
	transport := &http.Transport{DisableKeepAlives: true}
	go func() {
		res, err := transport.RoundTrip(req)
		if err != nil {
			_ = r.CloseWithError(err)
			close(d.answer)
			return
		}
		d.answer <- res
	}()
	return d
}

func (d *duplex) write(text string) {
	d.a.t.Helper()
	_, err := io.WriteString(d.body, text)
	require.NoError(d.a.t, err)
}

// next is the answer's next line; nil at its end, when the whole is checked against the
// document.
func (d *duplex) next() object {
	d.a.t.Helper()
	if d.lines == nil {
		res := <-d.answer
		require.NotNil(d.a.t, res)
		require.Equal(d.a.t, 200, res.StatusCode)
		d.lines, d.close = bufio.NewScanner(io.TeeReader(res.Body, &d.whole)), res.Body.Close
	}
	if !d.lines.Scan() {
		require.NoError(d.a.t, d.lines.Err())
		require.NoError(d.a.t, d.close())
		document.Check(d.a.t, openapitest.Exchange{
			Method: "POST", Target: d.target, Status: 200, Header: http.Header{"Content-Type": {ndjson}}, Body: d.whole.Bytes(),
		})
		return nil
	}
	return decodeLines(d.a.t, d.lines.Bytes())[0]
}

// last reads to the summary, which must be the end.
func (d *duplex) last() (before []object, summary object) {
	d.a.t.Helper()
	for {
		line := d.next()
		require.NotNil(d.a.t, line, "there is no summary")
		if s, ok := line["summary"].(object); ok {
			require.Nil(d.a.t, d.next())
			return before, s
		}
		before = append(before, line)
	}
}

func TestATricklingClientSeesItsLinesStoredPromptly(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("lines.trickle", 1, nil)
	d := a.duplex(path+"/records?results=all", a.admin)
	for i := range 20 {
		d.write(fmt.Sprintf(`{"value":"%d"}`+"\n"+`{"value":`, i)) // half of a line is not taken for one
		require.Equal(t, num(2*i), d.next()["index"], "before more is sent")
		require.EqualValues(t, 2*i+1, a.logEnd(path, 0))
		d.write("1}\n")
		require.Equal(t, num(2*i+1), d.next()["index"])
	}
	require.NoError(t, d.body.Close())
	before, s := d.last()
	require.Empty(t, before)
	require.Equal(t, num(40), s["records"])
}

// TestLinesEndWithWhatTheyNeed takes away, under an open request, what it needs. What was
// stored before is told.
func TestLinesEndWithWhatTheyNeed(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	const user = "lines.ends"
	for name, c := range map[string]struct {
		code string
		take func(a *api, path, user string)
	}{
		"the user is disabled": {"unauthenticated", func(a *api, _, user string) {
			wants(a.t, a.patch("/v1/users/"+user, object{"disabled": true}), 200, "")
		}},
		"the user is deleted": {"unauthenticated", func(a *api, _, user string) {
			wants(a.t, a.remove("/v1/users/"+user), 204, "")
		}},
		"the rule is gone": {"forbidden", func(a *api, _, user string) {
			wants(a.t, a.remove("/v1/acls?principal=User:"+user), 200, "")
		}},
		"the topic is deleted": {"unknown-topic", func(a *api, path, _ string) {
			wants(a.t, a.remove(path), 204, "")
		}},
		"the topic is another": {"unknown-topic", func(a *api, path, _ string) {
			wants(a.t, a.remove(path), 204, "")
			a.topic(strings.TrimPrefix(path, "/v1/topics/"), 1, nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := a.with(t)
			user := user + "." + strings.ReplaceAll(name, " ", "-")
			path := a.topic(user, 1, nil)
			token := a.login2(user)
			a.rule(user, rule{"allow", "literal", "write", "topic", user})
			d := a.duplex(path+"/records?results=all", token)
			d.write(`{"value":1}` + "\n")
			require.Equal(t, num(0), d.next()["index"])
			c.take(a, path, user) // while nothing is sent
			before, s := d.last()
			require.Len(t, before, 1)
			require.NotContains(t, before[0], "index")
			require.Equal(t, c.code, before[0]["problem"].(object)["code"])
			require.Equal(t, c.code, s["stopped"])
			records, failed := counts(t, s)
			require.EqualValues(t, 1, records)
			require.Zero(t, failed)
			_ = d.body.Close()
		})
	}
}

func TestLinesEndWithTheirToken(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	n := nodekit.StartWith(t, nodekit.Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	a := newAPI(t, n, "")
	path := a.topic("lines.token", 1, nil)
	ahead.Store(int64(auth.DefaultAccessTTL - 2*time.Second))
	d := a.duplex(path+"/records?results=all", a.admin)
	d.write(`{"value":1}` + "\n")
	require.Equal(t, num(0), d.next()["index"])
	before, s := d.last()
	require.Len(t, before, 1)
	require.Equal(t, "token-expired", before[0]["problem"].(object)["code"])
	require.Equal(t, "token-expired", s["stopped"])
	require.Equal(t, num(1), s["records"])
	_ = d.body.Close()
}

func TestLinesEndWhenTheNodeStops(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	path := a.topic("lines.node", 1, nil)
	d := a.duplex(path+"/records?results=all", a.admin)
	d.write(`{"value":1}` + "\n")
	require.Equal(t, num(0), d.next()["index"])
	stopped := make(chan struct{})
	go func() { defer close(stopped); a.Stop() }()
	before, s := d.last()
	require.Equal(t, []object{{"end": object{"reason": "node-stopping"}}}, before)
	require.Equal(t, "node-stopping", s["stopped"])
	require.Equal(t, num(1), s["records"])
	_ = d.body.Close()
	<-stopped
}

// raw sends a request by hand and gives the connection. Its small buffer makes the server
// see a client that does not read.
func (a *api) rawLines(target string, length int, more string) *net.TCPConn {
	a.t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		_ = c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		return err
	}}
	conn, err := dialer.DialContext(a.t.Context(), "tcp", strings.TrimPrefix(a.URL, "http://"))
	require.NoError(a.t, err)
	a.t.Cleanup(func() { _ = conn.Close() })
	framing := "Transfer-Encoding: chunked"
	if length >= 0 {
		framing = fmt.Sprintf("Content-Length: %d", length)
	}
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\n%s\r\n%s\r\n", target, a.admin, ndjson, framing, more)
	require.NoError(a.t, err)
	return conn.(*net.TCPConn)
}

// TestAClientThatReadsOnlyAfterwardsFinishes sends much more than any buffer holds, of
// which many lines fail, and reads nothing meanwhile.
func TestAClientThatReadsOnlyAfterwardsFinishes(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("lines.after", 1, nil)
	bad := `{"` + strings.Repeat("unknown", 100) + `":1}` + "\n"
	good := `{"value":"` + strings.Repeat("x", 200) + `"}` + "\n"
	body := []byte(strings.Repeat(bad+good, 999) + strings.Repeat(good, 40_000))
	for _, chunked := range []bool{false, true} {
		length := len(body)
		if chunked {
			length = -1
		}
		conn := a.rawLines(path+"/records?acks=leader", length, "")
		if chunked {
			w := httputil.NewChunkedWriter(conn)
			_, err := io.Copy(w, bytes.NewReader(body))
			require.NoError(t, err)
			require.NoError(t, w.Close())
			_, err = io.WriteString(conn, "\r\n")
			require.NoError(t, err)
		} else {
			_, err := conn.Write(body)
			require.NoError(t, err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.Equal(t, 200, res.StatusCode)
		b, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		got := decodeLines(t, b)
		records, failed := counts(t, summed(t, got))
		require.EqualValues(t, 40_999, records)
		require.EqualValues(t, 999, failed)
		require.Len(t, got, 1000)
	}
}

// TestAllResultsWaitForTheirReader sends lines without reading: what is sent is bounded
// then, and comes through once the client reads.
func TestAllResultsWaitForTheirReader(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("lines.slow", 1, nil)
	const n = 60_000
	line := `{"value":"` + strings.Repeat("x", 100) + `"}` + "\n"
	conn := a.rawLines(path+"/records?acks=leader&results=all", n*len(line), "")
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(conn, strings.Repeat(line, n))
		sent <- err
	}()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.NoError(t, <-sent)
	got := decodeLines(t, b)
	require.Len(t, got, n+1)
	for i, line := range got[:n] {
		require.Equal(t, num(i), line["index"])
	}
}

// TestALineOfTheLastBytesIsNotTakenForOne breaks a body off: its whole lines are stored, of
// the rest nothing is.
func TestABodyThatBreaksOffStoresItsWholeLines(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("lines.break", 1, nil)
	conn := a.rawLines(path+"/records", 1000, "")
	_, err := io.WriteString(conn, `{"value":"a"}`+"\n"+`{"value":"b"}`+"\n"+`{"value":"c"}`)
	require.NoError(t, err)
	require.NoError(t, conn.CloseWrite())
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	got := decodeLines(t, b)
	s := summed(t, got)
	require.Equal(t, "malformed-body", s["stopped"])
	require.Equal(t, num(2), s["records"])
	require.Equal(t, num(0), s["failed"], "the line that was cut is none that was read")
	require.EqualValues(t, 2, a.logEnd(path, 0))
	require.Equal(t, "unknown", ended(t, got)["outcome"], "two lines are stored: sending all again would store them twice")
}

// TestASummaryTellsOfFailuresBeforeABodyBroke counts what came before, bad lines too.
func TestASummaryTellsOfFailuresBeforeABodyBroke(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for name, results := range map[string]int{"errors": 1, "all": 4, "none": 0} {
		path := a.topic("lines.broke."+name, 2, nil)
		conn := a.rawLines(path+"/records?results="+name, -1, "")
		w := httputil.NewChunkedWriter(conn)
		_, err := io.WriteString(w, `{"value":"a","partition":1}`+"\n"+`{"val":"b"}`+"\n\n"+`{"value":"c","partition":1}`+"\n"+`{"value":"d","partition":0}`+"\n"+`{"value":`)
		require.NoError(t, err)
		require.NoError(t, conn.CloseWrite()) // without the last chunk
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		b, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		got := decodeLines(t, b)
		s := summed(t, got)
		require.Equal(t, object{"records": num(3), "failed": num(1), "stopped": "malformed-body", "warning": nil, "offsets": []any{
			object{"partition": num(0), "first_offset": num(0), "last_offset": num(0)}, object{"partition": num(1), "first_offset": num(0), "last_offset": num(1)},
		}}, s)
		require.Equal(t, "unknown", ended(t, got)["outcome"])
		require.Len(t, got, results+2, "lines, why it ended, and the summary")
		require.Equal(t, []int64{1, 2}, a.ends(path, 2))
	}
}

// ended is the problem for which an answer ends early.
func ended(t *testing.T, got []object) object {
	t.Helper()
	for _, line := range got {
		if _, ofLine := line["index"]; !ofLine && line["problem"] != nil {
			return line["problem"].(object)
		}
	}
	t.Fatal("no problem without index")
	return nil
}

func TestACompressedBodyThatBreaksOffTellsWhetherLinesWereStored(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("lines.gzip-cut", 1, nil)
	for _, coding := range []string{"gzip", "zstd"} {
		for _, lines := range []int{0, 300} {
			text := strings.Repeat(`{"value":"a"}`+"\n", lines) + `{"value":"` + strings.Repeat("incompressible?", 10)
			whole := packed(t, coding, text, 1)
			before := a.logEnd(path, 0)
			x := a.do("POST", path+"/records", whole[:len(whole)-6], headers{"Content-Type": ndjson, "Content-Encoding": coding})
			stored := a.logEnd(path, 0) - before
			if coding == "gzip" { // whose trailer is cut: the lines came whole
				require.EqualValues(t, lines, stored)
			}
			if x.Status != 200 { // nothing came out of the decoder: it is a usual problem
				wants(t, x, 400, "malformed-body")
				require.Zero(t, stored)
				require.Contains(t, string(x.Body), `"outcome":"not-applied"`)
				continue
			}
			got := decodeLines(t, x.Body)
			require.Equal(t, "malformed-body", summed(t, got)["stopped"])
			want := "not-applied"
			if stored > 0 {
				want = "unknown"
			}
			require.Equal(t, want, ended(t, got)["outcome"])
		}
	}
}

func TestAClientThatWaitsForContinueGetsIt(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("lines.continue", 1, nil)
	line := `{"value":1}` + "\n"
	conn := a.rawLines(path+"/records", len(line), "Expect: 100-continue\r\n")
	r := bufio.NewReader(conn)
	status, err := r.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, status, "100")
	_, err = r.ReadString('\n')
	require.NoError(t, err)
	_, err = io.WriteString(conn, line)
	require.NoError(t, err)
	res, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, num(1), summed(t, decodeLines(t, b))["records"])
}

// TestLinesUpToTheTopicsLimitPass sends lines that are long by their escapes, and one that
// no record can need, whose end is looked for without holding it.
func TestLongLinesPass(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	a := sharedAPI(t)
	path := a.topic("lines.long", 1, nil)
	escaped := `{"value":"` + strings.Repeat(`\u0001`, 1_000_000) + `"}` + "\n" // 6 MB for a record of 1 MB
	huge := `{"value":"` + strings.Repeat("x", 20<<20) + `"}` + "\n"
	small := `{"value":"s"}` + "\n"
	got := a.lines(path+"/records", small+escaped+huge+small+escaped+strings.TrimSuffix(huge, "\n"))
	require.Len(t, got, 3)
	for i, index := range []int{2, 5} {
		require.Equal(t, num(index), got[i]["index"])
		require.Equal(t, "record-too-large", got[i]["problem"].(object)["code"])
	}
	require.Equal(t, num(4), summed(t, got)["records"])
	read := decoded(t, a.get(path+"/partitions/0/records?offset=1&max_records=1"), 200)["records"].([]any)[0].(object)
	require.Equal(t, strings.Repeat("\x01", 1_000_000), read["value"])
}

// TestARequestWithoutLinesYetEndsWithAUsualProblem takes away what a request needs before
// it sent anything.
func TestARequestWithoutLinesYetEndsWithAUsualProblem(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	path := a.topic("t", 1, nil)
	token := a.login2("user")
	a.rule("user", rule{"allow", "literal", "write", "topic", "t"})
	for _, c := range []struct {
		status int
		token  string
		take   func()
	}{
		{401, token, func() { wants(t, a.patch("/v1/users/user", object{"disabled": true}), 200, "") }},
		{404, a.admin, func() { wants(t, a.remove(path), 204, "") }},
		{503, a.admin, func() { go a.Stop() }},
	} {
		if c.status == 503 {
			a.topic("t", 1, nil)
		}
		d := a.duplex(path+"/records", c.token)
		select { // that it is under way is told by the socket that it holds open
		case res := <-d.answer:
			t.Fatalf("answered too early: %v", res)
		case <-time.After(100 * time.Millisecond):
		}
		c.take()
		res := <-d.answer
		require.NotNil(t, res)
		require.Equal(t, c.status, res.StatusCode)
		var p object
		require.NoError(t, json.NewDecoder(res.Body).Decode(&p))
		require.Equal(t, "not-applied", p["outcome"])
		require.NoError(t, res.Body.Close())
		_ = d.body.Close()
	}
}
