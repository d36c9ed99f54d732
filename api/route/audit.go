package route

import (
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"tidewire/broker/audit"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// Auditor takes what the gate tells of calls that may change something; *audit.Log is one.
type Auditor interface {
	Record(e audit.Entry)
}

// auditing is what the gate knows of a call for the audit log; nil where it is not audited.
type auditing struct {
	before    *metadata.Image
	resources []audit.Resource // what the call is about; the first is what the entry names
	actor     string           // the user, where the call itself finds out who it is
	details   map[string]any
}

// About says what the call is about, where the path does not: as soon as the handler knows,
// so that a refusal can tell it too. The metadata before and after the call say what changed
// of each.
func (c *Call) About(r ...audit.Resource) {
	if c.audit != nil {
		c.audit.resources = append(c.audit.resources, r...)
	}
}

// Actor says which user a call without credentials turned out to be.
func (c *Call) Actor(username string) {
	if c.audit != nil {
		c.audit.actor = username
	}
}

// Note adds a detail to the call's entry in the audit log. It must be no secret, and its
// value something that JSON can carry.
func (c *Call) Note(name string, v any) {
	if c.audit == nil {
		return
	}
	if c.audit.details == nil {
		c.audit.details = map[string]any{}
	}
	c.audit.details[name] = v
}

// Audited reports whether calls of the route are written to the audit log: all that may
// change something, unless the route says why not.
func (r *Route) Audited() bool { return r.Write() && r.Built() && r.Unaudited == "" }

// Action is what the audit log calls a call of the route: its id, as words with hyphens.
func (r *Route) Action() string {
	var b strings.Builder
	var before rune
	for _, c := range r.ID {
		if unicode.IsUpper(c) && unicode.IsLower(before) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(c))
		before = c
	}
	return b.String()
}

// audited runs a call and writes down what became of it. One that panics counts as an
// internal error.
func (g *Gate) audited(c *Call, run func() error) {
	c.audit = &auditing{before: g.images.Image()}
	defer func() {
		if p := recover(); p != nil {
			g.record(c, &model.Error{Code: model.Internal})
			panic(p)
		}
	}()
	err := run()
	g.record(c, err)
}

// untold are failures that say only that the request was not one: nobody was refused, and
// nothing was tried.
var untold = map[int]bool{
	http.StatusBadRequest: true, http.StatusMethodNotAllowed: true, http.StatusNotAcceptable: true,
	http.StatusRequestEntityTooLarge: true, http.StatusUnsupportedMediaType: true, http.StatusUnprocessableEntity: true,
	http.StatusNotImplemented: true,
}

// record writes the entry of a call that has ended.
func (g *Gate) record(c *Call, err error) {
	e := audit.Entry{
		Action: c.Route.Action(), Outcome: audit.Success, Status: c.Writer.Status(), RequestID: c.Writer.Header().Get("X-Request-Id"),
		Host: c.Host(), Details: c.audit.details,
	}
	if err != nil {
		told := model.AsError(err)
		e.Code, e.Status = new(string(told.Code)), model.Row(told.Code).Status
		e.Outcome = outcomeOf(told)
		if e.Outcome == audit.Failed && untold[e.Status] || told.Code == model.RateLimited {
			return
		}
	}
	if err == nil && (c.Route.AuditFailures || c.dryRun()) {
		return
	}
	switch {
	case c.Principal != nil:
		e.Principal = new(c.Principal.ACLName())
	case err == nil && c.audit.actor != "":
		e.Principal = new(metadata.UserPrincipal(c.audit.actor))
	case err != nil && !c.Route.Public && e.Status == http.StatusUnauthorized:
		return // nobody knows who it was, and nothing was tried
	}
	about := c.audit.resources
	if len(about) == 0 {
		about = []audit.Resource{c.resource()}
	}
	e.Resource = about[0].String()
	after := g.images.Image()
	for _, r := range about {
		old, now := audit.Changes(c.audit.before, after, r)
		e.Before, e.After = merged(e.Before, old), merged(e.After, now)
	}
	g.auditor.Record(e)
}

func outcomeOf(e *model.Error) audit.Outcome {
	switch status := model.Row(e.Code).Status; {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, e.Code == model.LoginLocked:
		return audit.Refused
	case e.EffectiveOutcome() == model.Unknown:
		return audit.Unknown
	}
	return audit.Failed
}

// dryRun reports whether the call only asked what would be.
func (c *Call) dryRun() bool {
	v, _ := c.Only("dry_run")
	return v == "true"
}

func merged(a, b map[string]any) map[string]any {
	if a == nil {
		return b
	}
	for k, v := range b {
		a[k] = v
	}
	return a
}

// resource is what the path names: the kind by its first word, the name by its first
// parameter.
func (c *Call) resource() audit.Resource {
	word, _, _ := strings.Cut(strings.TrimPrefix(c.Route.Path, "/v1/"), "/")
	r := audit.Resource{Type: strings.TrimSuffix(word, "s")}
	if len(c.Params) > 0 {
		r.Name = c.Params[0].Value
		if name, err := url.PathUnescape(r.Name); err == nil && !c.decoded {
			r.Name = name
		}
	}
	return r
}
