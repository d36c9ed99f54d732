package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tidewire/internal/client"
	"tidewire/internal/model"

	"github.com/spf13/cobra"
)

func (a *app) produceCommand() *cobra.Command {
	var o client.ProduceOptions
	var format, output string
	var linger int
	var fixed fixedFlags
	c := &cobra.Command{
		Use: "produce TOPIC", Short: "Store records read from standard input",
		Long: "Store records read from standard input. Each line is a record object,\n" +
			`  {"key":…, "value":…, "headers":…, "partition":…, "timestamp":…}, or what "consume" printed;` + "\n" +
			"with --format lines, each line is the value of a record; with --format raw all of standard input is one\n" +
			"value, of any bytes. Records keep their order. Reading stops at the first line that is no record and at\n" +
			"the first request that fails; standard error then says exactly how many records were stored.\n" +
			"A request that gets no answer, or one that may become better, is sent again for two minutes; it is\n" +
			"stored once all the same (Idempotency-Key). With --once=false, and with --acks none, only what was\n" +
			"certainly not stored is sent again.",
		Example: "  tidewire produce flights < flights.ndjson\n  tail -F app.log | tidewire produce logs --format lines\n" +
			"  tidewire produce images --format raw --key logo --header type=image/png < logo.png",
		Args: cobra.ExactArgs(1),
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			o.Topic, o.Format, o.Linger = args[0], client.Format(format), time.Duration(linger)*time.Millisecond
			if o.Batch < 1 || linger < 0 {
				return usagef("--batch-size is at least 1, and --linger-ms at least 0")
			}
			if err := fixed.into(&o); err != nil {
				return err
			}
			return a.produce(ctx, c, o, output)
		}),
	}
	formatFlag(c, &output)
	format = string(client.NDJSON)
	c.Flags().Var(&choice{&format, []string{string(client.NDJSON), string(client.Lines), string(client.Raw)}}, "format", "what a line is: a record object, or a value; or raw: all of the input is one value")
	c.Flags().StringVar(&o.KeyField, "key-field", "", "take each record's key from this field of its value, a JSON object")
	fixed.add(c)
	acksFlag(c, &o.Acks)
	c.Flags().BoolVar(&o.Once, "once", true, "store records once, though their request is sent again; the topic's dedupe.window.ms is for how long")
	c.Flags().IntVar(&o.Batch, "batch-size", 1000, "most records in one request")
	c.Flags().IntVar(&linger, "linger-ms", 50, "how long a batch waits to become full")
	return c
}

// fixedFlags are what each record of --format lines or raw is given.
type fixedFlags struct {
	cmd       *cobra.Command
	key       string
	headers   []string
	partition int32
}

func (f *fixedFlags) add(c *cobra.Command) {
	f.cmd = c
	c.Flags().StringVar(&f.key, "key", "", "the records' key, with --format lines or raw")
	c.Flags().StringArrayVar(&f.headers, "header", nil, "a header of the records, NAME=VALUE, with --format lines or raw; may be repeated")
	c.Flags().Int32VarP(&f.partition, "partition", "p", 0, "the records' partition, with --format lines or raw (default: by key)")
}

func (f *fixedFlags) into(o *client.ProduceOptions) error {
	if f.cmd.Flags().Changed("key") {
		o.Fixed.Key = &f.key
	}
	if f.cmd.Flags().Changed("partition") {
		o.Fixed.Partition = new(model.PartitionID(f.partition))
	}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok {
			return usagef("a header is NAME=VALUE, not %q", h)
		}
		o.Fixed.Headers = append(o.Fixed.Headers, client.FixedHeader{Name: name, Value: value})
	}
	switch {
	case o.Format == client.NDJSON && !o.Fixed.IsZero():
		return usagef("record objects have keys, headers and partitions of their own: --key, --header and --partition go with --format lines or raw")
	case o.Fixed.Key != nil && o.KeyField != "":
		return usagef("give --key or --key-field")
	case f.partition < 0:
		return usagef("--partition is a number from 0")
	}
	return nil
}

func acksFlag(c *cobra.Command, acks *string) {
	*acks = "all"
	c.Flags().Var(&acksChoice{choice{acks, []string{"all", "leader", "none"}}}, "acks", "when a write is answered")
}

// acksChoice also takes Kafka's numbers.
type acksChoice struct{ choice }

func (c *acksChoice) Set(s string) error {
	if word, ok := map[string]string{"-1": "all", "1": "leader", "0": "none"}[s]; ok {
		s = word
	}
	return c.choice.Set(s)
}

// progressEvery is how often progress is shown.
const progressEvery = 200 * time.Millisecond

func (a *app) produce(ctx context.Context, c *client.Client, o client.ProduceOptions, output string) error {
	start := a.now()
	shown := start
	if a.onTerminal {
		o.Progress = func(s client.ProduceSummary) {
			if now := a.now(); now.Sub(shown) >= progressEvery {
				shown = now
				fmt.Fprintf(a.errOut, "\r%d records", s.Stored+s.Accepted)
			}
		}
	}
	o.Once = o.Once && o.Acks != "none"
	o.Waiting = func(lines string, why error) {
		if a.onTerminal {
			fmt.Fprint(a.errOut, "\r\033[K")
		}
		fmt.Fprintf(a.errOut, "trying %s again: %v\n", lines, why)
	}
	sum, err := c.Produce(ctx, a.in, o)
	if a.onTerminal && shown != start {
		fmt.Fprint(a.errOut, "\r\033[K")
	}
	took := a.now().Sub(start)
	if o.Acks == "none" {
		fmt.Fprintf(a.errOut, "%d records accepted for %s, unconfirmed, in %.1f s", sum.Accepted, o.Topic, took.Seconds())
	} else {
		fmt.Fprintf(a.errOut, "%d records stored in %d partitions of %s in %.1f s", sum.Stored, len(sum.Partitions), o.Topic, took.Seconds())
	}
	fmt.Fprintf(a.errOut, "; %d failed, %d unknown\n", sum.Failed, sum.Unknown)
	if output == formatJSON {
		err = errors.Join(err, a.printJSON(sum.View(o.Acks, err)))
	}
	return err
}

func (a *app) consumeCommand() *cobra.Command {
	var o client.ConsumeOptions
	var output, group string
	var offset int64
	var partitions []int32
	c := &cobra.Command{
		Use: "consume TOPIC…", Short: "Print records",
		Long: "Print records. Without --follow it reads one partition after the other, up to the latest record of\n" +
			"its start, and ends; with it, it goes on until interrupted, each topic in the order of time, partitions\n" +
			"that are added included. With --to, --q or --key a topic is read in the order of time too. Output:\n" +
			"  json   a record object a line, as the server gives it; \"tidewire produce\" takes these lines\n" +
			"  value  each value and a line feed; null is an empty line\n" +
			"  raw    the bytes of the values, and nothing else\n" +
			"With --group it reads as a member: the group shares the partitions out among its members and remembers how\n" +
			"far it has come; records are committed once they were written to standard output (at least once), --from is\n" +
			"for partitions without a committed offset, and at its end or an interrupt it leaves the group.",
		Example: "  tidewire consume flights --from earliest --max 10\n  tidewire consume a -o json | tidewire produce b\n" +
			"  tidewire consume flights --group billing --follow",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Topics = args
			for _, p := range partitions {
				o.Partitions = append(o.Partitions, model.PartitionID(p))
			}
			if cmd.Flags().Changed("offset") {
				at := model.Offset(offset)
				o.Offset = &at
			}
			if err := checkConsume(&o, cmd.Flags().Changed("from")); err != nil {
				return err
			}
			if cmd.Flags().Changed("group") {
				if err := checkGroupRead(&o, group); err != nil {
					return err
				}
			}
			return a.calling(func(ctx context.Context, c *client.Client, _ []string) error {
				if cmd.Flags().Changed("group") {
					return a.consumeGroup(ctx, c, &o, group, output)
				}
				return a.consume(ctx, c, o, output)
			})(cmd, args)
		},
	}
	output = "json"
	c.Flags().VarP(&choice{&output, []string{"json", "value", "raw"}}, "output", "o", "what to print of a record")
	c.Flags().StringVar(&o.From, "from", "", "where to start: earliest, latest, or milliseconds since 1970\n(default: earliest, and latest with --follow)")
	c.Flags().Int64Var(&offset, "offset", 0, "start at this offset of the partition, in place of --from; needs --partition")
	c.Flags().Int32SliceVar(&partitions, "partition", nil, "read only this partition; may be repeated")
	c.Flags().BoolVarP(&o.Follow, "follow", "f", false, "wait for new records at the end")
	c.Flags().StringVar(&o.Search.To, "to", "", "only records before this time, milliseconds since 1970")
	c.Flags().StringVar(&o.Search.Q, "q", "", "only records that contain this text")
	c.Flags().StringVar(&o.Search.QIn, "q-in", "", "where --q is looked for: key, value and headers, separated by commas (default: everywhere)")
	c.Flags().StringVar(&o.Search.Key, "key", "", "only records with this key")
	c.Flags().Int64VarP(&o.Max, "max", "n", 0, "stop after so many records")
	c.Flags().StringVar(&group, "group", "", "read as a member of this consumer group: what it has committed is not printed again")
	_ = c.RegisterFlagCompletionFunc("group", a.completeGroups) // there is such a flag
	return c
}

func checkConsume(o *client.ConsumeOptions, fromGiven bool) error {
	if err := checkSearch(o); err != nil {
		return err
	}
	switch {
	case o.Max < 0:
		return usagef("--max must not be negative")
	case o.Offset != nil && (fromGiven || len(o.Partitions) == 0 || *o.Offset < 0):
		return usagef("--offset is not negative, needs --partition and excludes --from")
	case !fromGiven && o.Follow:
		o.From = "latest"
	case !fromGiven:
		o.From = "earliest"
	}
	if o.From == "earliest" || o.From == "latest" {
		return nil
	}
	if ms, err := strconv.ParseInt(o.From, 10, 64); err != nil || ms < 0 {
		return usagef("--from is earliest, latest or milliseconds since 1970, not %q", o.From)
	}
	return nil
}

func checkSearch(o *client.ConsumeOptions) error {
	switch {
	case o.Search == client.Search{}:
		return nil
	case o.Offset != nil:
		return usagef("--to, --q and --key go by time: start with --from, not with --offset")
	case o.Search.QIn != "" && o.Search.Q == "":
		return usagef("--q-in says where --q is looked for")
	case o.Search.To == "":
		return nil
	case o.Follow:
		return usagef("--to has an end and --follow none")
	}
	if ms, err := strconv.ParseInt(o.Search.To, 10, 64); err != nil || ms < 0 {
		return usagef("--to is milliseconds since 1970, not %q", o.Search.To)
	}
	return nil
}

// checkGroupRead refuses what a member cannot be asked for: its group gives it partitions and
// positions.
func checkGroupRead(o *client.ConsumeOptions, group string) error {
	if why := model.CheckName(group); why != "" {
		return usagef("--group: the name of a group %s", why)
	}
	switch {
	case o.Offset != nil || len(o.Partitions) > 0:
		return usagef("a group gives its members their partitions and offsets: --partition and --offset do not go with --group")
	case o.Search != client.Search{}:
		return usagef("--to, --q and --key do not go with --group: a member reads everything")
	case o.From != "earliest" && o.From != "latest":
		return usagef("--from is earliest or latest with --group; tidewire group reset --to timestamp moves a group to a time")
	}
	return nil
}

// consumeGroup reads as a member. What is committed was written to standard output.
func (a *app) consumeGroup(ctx context.Context, c *client.Client, o *client.ConsumeOptions, group, output string) error {
	out := bufio.NewWriterSize(a.out, 64<<10)
	g := client.GroupOptions{
		Group: group, Topics: o.Topics, From: o.From, Follow: o.Follow, Max: o.Max,
		Warn: func(text string) { fmt.Fprintln(a.errOut, "tidewire:", text) },
	}
	n, err := c.ConsumeGroup(ctx, g, client.Printer(out, output), out.Flush)
	if o.Follow && errors.Is(err, context.Canceled) {
		err = nil // an interrupt is how following ends
	}
	if a.onTerminal {
		fmt.Fprintf(a.errOut, "%d records\n", n)
	}
	return err
}

func (a *app) consume(ctx context.Context, c *client.Client, o client.ConsumeOptions, output string) error {
	out := bufio.NewWriterSize(a.out, 64<<10)
	emit := client.Printer(out, output)
	if o.Follow {
		one := emit
		emit = func(raw []byte) error { return errors.Join(one(raw), out.Flush()) }
	}
	o.Warn = func(text string) { fmt.Fprintln(a.errOut, "tidewire:", text) }
	n, err := c.Consume(ctx, o, emit)
	err = errors.Join(err, out.Flush())
	if o.Follow && errors.Is(err, context.Canceled) {
		err = nil // an interrupt is how following ends
	}
	if a.onTerminal {
		fmt.Fprintf(a.errOut, "%d records\n", n)
	}
	return err
}
