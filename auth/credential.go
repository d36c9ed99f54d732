package auth

import (
	"context"
	"strings"
)

// Credential is what a caller has authenticated with, for calls that last: it can be
// looked at again for as long as the call goes on, and also after the request that brought
// it has ended. It is safe for concurrent use.
type Credential interface {
	// Verify tells whose it is, as Tokens.Verify does: an error is unauthenticated or
	// token-expired where it is no longer good, or the quorum's where that had to be asked.
	// It must be called again at the returned principal's VerifyBy at the latest.
	Verify(ctx context.Context) (*Principal, error)
}

// Credential is a bearer token as a credential. It is not verified yet.
func (t *Tokens) Credential(token string) Credential { return &bearer{t, token} }

type bearer struct {
	tokens *Tokens
	token  string
}

// Kept is the credential for a call that outlives its request: it does not keep the request's
// header in memory, of which a token is a part, nor the text of a token that was verified.
func Kept(c Credential) Credential {
	b, ok := c.(*bearer)
	if !ok {
		return c
	}
	h := hashToken(b.token)
	if v := b.tokens.cache.get(&h); v != nil {
		return &kept{b.tokens, h, v}
	}
	return &bearer{b.tokens, strings.Clone(b.token)}
}

// kept is a bearer token without its text, as it was when its signature was good. What can
// change since is checked on every use, as with the Seen of a connection.
type kept struct {
	tokens *Tokens
	hash   tokenHash
	v      *verified
}

func (k *kept) Verify(ctx context.Context) (*Principal, error) {
	return k.tokens.use(ctx, &k.hash, k.v)
}

func (b *bearer) Verify(ctx context.Context) (*Principal, error) {
	return b.tokens.Verify(ctx, b.token)
}
