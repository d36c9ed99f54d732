package groups

import (
	"strconv"

	"tidewire/api/recordjson"
	"tidewire/broker/coordinator"
	"tidewire/broker/group"
	"tidewire/internal/model"
)

// appendRest closes the list of records and the object that it is in.
func appendRest(b []byte, got *coordinator.PollResult) []byte {
	a := got.Assignment
	b = strconv.AppendInt(append(b, `],"assignment":{"epoch":`...), int64(a.Epoch), 10)
	b = appendHeld(append(b, `,"partitions":`...), a.Held)
	b = appendHeld(append(b, `,"revoking":`...), a.Revoking)
	b = strconv.AppendBool(append(b, `,"pending":`...), a.Pending)
	b = append(b, `,"unavailable":[`...)
	for i := range got.Unreadable {
		if i > 0 {
			b = append(b, ',')
		}
		u := &got.Unreadable[i]
		b = appendPartition(b, &u.Held)
		b = append(append(append(b, `,"code":"`...), model.AsError(u.Err).Code...), `"}`...)
	}
	b = append(b, ']')
	b = append(append(append(b, `},"cursor":"`...), got.Cursor...), `","positions":[`...)
	some := false
	for i := range got.Positions {
		p := &got.Positions[i]
		if p.Next == group.NoOffset { // it was given while the records were read: the next answer tells
			continue
		}
		if some {
			b = append(b, ',')
		}
		some = true
		b = appendPartition(b, &p.Held)
		b = strconv.AppendInt(append(b, `,"next_offset":`...), int64(p.Next), 10)
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

// appendHeld appends [{"topic", "partition"}].
func appendHeld(b []byte, list []group.Held) []byte {
	b = append(b, '[')
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendPartition(b, &list[i]), '}')
	}
	return append(b, ']')
}

// appendPartition appends an object that is left open.
func appendPartition(b []byte, h *group.Held) []byte {
	b = recordjson.AppendString(append(b, `{"topic":`...), h.Name)
	return strconv.AppendInt(append(b, `,"partition":`...), int64(h.Index), 10)
}
