package auth

import (
	"context"
	"time"

	"tidewire/cluster/metadata"
)

// Cluster is what auth needs of the cluster: the present image, a way to change
// it, and a way to wait until it holds everything that was committed before.
type Cluster interface {
	// Image returns the newest image applied on this node; never nil.
	Image() *metadata.Image
	// Propose has the quorum commit a command and returns once this node has
	// applied it. A refusal may come as the result's Refusal or as the error.
	Propose(ctx context.Context, cmd metadata.Command) (metadata.Result, error)
	// Barrier returns once Image holds every change committed before the call.
	// Concurrent calls may share one round.
	Barrier(ctx context.Context) error
}

// Principal is an authenticated caller. It does not change once returned; a new
// Verify of the same token returns another one when the user's rights changed.
type Principal struct {
	Name      string    // the user's name
	Admin     bool      // administrators bypass ACL rules; false under a token with scopes
	Kind      Kind      // what the caller authenticated with
	TokenID   string    // of the access token (its jti) or the API token; "" for a cookie
	SessionID string    // the session; "" under an API token
	IssuedAt  time.Time // zero without a token
	ExpiresAt time.Time // when the credential ends; zero without one, or where it never does
	// VerifyBy is when a call that lasts must have the credential verified again though
	// nothing was changed; zero: never.
	VerifyBy time.Time

	// scopes narrow what the user may, by an API token's scopes; nil: they do not.
	scopes *Rules
	epoch  uint64 // credentials epoch of the user, under a session
}

// Kind says what a caller authenticated with.
type Kind uint8

// Kinds of credentials.
const (
	AccessToken Kind = iota
	APIToken
	Cookie
)

// Scoped reports whether the caller has less than the rights of its user. Such a caller
// manages no users, tokens or rules.
func (p *Principal) Scoped() bool { return p.scopes != nil }

// covers reports whether the scopes let a question through to the user's rights.
func (p *Principal) covers(q Access) bool {
	if p.scopes == nil {
		return true
	}
	if q.onReserved() { // for administrators, which a token with scopes never is
		return false
	}
	q.User = p.Name
	return p.scopes.Evaluate(q).Allowed
}

// ACLName is the principal as ACL rules name it, "User:name".
func (p *Principal) ACLName() string { return metadata.UserPrincipal(p.Name) }
