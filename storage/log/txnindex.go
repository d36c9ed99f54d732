package log

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"sync"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
)

const (
	txnIndexSuffix = ".txnindex"

	// txnEntrySize is Kafka's entry, big endian: int16 version 0, int64 producer id, int64
	// first offset, int64 last offset (of the marker), int64 last stable offset.
	txnEntrySize = 34

	maxTxnIndex = 1 << 30
)

// AbortedTransaction is an entry of the aborted transactions index (KIP-98): a reader of
// committed records drops what the producer wrote from FirstOffset up to the marker at
// LastOffset. LastStable is the last stable offset that the marker brought about.
type AbortedTransaction struct {
	ProducerID                          model.ProducerID
	FirstOffset, LastOffset, LastStable model.Offset
}

func (a AbortedTransaction) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, 0)
	for _, v := range [4]int64{int64(a.ProducerID), int64(a.FirstOffset), int64(a.LastOffset), int64(a.LastStable)} {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	return b
}

var errTxnIndex = errors.New("the aborted transactions index is damaged")

// decodeTxnIndex reads the entries of a segment's index; last offsets grow and are not
// below the segment's base.
func decodeTxnIndex(b []byte, base model.Offset) ([]AbortedTransaction, error) {
	if len(b)%txnEntrySize != 0 {
		return nil, errTxnIndex
	}
	out := make([]AbortedTransaction, 0, len(b)/txnEntrySize)
	prev := base - 1
	for ; len(b) > 0; b = b[txnEntrySize:] {
		v := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[2+8*i:])) }
		a := AbortedTransaction{model.ProducerID(v(0)), model.Offset(v(1)), model.Offset(v(2)), model.Offset(v(3))}
		if binary.BigEndian.Uint16(b) != 0 || a.ProducerID < 0 || a.FirstOffset < 0 || a.FirstOffset >= a.LastOffset ||
			a.LastOffset <= prev || a.LastStable < 0 || a.LastStable > a.LastOffset+1 {
			return nil, errTxnIndex
		}
		prev = a.LastOffset
		out = append(out, a)
	}
	return out, nil
}

// txnIndex is a segment's .txnindex: the transactions whose abort marker is in the segment.
// There is no file without an entry. The newest entries are in memory until the segment is
// sealed and synced. Few are ever read, so the file is opened for each use.
type txnIndex struct {
	fs   fsx.FS
	path string
	base model.Offset

	mu      sync.Mutex
	flushed int    // guarded by mu: bytes in the file
	tail    []byte // guarded by mu: entries not yet in the file
	crc     uint32 // guarded by mu: CRC-32C of all entries
}

// txnSummary tells whether an index is what it was.
type txnSummary struct {
	base  model.Offset
	count int32
	crc   uint32
}

func (x *txnIndex) summary() txnSummary {
	x.mu.Lock()
	defer x.mu.Unlock()
	return txnSummary{x.base, int32((x.flushed + len(x.tail)) / txnEntrySize), x.crc}
}

// add appends an entry.
func (x *txnIndex) add(a AbortedTransaction) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := len(x.tail)
	x.tail = a.append(x.tail)
	x.crc = crc32.Update(x.crc, castagnoli, x.tail[n:])
}

// open attaches to a file of the given size and checks its entries.
func (x *txnIndex) open(size int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.flushed, x.tail, x.crc = 0, nil, 0
	if size == 0 {
		return nil
	}
	b, err := fsx.ReadFile(x.fs, x.path, maxTxnIndex)
	if err != nil {
		return err
	}
	if _, err := decodeTxnIndex(b, x.base); err != nil {
		return err
	}
	x.flushed, x.crc = len(b), crc32.Checksum(b, castagnoli)
	return nil
}

// entries reads all of them.
func (x *txnIndex) entries() ([]AbortedTransaction, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.entriesLocked()
}

func (x *txnIndex) entriesLocked() ([]AbortedTransaction, error) {
	if x.flushed+len(x.tail) == 0 {
		return nil, nil
	}
	b := make([]byte, x.flushed, x.flushed+len(x.tail))
	if x.flushed > 0 {
		f, err := x.fs.OpenFile(x.path, fsx.ReadOnly)
		if err != nil {
			return nil, err
		}
		if err := firstErr(readFull(f, b, 0), f.Close()); err != nil {
			return nil, err
		}
	}
	b = append(b, x.tail...)
	if crc32.Checksum(b, castagnoli) != x.crc {
		return nil, errTxnIndex
	}
	return decodeTxnIndex(b, x.base)
}

// sync makes all entries durable; the folder's entry is the caller's business.
func (x *txnIndex) sync() error {
	x.mu.Lock()
	if len(x.tail) == 0 {
		x.mu.Unlock()
		return nil
	}
	f, err := x.fs.OpenFile(x.path, fsx.ReadWrite|fsx.Create)
	if err == nil {
		_, err = f.WriteAt(x.tail, int64(x.flushed))
	}
	if err == nil {
		x.flushed, x.tail = x.flushed+len(x.tail), nil
	}
	x.mu.Unlock()
	if f == nil {
		return err
	}
	if err == nil {
		err = f.Sync()
	}
	return firstErr(err, f.Close())
}

// ensure makes the file if there is none.
func (x *txnIndex) ensure() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	f, err := x.fs.OpenFile(x.path, fsx.ReadWrite|fsx.Create)
	if err != nil {
		return err
	}
	return f.Close()
}

// moveTo renames the file, which is there.
func (x *txnIndex) moveTo(name string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.fs.Rename(x.path, name); err != nil {
		return err
	}
	x.path = name
	return nil
}

// hold takes all entries into memory, as the file's name may soon be another's.
func (x *txnIndex) hold() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	all, err := x.entriesLocked()
	if err != nil {
		return err
	}
	x.flushed, x.tail = 0, nil
	for _, a := range all {
		x.tail = a.append(x.tail)
	}
	return nil
}

// replace makes the index hold these entries and nothing else; without any there is no
// file.
func (x *txnIndex) replace(entries []AbortedTransaction) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var b []byte
	for _, a := range entries {
		b = a.append(b)
	}
	if err := x.fs.Remove(x.path); !isMissing(err) {
		return err
	}
	x.flushed, x.tail, x.crc = 0, b, crc32.Checksum(b, castagnoli)
	return nil
}

// truncateTo drops the transactions that end at or above an offset.
func (x *txnIndex) truncateTo(off model.Offset) error {
	all, err := x.entries()
	if err != nil {
		return err
	}
	n := len(all)
	for n > 0 && all[n-1].LastOffset >= off {
		n--
	}
	if n == len(all) {
		return nil
	}
	return x.replace(all[:n])
}

// cutTail takes entries back that an append added; s is the summary from before it.
func (x *txnIndex) cutTail(s txnSummary) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tail = x.tail[:int(s.count)*txnEntrySize-x.flushed]
	x.crc = s.crc
}

// AbortedTransactions gives the aborted transactions of which a reader of committed
// records must know that reads [from, to): those with records below to whose marker is at
// or above from. The order is that of the markers. Errors: StorageError.
func (l *Log) AbortedTransactions(from, to model.Offset) ([]AbortedTransaction, error) {
	for {
		cuts := l.cuts.Load()
		out, err := l.abortedIn(from, to)
		if l.cuts.Load() == cuts {
			return out, err
		}
	}
}

func (l *Log) abortedIn(from, to model.Offset) ([]AbortedTransaction, error) {
	segs := *l.segs.Load()
	var out []AbortedTransaction
	for _, seg := range segs[floorSegment(segs, from):] {
		all, err := seg.txn.entries()
		if err != nil {
			return nil, l.storageError("read "+seg.path+txnIndexSuffix, err)
		}
		for _, a := range all {
			if a.LastOffset >= from && a.FirstOffset < to {
				out = append(out, a)
			}
			if a.LastStable >= to { // no later marker ends a transaction from below to
				return out, nil
			}
		}
	}
	return out, nil
}
