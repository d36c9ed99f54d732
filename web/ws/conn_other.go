//go:build !linux

package ws

import "syscall"

// limitUnsent does nothing: the kernel's own bounds hold.
func limitUnsent(syscall.RawConn) {}

// writable always is: the write waits.
func writable(uintptr) bool { return true }
