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
	var partition int32
	c := &cobra.Command{
		Use: "delete-records TOPIC", Short: "Delete the oldest records of a partition", Args: cobra.ExactArgs(1),
		Long: "Delete the records of a partition that lie below an offset; the record at the offset stays.\n" +
			"high-watermark deletes all committed records.",
		Example: "  tidewire topic delete-records flights --partition 3 --before-offset 1200\n" +
			"  tidewire topic delete-records flights --partition 3 --before-offset high-watermark",
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			upTo, err := beforeOffset(before)
			if err != nil {
				return err
			}
			if partition < 0 {
				return usagef("--partition is needed: a number from 0")
			}
			in := map[string]any{"partitions": []any{map[string]any{"partition": partition, "before_offset": upTo}}}
			var raw json.RawMessage
			if err := c.Call(ctx, client.Request{Method: http.MethodPost, Path: topicPath(args[0], "delete-records"), Body: in}, &raw); err != nil {
				return err
			}
			var out struct {
				Partitions []struct {
					LogStart int64 `json:"log_start_offset"`
				} `json:"partitions"`
			}
			if err := json.Unmarshal(raw, &out); err != nil {
				return err
			}
			start := "?"
			if len(out.Partitions) == 1 {
				start = strconv.FormatInt(out.Partitions[0].LogStart, 10)
			}
			return a.say(format, raw, "Partition %d of %s begins at offset %s", partition, args[0], start)
		}),
	}
	formatFlag(c, &format)
	c.Flags().Int32VarP(&partition, "partition", "p", -1, "the partition")
	c.Flags().StringVar(&before, "before-offset", "", "the first offset that stays, or high-watermark")
	return c
}

// beforeOffset reads what the interface takes: a number, or the name of the end.
func beforeOffset(s string) (any, error) {
	if s == "high-watermark" || s == "high_watermark" {
		return "high_watermark", nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return nil, usagef("--before-offset is a number from 0 or high-watermark, not %q", s)
	}
	return n, nil
}
