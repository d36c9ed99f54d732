package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"tidewire/internal/client"
	"tidewire/internal/client/bench"
	"tidewire/internal/lifecycle"

	"github.com/spf13/cobra"
)

func (a *app) benchCommand() *cobra.Command {
	return group("bench", "Measure a server", a.benchProduce(), a.benchConsume(), a.benchLatency(), a.benchFanout(), a.benchIdle())
}

var errBench = errors.New("requests failed while measuring")

// benchmark makes a command of a measurement. The topic must exist.
func (a *app) benchmark(c *cobra.Command, o *bench.Options, run func(context.Context, *client.Client, bench.Options) (*bench.Report, error)) *cobra.Command {
	var format string
	c.Args = cobra.NoArgs
	c.RunE = a.calling(func(ctx context.Context, c *client.Client, _ []string) error {
		if err := o.Check(); err != nil {
			return &usageError{err.Error()}
		}
		r, err := a.watched(ctx, o, func() (*bench.Report, error) { return run(ctx, c, *o) })
		if err != nil {
			return err
		}
		if format == formatJSON {
			err = a.printJSON(r)
		} else {
			err = r.WriteText(a.out)
		}
		if r.Errors > 0 {
			err = errors.Join(err, errBench)
		}
		return err
	})
	formatFlag(c, &format)
	c.Flags().StringVar(&o.Topic, "topic", "", "an existing topic")
	return c
}

func (a *app) benchProduce() *cobra.Command {
	var o bench.Options
	c := a.benchmark(&cobra.Command{Use: "produce", Short: "Send records as fast as the server takes them",
		Example: "  tidewire bench produce --topic t --batch 100 --connections 8 --acks leader\n  tidewire bench produce --topic t --batch 1 --connections 64"}, &o, bench.Produce)
	f := c.Flags()
	f.Int64Var(&o.Records, "records", 1_000_000, "how many to send")
	f.IntVar(&o.Size, "size", 100, "bytes of a value")
	f.IntVar(&o.Batch, "batch", 100, "records in a request")
	f.IntVar(&o.Connections, "connections", 8, "connections, each with one request in flight")
	f.IntVar(&o.Keys, "keys", 0, "number of different keys; 0 sends none")
	acksFlag(c, &o.Acks)
	return c
}

func (a *app) benchConsume() *cobra.Command {
	var o bench.Options
	c := a.benchmark(&cobra.Command{Use: "consume", Short: "Read records from the start as fast as the server gives them"}, &o, bench.Consume)
	f := c.Flags()
	f.Int64Var(&o.Records, "records", 0, "stop after so many; 0 reads to the end")
	f.StringVar(&o.Format, "format", bench.FormatJSON, "json, or binary for the stored batches")
	f.IntVar(&o.Rounds, "rounds", 1, "how often to read the topic")
	f.IntVar(&o.Batch, "batch", 5000, "most records in an answer")
	f.Int64Var(&o.MaxBytes, "max-bytes", 4<<20, "most bytes of keys, values and headers in an answer")
	f.IntVar(&o.Connections, "connections", 4, "connections; each reads its part of the partitions")
	return c
}

func (a *app) benchLatency() *cobra.Command {
	var o bench.Options
	c := a.benchmark(&cobra.Command{Use: "latency", Short: "Measure from sending a record to reading it, one by one on partition 0"}, &o, bench.Latency)
	f := c.Flags()
	f.Int64Var(&o.Records, "records", 1000, "how many to send")
	f.IntVar(&o.Size, "size", 100, "bytes of a value")
	f.Float64Var(&o.Rate, "rate", 0, "records a second; 0 sends the next when the last is answered")
	acksFlag(c, &o.Acks)
	o.Batch, o.Connections = 500, 1
	return c
}

// watched shows on a terminal how far a measurement is.
func (a *app) watched(ctx context.Context, o *bench.Options, run func() (*bench.Report, error)) (*bench.Report, error) {
	if !a.onTerminal {
		return run()
	}
	o.Done = new(atomic.Int64)
	g := lifecycle.New(ctx)
	start := a.now()
	g.Go("progress", func(ctx context.Context) {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				n, took := o.Done.Load(), a.now().Sub(start).Seconds()
				fmt.Fprintf(a.errOut, "\r\033[K%d in %.1f s, %.0f/s", n, took, float64(n)/took)
			case <-ctx.Done():
				fmt.Fprint(a.errOut, "\r\033[K")
				return
			}
		}
	})
	r, err := run()
	return r, errors.Join(err, g.Stop(time.Second))
}

func (a *app) benchFanout() *cobra.Command {
	var o bench.Options
	c := a.benchmark(&cobra.Command{
		Use: "fanout", Short: "Have many WebSockets read one topic beside a producer",
		Long: "Have many WebSockets read one topic from its end on, beside a producer that sends records as fast as\n" +
			"they are read: it waits while the slowest reader is --window records behind. The rates are of what was\n" +
			"delivered to all readers together, the latency of requests is the producer's, and the one from end to\n" +
			"end is how old the first record of each frame was when the frame had come. Nobody else may write to the\n" +
			"topic meanwhile.",
		Example: "  tidewire bench fanout --topic t --readers 100 --records 200000",
	}, &o, bench.Fanout)
	f := c.Flags()
	f.IntVar(&o.Connections, "readers", 100, "WebSockets that read")
	f.Int64Var(&o.Records, "records", 100_000, "how many to send; each reader gets all of them")
	f.IntVar(&o.Size, "size", 100, "bytes of a value")
	f.IntVar(&o.Batch, "batch", 100, "records in a request of the producer")
	f.Float64Var(&o.Rate, "rate", 0, "records a second that are sent at most; 0: as the readers allow")
	f.Int64Var(&o.Window, "window", 20_000, "how many records the slowest reader may be behind; 0: any number")
	f.IntVar(&o.MaxRecords, "max-records", 0, "most records in a frame (default: the server's)")
	acksFlag(c, &o.Acks)
	o.Acks = "leader"
	c.Flag("acks").DefValue = "leader"
	return c
}

func (a *app) benchIdle() *cobra.Command {
	var o bench.Options
	c := a.benchmark(&cobra.Command{
		Use: "idle", Short: "Measure what open WebSockets cost that have nothing to do",
		Long: "Open WebSockets that read a topic to which nobody writes, hold them, and tell by how much the server's\n" +
			"resident memory has grown for each. What opening them has left behind is in it, as far as the server\n" +
			"has not given it back; what the kernel keeps for sockets is not. The memory is read from the server's\n" +
			"/metrics, which needs describe on the cluster, or with --pid from /proc on the same machine.",
		Example: "  tidewire bench idle --topic t --connections 5000 --pid \"$(pgrep -f 'tidewire serve')\"",
	}, &o, bench.Idle)
	f := c.Flags()
	f.IntVar(&o.Connections, "connections", 1000, "WebSockets to open")
	f.DurationVar(&o.Hold, "hold", 5*time.Second, "how long to rest before the memory is read, without them and with them")
	f.IntVar(&o.PID, "pid", 0, "the server's process on this machine; 0: ask its /metrics")
	o.Batch = 1
	return c
}
