package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

func (a *app) aclCommand() *cobra.Command {
	return group("acl", "List, create, delete and try access rules", a.aclList(), a.aclCreate(), a.aclDelete(), a.aclCheck())
}

// rule is the members of an access rule as flags; "" was not given.
type rule struct {
	principal, resourceType, resourceName, pattern, permission, host string
	topic, group                                                     string
	operations                                                       []string
}

var aclColumns = []string{"principal", "permission", "operation", "resource_type", "resource_name", "pattern", "host"}

func (r *rule) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&r.principal, "principal", "", `whom it is about: a user's name, or "User:NAME"`)
	f.StringVar(&r.resourceType, "resource-type", "", "topic, group, transactional-id or cluster")
	f.StringVar(&r.resourceName, "resource-name", "", "name of the resource")
	f.StringVar(&r.topic, "topic", "", "short for --resource-type topic --resource-name NAME")
	f.StringVar(&r.group, "group", "", "short for --resource-type group --resource-name NAME")
	f.StringVar(&r.pattern, "pattern", "", "literal or prefixed")
	f.StringArrayVar(&r.operations, "operation", nil, "read, write, create, delete, alter, describe, describe-configs, alter-configs,\ncluster-action, idempotent-write or all; may be repeated")
	f.StringVar(&r.permission, "permission", "", "allow or deny")
	f.StringVar(&r.host, "host", "", "address it is about, * for all")
}

// members returns what was given, without the operations.
func (r *rule) members() (map[string]string, error) {
	shorts := map[string]string{"topic": r.topic, "group": r.group}
	for kind, name := range shorts {
		if name == "" {
			continue
		}
		if r.resourceType != "" || r.resourceName != "" {
			return nil, usagef("name one resource: --topic, --group, or --resource-type with --resource-name")
		}
		r.resourceType, r.resourceName = kind, name
	}
	if r.principal != "" && !strings.Contains(r.principal, ":") {
		r.principal = "User:" + r.principal
	}
	out := map[string]string{}
	for name, v := range map[string]string{"principal": r.principal, "resource_type": r.resourceType, "resource_name": r.resourceName,
		"pattern": r.pattern, "permission": r.permission, "host": r.host} {
		if v != "" {
			out[name] = v
		}
	}
	return out, nil
}

func (a *app) aclList() *cobra.Command {
	var format string
	var r rule
	c := &cobra.Command{
		Use: "list", Short: "List access rules, all or those that fit the flags", Args: cobra.NoArgs,
		RunE: a.calling(func(ctx context.Context, c *client.Client, _ []string) error {
			want, err := r.members()
			if err != nil {
				return err
			}
			l, err := c.List(ctx, "/v1/acls", nil)
			if err != nil {
				return err
			}
			fit := &client.List{Items: []json.RawMessage{}}
			for _, raw := range l.Items {
				if m, err := fields(raw); err == nil && fits(m, want, r.operations) {
					fit.Items = append(fit.Items, raw)
				}
			}
			fit.Total = int64(len(fit.Items))
			return a.printList(format, fit, aclColumns...)
		}),
	}
	formatFlag(c, &format)
	r.flags(c)
	return c
}

func fits(m map[string]any, want map[string]string, operations []string) bool {
	for name, v := range want {
		if m[name] != v {
			return false
		}
	}
	for _, op := range operations {
		if m["operation"] == op {
			return true
		}
	}
	return len(operations) == 0
}

func (a *app) aclCreate() *cobra.Command {
	var format string
	var r rule
	c := &cobra.Command{
		Use: "create", Short: "Create access rules, one for each operation", Args: cobra.NoArgs,
		Example: "  tidewire acl create --principal alice --topic flights --operation read --operation describe",
		RunE: a.calling(func(ctx context.Context, c *client.Client, _ []string) error {
			in, err := r.members()
			if err != nil {
				return err
			}
			if in["principal"] == "" || in["resource_type"] == "" || len(r.operations) == 0 {
				return usagef("--principal, a resource and --operation are needed")
			}
			for name, v := range map[string]string{"pattern": "literal", "permission": "allow", "host": "*"} {
				if in[name] == "" {
					in[name] = v
				}
			}
			var made []json.RawMessage
			for _, op := range r.operations {
				in["operation"] = op
				var raw json.RawMessage
				if err := c.Call(ctx, client.Request{Method: http.MethodPost, Path: "/v1/acls", Body: in}, &raw); err != nil {
					return err
				}
				made = append(made, raw)
			}
			return a.printList(format, &client.List{Items: made, Total: int64(len(made))}, aclColumns...)
		}),
	}
	formatFlag(c, &format)
	r.flags(c)
	return c
}

func (a *app) aclDelete() *cobra.Command {
	var format string
	var r rule
	var dry bool
	c := &cobra.Command{
		Use: "delete", Short: "Delete the access rules that have exactly what the flags say", Args: cobra.NoArgs,
		RunE: a.calling(func(ctx context.Context, c *client.Client, _ []string) error {
			members, err := r.members()
			if err != nil {
				return err
			}
			if len(members)+len(r.operations) == 0 {
				return usagef("say which rules: at least one flag is needed")
			}
			q := url.Values{}
			if dry {
				q.Set("dry_run", "true")
			}
			for name, v := range members {
				q.Set(name, v)
			}
			operations := r.operations
			if len(operations) == 0 {
				operations = []string{""}
			}
			gone := []json.RawMessage{}
			for _, op := range operations {
				if op != "" {
					q.Set("operation", op)
				}
				var out struct {
					Deleted []json.RawMessage `json:"deleted"`
				}
				if err := c.Call(ctx, client.Request{Method: http.MethodDelete, Path: "/v1/acls", Query: q}, &out); err != nil {
					return err
				}
				gone = append(gone, out.Deleted...)
			}
			if format == formatJSON {
				return a.printJSON(map[string]any{"deleted": gone})
			}
			return a.printTable(gone, aclColumns...)
		}),
	}
	formatFlag(c, &format)
	dryRunFlag(c, &dry)
	r.flags(c)
	return c
}

func (a *app) aclCheck() *cobra.Command {
	var format string
	var r rule
	c := &cobra.Command{
		Use: "check", Short: "Ask whether a principal may do something, and by which rule", Args: cobra.NoArgs,
		Example: "  tidewire acl check --principal alice --topic flights --operation read",
		RunE: a.calling(func(ctx context.Context, c *client.Client, _ []string) error {
			in, err := r.members()
			if err != nil {
				return err
			}
			if in["principal"] == "" || in["resource_type"] == "" || in["resource_name"] == "" || len(r.operations) != 1 {
				return usagef("--principal, one resource with its name and one --operation are needed")
			}
			if in["pattern"] != "" || in["permission"] != "" {
				return usagef("--pattern and --permission are parts of rules; the answer tells them")
			}
			in["operation"] = r.operations[0]
			var raw json.RawMessage
			if err := c.Call(ctx, client.Request{Method: http.MethodPost, Path: "/v1/acls/check", Body: in}, &raw); err != nil {
				return err
			}
			if format == formatJSON {
				return a.printJSON(raw)
			}
			return a.printDecision(raw)
		}),
	}
	formatFlag(c, &format)
	r.flags(c)
	return c
}

// printDecision prints whether it is allowed, and the rule that decides where one does.
func (a *app) printDecision(raw json.RawMessage) error {
	var d struct {
		Rule json.RawMessage `json:"rule"`
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return err
	}
	if err := a.printMembers(raw, "allowed"); err != nil || len(d.Rule) == 0 || string(d.Rule) == "null" {
		return err
	}
	return a.printTable([]json.RawMessage{d.Rule}, aclColumns...)
}
