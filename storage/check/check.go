package check

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// Severity says how much a finding matters.
type Severity string

// The severities.
const (
	Damage   Severity = "damage"   // a start would refuse it, repair it or read it wrongly
	Note     Severity = "note"     // a start takes it in its stride
	Repaired Severity = "repaired" // Options.RepairIndexes made it anew
)

// Finding is one thing that was found.
type Finding struct {
	Severity Severity      `json:"severity"`
	File     string        `json:"file"`               // relative to the folder checked
	Position *int64        `json:"position,omitempty"` // byte within the file
	Offset   *model.Offset `json:"offset,omitempty"`   // in the log
	What     string        `json:"what"`
}

// Summary counts what was read and found.
type Summary struct {
	Logs      int64 `json:"logs"`
	Segments  int64 `json:"segments"`
	Batches   int64 `json:"batches"`
	Records   int64 `json:"records"` // as the headers say; with Deep decoded
	Bytes     int64 `json:"bytes"`   // of .log files
	Damage    int64 `json:"damage"`
	Notes     int64 `json:"notes"`
	Repaired  int64 `json:"repaired"`
	CleanStop bool  `json:"clean_stop"` // the folder's clean-stop marker is there and whole
}

// Options says what is checked and how. FS and Path are required.
type Options struct {
	FS   fsx.FS
	Path string // a data folder, a partition's folder, or a file of either
	// Deep also reads every record, and compares what is derived with a replay of the log.
	Deep bool
	// RepairIndexes makes damaged or missing .index, .timeindex and .txnindex files anew.
	RepairIndexes bool
	// IndexInterval is index.interval.bytes of the logs, by which offset indexes are told to
	// be complete. 0: inferred from the entries there are, with 4096 as what is likely.
	IndexInterval int
	// MaxInflate bounds the bytes that a compressed batch may inflate to; default 64 MiB.
	MaxInflate int
	// ProducerExpiration is producer.id.expiration.ms: a producer idle for less must be in
	// the snapshots; default 24 h.
	ProducerExpiration time.Duration
}

func (o Options) withDefaults() Options {
	if o.MaxInflate <= 0 {
		o.MaxInflate = record.MaxInflated
	}
	if o.ProducerExpiration <= 0 {
		o.ProducerExpiration = 24 * time.Hour
	}
	o.Path = path.Clean(o.Path)
	return o
}

// ErrNothing is wrapped by Run's and Dump's error when the path holds nothing that they
// know.
var ErrNothing = errors.New("no data folder, partition's folder or file of one")

// perFile bounds the findings of one severity about one file: what is garbage is so all over.
const perFile = 20

// checker is one run.
type checker struct {
	o       Options
	fs      fsx.FS
	root    string // what names in findings are relative to
	only    string // the one file that findings are about; empty: all
	emit    func(Finding)
	sum     Summary
	counts  map[string]int
	inflate *record.Decompressor
	it      record.Iterator
}

// at is a place in a file; −1 is none.
type at struct {
	pos int64
	off model.Offset
}

var nowhere = at{-1, -1}

// Run checks and calls emit for each finding, in order of partitions. An error means that
// the check could not be done (I/O, or ErrNothing), and not that there is damage.
func Run(o Options, emit func(Finding)) (Summary, error) {
	c := newChecker(o, emit)
	t, err := locate(c.fs, c.o.Path)
	if err != nil {
		return c.sum, err
	}
	c.root, c.only = t.root, t.only
	switch {
	case t.data:
		err = c.dataFolder(t.root, t.only)
	default:
		err = c.onePartition(t.root)
	}
	return c.sum, err
}

func newChecker(o Options, emit func(Finding)) *checker {
	o = o.withDefaults()
	return &checker{o: o, fs: o.FS, emit: emit, counts: map[string]int{}, inflate: record.NewDecompressor(o.MaxInflate)}
}

// target is what a path turned out to be.
type target struct {
	root string // the data folder or the partition's
	data bool   // root is a data folder
	only string // the path is this file of root
}

func locate(fsys fsx.FS, name string) (target, error) {
	info, err := fsys.Stat(name)
	if err != nil {
		return target{}, err
	}
	if !info.Dir {
		dir, base := path.Split(name)
		t := target{root: path.Clean(dir), only: base, data: isDataFile(base)}
		if !t.data && !isPartitionFile(base) {
			return t, fmt.Errorf("%s: %w", name, ErrNothing)
		}
		return t, nil
	}
	entries, err := fsys.ReadDir(name)
	if err != nil {
		return target{}, err
	}
	t := target{root: name}
	part := false
	for _, e := range entries {
		t.data = t.data || e.Dir && e.Name == topicsDir || !e.Dir && isDataFile(e.Name)
		part = part || !e.Dir && isPartitionFile(e.Name)
	}
	if !t.data && !part {
		return t, fmt.Errorf("%s: %w", name, ErrNothing)
	}
	return t, nil
}

func (c *checker) report(sev Severity, file string, w at, format string, args ...any) {
	name := strings.TrimPrefix(strings.TrimPrefix(file, c.root), "/")
	if c.only != "" && name != c.only {
		return
	}
	key := string(sev) + " " + name
	c.counts[key]++
	switch sev {
	case Damage:
		c.sum.Damage++
	case Note:
		c.sum.Notes++
	case Repaired:
		c.sum.Repaired++
	}
	f := Finding{Severity: sev, File: name, What: fmt.Sprintf(format, args...)}
	switch n := c.counts[key]; {
	case n > perFile+1:
		return
	case n == perFile+1:
		f.What = "more like this; only the first are listed"
		c.emit(f)
		return
	}
	if w.pos >= 0 {
		f.Position = &w.pos
	}
	if w.off >= 0 {
		f.Offset = &w.off
	}
	c.emit(f)
}

// read gives a file's contents; have is false when there is none.
func (c *checker) read(name string) (b []byte, have bool, err error) {
	b, err = fsx.ReadFile(c.fs, name, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return b, err == nil, err
}

func firstErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
