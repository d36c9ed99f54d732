package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// The login that --dev makes. It is known to everybody.
const (
	DevUsername = "admin"
	DevPassword = "tidewire"
)

// FirstAdmin is the name of the user that TIDEWIRE_ADMIN_PASSWORD creates.
const FirstAdmin = "admin"

// FirstStart says how a cluster without users gets its first.
type FirstStart struct {
	AdminPassword string // TIDEWIRE_ADMIN_PASSWORD, "" when not set
	Dev           bool   // --dev: DevUsername with DevPassword, unless AdminPassword is set
}

// Opened says what Bootstrap did.
type Opened struct {
	// AdminCreated is the user that was created, "" when none was.
	AdminCreated string
	// SetupToken is the one-time token to print in the setup address, "" when the
	// setup is not open. It is told only once; the next Bootstrap makes another.
	SetupToken string
}

// Bootstrap readies a started node: it sees to a signing key and, while there is no
// user at all, creates the first or opens the setup under a new token, which ends
// an earlier one. All of it is decided by the quorum, so nodes that start together
// do not disagree, and none of it changes a cluster that has users.
func (s *Service) Bootstrap(ctx context.Context, f FirstStart) (Opened, error) {
	if err := s.cluster.Barrier(ctx); err != nil {
		return Opened{}, err
	}
	if _, _, err := s.signingKey(ctx); err != nil {
		return Opened{}, err
	}
	if s.cluster.Image().UserCount() > 0 {
		return Opened{}, nil
	}
	password := f.AdminPassword
	if password == "" && f.Dev {
		password = DevPassword
	}
	if password != "" {
		return s.createFirst(ctx, password)
	}
	return s.openSetup(ctx)
}

func (s *Service) createFirst(ctx context.Context, password string) (Opened, error) {
	if d := CheckPassword(password); d != "" {
		return Opened{}, model.Errorf(model.InvalidArgument, "TIDEWIRE_ADMIN_PASSWORD: %s", d)
	}
	cred, err := s.credentials(ctx, FirstAdmin, password)
	if err != nil {
		return Opened{}, err
	}
	_, err = s.propose(ctx, metadata.CreateUser{
		Name: FirstAdmin, Admin: true, Credentials: cred, OnlyIfNoUsers: true, Now: metadata.MillisOf(s.now()),
	})
	if model.HasCode(err, model.Conflict) || model.HasCode(err, model.UserExists) {
		return Opened{}, nil // another node was first
	}
	if err != nil {
		return Opened{}, err
	}
	return Opened{AdminCreated: FirstAdmin}, nil
}

func (s *Service) openSetup(ctx context.Context) (Opened, error) {
	token := base64.RawURLEncoding.EncodeToString(randomBytes(32))
	_, err := s.propose(ctx, metadata.SetSetupToken{Hash: setupHash(token)})
	if model.HasCode(err, model.Conflict) {
		return Opened{}, nil // another node made a user
	}
	if err != nil {
		return Opened{}, err
	}
	return Opened{SetupToken: token}, nil
}

func setupHash(token string) []byte {
	h := sha256.Sum256([]byte("tidewire setup token v1" + token))
	return h[:]
}

// SetupRequired reports whether the cluster still waits for its first user.
func (s *Service) SetupRequired() bool { return s.cluster.Image().UserCount() == 0 }

// CompleteSetup creates the first user, an administrator, for the holder of the
// setup token, and closes the setup. Errors: invalid-argument with pointers
// /username and /password, bad-credentials for another token, conflict once there
// is a user.
func (s *Service) CompleteSetup(ctx context.Context, token, username, password string) (*metadata.User, error) {
	if err := checkLogin(username, password); err != nil {
		return nil, err
	}
	hash := setupHash(token)
	if err := s.checkSetup(hash); err != nil {
		if err := s.cluster.Barrier(ctx); err != nil {
			return nil, err
		}
		if err := s.checkSetup(hash); err != nil {
			return nil, err
		}
	}
	cred, err := s.credentials(ctx, username, password)
	if err != nil {
		return nil, err
	}
	return s.userResult(s.propose(ctx, metadata.CreateUser{
		Name: username, Admin: true, Credentials: cred, OnlyIfNoUsers: true, SetupTokenHash: hash,
		Now: metadata.MillisOf(s.now()),
	}))
}

// checkSetup spares the hashing for tokens that cannot succeed; Apply decides.
func (s *Service) checkSetup(hash []byte) error {
	img := s.cluster.Image()
	if img.UserCount() > 0 {
		return model.Errorf(model.Conflict, "the setup has been completed")
	}
	open := img.Cluster().SetupTokenHash
	if len(open) == 0 || subtle.ConstantTimeCompare(open, hash) != 1 {
		return model.Errorf(model.BadCredentials, "the setup token is wrong; the node printed the newest when it last started")
	}
	return nil
}
