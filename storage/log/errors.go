package log

import (
	"errors"
	"fmt"
	"io/fs"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
)

func firstErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func isErr(err, target error) bool { return errors.Is(err, target) }

var errClosed = model.Errorf(model.LeaderUnavailable, "the log is closed")

// storageError wraps an I/O error; file names go into the cause, which clients do
// not see.
func (l *Log) storageError(what string, err error) error {
	return model.Errorf(model.StorageError, "the storage of %s has failed", l.name).
		WithCause(fmt.Errorf("%s: %w", what, err))
}

// damage names the file, position and offset of damage that was found. That a file could
// not be opened is none.
func (l *Log) damage(seg *segment, pos int64, off model.Offset, err error) error {
	if passes(err) {
		return err
	}
	return model.Errorf(model.StorageError, "the log of %s is damaged at offset %d", l.name, off).
		WithCause(fmt.Errorf("%s%s at byte %d: %w", seg.path, logSuffix, pos, err))
}

// passes tells errors that say nothing of the file: the log was closed, or the process has
// no descriptor left.
func passes(err error) bool { return isErr(err, fs.ErrClosed) || fsx.IsNoDescriptor(err) }

// noDescriptor says that a file could not be opened because too many are. That passes, so
// it is no failure of the log.
func noDescriptor(cause error) error {
	return model.Errorf(model.LeaderUnavailable, "this node has no file descriptor left").WithCause(cause)
}
