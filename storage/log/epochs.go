package log

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"tidewire/internal/model"
)

// epochFile is Kafka's leader-epoch-checkpoint: version, count, then one line
// "epoch start-offset" for each leadership that wrote.
const (
	epochFile    = "leader-epoch-checkpoint"
	maxEpochFile = 64 << 20
)

// epochEntry says at which offset a leader's records begin.
type epochEntry struct {
	epoch model.LeaderEpoch
	start model.Offset
}

// epochs is sorted: both fields grow strictly.
type epochs []epochEntry

func (e epochs) latest() model.LeaderEpoch {
	if len(e) == 0 {
		return model.NoEpoch
	}
	return e[len(e)-1].epoch
}

// note adds the epoch of a batch that starts at off, unless it is the latest. An epoch
// that wrote nothing, of which only the start is known, gives way.
func (e epochs) note(epoch model.LeaderEpoch, off model.Offset) (epochs, bool) {
	if epoch <= e.latest() {
		return e, false
	}
	if kept := e.truncateFrom(off); len(kept) < len(e) {
		e = slices.Clone(kept)
	}
	return append(e, epochEntry{epoch, off}), true
}

// truncateFrom drops the entries that start at off or later.
func (e epochs) truncateFrom(off model.Offset) epochs {
	return e[:sort.Search(len(e), func(i int) bool { return e[i].start >= off })]
}

// truncateUntil forgets what lies below a new log start, as Kafka's truncateFromStart:
// the epoch in force at off then starts there.
func (e epochs) truncateUntil(off model.Offset) epochs {
	n := sort.Search(len(e), func(i int) bool { return e[i].start > off })
	if n == 0 || n == 1 && e[0].start == off {
		return e
	}
	out := slices.Clone(e[n-1:])
	out[0].start = off
	return out
}

// end answers OffsetsForLeaderEpoch (KIP-101, KIP-279): the largest epoch ≤ asked
// and the offset at which it ended. Above the latest epoch the answer is
// undefined (NoEpoch, -1); below the first it is the asked epoch and the first
// known start.
func (e epochs) end(asked model.LeaderEpoch, logEnd model.Offset) (model.LeaderEpoch, model.Offset) {
	if asked < 0 || len(e) == 0 || asked > e.latest() {
		return model.NoEpoch, -1
	}
	if own, end := e.floor(asked, logEnd); own != model.NoEpoch {
		return own, end
	}
	return asked, e[0].start
}

// floor is the largest epoch ≤ epoch and its end, or NoEpoch.
func (e epochs) floor(epoch model.LeaderEpoch, logEnd model.Offset) (model.LeaderEpoch, model.Offset) {
	i := sort.Search(len(e), func(i int) bool { return e[i].epoch > epoch })
	switch i {
	case 0:
		return model.NoEpoch, -1
	case len(e):
		return e[i-1].epoch, logEnd
	}
	return e[i-1].epoch, e[i].start
}

func (e epochs) encode() []byte {
	b := fmt.Appendf(nil, "0\n%d\n", len(e))
	for _, x := range e {
		b = fmt.Appendf(b, "%d %d\n", x.epoch, x.start)
	}
	return b
}

func decodeEpochs(b []byte) (epochs, error) {
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if len(lines) < 2 || lines[0] != "0" {
		return nil, fmt.Errorf("%s: not version 0", epochFile)
	}
	n, err := strconv.Atoi(lines[1])
	if err != nil || n != len(lines)-2 {
		return nil, fmt.Errorf("%s: wrong count of entries", epochFile)
	}
	out := make(epochs, 0, n)
	for _, line := range lines[2:] {
		es, ss, ok := strings.Cut(line, " ")
		epoch, err1 := strconv.ParseInt(es, 10, 32)
		start, err2 := strconv.ParseInt(ss, 10, 64)
		if !ok || err1 != nil || err2 != nil || epoch < 0 || start < 0 {
			return nil, fmt.Errorf("%s: bad entry %q", epochFile, line)
		}
		if k := len(out); k > 0 && (int64(out[k-1].epoch) >= epoch || int64(out[k-1].start) >= start) {
			return nil, fmt.Errorf("%s: entry %q is out of order", epochFile, line)
		}
		out = append(out, epochEntry{model.LeaderEpoch(epoch), model.Offset(start)})
	}
	return out, nil
}
