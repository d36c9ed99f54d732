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
// that began there without a record, as truncateBefore leaves one, gives way.
func (e epochs) note(epoch model.LeaderEpoch, off model.Offset) (epochs, bool) {
	if epoch <= e.latest() {
		return e, false
	}
	return append(e.truncateFrom(off), epochEntry{epoch, off}), true
}

// truncateBefore drops the entries below off; the epoch in force at off stays and begins
// there (Kafka's truncateFromStart). The result is a copy.
func (e epochs) truncateBefore(off model.Offset) epochs {
	i := sort.Search(len(e), func(i int) bool { return e[i].start > off })
	if i == 0 {
		return slices.Clone(e)
	}
	out := slices.Clone(e[i-1:])
	out[0].start = off
	return out
}

// truncateFrom drops the entries that start at off or later.
func (e epochs) truncateFrom(off model.Offset) epochs {
	return e[:sort.Search(len(e), func(i int) bool { return e[i].start >= off })]
}

// end answers OffsetsForLeaderEpoch (KIP-101, KIP-279): the largest epoch ≤ asked
// and the offset at which it ended. Above the latest epoch the answer is
// undefined (NoEpoch, -1); below the first it is the asked epoch and the first
// known start.
func (e epochs) end(asked model.LeaderEpoch, logEnd model.Offset) (model.LeaderEpoch, model.Offset) {
	if asked < 0 || len(e) == 0 || asked > e.latest() {
		return model.NoEpoch, -1
	}
	i := sort.Search(len(e), func(i int) bool { return e[i].epoch > asked })
	switch {
	case i == 0:
		return asked, e[0].start
	case i == len(e):
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
