//go:build !linux

package main

import "io"

// promptPassword cannot hide what is typed here.
func promptPassword(string, io.Writer) (string, error) {
	return "", usagef("on this system a password is read from standard input: use --password-stdin")
}
