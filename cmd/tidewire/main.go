// Command tidewire is the one binary of Tidewire: `serve` starts a node, the other
// commands talk to one over HTTP. The commands read flags, call and print; what they
// call is in internal/node and internal/client.
//
// Exit codes: 0 done, 1 an error, 2 the command line was wrong.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"tidewire/internal/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	a := &app{
		in: os.Stdin, out: os.Stdout, errOut: os.Stderr,
		getenv: os.Getenv, now: time.Now, storeDir: client.DefaultStoreDir,
		onTerminal: isTerminal(os.Stderr), readPassword: promptPassword,
	}
	os.Exit(a.run(ctx, os.Args[1:]))
}

// isTerminal reports whether a person is likely to look at the file.
func isTerminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
