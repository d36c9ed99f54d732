package bench

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wire is a server's frame.
func wire(op byte, final bool, payload string) string {
	first := op
	if final {
		first |= 0x80
	}
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	return string(b) + payload
}

func recordsFrame(n int, at string) string {
	one := `{"topic":"t","partition":0,"offset":7,"timestamp":` + at + `,"value":"` + strings.Repeat("x", 100) + `"}`
	return `{"op":"records","records":[` + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + `]}`
}

func TestFramesAreCountedHoweverTheyComeIn(t *testing.T) {
	t.Parallel()
	long := recordsFrame(1000, "1000")
	input := wire(opText, true, `{"op":"subscribed","topics":["t{{"]}`) + wire(opText, true, recordsFrame(1, "1000")) +
		wire(opText, false, long[:300]) + wire(opPing, true, "hi") + wire(opContinue, false, long[300:70_000]) + wire(opContinue, true, long[70_000:]) +
		wire(opText, true, recordsFrame(3, "990")) + wire(opText, true, "") + wire(opClose, true, "\x0f\xa1bye")
	for _, size := range []int{1, 2, 3, 7, 130, 4096, len(input)} {
		var f frames
		var events []string
		on := func(e event) error {
			events = append(events, string(rune('0'+e.op))+string(e.payload[:min(len(e.payload), 17)]))
			return nil
		}
		for rest := input; rest != ""; {
			n := min(size, len(rest))
			require.NoError(t, f.take([]byte(rest[:n]), time.UnixMilli(1010), on))
			rest = rest[n:]
		}
		assert.EqualValues(t, 1004, f.records, size)
		assert.EqualValues(t, 3, f.count)
		assert.EqualValues(t, 3, f.lag.n)
		assert.Equal(t, 20*time.Millisecond, f.lag.most)
		assert.Equal(t, []string{`1{"op":"subscribed`, "9hi", "1", "8\x0f\xa1bye"}, events, size)
	}
}

func TestBytesThatAreNoFramesAreToldApart(t *testing.T) {
	t.Parallel()
	for name, input := range map[string]string{
		"compressed": "\xc1\x01a", "masked": "\x81\x81aaaab", "too long": "\x81\x7f\x00\x00\x01\x00\x00\x00\x00\x00", "negative": "\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff",
	} {
		var f frames
		assert.ErrorIs(t, f.take([]byte(input), time.Now(), func(event) error { return nil }), errFrame, name)
	}
}

func TestPongsAreMasked(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "\x8a\x82\x00\x00\x00\x00hi", string(pong([]byte("hi"))))
	assert.ErrorContains(t, closing([]byte("\x11\x38slow")), "4408 slow")
}

// BenchmarkFrames tells how much a reader of a fan-out can take apart.
func BenchmarkFrames(b *testing.B) {
	input := []byte(wire(opText, true, recordsFrame(500, "1000")))
	var f frames
	b.SetBytes(int64(len(input)))
	b.ReportAllocs()
	for b.Loop() {
		if err := f.take(input, time.UnixMilli(2000), nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(f.records)/b.Elapsed().Seconds(), "records/s")
}
