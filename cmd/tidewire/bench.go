package main

import (
	"context"
	"errors"

	"tidewire/internal/client"
	"tidewire/internal/client/bench"

	"github.com/spf13/cobra"
)

func (a *app) benchCommand() *cobra.Command {
	return group("bench", "Measure a server", a.benchProduce(), a.benchConsume(), a.benchLatency())
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
		r, err := run(ctx, c, *o)
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
