package auth

import (
	"errors"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"tidewire/cluster/metadata"
)

// Audience is the aud claim of every access token.
const Audience = "tidewire"

// MaxTokenBytes is the length above which a token is refused unread. A token of a
// user with the longest name stays below it.
const MaxTokenBytes = 4096

// notBeforeSkew is how far nbf lies before iat, so that a token issued on one node
// is good on another whose clock is a little behind.
const notBeforeSkew = 30 * time.Second

// claims are the contents of an access token.
type claims struct {
	jwt.RegisteredClaims        // iss = cluster id, aud, sub = user, iat, nbf, exp, jti
	Session              string `json:"sid"` // refresh session
	Epoch                uint64 `json:"cep"` // credentials epoch of the user
}

var (
	errClaims = errors.New("a required claim is missing")
	errHeader = errors.New("the header has a parameter that is not used here")
)

// Validate adds the checks that jwt does not make; jwt calls it (ClaimsValidator).
func (c claims) Validate() error {
	if c.Subject == "" || c.ID == "" || c.Session == "" || c.Epoch == 0 || c.IssuedAt == nil {
		return errClaims
	}
	return nil
}

// kidOf returns the key id of a header that holds alg, kid and typ and nothing
// else. So nothing in a token can say where a key is found (jku, jwk, x5c, x5u),
// and no extension is skipped that is marked critical (RFC 7515 §4.1.11).
func kidOf(header map[string]any) (string, error) {
	for name := range header {
		switch name {
		case "alg", "kid", "typ":
		default:
			return "", errHeader
		}
	}
	kid, ok := header["kid"].(string)
	if !ok || kid == "" {
		return "", errHeader
	}
	return kid, nil
}

// Types in the header of tokens that are not access tokens (RFC 8725 §3.11): none passes
// for another.
const (
	apiTokenType = "tidewire-api+jwt"
	ticketType   = "tidewire-ticket+jwt"
)

// newParser returns a parser that accepts EdDSA from the image's cluster for this audience
// and nothing else.
func newParser(img *metadata.Image, audience string, now func() time.Time) *jwt.Parser {
	return jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}),
		jwt.WithIssuer(img.Cluster().ID),
		jwt.WithAudience(audience),
		jwt.WithExpirationRequired(),
		jwt.WithNotBeforeRequired(),
		jwt.WithTimeFunc(now),
		jwt.WithStrictDecoding(),
	)
}

// expiredOnly reports whether expiry is all that is wrong with a token.
func expiredOnly(err error) bool {
	if !errors.Is(err, jwt.ErrTokenExpired) {
		return false
	}
	for _, other := range []error{
		jwt.ErrTokenMalformed, jwt.ErrTokenUnverifiable, jwt.ErrTokenSignatureInvalid,
		jwt.ErrTokenRequiredClaimMissing, jwt.ErrTokenInvalidAudience, jwt.ErrTokenInvalidIssuer,
		jwt.ErrTokenNotValidYet, errClaims,
	} {
		if errors.Is(err, other) {
			return false
		}
	}
	return true
}
