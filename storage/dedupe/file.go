package dedupe

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"tidewire/internal/model"
)

// FileName is an index's file in its log's folder. It is replaced as a whole.
const FileName = "idempotency-keys"

// MaxFile is how large the file may be, in bytes.
const MaxFile = 1 << 30

const (
	fileMagic = "TWIDEMP\x01"
	fileHead  = len(fileMagic) + 4 // magic and CRC, which the CRC does not cover
	entrySize = 16 + 16 + 8 + 4 + 4 + 8 + 8
)

// ErrFile says that bytes are no whole file of keys.
var ErrFile = errors.New("the file of idempotency keys is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// View is an index at one moment, for its file. It does not change any more.
type View struct {
	covered model.Offset
	version uint64
	blocks  []*block
	first   int
	n       int
}

// View gives the index as it is while the log ends at an offset.
func (x *Index) View(end model.Offset) View {
	return View{end, x.version, x.blocks[:len(x.blocks):len(x.blocks)], x.first, x.n}
}

// Bytes is how large its file is.
func (v *View) Bytes() int { return fileHead + 12 + v.n*entrySize }

// Encode makes the file of it.
func (v *View) Encode() []byte {
	be := binary.BigEndian
	b := make([]byte, fileHead, v.Bytes())
	copy(b, fileMagic)
	b = be.AppendUint64(b, uint64(v.covered))
	b = be.AppendUint32(b, uint32(v.n))
	for i := v.first; i < v.first+v.n; i++ {
		e := &v.blocks[i/blockSize][i%blockSize]
		b = append(b, e.Key[:]...)
		b = append(b, e.Payload[:]...)
		b = be.AppendUint64(b, uint64(e.Base))
		b = be.AppendUint32(b, uint32(e.Count))
		b = be.AppendUint32(b, uint32(e.Partitions))
		b = be.AppendUint64(b, uint64(e.Time))
		b = be.AppendUint64(b, uint64(e.AppendTime))
	}
	be.PutUint32(b[len(fileMagic):], crc32.Checksum(b[fileHead:], castagnoli))
	return b
}

// Decode reads a file: its entries, and the offset below which it has all of them.
func Decode(b []byte) (entries []Entry, covered model.Offset, err error) {
	be := binary.BigEndian
	if len(b) < fileHead+12 || string(b[:len(fileMagic)]) != fileMagic || be.Uint32(b[len(fileMagic):]) != crc32.Checksum(b[fileHead:], castagnoli) {
		return nil, 0, ErrFile
	}
	covered = model.Offset(be.Uint64(b[fileHead:]))
	n := int64(be.Uint32(b[fileHead+8:]))
	b = b[fileHead+12:]
	if covered < 0 || n*entrySize != int64(len(b)) {
		return nil, 0, ErrFile
	}
	entries = make([]Entry, 0, n)
	prev := model.Offset(0)
	for ; len(b) > 0; b = b[entrySize:] {
		var e Entry
		copy(e.Key[:], b)
		copy(e.Payload[:], b[16:])
		e.Base = model.Offset(be.Uint64(b[32:]))
		e.Count, e.Partitions = int32(be.Uint32(b[40:])), int32(be.Uint32(b[44:]))
		e.Time, e.AppendTime = int64(be.Uint64(b[48:])), int64(be.Uint64(b[56:]))
		if !e.plausible() || e.Base < prev || e.End() > covered {
			return nil, 0, ErrFile
		}
		prev = e.End()
		entries = append(entries, e)
	}
	return entries, covered, nil
}

// Load takes in a file of a log that ends at an offset, or of which what follows is read
// anew. It gives the offset from which on batches are to be entered. Errors: ErrFile, and
// nothing has changed.
func (x *Index) Load(b []byte, end model.Offset) (from model.Offset, err error) {
	entries, covered, err := Decode(b)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if e.End() <= end {
			x.push(e)
		}
	}
	x.filed, x.covered, x.saved = true, covered, x.version
	return min(covered, end), nil
}

// Stale reports whether the file may have entries that do not lie below the end of the log:
// it must be written anew before others are appended at their offsets.
func (x *Index) Stale(end model.Offset) bool { return x.filed && x.covered > end }

// Filed reports whether there is a file.
func (x *Index) Filed() bool { return x.filed }

// Behind reports whether the file has other entries than the index.
func (x *Index) Behind() bool { return x.filed && x.saved != x.version }

// Saved notes that a view is the file now. now is in ms.
func (x *Index) Saved(v View, now int64) {
	x.filed, x.covered, x.saved = true, v.covered, v.version
	x.savedAt, x.hurry = now, false
}

// Lost notes that the file cannot be read: it is to be written anew.
func (x *Index) Lost() {
	x.filed, x.covered, x.saved = true, 0, x.version-1
}

// Hurry has the file written soon: a segment of the log has ended.
func (x *Index) Hurry() { x.hurry = true }

// Often the file is written, in ms, and how many bytes of it a second at most.
const (
	saveEvery = 10_000
	savePace  = 4 << 20
)

// Due reports whether the file is to be written now. now is in ms.
func (x *Index) Due(now int64) bool {
	if !x.Behind() {
		return false
	}
	wait := int64(x.n) * entrySize * 1000 / savePace
	if !x.hurry {
		wait = max(wait, saveEvery)
	}
	return now-x.savedAt >= wait || now < x.savedAt // a clock that was set back
}
