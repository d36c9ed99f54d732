package api

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"tidewire/internal/testkit/racing"
)

// codings are the encodings of bodies, by what writes them.
var codings = map[string]func(io.Writer) io.WriteCloser{
	"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"zstd": func(w io.Writer) io.WriteCloser {
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		if err != nil {
			panic(err)
		}
		return z
	},
}

// packed compresses n copies of a text.
func packed(t testing.TB, coding, text string, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := codings[coding](&b)
	for range n {
		_, err := io.WriteString(w, text)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// unpacked is the body of an answer without its encoding.
func unpacked(t testing.TB, x *answer) []byte {
	t.Helper()
	var r io.Reader
	var err error
	switch x.Header.Get("Content-Encoding") {
	case "gzip":
		r, err = gzip.NewReader(bytes.NewReader(x.Body))
	case "zstd":
		r, err = zstd.NewReader(bytes.NewReader(x.Body), zstd.WithDecoderConcurrency(1))
	default:
		return x.Body
	}
	require.NoError(t, err)
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	return b
}

func TestEveryBodyMayBeCompressed(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for coding := range codings {
		for _, given := range []string{coding, strings.ToUpper(coding), " " + coding + " "} {
			name := fmt.Sprintf("coding.%s.%d", coding, len(given)+int(given[0]))
			h := headers{"Content-Encoding": given, "Content-Type": "application/json"}
			for _, chunked := range []bool{false, true} {
				send := func(path, body string, more headers) *answer {
					for k, v := range more {
						h[k] = v
					}
					return a.Do(request{Method: "POST", Path: path, Token: a.admin, Header: h, Body: packed(t, coding, body, 1), Chunked: chunked})
				}
				if !chunked {
					wants(t, send("/v1/topics", `{"name":"`+name+`"}`, nil), 201, "")
				}
				wants(t, send("/v1/topics/"+name+"/records", `{"records":[{"value":"JSON"}]}`, nil), 200, "")
				wants(t, send("/v1/topics/"+name+"/records", `{"value":"line"}`, headers{"Content-Type": ndjson}), 200, "")
				wants(t, send("/v1/topics/"+name+"/records", "raw", headers{"Content-Type": "text/plain"}), 200, "")
				h["Content-Type"] = "application/json"
			}
			var got []any
			for _, r := range decoded(t, a.get("/v1/topics/"+name+"/partitions/0/records?offset=0"), 200)["records"].([]any) {
				got = append(got, r.(object)["value"])
			}
			require.Equal(t, []any{"JSON", "line", "raw", "JSON", "line", "raw"}, got)
		}
	}
	wants(t, a.do("POST", "/v1/topics", []byte(`{"name":"coding.identity"}`), headers{"Content-Encoding": "identity", "Content-Type": "application/json"}), 201, "")
	wants(t, a.do("POST", "/v1/topics", packed(t, "gzip", `{"name":"coding.x-gzip"}`, 1), headers{"Content-Encoding": "x-gzip", "Content-Type": "application/json"}), 201, "")
}

func TestOtherEncodingsOfBodiesAreRefused(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for _, coding := range []string{"br", "deflate", "gzip, gzip", "gzip,zstd", "identity, gzip", "gzip;q=1", "compress"} {
		wants(t, a.do("POST", "/v1/topics", packed(t, "gzip", `{"name":"coding.refused"}`, 1), headers{"Content-Encoding": coding, "Content-Type": "application/json"}), 415, "unsupported-media-type")
	}
}

func TestABodyThatIsNotWhatItsEncodingSaysIsMalformed(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("coding.malformed", 1, nil)
	for coding := range codings {
		whole := packed(t, coding, `{"records":[{"value":"`+strings.Repeat("abc", 50)+`"}]}`, 1)
		flipped := bytes.Clone(whole)
		flipped[len(flipped)-6] ^= 0xff
		for name, body := range map[string][]byte{
			"plain": []byte(`{"records":[{"value":1}]}`), "cut": whole[:len(whole)-5], "cut early": whole[:3], "flipped": flipped,
			"followed": append(bytes.Clone(whole), "something"...),
		} {
			h := headers{"Content-Encoding": coding, "Content-Type": "application/json"}
			wants(t, a.do("POST", path+"/records", body, h), 400, "malformed-body")
			h["Content-Type"] = ndjson
			x := a.do("POST", path+"/records", body, h)
			if x.Status == 200 { // a line was decoded before
				require.Equal(t, "malformed-body", summed(t, decodeLines(t, x.Body))["stopped"], "%s %s", coding, name)
				continue
			}
			wants(t, x, 400, "malformed-body")
		}
		wants(t, a.do("POST", path+"/records", nil, headers{"Content-Encoding": coding, "Content-Type": "application/json"}), 400, "malformed-body")
	}
	require.Zero(t, a.logEnd(path, 0))
}

// TestBombsAreRefused sends little that inflates to much, and some that may.
func TestBombsAreRefused(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	a := sharedAPI(t)
	path := a.topic("coding.bombs", 1, nil)
	for coding := range codings {
		bomb := packed(t, coding, strings.Repeat(" ", 1<<20), 1<<7) // 128 MiB
		require.Less(t, len(bomb), 256<<10, "a body that is not read stays below what is read before an answer")
		h := headers{"Content-Encoding": coding, "Content-Type": "application/json"}
		for _, target := range []string{"/v1/topics", path + "/records", "/v1/users", "/v1/acls"} {
			wants(t, a.do("POST", target, bomb, h), 413, "request-too-large")
		}
		wants(t, a.Do(request{Method: "POST", Path: "/v1/auth/login", Header: h, Body: bomb}), 413, "request-too-large")
		h["Content-Type"] = "application/octet-stream"
		wants(t, a.do("POST", path+"/records", bomb, h), 413, "request-too-large")

		h["Content-Type"] = ndjson
		wants(t, a.do("POST", path+"/records", bomb, h), 413, "request-too-large")
		x := a.do("POST", path+"/records?acks=leader", packed(t, coding, strings.Repeat("{}\n", 1<<18), 1<<7), h)
		require.Equal(t, 200, x.Status)
		lines := decodeLines(t, x.Body)
		require.Equal(t, "request-too-large", lines[0]["problem"].(object)["code"])
		require.Equal(t, "request-too-large", summed(t, lines)["stopped"])
		require.Equal(t, number(t, summed(t, lines)["records"]), a.logEnd(path, 0), "those before it are stored and told")
		wants(t, a.remove(path), 204, "")
		a.topic("coding.bombs", 1, nil)

		h["Content-Type"] = "application/json" // much the same, and within the limits of a body
		fine := packed(t, coding, `{"records":[{"value":1}`+strings.Repeat(`,{"value":1}`, 100_000)+`]}`, 1)
		wants(t, a.do("POST", path+"/records", fine, h), 200, "")
		wants(t, a.remove(path), 204, "")
		a.topic("coding.bombs", 1, nil)
	}
}

func TestAnswersAreCompressedForWhoAsks(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("coding.answers", 1, nil)
	value := strings.Repeat("v", 4000)
	a.records(path, object{"value": value})
	for accept, want := range map[string]string{
		"": "", "gzip": "gzip", "zstd": "zstd", "gzip, zstd": "zstd", "gzip;q=1.0, zstd;q=0.5": "gzip", "br": "", "*": "zstd",
		"*;q=0": "", "gzip;q=0": "", "zstd;q=0, *": "gzip", "deflate, gzip, br": "gzip", "identity, gzip;q=0.5": "", "x-gzip": "gzip",
		"identity;q=0, gzip;q=0.1": "gzip", "GZIP": "gzip", "gzip;q=2": "",
	} {
		h := headers{}
		if accept != "" {
			h["Accept-Encoding"] = accept
		}
		for _, target := range []string{path + "/config", "/openapi.json"} {
			x := a.Do(request{Method: "HEAD", Path: target, Token: a.admin, Header: h})
			require.Equal(t, want, x.Header.Get("Content-Encoding"), accept)
			require.Contains(t, x.Header.Values("Vary"), "Accept-Encoding")
		}
		n := *a.Node
		n.Observe = nil // it checks plain bodies
		x := n.Do(request{Method: "GET", Path: path + "/config", Token: a.admin, Header: h})
		require.Equal(t, want, x.Header.Get("Content-Encoding"), accept)
		require.JSONEq(t, string(a.get(path+"/config").Body), string(unpacked(t, x)))
		x = n.Do(request{Method: "GET", Path: path + "/partitions/0/records?offset=0", Token: a.admin, Header: h})
		require.Empty(t, x.Header.Get("Content-Encoding"), "records come as they are")
		require.Contains(t, string(x.Body), value)
	}
	x := a.Do(request{Method: "GET", Path: "/v1/auth/me", Token: a.admin, Header: headers{"Accept-Encoding": "gzip"}})
	require.Empty(t, x.Header.Get("Content-Encoding"), "what fits a packet is not worth it")
}
