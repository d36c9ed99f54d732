package auth

import (
	"context"
	"time"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// NewUser describes a user to be made.
type NewUser struct {
	Username string
	Password string
	Admin    bool
}

// CreateUser makes a user. Errors: invalid-argument with pointers /username and
// /password, user-exists.
func (s *Service) CreateUser(ctx context.Context, n NewUser) (*metadata.User, error) {
	if err := checkLogin(n.Username, n.Password); err != nil {
		return nil, err
	}
	if s.cluster.Image().User(n.Username) != nil { // spares the hashing; Apply decides
		if err := s.cluster.Barrier(ctx); err != nil {
			return nil, err
		}
		if s.cluster.Image().User(n.Username) != nil {
			return nil, model.Errorf(model.UserExists, "the user %q exists", n.Username)
		}
	}
	cred, err := s.credentials(ctx, n.Username, n.Password)
	if err != nil {
		return nil, err
	}
	return s.userResult(s.propose(ctx, metadata.CreateUser{
		Name: n.Username, Admin: n.Admin, Credentials: cred, Now: metadata.MillisOf(s.now()),
	}))
}

func (s *Service) userResult(res metadata.Result, err error) (*metadata.User, error) {
	if err != nil {
		return nil, err
	}
	u, ok := res.Value.(*metadata.User)
	if !ok {
		return nil, &model.Error{Code: model.Internal, Detail: "the change of a user gave no user"}
	}
	return u, nil
}

// lookup returns the user of a name, or unknown-user once a read barrier has
// confirmed it.
func (s *Service) lookup(ctx context.Context, name string) (*metadata.User, error) {
	if u := s.cluster.Image().User(name); u != nil {
		return u, nil
	}
	if err := s.cluster.Barrier(ctx); err != nil {
		return nil, err
	}
	if u := s.cluster.Image().User(name); u != nil {
		return u, nil
	}
	return nil, model.Errorf(model.UnknownUser, "there is no user %q", name)
}

// PasswordChange is a request to set a user's password. Current is needed, right,
// for one's own account, administrators included, and ignored for others'. Host is the
// client's address.
type PasswordChange struct {
	Username string
	Password string
	Current  *string
	Host     string
}

// SetPassword replaces a user's password. It ends the user's sessions and kills
// their access tokens, the caller's own included; API tokens stay. Errors:
// forbidden for another's account unless actor is an administrator,
// invalid-argument with pointers /password and /current_password, bad-credentials
// for a wrong current password, conflict when it was changed meanwhile,
// unknown-user.
func (s *Service) SetPassword(ctx context.Context, actor *Principal, c PasswordChange) error {
	if d := CheckPassword(c.Password); d != "" {
		return model.Invalid("/password", "%s", d)
	}
	if actor.Scoped() {
		return model.Errorf(model.Forbidden, "setting a password is not allowed to %q with a token that has scopes", actor.ACLName())
	}
	own := actor.Name == c.Username
	if own && c.Current == nil {
		return model.Invalid("/current_password", "the current password is needed to change the password of one's own account")
	}
	if !own {
		if err := requireAdmin(ctx, s.cluster, actor, "setting the password of another user"); err != nil {
			return err
		}
	}
	user, err := s.lookup(ctx, c.Username)
	if err != nil {
		return err
	}
	cmd := metadata.SetPassword{Name: c.Username}
	if own {
		ok, err := s.verify(ctx, user, LoginRequest{Username: c.Username, Password: *c.Current, Host: c.Host})
		if err != nil {
			return err
		}
		if !ok {
			return model.Errorf(model.BadCredentials, "the current password is wrong")
		}
		cmd.IfEpoch = user.CredentialsEpoch
	}
	if cmd.Credentials, err = s.credentials(ctx, c.Username, c.Password); err != nil {
		return err
	}
	_, err = s.propose(ctx, cmd)
	return err
}

// hashWait bounds how long a try waits for its turn to be hashed.
const hashWait = 10 * time.Second

// verify reports whether a password is that of a user who may log in; nil is a user who
// does not exist and costs the same. A right password of a disabled user counts as wrong
// everywhere, so that nothing tells it from one.
func (s *Service) verify(ctx context.Context, u *metadata.User, r LoginRequest) (bool, error) {
	if len(r.Password) > MaxPassword {
		return false, nil // of no user, known or not
	}
	var stored string
	if u != nil {
		stored = u.PasswordHash
	}
	try := s.limiter.try(&r)
	if err := try.admit(); err != nil { // spares the wait
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, hashWait)
	defer cancel()
	ok := false
	err := s.hasher.attempt(ctx, stored, r.Password, gate{admit: try.admit, settle: func(right bool) {
		ok = right && !u.Disabled
		try.settle(ok)
	}})
	return ok, busy(err)
}

// UserChange says what to change of a user; nil leaves it. IfMatch is the etag the
// user must have, "" for any.
type UserChange struct {
	Admin    *bool
	Disabled *bool
	IfMatch  metadata.ETag
}

// AlterUser changes rights and state of a user. Disabling kills the user's sessions
// and access tokens for good. Errors: unknown-user, etag-mismatch, last-admin.
func (s *Service) AlterUser(ctx context.Context, name string, c UserChange) (*metadata.User, error) {
	return s.userResult(s.propose(ctx, metadata.AlterUser{Name: name, Admin: c.Admin, Disabled: c.Disabled, IfMatch: c.IfMatch}))
}

// MayDeleteUser tells, by this node's image, why DeleteUser would refuse: last-admin.
func (s *Service) MayDeleteUser(u *metadata.User) error {
	if !u.Admin || u.Disabled {
		return nil
	}
	for other := range s.cluster.Image().Users("") {
		if other.Name != u.Name && other.Admin && !other.Disabled {
			return nil
		}
	}
	return model.Errorf(model.LastAdmin, "%q is the last administrator that can log in", u.Name)
}

// DeleteUser deletes a user with sessions, tokens and ACL rules. Errors:
// unknown-user, etag-mismatch, last-admin.
func (s *Service) DeleteUser(ctx context.Context, name string, ifMatch metadata.ETag) error {
	_, err := s.propose(ctx, metadata.DeleteUser{Name: name, IfMatch: ifMatch})
	return err
}
