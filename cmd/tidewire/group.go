package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

func groupPath(name string, verb ...string) string {
	return client.Path(append([]string{"v1", "groups", name}, verb...)...)
}

func (a *app) groupCommand() *cobra.Command {
	return group("group", "Look at consumer groups, and move their offsets",
		a.listCommand("list", "List consumer groups", "/v1/groups", "group", "state", "members", "topics", "total_lag", "coordinator"),
		a.groupDescribe(), a.groupReset(), a.groupDelete(),
	)
}

// completeGroups tells shells the names of groups.
func (a *app) completeGroups(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && cmd.Name() != "consume" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := a.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer c.Close()
	l, err := c.List(cmd.Context(), "/v1/groups", url.Values{"prefix": {begun}})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names := []string{}
	for _, raw := range l.Items {
		var g struct {
			Group string `json:"group"`
		}
		if json.Unmarshal(raw, &g) == nil {
			names = append(names, g.Group)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) groupDescribe() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "describe GROUP", Short: "Show who reads what, where the group is, and how far behind", Args: cobra.ExactArgs(1),
		Long: "Show a group's committed offset, the end of the log and the distance between them for each partition,\n" +
			"and which member has it. Members without partitions, which take over when others go, come last.\n" +
			"CURRENT-OFFSET is the next to be read; LOG-END-OFFSET is the high watermark, up to which records can be read.",
		ValidArgsFunction: a.completeGroups,
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			var raw json.RawMessage
			if err := c.Call(ctx, client.Request{Method: http.MethodGet, Path: groupPath(args[0])}, &raw); err != nil {
				return err
			}
			if format == formatJSON {
				return a.printJSON(raw)
			}
			return a.printGroup(raw)
		}),
	}
	formatFlag(c, &format)
	return c
}

// described is what a table shows of a group.
type described struct {
	Group   string `json:"group"`
	Members []struct {
		ID         string            `json:"member_id"`
		ClientID   *string           `json:"client_id"`
		Host       string            `json:"host"`
		Assignment []json.RawMessage `json:"assignment"`
		Revoking   []json.RawMessage `json:"revoking"`
	} `json:"members"`
	Offsets []struct {
		Topic     string  `json:"topic"`
		Partition int32   `json:"partition"`
		Next      *int64  `json:"next_offset"`
		End       *int64  `json:"high_watermark"`
		Lag       *int64  `json:"lag"`
		MemberID  *string `json:"member_id"`
	} `json:"offsets"`
}

func (a *app) printGroup(raw json.RawMessage) error {
	var g described
	if err := json.Unmarshal(raw, &g); err != nil {
		return err
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(cells ...any) {
		text := make([]string, len(cells))
		for i, c := range cells {
			text[i] = cell(c)
		}
		fmt.Fprintln(w, strings.Join(text, "\t"))
	}
	row("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
	who := map[string][2]any{}
	for _, m := range g.Members {
		who[m.ID] = [2]any{m.Host, deref(m.ClientID)}
	}
	for _, o := range g.Offsets {
		var id, host, clientID any
		if o.MemberID != nil {
			id, host, clientID = *o.MemberID, who[*o.MemberID][0], who[*o.MemberID][1]
		}
		row(g.Group, o.Topic, o.Partition, deref(o.Next), deref(o.End), deref(o.Lag), id, host, clientID)
	}
	for _, m := range g.Members {
		if len(m.Assignment)+len(m.Revoking) == 0 {
			row(g.Group, nil, nil, nil, nil, nil, m.ID, m.Host, deref(m.ClientID))
		}
	}
	return w.Flush()
}

// deref is the value of a pointer, or nil.
func deref[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

// resetFlags say which offsets move, and where to.
type resetFlags struct {
	to              string
	value           int64
	topics          []string
	partitions      []int32
	dry, yes, doing bool
	format          string
}

func (f *resetFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.to, "to", "", "earliest, latest, timestamp, offset or shift")
	c.Flags().Int64Var(&f.value, "value", 0, "with --to timestamp the milliseconds since 1970, with offset the next offset to be read,\nwith shift by how many records, back where negative")
	c.Flags().StringArrayVar(&f.topics, "topic", nil, "only this topic; may be repeated (default: all that the group has offsets of)")
	c.Flags().Int32SliceVarP(&f.partitions, "partition", "p", nil, "only this partition of the one --topic; may be repeated")
	dryRunFlag(c, &f.dry)
	c.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&f.doing, "execute", false, "the same as --yes, as Kafka's tool has it")
}

// body is the request's, once the flags are known to make sense.
func (f *resetFlags) body(c *cobra.Command) (map[string]any, error) {
	in := map[string]any{"to": f.to}
	valued := f.to == "timestamp" || f.to == "offset" || f.to == "shift"
	switch {
	case f.to == "earliest", f.to == "latest", valued:
	case f.to == "":
		return nil, usagef("--to is needed: earliest, latest, timestamp, offset or shift")
	default:
		return nil, usagef("--to is earliest, latest, timestamp, offset or shift, not %q", f.to)
	}
	switch {
	case valued != c.Flags().Changed("value"):
		return nil, usagef("--value goes with --to timestamp, offset and shift, and is needed there")
	case f.to != "shift" && f.value < 0:
		return nil, usagef("--value must not be negative with --to %s", f.to)
	case f.dry && (f.yes || f.doing):
		return nil, usagef("--dry-run changes nothing, and --yes does not ask: give one of them")
	case len(f.partitions) > 0 && len(f.topics) != 1:
		return nil, usagef("--partition goes with one --topic")
	}
	if valued {
		in["value"] = f.value
	}
	switch {
	case len(f.partitions) > 0:
		list := []any{}
		for _, p := range f.partitions {
			if p < 0 {
				return nil, usagef("--partition is a number from 0, not %d", p)
			}
			list = append(list, map[string]any{"topic": f.topics[0], "partition": p})
		}
		in["partitions"] = list
	case len(f.topics) > 0:
		in["topics"] = f.topics
	}
	return in, nil
}

func (a *app) groupReset() *cobra.Command {
	var f resetFlags
	c := &cobra.Command{
		Use: "reset GROUP", Short: "Move a group's committed offsets",
		Long: "Move the committed offsets of a group, which must have no members. It first shows what would change, and\n" +
			"asks; --yes does it without asking, --dry-run only shows it. An offset outside of the log becomes its nearer end.",
		Example: "  tidewire group reset billing --to earliest --dry-run\n" +
			"  tidewire group reset billing --topic orders --to timestamp --value 1760000000000 --yes\n" +
			"  tidewire group reset billing --topic orders --partition 3 --to shift --value -1 --yes",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeGroups,
	}
	c.RunE = a.calling(func(ctx context.Context, cl *client.Client, args []string) error {
		in, err := f.body(c)
		if err != nil {
			return err
		}
		call := client.Request{Method: http.MethodPost, Path: groupPath(args[0], "reset-offsets"), Body: in}
		return a.reset(ctx, cl, call, &f)
	})
	formatFlag(c, &f.format)
	f.add(c)
	return c
}

// reset shows what would change and asks, or does it.
func (a *app) reset(ctx context.Context, c *client.Client, call client.Request, f *resetFlags) error {
	do := f.yes || f.doing
	if !do {
		call.Query = dryRun(true)
	}
	if err := a.resetOnce(ctx, c, call, f.format); err != nil || do || f.dry {
		return err
	}
	switch yes, err := a.ask("Move these offsets? [y/N] "); {
	case err != nil:
		return err
	case !yes:
		return errors.New("nothing was changed; --yes moves the offsets")
	}
	call.Query = nil
	if err := c.Call(ctx, call, nil); err != nil {
		return err
	}
	return a.say(f.format, nil, "Moved the offsets")
}

// resetOnce makes the call and shows the moves.
func (a *app) resetOnce(ctx context.Context, c *client.Client, call client.Request, format string) error {
	var raw json.RawMessage
	if err := c.Call(ctx, call, &raw); err != nil {
		return err
	}
	if format == formatJSON {
		return a.printJSON(raw)
	}
	items, err := member(raw, "offsets")
	if err != nil {
		return err
	}
	return a.printTable(items, "topic", "partition", "from", "to")
}

// ask reads a yes from standard input. At its end the answer is no.
func (a *app) ask(question string) (bool, error) {
	fmt.Fprint(a.errOut, question)
	line, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && line == "" {
		fmt.Fprintln(a.errOut)
		return false, nil // no answer is a no
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
}

func (a *app) groupDelete() *cobra.Command {
	var format string
	var dry bool
	c := &cobra.Command{
		Use: "delete GROUP", Short: "Delete a group that has no members, and its committed offsets", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeGroups,
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			var raw json.RawMessage
			if err := c.Call(ctx, client.Request{Method: http.MethodDelete, Path: groupPath(args[0]), Query: dryRun(dry)}, &raw); err != nil {
				return err
			}
			if !dry {
				return a.say(format, nil, "Deleted group %s", printable(args[0]))
			}
			if format == formatJSON {
				return a.printJSON(raw)
			}
			items, err := member(raw, "offsets")
			if err != nil {
				return err
			}
			return a.printTable(items, "topic", "partition")
		}),
	}
	formatFlag(c, &format)
	dryRunFlag(c, &dry)
	return c
}
