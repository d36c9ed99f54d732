// Package meta keeps the applied state of the metadata quorum in SQLite, by GORM.
//
// The file is derived state: raft's log and snapshots are what must not be lost. So it
// is written with synchronous=NORMAL, one transaction per batch of commands together
// with the raft index applied, and whenever it is missing, damaged, of another cluster or
// of another format, the caller rebuilds it. Nothing reads it after start: hot paths read
// the image.
//
// It is the only package that imports GORM. GORM's automatic timestamps, hooks, soft
// delete, default transactions and function defaults are not used.
//
// A Store is for one goroutine, the one that applies.
package meta

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	moderncsqlite "modernc.org/sqlite" // registers the driver "sqlite", in pure Go
	sqlite3 "modernc.org/sqlite/lib"

	"tidewire/cluster/metadata"
)

// ErrUnusable is what Open returns, wrapped with the reason, for a file that has to be
// rebuilt.
var ErrUnusable = errors.New("metadata store cannot be used")

// ErrMissing is an ErrUnusable for a file that is not there.
var ErrMissing = fmt.Errorf("%w: there is no file", ErrUnusable)

// ErrFull is what Apply and Replace return, wrapped, when the disk has no room. Nothing is
// written then, and the same write may be tried again.
var ErrFull = errors.New("the disk is full")

// written is the error of a write.
func written(err error) error {
	var lite *moderncsqlite.Error
	if errors.As(err, &lite) && (lite.Code()&0xff == sqlite3.SQLITE_FULL || lite.Code() == sqlite3.SQLITE_IOERR_SHMSIZE) {
		return fmt.Errorf("write the metadata store: %w: %w", ErrFull, err)
	}
	return fmt.Errorf("write the metadata store: %w", err)
}

// Store is an open database.
type Store struct {
	db  *gorm.DB
	sum checksum
}

// Open opens the file and checks it: SQLite's quick check, format, cluster id (unless
// that is "") and the checksum over all rows. It returns the image in it and the raft
// index applied.
func Open(path, clusterID string) (*Store, *metadata.Image, uint64, error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, nil, 0, ErrMissing
	}
	s, err := open(path)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	img, applied, err := s.load(clusterID)
	if err != nil {
		return nil, nil, 0, errors.Join(fmt.Errorf("%w: %w", ErrUnusable, err), s.Close())
	}
	return s, img, applied, nil
}

// Create removes whatever is at path and makes a store that holds the image. The removed
// file is derived state, and the caller knows that it cannot be used.
func Create(path string, img *metadata.Image, applied uint64) (*Store, error) {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	s, err := open(path)
	if err != nil {
		return nil, err
	}
	err = s.db.Transaction(func(tx *gorm.DB) error {
		for _, ddl := range tables {
			if err := tx.Exec(ddl).Error; err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = s.Replace(img, applied)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func open(path string) (*Store, error) {
	dsn := (&url.URL{Scheme: "file", OmitHost: true, Path: path}).String() +
		"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
	db, err := gorm.Open(sqlite.New(sqlite.Config{DriverName: "sqlite", DSN: dsn}), &gorm.Config{
		SkipDefaultTransaction: true,
		PrepareStmt:            false, // its cache starts a goroutine that nothing can end
		Logger:                 logger.Discard,
		NowFunc:                func() time.Time { return time.Time{} }, // GORM asks on every insert; the state machine has no clock
	})
	if err != nil {
		return nil, err
	}
	conn, err := db.DB()
	if err != nil {
		return nil, err
	}
	conn.SetMaxOpenConns(1) // one writer; also keeps the pragmas, which are per connection
	return &Store{db: db}, nil
}

// Apply writes what a batch changed, in one transaction with the raft index applied.
// An error other than ErrFull is a local fault: the node must stop.
func (s *Store) Apply(old, next *metadata.Image, d metadata.Delta, applied uint64) error {
	sum := s.sum
	err := s.db.Transaction(func(tx *gorm.DB) error {
		w := writer{tx: tx, sum: &sum}
		if err := w.changes(old, next, d); err != nil {
			return err
		}
		return w.state(next, applied)
	})
	if err != nil {
		return written(err)
	}
	s.sum = sum
	return nil
}

// Replace makes the image the whole content, in one transaction.
func (s *Store) Replace(img *metadata.Image, applied uint64) error {
	var sum checksum
	err := s.db.Transaction(func(tx *gorm.DB) error {
		for _, row := range []any{
			&stateRow{}, &clusterRow{}, &brokerRow{}, &topicRow{}, &partitionRow{}, &userRow{}, &aclRow{},
			&sessionRow{}, &tokenRow{}, &quotaRow{}, &keyRow{},
		} {
			if err := tx.Where("1 = 1").Delete(row).Error; err != nil {
				return err
			}
		}
		w := writer{tx: tx, sum: &sum}
		empty := metadata.Empty()
		d := metadata.Diff(empty, img)
		d.Cluster, d.ClusterConfig = false, false // written below, with nothing to take out
		if err := w.changes(empty, img, d); err != nil {
			return err
		}
		if err := w.cluster(nil, img.Cluster()); err != nil {
			return err
		}
		return w.state(img, applied)
	})
	if err != nil {
		return written(err)
	}
	s.sum = sum
	return nil
}

// Close closes the file; SQLite folds its write-ahead log in.
func (s *Store) Close() error {
	conn, err := s.db.DB()
	if err != nil {
		return err
	}
	return conn.Close()
}

// load checks the file and reads it.
func (s *Store) load(clusterID string) (*metadata.Image, uint64, error) {
	var verdict string
	if err := s.db.Raw("PRAGMA quick_check(1)").Scan(&verdict).Error; err != nil {
		return nil, 0, err
	}
	if verdict != "ok" {
		return nil, 0, fmt.Errorf("quick check: %s", verdict)
	}
	var st stateRow
	if err := s.db.Where("id = 1").Take(&st).Error; err != nil {
		return nil, 0, fmt.Errorf("state: %w", err)
	}
	switch {
	case st.FormatVersion != formatVersion:
		return nil, 0, fmt.Errorf("format %d, this version writes %d", st.FormatVersion, formatVersion)
	case clusterID != "" && st.ClusterID != clusterID:
		return nil, 0, fmt.Errorf("it is of cluster %q", st.ClusterID)
	}
	r := reader{db: s.db}
	contents, err := r.contents()
	if err != nil {
		return nil, 0, err
	}
	if !bytes.Equal(r.sum[:], st.Checksum) {
		return nil, 0, errors.New("checksum over its rows differs")
	}
	s.sum = r.sum
	contents.Index = uint64(st.ImageIndex)
	img, err := metadata.NewImage(contents)
	if err != nil {
		return nil, 0, err
	}
	return img, uint64(st.AppliedIndex), nil
}
