package main

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"tidewire/internal/testkit/nodekit"
)

// sink is an http.ResponseWriter that keeps nothing but the status.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

// One produce request through the whole chain of handlers, the broker and the log,
// without HTTP's own work.
func BenchmarkProduceHandler(b *testing.B) {
	n := nodekit.StartWith(b, nodekit.Options{Quiet: true})
	n.Must(http.StatusCreated, nodekit.Request{Method: "POST", Path: "/v1/topics", Body: `{"name":"t","partitions":6}`, Token: n.Admin()})
	h := n.Handler()
	for name, records := range map[string]int{"1": 1, "100": 100} {
		rec := []byte(`{"value":"` + string(bytes.Repeat([]byte("v"), 100)) + `"}`)
		body := append([]byte(`{"records":[`), bytes.Join(slicesRepeat(rec, records), []byte(","))...)
		body = append(body, "]}"...)
		b.Run(name, func(b *testing.B) {
			r, err := http.NewRequest(http.MethodPost, "http://node/v1/topics/t/records?acks=leader", http.NoBody)
			if err != nil {
				b.Fatal(err)
			}
			r.RemoteAddr, r.RequestURI = "127.0.0.1:50000", r.URL.RequestURI()
			r.Header.Set("Authorization", "Bearer "+n.Admin())
			r.Header.Set("Content-Type", "application/json")
			r.ContentLength = int64(len(body))
			b.ReportAllocs()
			for b.Loop() {
				w := &sink{header: http.Header{}}
				r.Body = io.NopCloser(bytes.NewReader(body))
				h.ServeHTTP(w, r)
				if w.status != http.StatusOK {
					b.Fatal(w.status)
				}
			}
		})
	}
}

func slicesRepeat(b []byte, n int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = b
	}
	return out
}
