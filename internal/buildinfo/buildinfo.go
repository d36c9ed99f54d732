// Package buildinfo tells which build of Tidewire is running. The Makefile sets
// Version with the linker flag -X tidewire/internal/buildinfo.Version=…; a plain
// `go build` leaves it at "dev". Builds use -buildvcs=false, so that a build does
// not depend on the state of the work tree's git metadata.
package buildinfo

import "runtime"

// Version names the build, as `git describe` gives it. Nothing writes it after
// the link step.
var Version = "dev"

// GoVersion is the version of the Go toolchain that built the program.
func GoVersion() string { return runtime.Version() }

// Platform is the operating system and architecture, as "linux/amd64".
func Platform() string { return runtime.GOOS + "/" + runtime.GOARCH }
