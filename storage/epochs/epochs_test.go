package epochs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

func TestEpochInForceIsKeptWhenTheLogStartMoves(t *testing.T) {
	t.Parallel()
	e := Cache{{0, 0}, {3, 10}, {5, 20}}
	for off, want := range map[model.Offset]Cache{
		0: e, 5: {{0, 5}, {3, 10}, {5, 20}}, 10: {{3, 10}, {5, 20}}, 15: {{3, 15}, {5, 20}}, 20: {{5, 20}}, 99: {{5, 99}},
	} {
		require.Equal(t, want, e.TruncateUntil(off), "%d", off)
		require.Equal(t, Cache{{0, 0}, {3, 10}, {5, 20}}, e, "the old entries stay as they were")
	}
	late := Cache{{3, 4}}
	require.Equal(t, late, late.TruncateUntil(2), "nothing begins at or below the start")
	moved, added := e.TruncateUntil(99).Note(6, 99)
	require.True(t, added)
	require.Equal(t, Cache{{6, 99}}, moved, "starts stay strictly growing")
}

func FuzzEpochs(f *testing.F) {
	f.Add(Cache{{0, 0}, {3, 17}}.Encode())
	f.Add([]byte("0\n0\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Decode(e.Encode())
		if err != nil || len(again) != len(e) {
			t.Fatal(err)
		}
		for i := range e {
			if got, end := e.End(e[i].Epoch, 1<<62); got != e[i].Epoch || end <= e[i].Start {
				t.Fatalf("%v: %d %d", e, got, end)
			}
		}
	})
}
