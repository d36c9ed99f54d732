package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// An API token is a JWT in form, signed with the key of its day, and lives in the metadata:
// what makes one good is that its SHA-256 is stored there under its id. So it can be
// revoked, and may outlive the signing key that a rotation takes away.

// MaxAPITokens is how many API tokens a user has at most.
const MaxAPITokens = 1000

// MaxTokenTTL is the longest that an API token with an end may live.
const MaxTokenTTL = 10 * 365 * 24 * time.Hour

// NewAPIToken describes an API token to be made. TTL 0 is without end; Scopes nil is all of
// the user's rights, empty none.
type NewAPIToken struct {
	Username string
	Name     string
	TTL      time.Duration
	Scopes   []metadata.Scope
}

// CreateAPIToken makes an API token, of which the text is told only once. Errors:
// forbidden for another's account unless actor is an administrator, and for an actor whose
// own token has scopes; invalid-argument with pointers /name, /expires_in_s and /scopes/N,
// unknown-user, conflict where the user has MaxAPITokens.
func (s *Service) CreateAPIToken(ctx context.Context, actor *Principal, n NewAPIToken) (text string, _ *metadata.APIToken, _ error) {
	if err := CheckAPIToken(n); err != nil {
		return "", nil, err
	}
	if err := s.MayManageTokens(ctx, actor, n.Username); err != nil {
		return "", nil, err
	}
	u, err := s.lookup(ctx, n.Username)
	if err != nil {
		return "", nil, err
	}
	now := s.now()
	c := s.registered(u, Audience)
	var expires metadata.Millis
	if n.TTL > 0 {
		expires = metadata.MillisOf(now.Add(n.TTL))
		c.ExpiresAt = jwt.NewNumericDate(now.Add(n.TTL))
	}
	if text, err = s.sign(ctx, apiTokenType, c); err != nil {
		return "", nil, err
	}
	res, err := s.propose(ctx, metadata.CreateAPIToken{
		ID: c.ID, User: n.Username, Name: n.Name, Scopes: n.Scopes, Hash: apiTokenHash(text),
		ExpiresAt: expires, Now: metadata.MillisOf(now), MaxTokens: MaxAPITokens,
	})
	if err != nil {
		return "", nil, err
	}
	token, ok := res.Value.(*metadata.APIToken)
	if !ok {
		return "", nil, &model.Error{Code: model.Internal, Detail: "the creation of an API token gave no token"}
	}
	return text, token, nil
}

// CheckAPIToken finds what is wrong with a new API token by itself.
func CheckAPIToken(n NewAPIToken) error {
	var bad []model.FieldError
	if why := model.CheckName(n.Name); why != "" {
		bad = append(bad, model.FieldError{Pointer: "/name", Detail: "a token name " + why})
	}
	if n.TTL < 0 || n.TTL > MaxTokenTTL {
		bad = append(bad, model.FieldError{Pointer: "/expires_in_s", Detail: "a token lives at least 1 second and at most 10 years; without expires_in_s it has no end"})
	}
	for i, scope := range n.Scopes {
		bad = append(bad, metadata.CheckScope("/scopes/"+strconv.Itoa(i), scope)...)
	}
	if bad == nil {
		return nil
	}
	return &model.Error{Code: model.InvalidArgument, Detail: bad[0].Detail, Fields: bad}
}

// MayManageTokens tells whether the caller may see, make and delete a user's API tokens:
// one's own, or all as an administrator, and never with a token that has scopes. Errors:
// forbidden.
func (s *Service) MayManageTokens(ctx context.Context, actor *Principal, username string) error {
	if actor.Name == username && !actor.Scoped() {
		return nil
	}
	return requireAdmin(ctx, s.cluster, actor, "managing the tokens of another user")
}

// TokenDeletion names a token to delete; IfMatch is the etag it must have, "" for any.
type TokenDeletion struct {
	Username string
	ID       string
	IfMatch  metadata.ETag
}

// DeleteAPIToken deletes a token: it is dead from the next call on. Errors: not-found,
// etag-mismatch. Whether the caller may is MayManageTokens'.
func (s *Service) DeleteAPIToken(ctx context.Context, d TokenDeletion) error {
	_, err := s.propose(ctx, metadata.DeleteAPIToken{ID: d.ID, User: d.Username, IfMatch: d.IfMatch})
	return err
}

// apiTokenHash is what is stored of an API token. It needs no salt and no cost: the
// token's id alone is 128 random bits.
func apiTokenHash(token string) []byte {
	h := sha256.Sum256([]byte("tidewire api token v1" + token))
	return h[:]
}

// segment decodes one part of a JWT as JSON.
func segment(token string, part int, into any) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(parts[part])
	return err == nil && json.Unmarshal(b, into) == nil
}

// typeOf is the typ in a token's header, which nothing has verified.
func typeOf(token string) string {
	var h struct {
		Type string `json:"typ"`
	}
	if !segment(token, 0, &h) {
		return ""
	}
	return h.Type
}

// parseAPIToken finds the API token that a text claims to be and compares what is stored.
func (t *Tokens) parseAPIToken(img *metadata.Image, token string) (*verified, error) {
	var c jwt.RegisteredClaims
	if !segment(token, 1, &c) || c.ID == "" {
		return nil, errClaims
	}
	k := img.APIToken(c.ID)
	if k == nil {
		return nil, errUnknownKey
	}
	if subtle.ConstantTimeCompare(k.Hash, apiTokenHash(token)) != 1 {
		return nil, jwt.ErrTokenSignatureInvalid
	}
	return t.verifiedOf(k), nil
}

// rulesOfScopes makes rules that allow the token's user what its scopes name; nil where the
// token has none.
func rulesOfScopes(k *metadata.APIToken) *Rules {
	if k.Scopes == nil {
		return nil
	}
	return NewRules(func(yield func(*metadata.ACL) bool) {
		for _, s := range k.Scopes {
			if !yield(&metadata.ACL{ACLFields: metadata.ACLFields{
				Principal: metadata.UserPrincipal(k.User), ResourceType: s.ResourceType, ResourceName: s.ResourceName,
				Pattern: s.Pattern, Operation: s.Operation, Permission: metadata.Allow, Host: anyName,
			}}) {
				return
			}
		}
	})
}

func (v *verified) api() bool { return v.hash != nil }

// currentAPIToken returns the principal if the image still lets the API token pass.
func (v *verified) currentAPIToken(img *metadata.Image) *Principal {
	k, user := img.APIToken(v.tokenID), img.User(v.user)
	if k == nil || k.User != v.user || subtle.ConstantTimeCompare(k.Hash, v.hash) != 1 || user == nil || user.Disabled {
		return nil
	}
	next := &standing{index: img.Index(), until: endOfTime}
	admin := user.Admin && v.scopes == nil
	if s := v.seen.Load(); s != nil && s.principal.Admin == admin {
		next.principal = s.principal
	} else {
		next.principal = &Principal{
			Name: v.user, Admin: admin, Kind: APIToken, TokenID: v.tokenID,
			IssuedAt: v.issuedAt, ExpiresAt: v.expiresAt, VerifyBy: v.expiresAt, scopes: v.scopes,
		}
	}
	v.seen.Store(next)
	return next.principal
}

var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// heldToken is an API token as a credential, for who has shown to hold it.
type heldToken struct {
	tokens *Tokens
	id     string
}

func (h *heldToken) Verify(ctx context.Context) (*Principal, error) {
	p := h.find()
	if p == nil {
		if err := h.tokens.cluster.Barrier(ctx); err != nil {
			return nil, err
		}
		if p = h.find(); p == nil {
			return nil, model.Errorf(model.Unauthenticated, "the token is no longer valid")
		}
	}
	now := h.tokens.now()
	if !p.ExpiresAt.IsZero() && !now.Before(p.ExpiresAt) {
		return nil, expired()
	}
	h.tokens.useOf(h.id).note(now.UnixMilli())
	return p, nil
}

// find returns the token's principal if this node's image lets it pass.
func (h *heldToken) find() *Principal {
	img := h.tokens.cluster.Image()
	k := img.APIToken(h.id)
	if k == nil || k.Hash == nil {
		return nil
	}
	return h.tokens.verifiedOf(k).currentAPIToken(img)
}

// verifiedOf is a stored API token as one whose text was compared.
func (t *Tokens) verifiedOf(k *metadata.APIToken) *verified {
	v := &verified{user: k.User, tokenID: k.ID, hash: k.Hash, scopes: rulesOfScopes(k), use: t.useOf(k.ID), issuedAt: k.CreatedAt.Time()}
	if k.ExpiresAt != 0 {
		v.expiresAt = k.ExpiresAt.Time()
	}
	return v
}

// tokenUse is when an API token was last used on this node, in milliseconds since 1970.
type tokenUse struct{ at atomic.Int64 }

// useStep is what is not worth writing down: requests that come one after the other
// would pass the number from core to core.
const useStep = 100

func (u *tokenUse) note(now int64) {
	if now >= u.at.Load()+useStep {
		u.at.Store(now)
	}
}

func (t *Tokens) useOf(id string) *tokenUse {
	if u, ok := t.uses.Load(id); ok {
		return u.(*tokenUse)
	}
	u, _ := t.uses.LoadOrStore(id, &tokenUse{})
	return u.(*tokenUse)
}

// LastUsed is when an API token was last used, on this node or as the metadata has it; false
// for never. Uses on other nodes show after a minute.
func (t *Tokens) LastUsed(k *metadata.APIToken) (time.Time, bool) {
	at := k.LastUsedAt
	if u, ok := t.uses.Load(k.ID); ok {
		at = max(at, metadata.Millis(u.(*tokenUse).at.Load()))
	}
	return at.Time(), at != 0
}
