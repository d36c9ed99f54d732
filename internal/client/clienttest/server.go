// Package clienttest is a small server in memory that speaks the HTTP contract as far
// as the client needs it, for tests of the client and of the commands. It keeps
// records, checks tokens as a server does (a refresh token is good once, and a second
// use ends the login), and can be told to fail.
package clienttest

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"tidewire/api/recordjson"
	"tidewire/internal/model"
	"tidewire/storage/record"

	"github.com/gorilla/websocket"
)

// APIToken is a token that is always good.
const APIToken = "api-token"

// Call is a request that the server has seen.
type Call struct {
	Method string
	Path   string // escaped, as it came
	Query  string
	Body   string
	Key    string // Idempotency-Key
}

// Fault decides the answer of a produce request before it is applied: nil goes on.
// n counts produce requests from 1.
type Fault func(n int, w http.ResponseWriter) bool

// Server is the server in memory.
type Server struct {
	*httptest.Server

	mu       sync.Mutex
	calls    []Call                       // guarded by mu
	topics   map[string][][]record.Record // guarded by mu: topic → partition → records
	starts   map[string]int               // guarded by mu: "topic/partition" → log start
	changed  chan struct{}                // guarded by mu: closed when records come
	produces int                          // guarded by mu
	fault    Fault                        // guarded by mu
	lose     func(n int) bool             // guarded by mu; nil: no answer is lost
	once     map[string][]byte            // guarded by mu: Idempotency-Key → answer
	limit    int                          // guarded by mu: most records in a page; 0: as asked
	sessions map[string]bool              // guarded by mu: access token → good
	refresh  map[string]bool              // guarded by mu: refresh token → good; false once spent
	issued   int                          // guarded by mu
	reuse    int                          // guarded by mu: spent refresh tokens that came again
	lifetime int                          // guarded by mu: of access tokens, in seconds
	replies  map[string]Reply             // guarded by mu: "METHOD path" → canned answer
	stopping chan struct{}
	breaks   []Break    // guarded by mu
	onCall   func(Call) // guarded by mu; nil: nothing is called
}

// Break ends a stream that follows once it gave so many records, with a last line, or by
// cutting the connection in the middle of one.
type Break struct {
	Records int
	Line    string
}

// Reply is a canned answer.
type Reply struct {
	Status int
	Body   string
}

// New starts a server and stops it with the test.
func New(t testing.TB) *Server {
	s := &Server{
		topics: map[string][][]record.Record{}, starts: map[string]int{}, once: map[string][]byte{}, changed: make(chan struct{}), lifetime: 900,
		sessions: map[string]bool{APIToken: true}, refresh: map[string]bool{}, replies: map[string]Reply{},
		stopping: make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/auth/login", s.login)
	mux.HandleFunc("POST /v1/auth/refresh", s.refreshTokens)
	mux.HandleFunc("GET /v1/topics/{topic}/offsets", s.authed(s.offsets))
	mux.HandleFunc("GET /v1/topics/{topic}", s.authed(s.describe))
	mux.HandleFunc("POST /v1/topics/{topic}/records", s.authed(s.produce))
	mux.HandleFunc("POST /v1/topics/{topic}/partitions/{partition}/records", s.authed(s.produce))
	mux.HandleFunc("GET /v1/topics/{topic}/partitions/{partition}/records", s.authed(s.fetch))
	mux.HandleFunc("GET /v1/topics/{topic}/records", s.authed(s.follow))
	mux.HandleFunc("GET /v1/ws/{kind}", s.authed(s.ws))
	mux.HandleFunc("/", s.authed(s.canned))
	s.Server = httptest.NewServer(s.noting(mux))
	t.Cleanup(func() {
		close(s.stopping)
		s.Close()
	})
	return s
}

// AddTopic makes a topic.
func (s *Server) AddTopic(name string, partitions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topics[name] = make([][]record.Record, partitions)
}

// Append puts records into a partition.
func (s *Server) Append(topic string, partition int, recs ...record.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.appendLocked(topic, partition, recs...)
}

func (s *Server) appendLocked(topic string, partition int, recs ...record.Record) {
	log := s.topics[topic][partition]
	for _, r := range recs {
		r.Offset = model.Offset(len(log))
		log = append(log, r)
	}
	s.topics[topic][partition] = log
	close(s.changed)
	s.changed = make(chan struct{})
}

// Truncate deletes a partition's records below an offset.
func (s *Server) Truncate(topic string, partition, before int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts[fmt.Sprint(topic, "/", partition)] = before
}

// Records returns what a partition holds.
func (s *Server) Records(topic string, partition int) []record.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]record.Record(nil), s.topics[topic][partition]...)
}

// SetFault makes produce requests fail.
func (s *Server) SetFault(f Fault) { s.mu.Lock(); defer s.mu.Unlock(); s.fault = f }

// SetLost has the answers of some produce requests get lost, after they were applied. n counts
// produce requests from 1.
func (s *Server) SetLost(lose func(n int) bool) { s.mu.Lock(); defer s.mu.Unlock(); s.lose = lose }

// SetPage bounds the records of a page.
func (s *Server) SetPage(n int) { s.mu.Lock(); defer s.mu.Unlock(); s.limit = n }

// SetLifetime sets how long new access tokens live.
func (s *Server) SetLifetime(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lifetime = int(d.Seconds())
}

// Reply sets the answer to a request that has no handler of its own.
func (s *Server) Reply(method, escapedPath string, status int, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies[method+" "+escapedPath] = Reply{status, body}
}

// OnCall has a function told of each request before it is answered.
func (s *Server) OnCall(tell func(Call)) { s.mu.Lock(); defer s.mu.Unlock(); s.onCall = tell }

// EndSessions makes all access tokens bad, as if they had expired.
func (s *Server) EndSessions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
}

// Calls returns the requests so far.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Call(nil), s.calls...)
}

// Issued returns how many pairs of tokens were given out, and how often a spent
// refresh token came again.
func (s *Server) Issued() (issued, reused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.issued, s.reuse
}

func (s *Server) noting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(&replay{body})
		s.mu.Lock()
		s.calls = append(s.calls, Call{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, string(body), r.Header.Get("Idempotency-Key")})
		tell := s.onCall
		s.mu.Unlock()
		if tell != nil {
			tell(Call{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, string(body), r.Header.Get("Idempotency-Key")})
		}
		next.ServeHTTP(w, r)
	})
}

// replay reads a body again.
type replay struct{ rest []byte }

func (r *replay) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Fail answers a problem of a code.
func Fail(w http.ResponseWriter, code model.Code, detail string, fields ...model.FieldError) {
	row := model.Row(code)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(row.Status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"type": "about:blank", "title": row.Title, "status": row.Status, "detail": detail, "code": code, "retryable": row.Retryable,
		"outcome": row.Outcome, "errors": fields, "request_id": "req-1",
	})
}

func failRange(w http.ResponseWriter, earliest, latest int) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
	_, _ = fmt.Fprintf(w, `{"status":416,"code":"offset-out-of-range","detail":"out of range","earliest":%d,"latest":%d}`, earliest, latest)
}

func (s *Server) authed(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		ok := s.sessions[token(r)]
		s.mu.Unlock()
		if !ok {
			Fail(w, model.TokenExpired, "the token has expired")
			return
		}
		next(w, r)
	}
}

func token(r *http.Request) string {
	h := r.Header.Get("Authorization")
	if len(h) < 7 {
		return ""
	}
	return h[7:]
}

func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	var in struct{ Username, Password string }
	if json.NewDecoder(r.Body).Decode(&in) != nil || in.Password != "secret" {
		Fail(w, model.BadCredentials, "user name or password is wrong")
		return
	}
	s.issue(w)
}

func (s *Server) issue(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued++
	access, refresh := fmt.Sprintf("access-%d", s.issued), fmt.Sprintf("refresh-%d", s.issued)
	s.sessions[access], s.refresh[refresh] = true, true
	_ = json.NewEncoder(w).Encode(map[string]any{
		"access_token": access, "token_type": "Bearer", "expires_in": s.lifetime, "refresh_token": refresh,
	})
}

func (s *Server) refreshTokens(w http.ResponseWriter, r *http.Request) {
	var in struct {
		RefreshToken string `json:"refresh_token"`
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	s.mu.Lock()
	good, known := s.refresh[in.RefreshToken]
	s.refresh[in.RefreshToken] = false
	if known && !good {
		s.reuse++
		clear(s.sessions)
		clear(s.refresh)
	}
	s.mu.Unlock()
	if !good {
		Fail(w, model.Unauthenticated, "the refresh token is not valid")
		return
	}
	s.issue(w)
}

func (s *Server) canned(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	reply, ok := s.replies[r.Method+" "+r.URL.EscapedPath()]
	s.mu.Unlock()
	if !ok {
		Fail(w, model.NotImplemented, "not built yet")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(reply.Status)
	_, _ = io.WriteString(w, reply.Body)
}

// topicLocked finds a topic's partitions.
func (s *Server) topicLocked(w http.ResponseWriter, r *http.Request) ([][]record.Record, bool) {
	parts, ok := s.topics[r.PathValue("topic")]
	if !ok {
		Fail(w, model.UnknownTopic, "no topic "+r.PathValue("topic"))
	}
	return parts, ok
}

func (s *Server) describe(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts, ok := s.topicLocked(w, r)
	if !ok {
		return
	}
	list := []map[string]any{}
	for p, log := range parts {
		list = append(list, map[string]any{"partition": p, "leader": 1, "leader_epoch": 0, "replicas": []int{1}, "isr": []int{1},
			"log_start_offset": 0, "high_watermark": len(log), "last_stable_offset": len(log), "log_end_offset": len(log), "size_bytes": 100, "segments": 1})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"name": r.PathValue("topic"), "id": "uuid", "internal": false, "replication_factor": 1, "partitions": list})
}

func (s *Server) offsets(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts, ok := s.topicLocked(w, r)
	if !ok {
		return
	}
	out := []map[string]any{}
	for p, log := range parts {
		var at any = len(log)
		switch q := r.URL.Query().Get("timestamp"); q {
		case "latest":
		case "earliest":
			at = 0
		default:
			at = nil
			ms, _ := strconv.ParseInt(q, 10, 64)
			for i := len(log) - 1; i >= 0; i-- {
				if log[i].Timestamp >= ms {
					at = i
				}
			}
		}
		out = append(out, map[string]any{"partition": p, "offset": at, "timestamp": nil})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"offsets": out})
}

func (s *Server) produce(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	parts, ok := s.topicLocked(w, r)
	if !ok {
		return
	}
	s.produces++
	if s.fault != nil && s.fault(s.produces, w) {
		return
	}
	lost := s.lose != nil && s.lose(s.produces)
	key := r.Header.Get("Idempotency-Key")
	answer, repeated := s.once[key]
	if repeated {
		s.answer(w, answer, lost)
		return
	}
	var req recordjson.Request
	if err := req.Decode(body); err != nil {
		e := model.AsError(err)
		Fail(w, e.Code, e.Detail, e.Fields...)
		return
	}
	answer = []byte(`{"results":[`)
	for i, rec := range req.Records {
		p := int(rec.Partition)
		if !rec.HasPartition && rec.Key != nil {
			h := fnv.New32()
			_, _ = h.Write(rec.Key)
			p = int(h.Sum32()) % len(parts)
		}
		if v := r.PathValue("partition"); v != "" {
			p, _ = strconv.Atoi(v)
		}
		s.appendLocked(r.PathValue("topic"), p, record.Record{Timestamp: rec.Timestamp, Key: rec.Key, Value: rec.Value, Headers: rec.Headers})
		if i > 0 {
			answer = append(answer, ',')
		}
		answer = recordjson.AppendResult(answer, model.PartitionID(p), model.Offset(len(s.topics[r.PathValue("topic")][p])-1), rec.Timestamp)
	}
	if r.URL.Query().Get("acks") == "none" {
		w.WriteHeader(http.StatusAccepted)
		_, _ = fmt.Fprintf(w, `{"accepted":%d}`, len(req.Records))
		return
	}
	answer = append(answer, `]}`...)
	if key != "" {
		s.once[key] = answer
	}
	s.answer(w, answer, lost)
}

func (s *Server) answer(w http.ResponseWriter, answer []byte, lost bool) {
	if lost {
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(answer)
}

func (s *Server) fetch(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	wait, _ := strconv.Atoi(q.Get("wait_ms"))
	over := time.After(time.Duration(wait) * time.Millisecond)
	for {
		s.mu.Lock()
		parts, ok := s.topicLocked(w, r)
		p, _ := strconv.Atoi(r.PathValue("partition"))
		if !ok {
			s.mu.Unlock()
			return
		}
		log, changed, limit := parts[p], s.changed, s.limit
		start := s.starts[fmt.Sprint(r.PathValue("topic"), "/", p)]
		s.mu.Unlock()
		at, err := strconv.Atoi(q.Get("offset"))
		switch q.Get("offset") {
		case "earliest":
			at, err = start, nil
		case "latest":
			at, err = len(log), nil
		}
		if err != nil || at > len(log) || at < start {
			failRange(w, start, len(log))
			return
		}
		most, _ := strconv.Atoi(q.Get("max_records"))
		if limit > 0 {
			most = min(most, limit)
		}
		if at < len(log) || wait == 0 {
			writePage(w, r.PathValue("topic"), p, log[at:min(len(log), at+most)], at)
			return
		}
		select {
		case <-changed:
		case <-over:
			wait = 0
		case <-s.stopping:
			wait = 0
		case <-r.Context().Done():
			return
		}
	}
}

func writePage(w http.ResponseWriter, topic string, partition int, recs []record.Record, at int) {
	out := []byte(`{"records":[`)
	meta := &recordjson.Meta{Topic: topic, Partition: model.PartitionID(partition)}
	for i := range recs {
		if i > 0 {
			out = append(out, ',')
		}
		out = recordjson.AppendRecord(out, meta, &recs[i], recordjson.Encodings{})
	}
	out = fmt.Appendf(out, `],"next_offset":%d,"high_watermark":0,"last_stable_offset":0,"log_start_offset":0}`, at+len(recs))
	_, _ = w.Write(out)
}

// ws answers each frame with itself, and op "end" with close code 4401; kind must be
// "consume".
func (s *Server) ws(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("kind") != "consume" {
		Fail(w, model.NotFound, "no such resource")
		return
	}
	up := websocket.Upgrader{Subprotocols: []string{"tidewire.v1.json"}}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	for {
		kind, frame, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if string(frame) == `{"op":"end"}` {
			bye := websocket.FormatCloseMessage(4401, "authentication ended")
			_ = conn.WriteControl(websocket.CloseMessage, bye, time.Now().Add(time.Second))
			return
		}
		if conn.WriteMessage(kind, frame) != nil {
			return
		}
	}
}
