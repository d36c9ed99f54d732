package metadata

import (
	"bytes"

	"tidewire/internal/model"
)

func (t *tx) hasUsers() bool {
	_, _, any := t.users.Root().Minimum()
	return any
}

func applyCreateUser(t *tx, c CreateUser) (any, *model.Error) {
	if problem := model.CheckName(c.Name); problem != "" {
		return nil, model.Invalid("/username", "a user name %s", problem)
	}
	first := !t.hasUsers()
	switch {
	case c.Credentials.PasswordHash == "":
		return nil, model.Invalid("/password", "a user needs a password")
	case len(c.SetupTokenHash) > 0 && !bytes.Equal(c.SetupTokenHash, t.cluster.SetupTokenHash):
		return nil, model.Errorf(model.BadCredentials, "the setup token is wrong or was used")
	case c.OnlyIfNoUsers && !first:
		return nil, model.Errorf(model.Conflict, "the cluster has users")
	case t.user(c.Name) != nil:
		return nil, model.Errorf(model.UserExists, "there is a user %q", c.Name)
	}
	if first && t.cluster.SetupTokenHash != nil {
		e := t.editCluster()
		e.SetupTokenHash, e.Version = nil, t.index
	}
	u := &User{
		Name: c.Name, Admin: c.Admin, CreatedAt: c.Now, Credentials: c.Credentials.normalised(),
		CredentialsEpoch: t.index, Version: t.index,
	}
	t.putUser(u)
	return u, nil
}

// normalised has one form for "no verifier".
func (c Credentials) normalised() Credentials {
	c.SCRAMSHA256, c.SCRAMSHA512 = nonEmpty(c.SCRAMSHA256), nonEmpty(c.SCRAMSHA512)
	return c
}

// findUser looks up a user that must exist and, when ifMatch is set, be in that state.
func (t *tx) findUser(name string, ifMatch ETag) (*User, *model.Error) {
	u := t.user(name)
	switch {
	case u == nil:
		return nil, model.Errorf(model.UnknownUser, "there is no user %q", name)
	case ifMatch != "" && ifMatch != u.ETag():
		return nil, etagMismatch("the user")
	}
	return u, nil
}

// isLastAdmin reports whether u is the only admin that can log in.
func (t *tx) isLastAdmin(u *User) bool { return countsAsAdmin(u) == 1 && t.enabledAdmins == 1 }

func applyAlterUser(t *tx, c AlterUser) (any, *model.Error) {
	u, refusal := t.findUser(c.Name, c.IfMatch)
	if refusal != nil {
		return nil, refusal
	}
	n := *u
	if c.Admin != nil {
		n.Admin = *c.Admin
	}
	if c.Disabled != nil {
		n.Disabled = *c.Disabled
	}
	switch {
	case n.Admin == u.Admin && n.Disabled == u.Disabled:
		return u, nil
	case t.isLastAdmin(u) && countsAsAdmin(&n) == 0:
		return nil, lastAdmin(u.Name)
	}
	if n.Disabled && !u.Disabled {
		n.CredentialsEpoch = t.index
		t.revokeAll(u.Name)
	}
	n.Version = t.index
	t.putUser(&n)
	return &n, nil
}

func lastAdmin(name string) *model.Error {
	return model.Errorf(model.LastAdmin, "%q is the last administrator that can log in", name)
}

func applySetPassword(t *tx, c SetPassword) (any, *model.Error) {
	u, refusal := t.findUser(c.Name, "")
	switch {
	case refusal != nil:
		return nil, refusal
	case c.Credentials.PasswordHash == "":
		return nil, model.Invalid("/password", "a user needs a password")
	case c.IfEpoch != 0 && c.IfEpoch != u.CredentialsEpoch:
		return nil, model.Errorf(model.Conflict, "the password was changed by another request")
	}
	n := *u
	n.Credentials, n.CredentialsEpoch, n.Version = c.Credentials.normalised(), t.index, t.index
	t.revokeAll(u.Name)
	t.putUser(&n)
	return &n, nil
}

func applyDeleteUser(t *tx, c DeleteUser) (any, *model.Error) {
	u, refusal := t.findUser(c.Name, c.IfMatch)
	switch {
	case refusal != nil:
		return nil, refusal
	case t.isLastAdmin(u):
		return nil, lastAdmin(u.Name)
	}
	for _, s := range t.sessions.of(u.Name) {
		t.removeSession(s)
	}
	for _, k := range t.tokens.of(u.Name) {
		t.removeToken(k)
	}
	for _, r := range t.matchACLs(ACLFields{Principal: UserPrincipal(u.Name)}) {
		t.removeACL(r)
	}
	if q, has := t.quotas.Get([]byte(u.Name)); has {
		t.removeQuota(q)
	}
	t.removeUser(u)
	return u, nil
}

// UserPrincipal is the principal of a user in ACL rules.
func UserPrincipal(name string) string { return principalPrefix + name }

const principalPrefix = "User:"
