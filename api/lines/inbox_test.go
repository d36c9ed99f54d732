package lines

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"tidewire/internal/inflight"
	"tidewire/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const refusedLine = "<too long>"

// takeAll gives the lines that are there, with refusedLine for those whose text was dropped.
func takeAll(t require.TestingT, in *inbox) (lines []string, err error) {
	for {
		text, refused, err := in.take(nil, nil)
		if len(text) == 0 {
			require.Empty(t, refused)
			return lines, err
		}
		require.Equal(t, byte('\n'), text[len(text)-1])
		for at := 0; at < len(text); {
			end := at + bytes.IndexByte(text[at:], '\n')
			line := string(text[at:end])
			if len(refused) > 0 && refused[0].at == at {
				require.Empty(t, line)
				require.True(t, model.HasCode(refused[0].why, model.RecordTooLarge))
				line, refused = refusedLine, refused[1:]
			}
			lines = append(lines, line)
			at = end + 1
		}
		require.Empty(t, refused)
	}
}

// Whatever the pieces in which a body arrives and however often it is looked at, its lines
// come out once, in order; those that are too long are known by their place.
func TestLinesComeOutAsTheyWentIn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := chunkBytes + rapid.IntRange(0, 100).Draw(t, "beyond a chunk")
		count := rapid.IntRange(0, 12).Draw(t, "lines")
		var body strings.Builder
		var want []string
		for i := range count {
			n := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(limit-2, limit+2), rapid.IntRange(limit, 3*limit)).Draw(t, "length")
			line := strings.Repeat(string(rune('a'+i)), n)
			body.WriteString(line)
			if i < count-1 || rapid.Bool().Draw(t, "last ends") {
				body.WriteByte('\n')
			} else if n == 0 {
				continue // nothing is no line
			}
			if n > limit {
				line = refusedLine
			}
			want = append(want, line)
		}
		brokeOff := rapid.Bool().Draw(t, "broke off")
		in := newInbox(nil, limit, new(inflight.Hold))
		var got []string
		for rest := body.String(); len(rest) > 0; {
			n := min(len(rest), rapid.OneOf(rapid.IntRange(1, 50), rapid.IntRange(1, chunkBytes)).Draw(t, "piece"))
			in.put([]byte(rest[:n]), nil)
			rest = rest[n:]
			if rapid.Bool().Draw(t, "look") {
				lines, err := takeAll(t, in)
				require.NoError(t, err)
				got = append(got, lines...)
			}
		}
		end := io.EOF
		if brokeOff {
			end = io.ErrUnexpectedEOF
			if body.Len() > 0 && !strings.HasSuffix(body.String(), "\n") {
				want = want[:len(want)-1] // it is not known to be whole
			}
		}
		in.put(nil, end)
		lines, err := takeAll(t, in)
		require.ErrorIs(t, err, end)
		require.Equal(t, append([]string{}, want...), append(append([]string{}, got...), lines...))
	})
}

func TestALineThatTheBudgetHasNoRoomForIsRefused(t *testing.T) {
	t.Parallel()
	budget := inflight.New(4 << 20)
	other := budget.Hold()
	require.NoError(t, other.Grow(2<<20))
	hold := budget.Hold()
	require.NoError(t, hold.Grow(holdBytes))
	in := newInbox(nil, maxLine, &hold)
	in.put([]byte("before\n"), nil)
	for range 40 {
		in.put(bytes.Repeat([]byte("x"), chunkBytes), nil)
	}
	in.put([]byte("\nbehind\n"), io.EOF)
	text, refused, err := in.take(nil, nil)
	require.NoError(t, err)
	require.Equal(t, "before\n\nbehind\n", string(text))
	require.Len(t, refused, 1)
	require.Equal(t, 7, refused[0].at)
	require.True(t, model.HasCode(refused[0].why, model.RateLimited))
}

// stream gives its pieces one by one.
type stream struct{ pieces []string }

func (s *stream) Read(p []byte) (int, error) {
	if len(s.pieces) == 0 {
		return 0, errors.New("the connection is gone")
	}
	n := copy(p, s.pieces[0])
	s.pieces = s.pieces[1:]
	return n, nil
}

func TestReadingWaitsWhileNobodyTakesAndGoesOnWhenNothingIsWanted(t *testing.T) {
	t.Parallel()
	var pieces []string
	for range 40 {
		pieces = append(pieces, strings.Repeat("line\n", chunkBytes/5))
	}
	s := &stream{pieces: pieces}
	in := newInbox(s, chunkBytes, new(inflight.Hold))
	done := make(chan struct{})
	go func() { defer close(done); in.fill() }()
	<-in.arrived
	for { // until it waits
		in.mu.Lock()
		full := in.fullLocked()
		size := len(in.buf)
		in.mu.Unlock()
		require.LessOrEqual(t, size, window+chunkBytes)
		if full {
			break
		}
	}
	in.dropRest()
	<-done
	require.Empty(t, s.pieces)
	_, _, err := in.take(nil, nil)
	require.Error(t, err)
}
