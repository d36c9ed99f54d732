package auth

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// signSlack is how long after its replacement is due a key may still sign, so that
// logins go on while the quorum cannot take a new one.
const signSlack = 24 * time.Hour

// signerCache keeps the opened private key.
type signerCache struct {
	mu  sync.Mutex
	kid string             // guarded by mu
	key ed25519.PrivateKey // guarded by mu

	making chan struct{} // of length 1: taken while this node makes a new key
}

var errSigningKey = errors.New("a stored signing key is damaged")

func signingPurpose(kid string) string { return "signing-key:" + kid }

// open returns the private key of k.
func (s *Service) open(k *metadata.SigningKey) (ed25519.PrivateKey, error) {
	s.signer.mu.Lock()
	defer s.signer.mu.Unlock()
	if s.signer.kid == k.KID {
		return s.signer.key, nil
	}
	seed, err := s.sealer.Open(signingPurpose(k.KID), k.SealedPrivate)
	if err != nil {
		return nil, err
	}
	if len(seed) != ed25519.SeedSize {
		return nil, errSigningKey
	}
	key := ed25519.NewKeyFromSeed(seed)
	if !ed25519.PublicKey(k.PublicKey).Equal(key.Public()) {
		return nil, errSigningKey
	}
	s.signer.kid, s.signer.key = k.KID, key
	return key, nil
}

// usable returns the newest key if it may sign now and this node can open it.
func (s *Service) usable(img *metadata.Image, now time.Time) (*metadata.SigningKey, ed25519.PrivateKey) {
	k := img.NewestSigningKey()
	if k == nil || !now.Before(k.SignUntil.Time()) {
		return nil, nil
	}
	key, err := s.open(k)
	if err != nil {
		s.log.Error("the signing key cannot be opened; a new one will be made", "kid", k.KID, "error", err)
		return nil, nil
	}
	return k, key
}

// signingKey returns the key to sign with, making one when there is none.
func (s *Service) signingKey(ctx context.Context) (*metadata.SigningKey, ed25519.PrivateKey, error) {
	for range 3 { // another node may add one at the same time
		if k, key := s.usable(s.cluster.Image(), s.now()); k != nil {
			return k, key, nil
		}
		if err := s.addKey(ctx, false); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, &model.Error{Code: model.Internal, Detail: "no signing key could be made", Cause: errSigningKey}
}

// addKey adds a signing key unless, by now, the newest is good (with rotate: and
// young). Losing the race to another node is no error.
func (s *Service) addKey(ctx context.Context, rotate bool) error {
	select {
	case s.signer.making <- struct{}{}:
		defer func() { <-s.signer.making }()
	case <-ctx.Done():
		return ctx.Err()
	}
	img, now := s.cluster.Image(), s.now()
	if k, _ := s.usable(img, now); k != nil && (!rotate || now.Before(k.CreatedAt.Time().Add(s.rotateEvery))) {
		return nil
	}
	pub, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return err
	}
	kid := base64.RawURLEncoding.EncodeToString(randomBytes(12))
	signUntil := now.Add(s.rotateEvery + signSlack)
	cmd := metadata.AddSigningKey{
		KID: kid, PublicKey: pub, SealedPrivate: s.sealer.Seal(signingPurpose(kid), private.Seed()),
		SignUntil: metadata.MillisOf(signUntil), VerifyUntil: metadata.MillisOf(signUntil.Add(s.accessTTL + time.Second)),
		Now: metadata.MillisOf(now),
	}
	if newest := img.NewestSigningKey(); newest != nil {
		cmd.IfNewest = newest.KID
	}
	_, err = s.propose(ctx, cmd)
	if model.HasCode(err, model.Conflict) {
		return s.cluster.Barrier(ctx)
	}
	if err == nil {
		s.log.Info("added a signing key", slog.String("kid", kid), slog.Time("signs_until", signUntil))
	}
	return err
}

// issue signs an access token for a session of the user.
func (s *Service) issue(ctx context.Context, u *metadata.User, sessionID string) (string, time.Time, error) {
	k, key, err := s.signingKey(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	now := s.now()
	exp := now.Add(s.accessTTL + time.Second - 1).Truncate(time.Second) // a token counts whole seconds
	if last := k.VerifyUntil.Time().Truncate(time.Second); exp.After(last) {
		exp = last // the key was made when tokens lived less long
	}
	c := claims{RegisteredClaims: s.registered(u, Audience), Session: sessionID, Epoch: u.CredentialsEpoch}
	c.ExpiresAt = jwt.NewNumericDate(exp)
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, c)
	token.Header["kid"] = k.KID
	signed, err := token.SignedString(key)
	return signed, exp, err
}

// registered are the claims that tokens of all types have; they do not end.
func (s *Service) registered(u *metadata.User, audience string) jwt.RegisteredClaims {
	now := s.now()
	return jwt.RegisteredClaims{
		Issuer: s.cluster.Image().Cluster().ID, Audience: jwt.ClaimStrings{audience}, Subject: u.Name,
		ID:       base64.RawURLEncoding.EncodeToString(randomBytes(16)),
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now.Add(-notBeforeSkew)),
	}
}

// sign signs a token of another type than an access token.
func (s *Service) sign(ctx context.Context, typ string, c jwt.Claims) (string, error) {
	k, key, err := s.signingKey(ctx)
	if err != nil {
		return "", err
	}
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, c)
	token.Header["kid"], token.Header["typ"] = k.KID, typ
	return token.SignedString(key)
}

// JWK is one public key of the JWKS document, an Ed25519 key as RFC 8037 has it.
type JWK struct {
	KeyType   string `json:"kty"` // OKP
	Curve     string `json:"crv"` // Ed25519
	X         string `json:"x"`   // public key, base64url without padding
	KeyID     string `json:"kid"`
	Use       string `json:"use"` // sig
	Algorithm string `json:"alg"` // EdDSA
}

// JWKS is the document of GET /.well-known/jwks.json (RFC 7517 §5).
type JWKS struct {
	Keys []JWK `json:"keys"` // never nil
}

// JWKS returns the public keys that verify tokens now, in order of their kids.
func (s *Service) JWKS() JWKS {
	doc, now := JWKS{Keys: []JWK{}}, s.now()
	for k := range s.cluster.Image().SigningKeys() {
		if verifiesAt(k, now) {
			doc.Keys = append(doc.Keys, JWK{
				KeyType: "OKP", Curve: "Ed25519", X: base64.RawURLEncoding.EncodeToString(k.PublicKey),
				KeyID: k.KID, Use: "sig", Algorithm: jwt.SigningMethodEdDSA.Alg(),
			})
		}
	}
	return doc
}
