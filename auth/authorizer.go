package auth

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// Authorizer decides, for every door, what a principal may do. It is safe for
// concurrent use and its hot path takes no lock and allocates nothing.
type Authorizer struct {
	cluster Cluster

	index atomic.Pointer[ruleIndex]
	build sync.Mutex // held while a new index is made
}

// ruleIndex is the index of the rules of an image.
type ruleIndex struct {
	image uint64 // index of the newest image known to have these rules
	acls  []*metadata.ACL
	rules *Rules
}

// NewAuthorizer returns an authorizer over the cluster's image.
func NewAuthorizer(c Cluster) *Authorizer { return &Authorizer{cluster: c} }

// Allowed reports whether the principal may do what q asks, whose User is not looked at, by
// this node's image, for filtering lists and naming actions. Name is
// metadata.ClusterResource for the cluster; host is the client's address without
// port. Administrators may do everything. A user who is gone or disabled may do
// nothing, whatever p says.
func (a *Authorizer) Allowed(p *Principal, q Access) bool {
	q.User = p.Name
	return p.covers(q) && a.Decide(q).Allowed
}

// Authorize returns nil when the principal may do the operation on the resource,
// else forbidden. A refusal is confirmed by a read barrier first, whose error is
// returned if it fails. The refusal names operation, resource and principal, and is
// the same whether the resource exists or not.
func (a *Authorizer) Authorize(ctx context.Context, p *Principal, q Access) error {
	q.User = p.Name
	if !p.covers(q) {
		e := forbidden(q)
		e.Detail += " by the scopes of this token"
		return e
	}
	if a.Decide(q).Allowed {
		return nil
	}
	if err := a.cluster.Barrier(ctx); err != nil {
		return err
	}
	if a.Decide(q).Allowed {
		return nil
	}
	return forbidden(q)
}

func forbidden(q Access) *model.Error {
	if q.Resource == metadata.ResourceCluster {
		return model.Errorf(model.Forbidden, "operation %q on the cluster is not allowed to %q", q.Operation, metadata.UserPrincipal(q.User))
	}
	return model.Errorf(model.Forbidden, "operation %q on %s %q is not allowed to %q", q.Operation, q.Resource, q.Name, metadata.UserPrincipal(q.User))
}

// RequireAdmin returns nil when the principal is an administrator, else forbidden,
// confirmed by a read barrier. What names the thing refused, such as "managing users".
func (a *Authorizer) RequireAdmin(ctx context.Context, p *Principal, what string) error {
	return requireAdmin(ctx, a.cluster, p, what)
}

func requireAdmin(ctx context.Context, c Cluster, p *Principal, what string) error {
	if p.Scoped() {
		return model.Errorf(model.Forbidden, "%s is not allowed to %q with a token that has scopes", what, p.ACLName())
	}
	if isAdmin(c.Image(), p.Name) {
		return nil
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	if isAdmin(c.Image(), p.Name) {
		return nil
	}
	return model.Errorf(model.Forbidden, "%s is for administrators and is not allowed to %q", what, p.ACLName())
}

func isAdmin(img *metadata.Image, name string) bool {
	u := img.User(name)
	return u != nil && u.Admin && !u.Disabled
}

// Decide answers one question by this node's image, with the rule that decided;
// an administrator is allowed by none.
func (a *Authorizer) Decide(q Access) Decision {
	img := a.cluster.Image()
	u := img.User(q.User)
	switch {
	case u == nil || u.Disabled:
		return Decision{}
	case q.onReserved():
		return Decision{Allowed: u.Admin && q.Operation != metadata.OpAll && reservedOps&opBit(q.Operation) != 0}
	case u.Admin:
		return Decision{Allowed: true}
	}
	return a.rulesOf(img).Evaluate(q)
}

// AuditTopic is the topic of the audit log. No rule opens it: administrators read it and set
// its retention, and nobody writes to it or deletes from it, so that what somebody did stays
// to be read.
const AuditTopic = "__audit"

// OffsetsTopic is the topic of committed offsets and of what groups are. The same holds for it:
// group coordinators alone write to it, and a partition more or less would move every group.
const OffsetsTopic = "__consumer_offsets"

// reservedOps are what administrators may do with reserved topics; "all" is more.
var reservedOps = opBit(metadata.OpRead) | opBit(metadata.OpDescribe) | opBit(metadata.OpDescribeConfigs) | opBit(metadata.OpAlterConfigs)

// onReserved reports whether a question is about a topic that no rule opens.
func (q *Access) onReserved() bool {
	return q.Resource == metadata.ResourceTopic && (q.Name == AuditTopic || q.Name == OffsetsTopic)
}

// Check answers the question of POST /v1/acls/check: whether a principal, in the
// form "User:name", may do something. A principal without such a user is judged by
// the rules alone, so that rules can be tried before the user is made; "User:*" is
// judged by the rules for everyone.
func (a *Authorizer) Check(principal string, q Access) (Decision, error) {
	name, ok := strings.CutPrefix(principal, userPrefix)
	if !ok || name == "" {
		return Decision{}, model.Invalid("/principal", `a principal has the form "User:name"`)
	}
	if why := metadata.CheckWord("resource_type", string(q.Resource)); why != "" {
		return Decision{}, model.Invalid("/resource_type", "%s", why)
	}
	if why := metadata.CheckWord("operation", string(q.Operation)); why != "" {
		return Decision{}, model.Invalid("/operation", "%s", why)
	}
	q.User = name
	img := a.cluster.Image()
	if img.User(name) != nil {
		return a.Decide(q), nil
	}
	if q.onReserved() {
		return Decision{}, nil
	}
	return a.rulesOf(img).Evaluate(q), nil
}

// rulesOf returns the index of an image's rules. Most changes of the metadata leave
// the rules alone: then the old index is kept for the new image.
func (a *Authorizer) rulesOf(img *metadata.Image) *Rules {
	if x := a.index.Load(); x != nil && x.image == img.Index() {
		return x.rules
	}
	a.build.Lock()
	defer a.build.Unlock()
	old := a.index.Load()
	if old != nil && old.image == img.Index() {
		return old.rules
	}
	next := &ruleIndex{image: img.Index()}
	if old != nil && sameRules(old.acls, img) {
		next.acls, next.rules = old.acls, old.rules
	} else {
		next.acls = slices.Collect(img.ACLs())
		next.rules = NewRules(slices.Values(next.acls))
	}
	// A request that still holds an older image must not put the index back.
	if old == nil || old.image < next.image {
		a.index.Store(next)
	}
	return next.rules
}

// sameRules reports whether an image has exactly these rules; rules do not change
// once they are in an image, so that comparing pointers is enough.
func sameRules(acls []*metadata.ACL, img *metadata.Image) bool {
	if len(acls) != img.ACLCount() {
		return false
	}
	i := 0
	for r := range img.ACLs() {
		if i == len(acls) || acls[i] != r {
			return false
		}
		i++
	}
	return i == len(acls)
}
