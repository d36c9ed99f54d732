package follow

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/broker/partition"
	"tidewire/broker/replication"
	"tidewire/internal/model"
)

var (
	goldenKey    = Key{Topic: model.TopicID{0: 1, 15: 2}, Partition: 3}
	goldenUpdate = update{key: goldenKey, wants: true, at: replication.Position{Epoch: 4, LogEnd: 5, LastEpoch: model.NoEpoch, StableEnd: 6, LogStart: 7}}
	goldenAnswer = answer{key: goldenKey, status: statusDiverged, fetch: partition.Fetch{
		At: replication.Position{Epoch: 4, LogEnd: 5, LastEpoch: 6}, Answer: replication.Answer{Verdict: replication.Diverged, Epoch: 3, End: 2, LogStart: 1}, HighWatermark: 7, Compacted: true, Batches: []byte("batch"),
	}}
)

const goldenKeyBytes = "\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02" + "\x00\x00\x00\x03"

func TestFramesAreTheGoldenOnes(t *testing.T) {
	t.Parallel()
	require.Equal(t, goldenKeyBytes+"\x01\x00\x00\x00\x04"+"\x00\x00\x00\x00\x00\x00\x00\x05"+"\xff\xff\xff\xff"+"\x00\x00\x00\x00\x00\x00\x00\x06"+"\x00\x00\x00\x00\x00\x00\x00\x07",
		string(goldenUpdate.append(nil)))
	require.Len(t, goldenUpdate.append(nil), updateBytes)
	c := &cursor{b: goldenUpdate.append(nil)}
	u, ok := c.update()
	require.True(t, ok)
	require.Equal(t, goldenUpdate, u)

	b := append(goldenAnswer.appendHead(nil, 5), "batch"...)
	require.Equal(t, goldenKeyBytes+"\x01\x00\x00\x00\x04"+"\x00\x00\x00\x00\x00\x00\x00\x05"+"\x00\x00\x00\x06"+"\x00\x00\x00\x03"+"\x00\x00\x00\x00\x00\x00\x00\x02"+
		"\x00\x00\x00\x00\x00\x00\x00\x01"+"\x00\x00\x00\x00\x00\x00\x00\x07"+"\x01"+"\x00\x00\x00\x05"+"batch", string(b))
	require.Len(t, b, answerHead+5)
	c = &cursor{b: b}
	a, ok := c.answer()
	require.True(t, ok)
	require.Equal(t, goldenAnswer, a)
	require.Empty(t, c.b)

	hello := appendHello(nil, replication.Member{ID: 7, Epoch: 9})
	require.Equal(t, "\x01\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x09", string(hello))
	m, err := parseHello(hello)
	require.NoError(t, err)
	require.Equal(t, replication.Member{ID: 7, Epoch: 9}, m)
	require.Equal(t, "\x00\x00\x00\x02hi", string(frame([]byte("\x00\x00\x00\x00hi"))))
}

func TestWhatIsCutShortIsRefused(t *testing.T) {
	t.Parallel()
	u, b := goldenUpdate.append(nil), append(goldenAnswer.appendHead(nil, 5), "batch"...)
	for n := range u {
		_, ok := (&cursor{b: u[:n]}).update()
		require.False(t, ok, "%d bytes of an update", n)
	}
	for n := range b {
		_, ok := (&cursor{b: b[:n]}).answer()
		require.False(t, ok, "%d bytes of an answer", n)
	}
	for _, hello := range []string{"", "\x01", "\x02\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x09", "\x01\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x00"} {
		_, err := parseHello([]byte(hello))
		require.ErrorIs(t, err, errForm)
	}
}

// FuzzFrames reads any bytes as a stream of frames, of either side: nothing breaks, and no more
// memory is taken than bytes have come, and some.
func FuzzFrames(f *testing.F) {
	f.Add(frame(goldenUpdate.append([]byte{0, 0, 0, 0})))
	f.Add(frame(append(goldenAnswer.appendHead([]byte{0, 0, 0, 0}, 5), "batch"...)))
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bufio.NewReader(bytes.NewReader(in))
		var buf []byte
		for {
			var err error
			if buf, err = readFrame(r, buf); err != nil {
				if !errors.Is(err, errForm) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
				return
			}
			for c := (&cursor{b: buf}); len(c.b) > 0; {
				if _, ok := c.update(); !ok {
					break
				}
			}
			for c := (&cursor{b: buf}); len(c.b) > 0; {
				a, ok := c.answer()
				if !ok {
					break
				}
				if len(a.fetch.Batches) > len(in) {
					t.Fatal("more batches than bytes")
				}
			}
			_, _ = parseHello(buf)
		}
	})
}
