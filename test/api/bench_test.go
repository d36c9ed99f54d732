package api

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"

	"tidewire/internal/testkit/nodekit"
)

// discard is the writer of an answer that nobody reads.
type discard struct {
	h      http.Header
	status int
	last   []byte
}

func (d *discard) Header() http.Header  { return d.h }
func (d *discard) WriteHeader(code int) { d.status = code }
func (d *discard) Flush()               {}
func (d *discard) Write(p []byte) (int, error) {
	d.last = append(d.last[:0], p...)
	return len(p), nil
}

// benchmarkProduce measures bodies of 100-byte records through the whole handler, without
// a network, for acks=leader.
func benchmarkProduce(b *testing.B, contentType string, records int, body []byte) {
	n := nodekit.StartWith(b, nodekit.Options{Quiet: true})
	token := n.Admin()
	n.Must(201, request{Method: "POST", Path: "/v1/topics", Token: token, Body: object{"name": "t", "partitions": 6}})
	h := n.Handler()
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		req, err := http.NewRequestWithContext(context.Background(), "POST", "http://x/v1/topics/t/records?acks=leader", bytes.NewReader(bytes.Clone(body)))
		if err != nil {
			b.Fatal(err)
		}
		req.RequestURI, req.RemoteAddr = "/v1/topics/t/records?acks=leader", "127.0.0.1:1"
		req.Header.Set("Content-Type", contentType)
		req.Header.Set("Authorization", "Bearer "+token)
		w := &discard{h: http.Header{}}
		if h.ServeHTTP(w, req); w.status != 200 || bytes.Contains(w.last, []byte("problem")) {
			b.Fatalf("%d %s", w.status, w.last)
		}
	}
	b.ReportMetric(float64(records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

var benchRecord = `{"key":"k1","value":"` + strings.Repeat("v", 100) + `"}`

func BenchmarkProduceJSON(b *testing.B) {
	const n = 100
	benchmarkProduce(b, "application/json", n, []byte(`{"records":[`+strings.TrimSuffix(strings.Repeat(benchRecord+",", n), ",")+"]}"))
}

func BenchmarkProduceLines(b *testing.B) {
	const n = 100_000
	benchmarkProduce(b, ndjson, n, []byte(strings.Repeat(benchRecord+"\n", n)))
}
