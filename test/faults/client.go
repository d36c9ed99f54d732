//go:build linux

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Client speaks with the nodes of a World as an administrator. Its methods are safe for
// concurrent use.
type Client struct {
	w    *World
	http *http.Client

	mu    sync.Mutex
	token token         // guarded by mu: what was given last
	at    map[int]token // guarded by mu: by node, what it gave after it had refused another one
	ask   []sync.Mutex  // by node: one asks it for a token at a time
}

// token is an access token.
type token struct {
	text  string
	since time.Time
}

// fresh tells that the token may be used yet.
func (t token) fresh() bool { return t.text != "" && time.Since(t.since) < tokenTime }

// requestTime is how long an answer may take. It is above every deadline that is asked for.
const requestTime = 20 * time.Second

// tokenTime is how long a token is used; it is good for 15 minutes.
const tokenTime = 10 * time.Minute

// tokenTries is how many tokens a node may refuse of one request: the one that all nodes take, one
// of its own, and as many again where its clock is set meanwhile.
const tokenTries = 5

// Client returns a client, which has no token yet.
func (w *World) Client() *Client {
	return &Client{w: w, at: map[int]token{}, ask: make([]sync.Mutex, len(w.nodes)), http: &http.Client{Timeout: requestTime, Transport: &http.Transport{MaxIdleConnsPerHost: 128, IdleConnTimeout: 30 * time.Second}}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Problem is what a node says of an error.
type Problem struct {
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Detail    string `json:"detail"`
	Outcome   string `json:"outcome"`
	Retryable bool   `json:"retryable"`
}

// Answer is what came of a request: a status with a body, or an error.
type Answer struct {
	Status int
	Body   []byte
	Err    error
	// RetryAfter is what the header says; 0: there is none.
	RetryAfter time.Duration
}

// OK tells that the request succeeded.
func (a *Answer) OK() bool { return a.Err == nil && a.Status < 300 }

// Problem is what the node says of an error.
func (a *Answer) Problem() (p Problem) {
	if a.Err == nil {
		_ = json.Unmarshal(a.Body, &p) // else it has no code
	}
	return p
}

// String tells what came, cut to a line.
func (a *Answer) String() string {
	if a.Err != nil {
		return a.Err.Error()
	}
	return fmt.Sprintf("%d %.300s", a.Status, a.Body)
}

// Into reads the body of a success.
func (a *Answer) Into(out any) error {
	if !a.OK() {
		return errors.New(a.String())
	}
	return json.Unmarshal(a.Body, out)
}

// Outcomes of a write, as its client can tell.
const (
	applied    = "applied"
	notApplied = "not-applied"
	unknown    = "unknown"
)

// Outcome is what is known of a write: what the node says, or what the connection shows.
func (a *Answer) Outcome() string {
	var dial *net.OpError
	switch {
	case a.OK():
		return applied
	case errors.As(a.Err, &dial) && dial.Op == "dial":
		return notApplied
	case a.Err != nil:
		return unknown
	}
	return a.Problem().Outcome
}

// At is a client's way to one node.
type At struct {
	c    *Client
	node int
}

// At is the way to a node.
func (c *Client) At(node int) At { return At{c, node} }

// Call sends a request; body is sent as JSON, unless it is nil. A token that the node does not take,
// since its clock is another one than that of the node which gave it, is replaced by one of its own.
func (a At) Call(ctx context.Context, method, path string, body any, header ...string) Answer {
	refused := ""
	for try := 1; ; try++ {
		token, err := a.bearer(ctx, refused)
		if err != nil {
			return Answer{Err: err}
		}
		x := a.send(ctx, method, path, body, append(header, "Authorization", "Bearer "+token)...)
		if x.Status != http.StatusUnauthorized || x.Problem().Outcome == unknown || !a.c.w.injects || try == tokenTries {
			return x
		}
		refused = token
	}
}

func (a At) send(ctx context.Context, method, path string, body any, header ...string) Answer {
	var content []byte
	var err error
	if body != nil {
		if content, err = json.Marshal(body); err != nil {
			return Answer{Err: err}
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, a.c.w.Node(a.node).URL+path, bytes.NewReader(content))
	if err != nil {
		return Answer{Err: err}
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := a.c.http.Do(req)
	if err != nil {
		return Answer{Err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	after, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // 0: there is none
	return Answer{Status: resp.StatusCode, Body: b, Err: err, RetryAfter: time.Duration(after) * time.Second}
}

// errNoToken: the node that was asked gives none now.
var errNoToken = &net.OpError{Op: "dial", Err: errors.New("no token yet")} // nothing was sent

// bearer is a token, of which every node takes any, but for one that it has refused.
func (a At) bearer(ctx context.Context, refused string) (string, error) {
	c := a.c
	if t := c.known(a.node, refused); t.fresh() {
		return t.text, nil
	}
	c.ask[a.node].Lock()
	defer c.ask[a.node].Unlock()
	old := c.known(a.node, refused)
	if old.fresh() { // somebody else has asked
		return old.text, nil
	}
	x := a.send(ctx, http.MethodPost, "/v1/auth/login", map[string]string{"username": "admin", "password": Password})
	var got struct {
		Token string `json:"access_token"`
	}
	if err := x.Into(&got); err != nil {
		if old.text != "" {
			return old.text, nil // it is good for some minutes yet
		}
		return "", errNoToken
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := token{got.Token, time.Now()}
	if refused != "" {
		c.at[a.node] = t
	} else {
		c.token = t
	}
	return t.text, nil
}

// known is the token to use at a node, which is not the one that it has refused.
func (c *Client) known(node int, refused string) token {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at[node].text == refused {
		delete(c.at, node)
	}
	for _, t := range []token{c.at[node], c.token} {
		if t.fresh() && t.text != refused {
			return t
		}
	}
	if c.token.text != refused {
		return c.token
	}
	return token{}
}

// Await asks until an answer is a success, anywhere.
func (c *Client) Await(ctx context.Context, method, path string, body, out any) error {
	for i := 0; ; i++ {
		node := 1 + i%len(c.w.Nodes())
		a := c.At(node).Call(ctx, method, path, body)
		if a.OK() {
			if out == nil {
				return nil
			}
			return a.Into(out)
		}
		if !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("%s %s: %s", method, path, a.String())
		}
	}
}

// Move has a partition get other replicas, and asks until that has begun.
func (c *Client) Move(ctx context.Context, topic string, partition int, to []int) error {
	body := map[string]any{"moves": []any{map[string]any{"topic": topic, "partition": partition, "replicas": to}}}
	for {
		var got struct {
			Results []struct {
				Problem *Problem `json:"problem"`
			} `json:"results"`
		}
		if err := c.Await(ctx, http.MethodPost, "/v1/reassignments", body, &got); err != nil {
			return err
		}
		if len(got.Results) == 1 && got.Results[0].Problem == nil {
			return nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("partition %d does not move to %v: %+v", partition, to, got.Results)
		}
	}
}

// AwaitNoMoves waits until nothing moves.
func (c *Client) AwaitNoMoves(ctx context.Context) error {
	for {
		var got struct {
			Total int `json:"total"`
		}
		if err := c.Await(ctx, http.MethodGet, "/v1/reassignments", nil, &got); err != nil {
			return err
		}
		if got.Total == 0 {
			return nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("%d partitions move", got.Total)
		}
	}
}

// PartitionView is what the API tells of a partition.
type PartitionView struct {
	Leader *int  `json:"leader"`
	Epoch  int   `json:"leader_epoch"`
	ISR    []int `json:"isr"`
	HW     int64 `json:"high_watermark"`
	End    int64 `json:"log_end_offset"`
}

// Partitions asks a node for a topic's partitions.
func (c *Client) Partitions(ctx context.Context, node int, topic string) ([]PartitionView, error) {
	var v struct {
		Partitions []PartitionView `json:"partitions"`
	}
	a := c.At(node).Call(ctx, http.MethodGet, "/v1/topics/"+topic, nil)
	return v.Partitions, a.Into(&v)
}

// AwaitISR waits until every node that runs sees a leader and so many replicas in sync of every
// partition of a topic.
func (c *Client) AwaitISR(ctx context.Context, topic string, n int) error {
	for {
		var missing string
		for _, node := range c.w.Nodes() {
			if node.Running() && missing == "" {
				missing = c.lacks(ctx, node.ID, topic, n)
			}
		}
		if missing == "" {
			return nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("not every partition of %s has %d replicas in sync: %s", topic, n, missing)
		}
	}
}

func (c *Client) lacks(ctx context.Context, node int, topic string, n int) string {
	seen, err := c.Partitions(ctx, node, topic)
	if err != nil {
		return fmt.Sprintf("node %d: %v", node, err)
	}
	for i, p := range seen {
		if p.Leader == nil || len(p.ISR) < n {
			return fmt.Sprintf("node %d: partition %d %+v", node, i, p)
		}
	}
	return ""
}
