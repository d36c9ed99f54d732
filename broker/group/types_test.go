package group

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

func TestAnAssignmentThatCameFromAnotherNodeHoldsTheSame(t *testing.T) {
	t.Parallel()
	p, q := Partition{model.TopicID{1}, 2}, Partition{model.TopicID{1}, 3}
	a := &Assignment{Version: 7, Held: []Held{{Partition: p, Name: "t", Since: 5}}, Revoking: []Held{{Partition: q, Name: "t", Since: 4}}, since: map[Partition]Version{p: 5}}
	b, err := json.Marshal(a)
	require.NoError(t, err)
	var got *Assignment
	require.NoError(t, json.Unmarshal(b, &got))
	require.Equal(t, a, got)
	require.True(t, got.Holds(p, 5))
	require.False(t, got.Holds(p, 4))
	require.False(t, got.Holds(q, 4))
}
