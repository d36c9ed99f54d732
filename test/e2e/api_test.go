package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// api calls a node over HTTP. It is for one goroutine at a time where the test ends
// at an error; try may be called by many.
type api struct {
	n     *node
	http  *http.Client
	token string
}

// newAPI returns a client without a token.
func newAPI(t testing.TB, n *node) *api {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &api{n: n, http: &http.Client{Transport: transport, Timeout: 90 * time.Second}}
}

// admin logs in as the administrator of a node with --dev.
func admin(t testing.TB, n *node) *api {
	t.Helper()
	return login(t, n, "admin", "tidewire")
}

func login(t testing.TB, n *node, username, password string) *api {
	t.Helper()
	a := newAPI(t, n)
	var answer struct {
		Token string `json:"access_token"`
	}
	a.must(t, "POST", "/v1/auth/login", map[string]string{"username": username, "password": password}, &answer)
	require.NotEmpty(t, answer.Token)
	a.token = answer.Token
	return a
}

// try sends a request; body is sent as it is when it is []byte, as JSON otherwise.
func (a *api) try(method, path string, body any) (int, []byte, error) {
	var content []byte
	switch b := body.(type) {
	case nil:
	case []byte:
		content = b
	default:
		var err error
		if content, err = json.Marshal(b); err != nil {
			return 0, nil, err
		}
	}
	req, err := http.NewRequest(method, a.n.URL()+path, bytes.NewReader(content))
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// must sends a request that has to succeed and reads the answer into out, if not nil.
func (a *api) must(t testing.TB, method, path string, body, out any) {
	t.Helper()
	status, answer, err := a.try(method, path, body)
	require.NoError(t, err, "%s %s", method, path)
	require.Less(t, status, 300, "%s %s: %s", method, path, answer)
	if out != nil {
		require.NoError(t, json.Unmarshal(answer, out), "%s %s: %s", method, path, answer)
	}
}

// refused sends a request that has to fail and returns the problem.
func (a *api) refused(t testing.TB, method, path string, body any) problem {
	t.Helper()
	status, answer, err := a.try(method, path, body)
	require.NoError(t, err)
	require.GreaterOrEqual(t, status, 400, "%s %s: %s", method, path, answer)
	var p problem
	require.NoError(t, json.Unmarshal(answer, &p), "%s", answer)
	require.Equal(t, status, p.Status)
	return p
}

type problem struct {
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Detail    string `json:"detail"`
	Outcome   string `json:"outcome"`
	Retryable bool   `json:"retryable"`
}

func (a *api) createTopic(t testing.TB, name string, partitions int, config map[string]any) {
	t.Helper()
	if config == nil {
		config = map[string]any{}
	}
	a.must(t, "POST", "/v1/topics", map[string]any{"name": name, "partitions": partitions, "config": config}, nil)
}

// header is a record header as stored; a nil Value is null.
type header struct {
	Name  string
	Value []byte
}

// rec is a record as stored: nil is null, in keys and values.
type rec struct {
	Partition int32
	Offset    int64
	Timestamp int64
	Key       []byte
	Value     []byte
	Headers   []header
}

// wireRecord is a record as the API gives it.
type wireRecord struct {
	Partition     int32           `json:"partition"`
	Offset        int64           `json:"offset"`
	Timestamp     int64           `json:"timestamp"`
	Key           json.RawMessage `json:"key"`
	KeyEncoding   *string         `json:"key_encoding"`
	Value         json.RawMessage `json:"value"`
	ValueEncoding *string         `json:"value_encoding"`
	Headers       []struct {
		Name         string          `json:"name"`
		NameEncoding string          `json:"name_encoding"` // absent: it is text
		Value        json.RawMessage `json:"value"`
		Encoding     *string         `json:"encoding"`
	} `json:"headers"`
}

// stored undoes the encodings: what comes out is the bytes in the log.
func (w *wireRecord) stored() (rec, error) {
	r := rec{Partition: w.Partition, Offset: w.Offset, Timestamp: w.Timestamp, Headers: []header{}}
	var err error
	if r.Key, err = decoded(w.Key, w.KeyEncoding); err != nil {
		return r, fmt.Errorf("key of offset %d: %w", w.Offset, err)
	}
	if r.Value, err = decoded(w.Value, w.ValueEncoding); err != nil {
		return r, fmt.Errorf("value of offset %d: %w", w.Offset, err)
	}
	for _, h := range w.Headers {
		v, err := decoded(h.Value, h.Encoding)
		if err != nil {
			return r, fmt.Errorf("header of offset %d: %w", w.Offset, err)
		}
		if h.NameEncoding == "base64" {
			name, err := base64.StdEncoding.DecodeString(h.Name)
			if err != nil {
				return r, fmt.Errorf("name of a header of offset %d: %w", w.Offset, err)
			}
			h.Name = string(name)
		}
		r.Headers = append(r.Headers, header{h.Name, v})
	}
	return r, nil
}

// decoded undoes one encoding; null has encoding null.
func decoded(raw json.RawMessage, encoding *string) ([]byte, error) {
	if encoding == nil {
		if string(raw) != "null" {
			return nil, fmt.Errorf("%s has encoding null", raw)
		}
		return nil, nil
	}
	if *encoding == "json" {
		return raw, nil
	}
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return nil, fmt.Errorf("%s has encoding %s: %w", raw, *encoding, err)
	}
	switch *encoding {
	case "text":
		return []byte(*s), nil
	case "base64":
		return base64.StdEncoding.DecodeString(*s)
	}
	return nil, fmt.Errorf("encoding %q", *encoding)
}

func storedAll(t testing.TB, wire []wireRecord) []rec {
	t.Helper()
	out := make([]rec, len(wire))
	for i := range wire {
		var err error
		out[i], err = wire[i].stored()
		require.NoError(t, err)
	}
	return out
}

// page is the answer of a fetch.
type page struct {
	Records       []wireRecord `json:"records"`
	NextOffset    int64        `json:"next_offset"`
	HighWatermark int64        `json:"high_watermark"`
	LastStable    int64        `json:"last_stable_offset"`
	LogStart      int64        `json:"log_start_offset"`
}

// readPartition reads a partition from the earliest to the high watermark, page by page.
func (a *api) readPartition(t testing.TB, topic string, partition, maxRecords int) []rec {
	t.Helper()
	var out []rec
	for from := "earliest"; ; {
		var p page
		a.must(t, "GET", fmt.Sprintf("/v1/topics/%s/partitions/%d/records?offset=%s&max_records=%d&max_bytes=8388608", topic, partition, from, maxRecords), nil, &p)
		out = append(out, storedAll(t, p.Records)...)
		require.True(t, len(p.Records) > 0 || p.NextOffset >= p.HighWatermark, "an empty page below the high watermark")
		if p.NextOffset >= p.HighWatermark {
			return out
		}
		from = fmt.Sprint(p.NextOffset)
	}
}

// readTopic reads all partitions over REST.
func (a *api) readTopic(t testing.TB, topic string, partitions int) []rec {
	t.Helper()
	var out []rec
	for p := range partitions {
		out = append(out, a.readPartition(t, topic, p, 1000)...)
	}
	return out
}

// readWebSocket reads so many records of a topic from the earliest over a WebSocket.
func (a *api) readWebSocket(t testing.TB, topic string, records int) []rec {
	t.Helper()
	d := websocket.Dialer{Subprotocols: []string{"tidewire.v1.json"}, HandshakeTimeout: 10 * time.Second}
	conn, resp, err := d.Dial("ws"+strings.TrimPrefix(a.n.URL(), "http")+"/v1/ws/consume", http.Header{"Authorization": {"Bearer " + a.token}})
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "tidewire.v1.json", conn.Subprotocol())
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	require.NoError(t, conn.WriteJSON(map[string]any{"op": "subscribe", "id": "s", "topics": []string{topic}, "from": "earliest"}))
	var ops []string
	var out []rec
	for len(out) < records {
		var frame struct {
			Op      string          `json:"op"`
			ID      string          `json:"id"`
			Problem json.RawMessage `json:"problem"`
			Records []wireRecord    `json:"records"`
		}
		require.NoError(t, conn.ReadJSON(&frame), "after %d of %d records", len(out), records)
		if frame.Op != "records" {
			ops = append(ops, frame.Op+":"+frame.ID)
			require.Contains(t, []string{"subscribed", "assigned"}, frame.Op, "%s", frame.Problem)
		}
		out = append(out, storedAll(t, frame.Records)...)
	}
	require.Equal(t, []string{"subscribed:s", "assigned:"}, ops)
	return out
}

// readCLI reads a topic with `tidewire consume`.
func (a *api) readCLI(t testing.TB, topic string) []rec {
	t.Helper()
	return parseLines(t, a.n.must(t, a.token, "", "consume", topic, "--from", "earliest"))
}

func parseLines(t testing.TB, out string) []rec {
	t.Helper()
	var wire []wireRecord
	for line := range strings.Lines(out) {
		var w wireRecord
		require.NoError(t, json.Unmarshal([]byte(line), &w), "%s", line)
		wire = append(wire, w)
	}
	return storedAll(t, wire)
}

// testdata returns the content of a compressed file of test/testdata.
func testdata(t testing.TB, name string) string {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "testdata", name+".gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	content, err := io.ReadAll(z)
	require.NoError(t, err)
	return string(content)
}
