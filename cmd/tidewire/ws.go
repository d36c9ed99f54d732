package main

import (
	"bufio"
	"context"
	"errors"
	"strings"
	"time"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

// wsWait is how long frames are awaited after the input's end, unless told otherwise.
const wsWait = time.Second

func (a *app) wsCommand() *cobra.Command {
	var o client.WSOptions
	c := &cobra.Command{
		Use: "ws PATH", Short: "Talk over a WebSocket",
		Long: "Open a WebSocket. Each line of standard input is sent as a frame, each frame that comes is printed,\n" +
			"one JSON object a line. It ends, closing the socket,\n" +
			"  with --count N    after N frames,\n" +
			"  with --records N  once frames \"records\" have brought N records,\n" +
			"  with --wait TIME  that long after standard input has ended; if --count or --records was given\n" +
			"                    and is not reached by then, the exit code is 1.\n" +
			"Without any of them --wait is 1s; with --count or --records alone there is no limit in time.",
		Example: `  echo '{"op":"subscribe","topics":["flights"],"from":"earliest"}' | tidewire ws /v1/ws/consume --records 100
  echo '{"op":"produce","id":1,"topic":"flights","records":[{"value":"LH1"}]}' | tidewire ws /v1/ws/produce --count 1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !strings.HasPrefix(args[0], "/"):
				return usagef("PATH begins with a slash, as /v1/ws/consume does")
			case o.Count < 0 || o.Records < 0 || o.Wait < 0:
				return usagef("--count, --records and --wait must not be negative")
			case !cmd.Flags().Changed("wait") && (o.Count > 0 || o.Records > 0):
				o.Wait = -1
			}
			return a.calling(func(ctx context.Context, c *client.Client, args []string) error {
				return a.ws(ctx, c, args[0], o)
			})(cmd, args)
		},
	}
	c.Flags().DurationVar(&o.Wait, "wait", wsWait, "how long to go on after the end of standard input")
	c.Flags().Int64Var(&o.Count, "count", 0, "end after so many frames")
	c.Flags().Int64Var(&o.Records, "records", 0, "end after so many records")
	return c
}

func (a *app) ws(ctx context.Context, c *client.Client, path string, o client.WSOptions) error {
	out := bufio.NewWriter(a.out)
	err := c.WebSocket(ctx, path, a.in, o, func(frame []byte) error {
		_, _ = out.Write(frame)
		_ = out.WriteByte('\n')
		return out.Flush() // frames are seen as they come
	})
	if errors.Is(err, context.Canceled) {
		return nil // an interrupt is a way to end it
	}
	return err
}
