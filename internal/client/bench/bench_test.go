package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sort"
	"testing"
	"time"

	"tidewire/api/recordjson"
	"tidewire/internal/client"
	"tidewire/internal/client/clienttest"
	"tidewire/internal/model"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newClient(t *testing.T, url string) *client.Client {
	t.Helper()
	base, err := client.ParseServer(url)
	require.NoError(t, err)
	c := client.New(base, client.StaticToken(clienttest.APIToken))
	t.Cleanup(c.Close)
	return c
}

func TestProduceSendsExactlyWhatItReports(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 4)
	o := Options{Topic: "t", Records: 1000, Size: 50, Batch: 20, Connections: 3, Acks: "leader", Keys: 35}
	r, err := Produce(context.Background(), newClient(t, s.URL), o)
	require.NoError(t, err)
	assert.Equal(t, int64(1000), r.Records)
	assert.Equal(t, int64(50), r.Requests)
	assert.Zero(t, r.Errors)
	keys, n := map[string]bool{}, 0
	for p := range 4 {
		for _, rec := range s.Records("t", p) {
			keys[string(rec.Key)] = true
			assert.Len(t, rec.Value, 50)
			n++
		}
	}
	assert.Equal(t, 1000, n)
	assert.Len(t, keys, 35)
	assert.LessOrEqual(t, r.Latency.P50, r.Latency.P999)
	assert.Positive(t, r.RecordsPerS)
}

func TestPrebuiltRequestsAreRecords(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Size: 0, Batch: 1}, {Size: 100, Batch: 7, Keys: 1}, {Size: 9, Batch: 3, Keys: 1000}} {
		for _, b := range bodies(o) {
			var req recordjson.Request
			require.NoError(t, req.Decode(b))
			require.Len(t, req.Records, o.Batch)
			assert.Len(t, req.Records[0].Value, o.Size)
			assert.Equal(t, o.Keys > 0, req.Records[0].Key != nil)
		}
	}
}

func TestFailedRequestsAreCountedAndNamed(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 1)
	s.SetFault(func(n int, w http.ResponseWriter) bool {
		switch n % 4 {
		case 1:
			clienttest.Fail(w, model.StorageFull, "full")
		case 2:
			panic(http.ErrAbortHandler)
		case 3:
			w.WriteHeader(http.StatusMultiStatus)
			_, _ = io.WriteString(w, `{"results":[{"problem":{"code":"timeout"}}]}`)
		}
		return n%4 != 0
	})
	r, err := Produce(context.Background(), newClient(t, s.URL), Options{Topic: "t", Records: 8, Size: 1, Batch: 1, Connections: 1, Acks: "all"})
	require.NoError(t, err)
	assert.Equal(t, int64(6), r.Errors)
	assert.Equal(t, int64(2), r.Records)
	assert.Len(t, r.Problems, 3)
	var out bytes.Buffer
	require.NoError(t, r.WriteText(&out))
	assert.Contains(t, out.String(), "errors 6")
	assert.Contains(t, out.String(), "storage-full")
	js, err := json.Marshal(r)
	require.NoError(t, err)
	assert.Contains(t, string(js), `"p999_ms"`)
}

func TestConsumeReadsAllPartitions(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 5)
	_, err := Produce(context.Background(), newClient(t, s.URL), Options{Topic: "t", Records: 2000, Size: 10, Batch: 100, Connections: 2, Acks: "all", Keys: 100})
	require.NoError(t, err)
	o := Options{Topic: "t", Batch: 70, Connections: 3, MaxBytes: 1 << 20}
	r, err := Consume(context.Background(), newClient(t, s.URL), o)
	require.NoError(t, err)
	assert.Equal(t, int64(2000), r.Records)
	o.Records = 100
	r, err = Consume(context.Background(), newClient(t, s.URL), o)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, r.Records, int64(100))
	assert.Less(t, r.Records, int64(2000))
	_, err = Consume(context.Background(), newClient(t, s.URL), Options{Topic: "none", Batch: 1, Connections: 1})
	var p *client.Problem
	require.ErrorAs(t, err, &p)
}

func TestConsumeOfBatchesReadsAllOfThemAndAsOftenAsAsked(t *testing.T) {
	t.Parallel()
	const end, bytesEach = 250, 11
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if !q.Has("offset") {
			_, _ = io.WriteString(w, `{"partitions":[{"partition":0},{"partition":1}]}`) // the client reads what comes
			return
		}
		if r.Header.Get("Accept") != "application/vnd.kafka.record-batches" {
			http.Error(w, "not batches", http.StatusNotAcceptable)
			return
		}
		from, most := 0, 0
		_, err := fmt.Sscan(q.Get("max_records"), &most)
		if q.Get("offset") != "earliest" && err == nil {
			_, err = fmt.Sscan(q.Get("offset"), &from)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		next := min(from+most, end)
		w.Header().Set("Tidewire-Next-Offset", fmt.Sprint(next))
		w.Header().Set("Content-Length", fmt.Sprint((next-from)*bytesEach))
		_, _ = w.Write(make([]byte, (next-from)*bytesEach)) // the client reads what comes
	}))
	t.Cleanup(s.Close)
	for _, rounds := range []int{0, 1, 3} {
		r, err := Consume(context.Background(), newClient(t, s.URL), Options{Topic: "t", Batch: 100, Connections: 2, Format: FormatBinary, Rounds: rounds})
		require.NoError(t, err)
		assert.Zero(t, r.Errors, r.Problems)
		assert.Equal(t, int64(2*end*max(rounds, 1)), r.Records)
		assert.InDelta(t, float64(2*end*bytesEach*max(rounds, 1))/1e6, r.MBPerS*r.Seconds, 1e-6)
	}
	for _, o := range []Options{{Topic: "t", Batch: 1, Connections: 1, Format: "csv"}, {Topic: "t", Batch: 1, Connections: 1, Rounds: -1}} {
		_, err := Consume(context.Background(), newClient(t, s.URL), o)
		require.Error(t, err)
	}
}

func TestLatencySeesEachRecordArrive(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 2)
	for _, rate := range []float64{0, 2000} {
		r, err := Latency(context.Background(), newClient(t, s.URL), Options{Topic: "t", Records: 50, Size: 60, Batch: 100, Connections: 1, Acks: "all", Rate: rate})
		require.NoError(t, err)
		assert.Equal(t, int64(50), r.Records)
		require.NotNil(t, r.EndToEnd)
		assert.Positive(t, r.EndToEnd.Max)
	}
	assert.Len(t, s.Records("t", 0), 100)
	assert.Len(t, s.Records("t", 0)[0].Value, 60)
}

func TestAnInterruptEndsAMeasurement(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 1)
	ctx, cancel := context.WithCancel(context.Background())
	s.SetFault(func(n int, w http.ResponseWriter) bool {
		if n == 5 {
			cancel()
		}
		return false
	})
	r, err := Produce(ctx, newClient(t, s.URL), Options{Topic: "t", Records: 1 << 40, Size: 1, Batch: 1, Connections: 2, Acks: "all"})
	require.NoError(t, err)
	assert.Less(t, r.Records, int64(100))
	assert.Zero(t, r.Errors, "what the interrupt cut is no error")
}

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	t.Parallel()
	good := Options{Topic: "t", Batch: 1, Connections: 1}
	require.NoError(t, good.Check())
	for _, change := range []func(*Options){
		func(o *Options) { o.Topic = "" }, func(o *Options) { o.Records = -1 }, func(o *Options) { o.Batch = 0 },
		func(o *Options) { o.Connections = 0 }, func(o *Options) { o.Rate = -1 }, func(o *Options) { o.Size = -1 },
	} {
		o := good
		change(&o)
		assert.Error(t, o.Check())
	}
}

func TestAnswersAreReadInEveryForm(t *testing.T) {
	t.Parallel()
	big := bytes.Repeat([]byte("0123456789"), 30_000)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/pre/chunked":
			for i := 0; i < len(big); i += 50_000 {
				_, _ = w.Write(big[i : i+50_000])
				w.(http.Flusher).Flush()
			}
		case "/pre/close":
			w.Header().Set("Connection", "close")
			_, _ = w.Write(big)
		case "/pre/none":
			w.WriteHeader(http.StatusNoContent)
		case "/pre/echo":
			_, _ = fmt.Fprintf(w, "%s %s ", r.Method, r.Header.Get("Authorization"))
			_, _ = io.Copy(w, r.Body)
		default:
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "teapot")
		}
	}))
	defer srv.Close()
	base, err := client.ParseServer(srv.URL + "/pre/")
	require.NoError(t, err)
	cn, err := (&target{base: base, tokens: client.StaticToken("tok")}).dial(context.Background())
	require.NoError(t, err)
	defer cn.close()
	for range 2 {
		for path, want := range map[string]string{"/chunked": string(big), "/close": string(big), "/none": "", "/echo": "GET Bearer tok "} {
			got, err := cn.do(context.Background(), path, nil)
			require.NoError(t, err, path)
			require.Equal(t, want, string(got), path)
		}
		got, err := cn.do(context.Background(), "/echo", []byte("body"))
		require.NoError(t, err)
		assert.Equal(t, "POST Bearer tok body", string(got))
		_, err = cn.do(context.Background(), "/other", nil)
		var se *errStatus
		require.ErrorAs(t, err, &se)
		assert.Equal(t, 418, se.status)
	}
}

func TestNextOffsetIsTheOneBehindTheRecords(t *testing.T) {
	t.Parallel()
	n, err := nextOffset([]byte(`{"records":[{"value":{"next_offset":1}}],"next_offset": 42,"high_watermark":50}`))
	require.NoError(t, err)
	assert.Equal(t, int64(42), n)
	_, err = nextOffset([]byte(`{}`))
	require.ErrorIs(t, err, errShape)
}

func TestQuantilesAreWithinTheirBucket(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Int64Range(0, int64(time.Hour)), 1, 200).Draw(t, "durations")
		var a, b histogram
		for i, d := range all {
			if i%2 == 0 {
				a.add(time.Duration(d))
			} else {
				b.add(time.Duration(d))
			}
		}
		a.merge(&b)
		sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
		for _, q := range []float64{0.5, 0.95, 0.99, 0.999, 1} {
			rank := max(1, min(int(q*float64(len(all))+0.5), len(all)))
			exact := all[rank-1]
			got := int64(a.quantile(q))
			if got < exact || got > exact+exact/32+1 {
				t.Fatalf("q %v of %v: %d, exactly %d", q, all, got, exact)
			}
		}
	})
	var empty histogram
	assert.Zero(t, empty.quantile(0.5))
	assert.Zero(t, *empty.latency())
}
