//go:build !linux

package h1

import (
	"errors"
	"syscall"
)

// sendRange is not there on this system: files are copied.
func sendRange(syscall.RawConn, FileRange) (int64, error) { return 0, errors.ErrUnsupported }
