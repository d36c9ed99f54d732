// Package epochs is the leader epochs of one log: at which offset each leadership that wrote
// began (KIP-101, KIP-279), and Kafka's text format for it. It is pure: storage/log keeps
// the file.
package epochs

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"tidewire/internal/model"
)

// Kafka's file: version, count, then one line "epoch start-offset" for each leadership
// that wrote.
const (
	FileName    = "leader-epoch-checkpoint"
	MaxFileSize = 64 << 20
)

// Entry says at which offset a leader's records begin.
type Entry struct {
	Epoch model.LeaderEpoch
	Start model.Offset
}

// Cache is sorted: both fields grow strictly.
type Cache []Entry

// Latest is the largest epoch, or NoEpoch.
func (e Cache) Latest() model.LeaderEpoch {
	if len(e) == 0 {
		return model.NoEpoch
	}
	return e[len(e)-1].Epoch
}

// Note adds the epoch of a batch that starts at off, unless it is the latest. An epoch
// that wrote nothing, of which only the start is known, gives way.
func (e Cache) Note(epoch model.LeaderEpoch, off model.Offset) (Cache, bool) {
	if epoch <= e.Latest() {
		return e, false
	}
	if kept := e.TruncateFrom(off); len(kept) < len(e) {
		e = slices.Clone(kept)
	}
	return append(e, Entry{epoch, off}), true
}

// TruncateFrom drops the entries that start at off or later.
func (e Cache) TruncateFrom(off model.Offset) Cache {
	return e[:sort.Search(len(e), func(i int) bool { return e[i].Start >= off })]
}

// TruncateUntil forgets what lies below a new log start, as Kafka's truncateFromStart:
// the epoch in force at off then starts there.
func (e Cache) TruncateUntil(off model.Offset) Cache {
	n := sort.Search(len(e), func(i int) bool { return e[i].Start > off })
	if n == 0 || n == 1 && e[0].Start == off {
		return e
	}
	out := slices.Clone(e[n-1:])
	out[0].Start = off
	return out
}

// End answers OffsetsForLeaderEpoch (KIP-101, KIP-279): the largest epoch ≤ asked
// and the offset at which it ended. Above the latest epoch the answer is
// undefined (NoEpoch, -1); below the first it is the asked epoch and the first
// known start.
func (e Cache) End(asked model.LeaderEpoch, logEnd model.Offset) (model.LeaderEpoch, model.Offset) {
	if asked < 0 || len(e) == 0 || asked > e.Latest() {
		return model.NoEpoch, -1
	}
	if own, end := e.Floor(asked, logEnd); own != model.NoEpoch {
		return own, end
	}
	return asked, e[0].Start
}

// Floor is the largest epoch ≤ epoch and its end, or NoEpoch.
func (e Cache) Floor(epoch model.LeaderEpoch, logEnd model.Offset) (model.LeaderEpoch, model.Offset) {
	i := sort.Search(len(e), func(i int) bool { return e[i].Epoch > epoch })
	switch i {
	case 0:
		return model.NoEpoch, -1
	case len(e):
		return e[i-1].Epoch, logEnd
	}
	return e[i-1].Epoch, e[i].Start
}

// Encode is the inverse of Decode.
func (e Cache) Encode() []byte {
	b := fmt.Appendf(nil, "0\n%d\n", len(e))
	for _, x := range e {
		b = fmt.Appendf(b, "%d %d\n", x.Epoch, x.Start)
	}
	return b
}

// Decode reads the text of a file.
func Decode(b []byte) (Cache, error) {
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if len(lines) < 2 || lines[0] != "0" {
		return nil, fmt.Errorf("%s: not version 0", FileName)
	}
	n, err := strconv.Atoi(lines[1])
	if err != nil || n != len(lines)-2 {
		return nil, fmt.Errorf("%s: wrong count of entries", FileName)
	}
	out := make(Cache, 0, n)
	for _, line := range lines[2:] {
		es, ss, ok := strings.Cut(line, " ")
		epoch, err1 := strconv.ParseInt(es, 10, 32)
		start, err2 := strconv.ParseInt(ss, 10, 64)
		if !ok || err1 != nil || err2 != nil || epoch < 0 || start < 0 {
			return nil, fmt.Errorf("%s: bad entry %q", FileName, line)
		}
		if k := len(out); k > 0 && (int64(out[k-1].Epoch) >= epoch || int64(out[k-1].Start) >= start) {
			return nil, fmt.Errorf("%s: entry %q is out of order", FileName, line)
		}
		out = append(out, Entry{model.LeaderEpoch(epoch), model.Offset(start)})
	}
	return out, nil
}
