//go:build !linux

package fsx

import "os"

// syncData has no cheaper form than fsync outside Linux.
func syncData(f *os.File) error { return f.Sync() }
