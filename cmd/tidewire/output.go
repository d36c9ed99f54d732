package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

const (
	formatTable = "table"
	formatJSON  = "json"
)

// choice is a flag with few values; others are a usage error.
type choice struct {
	value   *string
	allowed []string
}

func (c *choice) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}

func (c *choice) Set(s string) error {
	for _, a := range c.allowed {
		if a == s {
			*c.value = s
			return nil
		}
	}
	return fmt.Errorf("must be one of %s", strings.Join(c.allowed, ", "))
}

func (c *choice) Type() string { return strings.Join(c.allowed, "|") }

// formatFlag adds -o: table for people, json for programs.
func formatFlag(c *cobra.Command, format *string) {
	*format = formatTable
	c.Flags().VarP(&choice{format, []string{formatTable, formatJSON}}, "output", "o", "how to print")
}

// fields reads the members of an item, numbers as they are written.
func fields(raw json.RawMessage) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var m map[string]any
	return m, d.Decode(&m)
}

// cell is how a value looks in a table.
func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		if v == "" {
			return "-"
		}
		return printable(v)
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = cell(x)
		}
		return strings.Join(parts, ",")
	}
	return printable(fmt.Sprint(v))
}

// printable keeps control characters, which names from elsewhere may hold, away from
// the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r <= 0x9f {
			return '\ufffd'
		}
		return r
	}, s)
}

// printTable prints some members of items, one item a line. Columns are headed by the
// members' names in capitals, so that what a table calls a thing is what the interface
// calls it.
func (a *app) printTable(items []json.RawMessage, members ...string) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ToUpper(strings.Join(members, "\t")))
	for _, raw := range items {
		m, err := fields(raw)
		if err != nil {
			return err
		}
		cells := make([]string, len(members))
		for i, name := range members {
			cells[i] = cell(m[name])
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

// printList prints a list in the format asked for; as JSON in the interface's form, as if
// all of it had fitted on one page.
func (a *app) printList(format string, l *client.List, members ...string) error {
	if format == formatJSON {
		return a.printJSON(struct {
			Items []json.RawMessage `json:"items"`
			Next  *string           `json:"next_page_token"`
			Total int64             `json:"total"`
		}{l.Items, nil, l.Total})
	}
	return a.printTable(l.Items, members...)
}

// printMembers prints some members of a resource, one a line.
func (a *app) printMembers(raw json.RawMessage, members ...string) error {
	m, err := fields(raw)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, name := range members {
		fmt.Fprintf(w, "%s\t%s\n", name, cell(m[name]))
	}
	return w.Flush()
}

// member returns the items of a member that is a list.
func member(raw json.RawMessage, name string) ([]json.RawMessage, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	var items []json.RawMessage
	err := json.Unmarshal(m[name], &items)
	return items, err
}

// say tells people what was done; programs, which asked for JSON, get the resource.
func (a *app) say(format string, raw json.RawMessage, text string, args ...any) error {
	if format == formatJSON {
		if len(raw) == 0 {
			return nil
		}
		return a.printJSON(raw)
	}
	_, err := fmt.Fprintf(a.out, text+"\n", args...)
	return err
}
