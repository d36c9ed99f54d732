package quorum

import (
	"context"
	"io"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// Logger hands what raft and its stores log to slog, their informational lines, of
// which there are many, as debug, and their warnings, which every election makes, as
// informational lines.
type Logger struct {
	hc  hclog.InterceptLogger
	log *slog.Logger
}

// NewLogger wraps a slog logger.
func NewLogger(log *slog.Logger) *Logger {
	l := &Logger{
		hc:  hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Off, Output: io.Discard}),
		log: log,
	}
	l.hc.RegisterSink(l)
	return l
}

// Accept implements hclog.SinkAdapter.
func (l *Logger) Accept(name string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	switch {
	case aboutPeers(name, msg):
	case level >= hclog.Error:
		to = slog.LevelError
	case level >= hclog.Warn:
		to = slog.LevelInfo
	}
	l.log.Log(context.Background(), to, msg, append([]any{"component", name}, args...)...)
}

// aboutPeers: that another node does not answer is said at every try, and the controller
// says it once.
func aboutPeers(name, msg string) bool {
	if strings.HasSuffix(name, ".transport") {
		return true
	}
	for _, m := range []string{"failed to heartbeat to", "failed to appendEntries to", "failed to contact", "failed to make requestVote RPC"} {
		if msg == m {
			return true
		}
	}
	return false
}
