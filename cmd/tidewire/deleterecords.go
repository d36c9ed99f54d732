package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

func (a *app) topicDeleteRecords() *cobra.Command {
	var format, before string
	var partitions []int32
	var dry bool
	c := &cobra.Command{
		Use: "delete-records TOPIC", Short: "Delete the oldest records of partitions", Args: cobra.ExactArgs(1),
		Long: "Delete the records of partitions that lie below an offset; the record at the offset stays.\n" +
			"high_watermark deletes all committed records.",
		Example: "  tidewire topic delete-records flights --partition 3 --before-offset 1200\n" +
			"  tidewire topic delete-records flights --partition 3 --before-offset high_watermark",
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			upTo, err := beforeOffset(before)
			if err != nil {
				return err
			}
			if len(partitions) == 0 {
				return usagef("--partition is needed: numbers from 0")
			}
			in := []any{}
			for _, p := range partitions {
				if p < 0 {
					return usagef("--partition is a number from 0, not %d", p)
				}
				in = append(in, map[string]any{"partition": p, "before_offset": upTo})
			}
			var raw json.RawMessage
			call := client.Request{Method: http.MethodPost, Path: topicPath(args[0], "delete-records"), Query: dryRun(dry), Body: map[string]any{"partitions": in}}
			if err := c.Call(ctx, call, &raw); err != nil {
				return err
			}
			if format == formatJSON {
				return a.printJSON(raw)
			}
			items, err := member(raw, "partitions")
			if err != nil {
				return err
			}
			return a.printTable(items, "partition", "log_start_offset")
		}),
	}
	formatFlag(c, &format)
	dryRunFlag(c, &dry)
	c.Flags().Int32SliceVarP(&partitions, "partition", "p", nil, "the partition; may be repeated")
	c.Flags().StringVar(&before, "before-offset", "", "the first offset that stays, or high_watermark")
	return c
}

// beforeOffset reads what the interface takes: a number, or the name of the end.
func beforeOffset(s string) (any, error) {
	if s == "high_watermark" || s == "high-watermark" { // the second as flags are spelt
		return "high_watermark", nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return nil, usagef("--before-offset is a number from 0 or high_watermark, not %q", s)
	}
	return n, nil
}
