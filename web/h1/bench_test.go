package h1

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
)

// small is a request as clients of the produce endpoint send it.
const small = "POST /v1/topics/orders/records HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\n" +
	"Authorization: Bearer eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJhZG1pbiJ9.c2lnbmF0dXJl\r\nContent-Type: application/json\r\n" +
	"Content-Length: 41\r\n\r\n" + `{"records":[{"key":"k","value":"value"}]}`

// BenchmarkSmallPost is one POST after the other on each of so many connections; the
// client's half is the same for both servers.
func BenchmarkSmallPost(b *testing.B) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the client sends it whole
		w.Header()["Content-Type"] = []string{"application/json"}
		_, _ = io.WriteString(w, `{"results":[{"partition":0,"offset":1,"timestamp":1}]}`)
	})
	for _, conns := range []int{1, 64} {
		b.Run(fmt.Sprintf("server=h1/connections=%d", conns), func(b *testing.B) {
			_, addr := start(b, h)
			post(b, addr, conns)
		})
		b.Run(fmt.Sprintf("server=net-http/connections=%d", conns), func(b *testing.B) {
			post(b, startPlain(b, h), conns)
		})
	}
}

func post(b *testing.B, addr string, conns int) {
	b.ReportAllocs()
	var left atomic.Int64
	ended := make(chan error, conns)
	open := make([]net.Conn, conns)
	for i := range open {
		open[i] = dial(b, addr).TCPConn
	}
	left.Store(int64(b.N))
	b.ResetTimer()
	for _, c := range open {
		go func() {
			in := bufio.NewReader(c)
			for left.Add(-1) >= 0 {
				if err := postOnce(c, in); err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	for range open {
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
	}
}

// postOnce sends one request and reads to the end of the answer's body, a JSON object.
func postOnce(c net.Conn, in *bufio.Reader) error {
	if _, err := io.WriteString(c, small); err != nil {
		return err
	}
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) == 2 {
			break
		}
	}
	if _, err := in.ReadSlice(']'); err != nil {
		return err
	}
	_, err := in.Discard(1)
	return err
}

// BenchmarkParse is the head alone: read anew, and as the connection's last one.
func BenchmarkParse(b *testing.B) {
	raw := []byte(small[:len(small)-41])
	b.Run("fresh", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := parseHead(raw); !ok {
				b.Fatal("not plain")
			}
		}
	})
	b.Run("remembered", func(b *testing.B) {
		b.ReportAllocs()
		var last lastHead
		for b.Loop() {
			if _, ok := last.parse(raw); !ok {
				b.Fatal("not plain")
			}
		}
	})
}
