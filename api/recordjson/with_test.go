package recordjson

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

func TestMembersBesideRecordsAreHandedOver(t *testing.T) {
	t.Parallel()
	type members map[string]string
	for body, want := range map[string]struct {
		given bool
		n     int
		extra members
		code  model.Code
	}{
		`{"op":"x","records":[{"value":1},{}],"id":[1, {"a":"\u0041"}]}`: {true, 2, members{"op": `"x"`, "id": `[1, {"a":"\u0041"}]`}, ""},
		`{ "a\u0062" : null }`:               {false, 0, members{"ab": "null"}, ""},
		`{"unknown":1,"records":[{}]}`:       {true, 0, members{"unknown": "1"}, model.InvalidArgument},
		`{"records":[{"x":1}],"op":"x"}`:     {true, 0, members{"op": `"x"`}, model.InvalidArgument},
		`{"op":"x","records":[]}`:            {true, 0, members{"op": `"x"`}, model.InvalidArgument},
		`{"op":"x","records":[{}],"records"`: {true, 0, members{"op": `"x"`}, model.MalformedBody},
		`{"op":`:                             {false, 0, members{}, model.MalformedBody},
	} {
		r := &Request{}
		got := members{}
		given, err := r.DecodeWith([]byte(body), func(name, value []byte) bool {
			got[string(name)] = string(value)
			return string(name) != "unknown"
		})
		require.Equal(t, want.given, given, body)
		require.Equal(t, want.extra, got, body)
		require.Len(t, r.Records, want.n, body)
		if want.code == "" {
			require.NoError(t, err, body)
		} else {
			require.True(t, model.HasCode(err, want.code), "%s: %v", body, err)
		}
		_, err = decode(t, `{"op":"x","records":[{}]}`)
		require.True(t, model.HasCode(err, model.InvalidArgument), "a request has nothing beside records")
	}
	require.EqualValues(t, 40+2*recordBytes, Footprint(append(make([]byte, 0, 40), `{"records":[{}`...)))
}
