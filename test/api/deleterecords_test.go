package api

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// before is one member of a request to delete records.
func before(partition int, offset any) object {
	return object{"partition": partition, "before_offset": offset}
}

// deleteRecords asks for records to go and returns where the partitions begin then.
func (a *api) deleteRecords(path string, what ...object) [][2]int64 {
	a.t.Helper()
	x := decoded(a.t, a.post(path+"/delete-records", object{"partitions": what}), 200)
	var out [][2]int64
	for _, p := range x["partitions"].([]any) {
		out = append(out, [2]int64{number(a.t, p.(object)["partition"]), number(a.t, p.(object)["log_start_offset"])})
	}
	return out
}

func TestDeletedRecordsAreGoneAndStayGone(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	path := a.topic("gone.records", 3, nil)
	for p := range 3 {
		for i := range 5 {
			wants(t, a.post(path+"/records", object{"records": []object{{"partition": p, "value": string(rune('a' + i))}}}), 200, "")
		}
	}
	require.Equal(t, [][2]int64{{2, 3}, {0, 5}}, a.deleteRecords(path, before(2, 3), before(0, "high_watermark")), "in the order of the request")
	require.Equal(t, [][2]int64{{2, 3}}, a.deleteRecords(path, before(2, 1)), "a lower offset changes nothing")
	check := func() {
		t.Helper()
		for p, want := range []int64{5, 0, 3} {
			topic := decoded(t, a.get(path), 200)
			part := topic["partitions"].([]any)[p].(object)
			require.Equal(t, want, number(t, part["log_start_offset"]))
			require.Equal(t, int64(5), number(t, part["high_watermark"]))
		}
		values := decoded(t, a.get(path+"/partitions/2/records?offset=earliest"), 200)["records"].([]any)
		require.Len(t, values, 2)
		require.Equal(t, "d", values[0].(object)["value"])
		x := wants(t, a.get(path+"/partitions/2/records?offset=2"), 416, "offset-out-of-range")
		var p object
		x.JSON(t, &p)
		require.Equal(t, json.Number("3"), p["earliest"])
		require.Equal(t, json.Number("5"), p["latest"])
		offsets := decoded(t, a.get(path+"/offsets?timestamp=0"), 200)["offsets"].([]any)
		require.Equal(t, int64(3), number(t, offsets[2].(object)["offset"]), "a time is found above the start only")
	}
	check()
	a.Restart()
	a.admin = a.Admin()
	check()
	x := decoded(t, a.post(path+"/records", object{"records": []object{{"partition": 0, "value": "f"}}}), 200)
	require.Equal(t, int64(5), number(t, x["results"].([]any)[0].(object)["offset"]), "no offset is given out twice")
	require.Equal(t, [][2]int64{{0, 6}}, a.deleteRecords(path, before(0, 6)), "up to the high watermark itself")
}

func TestAPlanOfADeletionTellsWherePartitionsWouldBegin(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("planned.records", 2, nil)
	for range 3 {
		wants(t, a.post(path+"/records", object{"records": []object{{"partition": 0, "value": "v"}, {"partition": 1, "value": "v"}}}), 200, "")
	}
	a.deleteRecords(path, before(1, 2))
	plan := func(what ...object) *answer {
		return a.post(path+"/delete-records?dry_run=true", object{"partitions": what})
	}
	got := decoded(t, plan(before(0, "high_watermark"), before(1, 1)), 200)["partitions"].([]any)
	require.Equal(t, []any{object{"partition": num(0), "log_start_offset": num(3)}, object{"partition": num(1), "log_start_offset": num(2)}}, got)
	wants(t, plan(before(0, 4)), 416, "offset-out-of-range")
	for p, want := range []int64{0, 2} {
		part := decoded(t, a.get(path), 200)["partitions"].([]any)[p].(object)
		require.Equal(t, want, number(t, part["log_start_offset"]), "nothing has changed")
	}
	require.Len(t, a.fetched(path, 0), 3)
}

func TestDeletingRecordsIsCheckedAsAWhole(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("whole.records", 2, nil)
	for p := range 2 {
		wants(t, a.post(path+"/records", object{"records": []object{{"partition": p, "value": "v"}}}), 200, "")
	}
	body := object{"partitions": []object{before(0, 1), before(1, 2)}}
	x := wants(t, a.post(path+"/delete-records", body), 416, "offset-out-of-range")
	var p object
	x.JSON(t, &p)
	require.Equal(t, json.Number("0"), p["earliest"])
	require.Equal(t, json.Number("1"), p["latest"])
	require.Equal(t, "not-applied", p["outcome"])
	require.Equal(t, [][2]int64{{0, 0}, {1, 0}}, a.deleteRecords(path, before(0, 0), before(1, 0)), "no partition was changed")

	compacted := a.topic("compacted.records", 1, object{"cleanup.policy": "compact"})
	wants(t, a.post(compacted+"/delete-records", object{"partitions": []object{before(0, 0)}}), 409, "conflict")
	both := a.topic("both.records", 1, object{"cleanup.policy": "compact,delete"})
	require.Equal(t, [][2]int64{{0, 0}}, a.deleteRecords(both, before(0, "high_watermark")))
}
