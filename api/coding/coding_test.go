package coding

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMediaFollowsTheWeightsOfTheMostSpecificRange(t *testing.T) {
	t.Parallel()
	offers := []string{"application/json", "application/x-ndjson", "text/csv"}
	for accept, want := range map[string]string{
		"*/*":                                    "application/json",
		"application/*":                          "application/json",
		"text/*":                                 "text/csv",
		"text/csv, */*;q=0.1":                    "text/csv",
		"application/json;q=0.5, text/csv":       "text/csv",
		"application/json;q=0, */*":              "application/x-ndjson",
		"application/*;q=0, */*;q=0.2":           "text/csv",
		"*/*;q=0":                                "",
		"image/png":                              "",
		"":                                       "",
		"APPLICATION/X-NDJSON":                   "application/x-ndjson",
		"text/csv;q=1.5":                         "",
		"text/csv;q=x":                           "",
		"text/csv;q=-1, application/json":        "application/json",
		"text/csv;header=present;q=0.9":          "text/csv",
		"text/csv;Q=0.1, application/json;q=0.2": "application/json",
		" text/csv ; q=0.9 , application/json;q=0.3": "text/csv",
		"text/csv;q=NaN":                     "",
		"*":                                  "",
		"text/csv;q=0.5;q=1":                 "text/csv",
		strings.Repeat("image/png,", 10_000): "",
	} {
		require.Equal(t, want, Media([]string{accept}, offers), "%.60s", accept)
	}
	require.Equal(t, "text/csv", Media([]string{"application/json;q=0.1", "text/csv;q=0.2"}, offers), "headers are one list")
	require.Empty(t, Media(nil, offers))
}

func TestABodyHasOneKnownCoding(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"gzip": Gzip, "GZIP": Gzip, " x-gzip ": Gzip, "zstd": Zstd, "Zstd": Zstd, "identity": "", "": "",
	} {
		got, err := Of(http.Header{"Content-Encoding": {given}})
		require.NoError(t, err, given)
		require.Equal(t, want, got, given)
	}
	got, err := Of(http.Header{})
	require.NoError(t, err)
	require.Empty(t, got)
	for _, given := range [][]string{{"br"}, {"deflate"}, {"gzip, zstd"}, {"gzip", "gzip"}, {"identity, gzip"}, {"gzip;q=1"}, {"*"}, {"gzip\x00"}} {
		_, err := Of(http.Header{"Content-Encoding": given})
		require.True(t, model.HasCode(err, model.UnsupportedMediaType), "%q: %v", given, err)
	}
}

func pack(t testing.TB, coding string, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&out)
	if coding == Zstd {
		var err error
		w, err = zstd.NewWriter(&out)
		require.NoError(t, err)
	}
	_, err := w.Write(b)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

// read reads a body to its end and gives its decoder back.
func read(r io.Reader, coding string, grow func(int64) error) ([]byte, error) {
	b := NewBody(r, coding, grow)
	defer b.Release()
	return io.ReadAll(b)
}

func free(int64) error { return nil }

func TestABodyComesAsItWasPacked(t *testing.T) {
	t.Parallel()
	large := bytes.Repeat([]byte("0123456789abcdef\n"), 100_000)
	for _, coding := range []string{Gzip, Zstd} {
		for _, want := range [][]byte{{}, []byte("x"), large} {
			packed := pack(t, coding, want)
			for _, r := range []io.Reader{bytes.NewReader(packed), iotest.OneByteReader(bytes.NewReader(packed)), iotest.DataErrReader(bytes.NewReader(packed))} {
				got, err := read(r, coding, free)
				require.NoError(t, err)
				require.Equal(t, string(want), string(got))
			}
		}
		twice := append(pack(t, coding, []byte("one ")), pack(t, coding, []byte("two"))...)
		got, err := read(bytes.NewReader(twice), coding, free)
		require.NoError(t, err)
		require.Equal(t, "one two", string(got), "members and frames follow each other")
	}
}

func TestACutOrWrongBodyIsMalformed(t *testing.T) {
	t.Parallel()
	want := []byte(strings.Repeat("some text ", 100))
	for _, coding := range []string{Gzip, Zstd} {
		packed := pack(t, coding, want)
		for n := 1; n < len(packed); n++ {
			got, err := read(bytes.NewReader(packed[:n]), coding, free)
			require.True(t, model.HasCode(err, model.MalformedBody), "%s cut at %d: %v", coding, n, err)
			require.True(t, bytes.HasPrefix(want, got))
		}
		for _, bad := range [][]byte{[]byte("not packed at all"), append(bytes.Clone(packed), "rest"...)} {
			_, err := read(bytes.NewReader(bad), coding, free)
			require.True(t, model.HasCode(err, model.MalformedBody), "%s: %v", coding, err)
		}
		flipped := bytes.Clone(packed)
		flipped[len(flipped)-1] ^= 1
		_, err := read(bytes.NewReader(flipped), coding, free)
		require.True(t, model.HasCode(err, model.MalformedBody), "%s checksum: %v", coding, err)
	}
	_, err := read(bytes.NewReader(pack(t, Zstd, want)), Gzip, free)
	require.True(t, model.HasCode(err, model.MalformedBody), "%v", err)
}

func TestTheFaultOfAConnectionIsNotThatOfTheBody(t *testing.T) {
	t.Parallel()
	gone := errors.New("the connection is gone")
	for _, coding := range []string{Gzip, Zstd} {
		packed := pack(t, coding, []byte(strings.Repeat("some text ", 100)))
		for _, n := range []int{0, 3, len(packed) / 2, len(packed) - 1} {
			_, err := read(io.MultiReader(bytes.NewReader(packed[:n]), iotest.ErrReader(gone)), coding, free)
			require.ErrorIs(t, err, gone, "%s after %d bytes", coding, n)
		}
	}
}

func TestBombsEndEarly(t *testing.T) {
	t.Parallel()
	for _, coding := range []string{Gzip, Zstd} {
		bomb := pack(t, coding, make([]byte, 256<<20))
		require.Less(t, len(bomb), 1<<20)
		b := NewBody(bytes.NewReader(bomb), coding, free)
		n, err := io.Copy(io.Discard, b)
		b.Release()
		require.True(t, model.HasCode(err, model.RequestTooLarge), "%s: %v", coding, err)
		require.LessOrEqual(t, n, int64(max(freeInflation, maxRatio*len(bomb))))
		_, again := b.Read(make([]byte, 10))
		require.ErrorIs(t, again, err, "it has ended")

		little := pack(t, coding, make([]byte, freeInflation))
		got, err := read(bytes.NewReader(little), coding, free)
		require.NoError(t, err, "little may repeat as it likes")
		require.Len(t, got, freeInflation)
	}
	var wide bytes.Buffer
	w, err := zstd.NewWriter(&wide, zstd.WithWindowSize(64<<20))
	require.NoError(t, err)
	_, err = w.Write(bytes.Repeat([]byte("0123456789"), 8<<20))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	_, err = read(&wide, Zstd, free)
	require.True(t, model.HasCode(err, model.RequestTooLarge), "a window of 64 MiB: %v", err)
}

func TestMemoryIsAskedForBeforeItIsUsed(t *testing.T) {
	t.Parallel()
	full := model.Errorf(model.RateLimited, "no memory")
	for _, coding := range []string{Gzip, Zstd} {
		var asked int64
		_, err := read(bytes.NewReader(pack(t, coding, []byte("x"))), coding, func(n int64) error { asked = n; return full })
		require.ErrorIs(t, err, full)
		require.Positive(t, asked)
	}
	_, err := read(bytes.NewReader(nil), Gzip, free)
	require.True(t, model.HasCode(err, model.MalformedBody), "gzip has at least one member: %v", err)
	got, err := read(bytes.NewReader(nil), Zstd, free)
	require.NoError(t, err, "zstd may have no frame")
	require.Empty(t, got)
}

func TestAnswersComeInTheCodingThatIsLikedBest(t *testing.T) {
	t.Parallel()
	long := bytes.Repeat([]byte("an answer "), 500)
	for accept, want := range map[string]string{
		"gzip": Gzip, "zstd": Zstd, "gzip, zstd": Zstd, "gzip;q=0.9, zstd;q=0.8": Gzip, "*": Zstd, "br": "", "": "", "identity": "",
		"gzip;q=0": "", "*;q=0": "", "identity;q=0.5, gzip;q=0.4": "", "zstd;q=0, *;q=0.1": Gzip, "x-gzip": Gzip, "gzip;q=2": "",
	} {
		h := http.Header{}
		got := Answer(h, []string{accept}, long)
		require.Equal(t, want, h.Get("Content-Encoding"), accept)
		require.Equal(t, "Accept-Encoding", h.Get("Vary"), "caches must know, whatever the answer")
		if want != "" {
			require.Less(t, len(got), len(long))
			got2, err := read(bytes.NewReader(got), want, free)
			require.NoError(t, err)
			got = got2
		}
		require.Equal(t, long, got)
	}
	h := http.Header{}
	require.Equal(t, []byte("short"), Answer(h, []string{"gzip"}, []byte("short")))
	require.Empty(t, h.Get("Content-Encoding"))
}

func FuzzBody(f *testing.F) {
	f.Add(pack(f, Gzip, []byte("text")), true)
	f.Add(pack(f, Zstd, []byte("text")), false)
	f.Fuzz(func(t *testing.T, b []byte, gz bool) {
		coding := Zstd
		if gz {
			coding = Gzip
		}
		body := NewBody(bytes.NewReader(b), coding, free)
		defer body.Release()
		n, err := io.Copy(io.Discard, body)
		if n > int64(max(freeInflation, maxRatio*len(b))) {
			t.Fatal("it grew beyond its bound")
		}
		if err != nil && !model.HasCode(err, model.MalformedBody) && !model.HasCode(err, model.RequestTooLarge) {
			t.Fatalf("%v", err)
		}
	})
}
