package producer

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
	"tidewire/storage/record"
)

func fromHex(t *testing.T, lines ...string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(strings.Join(lines, ""), " ", ""))
	require.NoError(t, err)
	return b
}

// Kafka's own snapshot has no trailer; its reader takes ours, since it stops behind the
// entries and the CRC covers all.
func TestSnapshotWithoutTrailerIsRead(t *testing.T) {
	t.Parallel()
	s, err := DecodeSnapshot(fromHex(t, "0001", "182f4046", "00000001",
		"0000000000000007 0003 00000004 0000000000000006 00000001 00000000000003e9 00000006 ffffffffffffffff"), 8)
	require.NoError(t, err)
	p := s.byID[7]
	require.EqualValues(t, 1, p.n)
	require.EqualValues(t, 3, p.Last().FirstSequence())
	require.EqualValues(t, 5, p.Last().FirstOffset())
}

// header is of a batch of n records.
func header(id model.ProducerID, base model.Offset, seq, n int32) *record.BatchHeader {
	return &record.BatchHeader{BaseOffset: base, LastOffsetDelta: n - 1, ProducerID: id, BaseSequence: seq, Count: n, MaxTimestamp: 5}
}

func TestWhatWasNotCommittedIsTakenBack(t *testing.T) {
	t.Parallel()
	var s State
	begin := header(7, 0, 0, 2)
	begin.Attributes = record.AttrTransactional
	s.apply(begin, nil, 1)
	s.Commit(0)
	require.EqualValues(t, 0, s.LastStable(2))
	before := s.EncodeSnapshot(nil)

	end := header(7, 2, -1, 1)
	end.Attributes = record.AttrTransactional | record.AttrControl
	a, aborted := s.apply(end, &record.Marker{Type: record.ControlAbort}, 2)
	require.True(t, aborted)
	require.Equal(t, AbortedTransaction{ProducerID: 7, FirstOffset: 0, LastOffset: 2, LastStable: 3}, a)
	s.apply(header(8, 3, 0, 1), nil, 2)
	require.Equal(t, 2, s.Len())
	s.Rollback()
	require.Equal(t, before, s.EncodeSnapshot(nil))
	require.Nil(t, s.Get(8))
	require.EqualValues(t, 0, s.LastStable(4))
}

func TestTransactionsThatEndedBelowTheHighWatermarkAreForgotten(t *testing.T) {
	t.Parallel()
	var s State
	for id := range model.ProducerID(3) {
		begin := header(id, model.Offset(id), 0, 1)
		begin.Attributes = record.AttrTransactional
		s.apply(begin, nil, 1)
	}
	for id := range model.ProducerID(2) {
		end := header(id, model.Offset(10+id), -1, 1)
		end.Attributes = record.AttrTransactional | record.AttrControl
		s.apply(end, &record.Marker{Type: record.ControlCommit}, 2)
	}
	s.Commit(11)
	require.Equal(t, []txnSpan{{2, 2, -1}, {1, 1, 11}}, *s.view.Load())
}

func TestSequencesGoOnWithZeroAfterTheLargest(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 2, lastSequence(header(1, 0, math.MaxInt32-1, 5)))
	require.EqualValues(t, math.MaxInt32, lastSequence(header(1, 0, math.MaxInt32-4, 5)))
	require.EqualValues(t, -1, lastSequence(header(1, 0, -1, 5)))
	require.EqualValues(t, math.MaxInt32-1, Batch{LastSequence: 2, delta: 4}.FirstSequence())
	require.True(t, inSequence(math.MaxInt32, 0))
	require.False(t, inSequence(math.MaxInt32, 1))
}

// A loaded snapshot is the state that it was made of, its open transactions included.
func TestASnapshotBringsTheStateBack(t *testing.T) {
	t.Parallel()
	var s, again State
	for i := range int32(9) {
		begin := header(model.ProducerID(i%2), model.Offset(3*i), i/2, 1)
		begin.Attributes = record.AttrTransactional
		s.apply(begin, nil, 1)
	}
	s.Commit(0)
	txns := []TxnSummary{{Base: 0, Count: 3, CRC: 77}}
	b := s.EncodeSnapshot(txns)
	snap, err := DecodeSnapshot(b, 100)
	require.NoError(t, err)
	require.Equal(t, txns, snap.Txns)
	var loaded State
	loaded.Load(snap, 50)
	again.Adopt(&loaded, 0)
	require.Equal(t, b, again.EncodeSnapshot(txns))
	require.Len(t, again.Get(0).Batches(), keptBatches)
	require.EqualValues(t, 0, again.LastStable(30))
	var k Keeper
	k.Note(&again)
	require.True(t, k.KeepsData(0, 24))
	require.False(t, k.KeepsData(0, 18))
	var earlier State
	earlier.apply(header(0, 16, 0, 3), nil, 1)
	k.Note(&earlier)
	require.True(t, k.KeepsData(0, 24))
	require.True(t, k.KeepsData(0, 18))
	again.Expire(1000, 10, 1<<62)
	require.Equal(t, 2, again.Len(), "their transactions are open")
}

// Else a snapshot would not tell that the marker may yet be cut off, and what it ended be
// compacted meanwhile.
func TestAProducerWhoseMarkerIsNotBelowTheHighWatermarkIsNotForgotten(t *testing.T) {
	t.Parallel()
	var s State
	h := header(7, 0, 0, 2)
	h.Attributes = record.AttrTransactional
	s.apply(h, nil, 1)
	end := header(7, 0, -1, 1)
	end.BaseOffset = 2
	end.Attributes = record.AttrTransactional | record.AttrControl
	s.apply(end, &record.Marker{Type: record.ControlCommit}, 1)
	s.Commit(2)
	require.EqualValues(t, 0, s.LastStable(2))
	s.Expire(1<<40, 10, 2)
	require.Equal(t, 1, s.Len())
	s.Expire(1<<40, 10, 3)
	require.Zero(t, s.Len())
}

// Compaction keeps the last batch of a producer without its records, and may have removed
// the marker of its transaction.
func TestABatchWithoutRecordsOpensNoTransaction(t *testing.T) {
	t.Parallel()
	var s State
	empty := header(7, 0, 0, 2)
	empty.Attributes, empty.Count = record.AttrTransactional, 0
	s.apply(empty, nil, 1)
	s.Commit(0)
	require.EqualValues(t, 2, s.LastStable(2))
	require.EqualValues(t, 1, s.Get(7).Last().LastSequence)
}
