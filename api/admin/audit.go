package admin

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tidewire/api/route"
	"tidewire/broker/audit"
	"tidewire/internal/model"
)

// AuditEntry is one entry of the audit log.
type AuditEntry struct {
	ID        string         `json:"id"`
	Time      string         `json:"time" format:"date-time"`
	Principal *string        `json:"principal" example:"User:alice" extensions:"x-nullable"` // null: nobody, or not known
	Action    string         `json:"action" example:"update-topic-config"`                   // the operation's id, as words with hyphens
	Resource  string         `json:"resource" example:"topic:orders"`
	Outcome   string         `json:"outcome" enums:"success,refused,failed,unknown"`
	Code      *string        `json:"code" extensions:"x-nullable"` // of the problem; null on success
	Status    int            `json:"status"`                       // HTTP status; 0: not by HTTP
	RequestID string         `json:"request_id"`
	Host      string         `json:"host"`                            // the client's address
	Node      int32          `json:"node"`                            // the node that was called
	Before    map[string]any `json:"before" extensions:"x-nullable"`  // fields that changed, as they were
	After     map[string]any `json:"after" extensions:"x-nullable"`   // and as they are
	Details   map[string]any `json:"details" extensions:"x-nullable"` // what else there is to tell
}

// AuditPage is a page of the audit log. It may have few items, or none, and yet
// a next page: where a filter leaves most out, a page ends after some work.
type AuditPage struct {
	Items         []AuditEntry `json:"items"`
	NextPageToken *string      `json:"next_page_token" extensions:"x-nullable"`
	Total         *int64       `json:"total" extensions:"x-nullable"` // entries in the log; null with a filter
}

// auditAnswer is an AuditPage whose items are as they were stored.
type auditAnswer struct {
	Items         []any   `json:"items"`
	NextPageToken *string `json:"next_page_token"`
	Total         *int64  `json:"total"`
}

var auditQuery = slices.Concat(route.ListQuery, []string{"principal", "action", "resource", "outcome", "from", "to"})

// listAudit lists who changed what, newest first unless another order is asked for.
//
//	@ID			listAudit
//	@Summary	Read the audit log
//	@Tags		Audit
//	@Param		limit		query		int		false	"items of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param		page_token	query		string	false	"next_page_token of the page before"
//	@Param		prefix		query		string	false	"start of the resource, such as topic:orders."
//	@Param		q			query		string	false	"part of an entry's JSON, in any case"
//	@Param		sort		query		string	false	"a field, with - in front descending"	Enums(-time, time)	default(-time)
//	@Param		fields		query		string	false	"fields of the items, with commas between"
//	@Param		principal	query		string	false	"entries of this principal: User:alice, or alice"
//	@Param		action		query		string	false	"entries of this action"
//	@Param		resource	query		string	false	"entries about this resource: topic:orders, orders, or topic for all of the type"
//	@Param		outcome		query		string	false	"entries with this outcome"	Enums(success, refused, failed, unknown)
//	@Param		from		query		string	false	"entries from this time on: milliseconds since 1970, or RFC 3339"
//	@Param		to			query		string	false	"entries before this time"
//	@Success	200			{object}	AuditPage
//	@Router		/v1/audit [get]
//	@x-errors	["leader-unavailable","storage-error"]
func (d *Door) listAudit(c *route.Call) error {
	q, err := auditQueryOf(c)
	if err != nil {
		return err
	}
	fields, err := route.Fields[AuditEntry](c)
	if err != nil {
		return err
	}
	if err := d.authz.RequireAdmin(c.Request.Context(), c.Principal, "reading the audit log"); err != nil {
		return err
	}
	page, err := audit.Read(c.Request.Context(), d.broker, c.Caller(), q)
	if err != nil {
		return err
	}
	out := auditAnswer{Items: make([]any, len(page.Items)), Total: page.Total}
	for i, entry := range page.Items {
		if out.Items[i], err = route.Project(entry, fields); err != nil {
			return err
		}
	}
	if page.Next != "" {
		out.NextPageToken = &page.Next
	}
	return c.JSON(http.StatusOK, out)
}

func auditQueryOf(c *route.Call) (audit.Query, error) {
	var q audit.Query
	limit, err := c.QueryInt("limit", route.IntRange{Def: 100, Min: 1, Max: 1000})
	if err != nil {
		return q, err
	}
	q.Limit = int(limit)
	for name, into := range map[string]*string{
		"page_token": &q.PageToken, "prefix": &q.Prefix, "q": &q.Text, "principal": &q.Principal, "action": &q.Action, "resource": &q.Resource, "outcome": &q.Outcome,
	} {
		*into, _ = c.Only(name)
	}
	switch audit.Outcome(q.Outcome) {
	case "", audit.Success, audit.Refused, audit.Failed, audit.Unknown:
	default:
		return q, model.Invalid("query:outcome", "outcome is success, refused, failed or unknown, not %q", q.Outcome)
	}
	switch order, given := c.Only("sort"); {
	case order == "time":
		q.OldestFirst = true
	case given && order != "-time":
		return q, model.Invalid("query:sort", "this list cannot be sorted by %q", strings.TrimPrefix(order, "-"))
	}
	if token, given := c.Only("page_token"); given && token == "" {
		return q, audit.BadToken()
	}
	if q.From, err = queryTime(c, "from"); err != nil {
		return q, err
	}
	q.To, err = queryTime(c, "to")
	return q, err
}

// queryTime reads a point in time, nil without one.
func queryTime(c *route.Call, name string) (*time.Time, error) {
	s, ok := c.Only(name)
	if !ok {
		return nil, nil
	}
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil && ms >= 0 && ms < 1<<53 {
		return new(time.UnixMilli(ms)), nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.UnixMilli() < 0 {
		return nil, model.Invalid("query:"+name, "%s is a time: milliseconds since 1970, or RFC 3339 such as 2026-01-02T15:04:05Z; not %q", name, s)
	}
	return &t, nil
}
