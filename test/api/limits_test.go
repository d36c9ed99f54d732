package api

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRequestsBeyondTheBytesInFlightAreRefusedEarly fills the node's budget with bodies
// that do not end: others are told to come again, and are taken once those are gone.
func TestRequestsBeyondTheBytesInFlightAreRefusedEarly(t *testing.T) {
	t.Parallel()
	a := ownAPI(t, "--http-inflight-bytes", "80MiB")
	path := a.topic("limits", 1, nil)
	part := strings.Repeat("x", 1<<20)
	var open []*io.PipeWriter
	var ended []chan struct{}
	for range 2 { // 30 MiB each, in buffers of up to a quarter more
		r, w := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), "POST", a.URL+path+"/records", r)
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/octet-stream")
		req.Header.Set("Authorization", "Bearer "+a.admin)
		end := make(chan struct{})
		go func() {
			defer close(end)
			transport := &http.Transport{DisableKeepAlives: true}
			if res, err := transport.RoundTrip(req); err == nil {
				_ = res.Body.Close()
			}
		}()
		for range 30 {
			_, err = io.WriteString(w, part)
			require.NoError(t, err)
		}
		open, ended = append(open, w), append(ended, end)
	}
	big := []byte(`{"records":[{"value":1}` + strings.Repeat(`,{"value":"`+strings.Repeat("x", 900_000)+`"}`, 25) + `]}`)
	x := wants(t, a.do("POST", path+"/records", big, headers{"Content-Type": "application/json"}), 429, "rate-limited")
	require.NotEmpty(t, x.Header.Get("Retry-After"))
	checkNotApplied2(t, x)
	wants(t, a.post(path+"/records", object{"records": []object{{"value": "small"}}}), 200, "")
	require.Contains(t, string(a.get("/metrics").Body), "tidewire_http_inflight_refused_total 1")
	for i, w := range open {
		_ = w.CloseWithError(io.ErrUnexpectedEOF)
		<-ended[i]
	}
	require.Eventually(t, func() bool {
		return a.do("POST", path+"/records", big, headers{"Content-Type": "application/json"}).Status == 200
	}, 10e9, 10e6)
	require.EqualValues(t, 1+1+25, a.logEnd(path, 0))
}

func checkNotApplied2(t *testing.T, x *answer) {
	t.Helper()
	p := decoded(t, x, x.Status)
	require.Equal(t, true, p["retryable"])
	require.Equal(t, "not-applied", p["outcome"])
}
