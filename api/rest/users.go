package rest

import (
	"net/http"
	"slices"

	"tidewire/api/route"
	"tidewire/auth"
	"tidewire/broker/audit"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// UserView is a user.
type UserView struct {
	Username  string      `json:"username"`
	Admin     bool        `json:"admin"`
	Disabled  bool        `json:"disabled"`
	CreatedAt *route.Time `json:"created_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	Actions   []string    `json:"actions"`
	ETag      string      `json:"etag"`
}

// UserCreate describes a new user.
type UserCreate struct {
	Username string `json:"username" binding:"required"`
	Password string `json:"password" binding:"required"`
	Admin    bool   `json:"admin"`
}

// UserUpdate changes what it names.
type UserUpdate struct {
	Admin    *bool `json:"admin" extensions:"x-nullable"`
	Disabled *bool `json:"disabled" extensions:"x-nullable"`
}

// PasswordRequest sets a password. For one's own account the current one is needed.
type PasswordRequest struct {
	Password        string  `json:"password" binding:"required"`
	CurrentPassword *string `json:"current_password" extensions:"x-nullable"`
}

// UserDeletion is what deleting a user takes along.
type UserDeletion struct {
	Username string `json:"username"`
	Sessions int    `json:"sessions"`
	Tokens   int    `json:"tokens"`
	ACLs     int    `json:"acls"`
	Quota    bool   `json:"quota"` // the user has one of its own
}

func (a *API) userView(u *metadata.User) UserView {
	return UserView{
		Username: u.Name, Admin: u.Admin, Disabled: u.Disabled, CreatedAt: route.TimeOfMillis(u.CreatedAt),
		Actions: a.userActions(u), ETag: string(u.ETag()),
	}
}

// userActions are what an administrator may do: the last one must stay one.
func (a *API) userActions(u *metadata.User) []string {
	if a.service.MayDeleteUser(u) != nil {
		return []string{"set-password", "tokens"}
	}
	return []string{"alter", "delete", "set-password", "tokens"}
}

// userOf finds a user for an administrator.
func (a *API) userOf(c *route.Call) (*metadata.User, error) {
	if err := a.authz.RequireAdmin(c.Request.Context(), c.Principal, "managing users"); err != nil {
		return nil, err
	}
	return a.knownUser(c)
}

func (a *API) knownUser(c *route.Call) (*metadata.User, error) {
	name := c.PathValue("username")
	if u := a.cluster.Image().User(name); u != nil {
		return u, nil
	}
	if err := a.cluster.Barrier(c.Request.Context()); err != nil {
		return nil, err
	}
	if u := a.cluster.Image().User(name); u != nil {
		return u, nil
	}
	return nil, model.Errorf(model.UnknownUser, "there is no user %q", name)
}

// listUsers lists users.
//
//	@ID			listUsers
//	@Summary	List users
//	@Tags		Users
//	@Param		limit		query		int		false	"items of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param		page_token	query		string	false	"next_page_token of the page before"
//	@Param		prefix		query		string	false	"start of the name"
//	@Param		q			query		string	false	"part of the name, in any case"
//	@Param		sort		query		string	false	"a field, with - in front descending"	Enums(username, -username, created_at, -created_at)
//	@Param		fields		query		string	false	"fields of the items, with commas between"
//	@Success	200			{object}	route.Page[UserView]
//	@Router		/v1/users [get]
func (a *API) listUsers(c *route.Call) error {
	l := route.Listing[*metadata.User, UserView]{
		Name: func(u *metadata.User) string { return u.Name }, By: "username", View: a.userView,
		Sorts: map[string]func(*metadata.User) any{
			"created_at": func(u *metadata.User) any { return float64(u.CreatedAt) },
		},
	}
	return l.Serve(c, func() ([]*metadata.User, error) {
		if err := a.authz.RequireAdmin(c.Request.Context(), c.Principal, "managing users"); err != nil {
			return nil, err
		}
		return slices.Collect(a.cluster.Image().Users("")), nil
	})
}

// createUser makes a user.
//
//	@ID			createUser
//	@Summary	Create a user
//	@Tags		Users
//	@Param		body	body		UserCreate	true	"the user"
//	@Success	201		{object}	UserView
//	@Header		201		{string}	Location	"where the user is"
//	@Header		201		{string}	ETag		"the user's entity tag"
//	@Router		/v1/users [post]
//	@x-errors	["user-exists"]
func (a *API) createUser(c *route.Call) error {
	in, err := route.Decode[UserCreate](c)
	if err != nil {
		return err
	}
	c.About(audit.Resource{Type: "user", Name: in.Username})
	if err := checkCredentials(in.Username, in.Password); err != nil {
		return err
	}
	if err := a.authz.RequireAdmin(c.Request.Context(), c.Principal, "managing users"); err != nil {
		return err
	}
	u, err := a.service.CreateUser(c.Request.Context(), auth.NewUser{Username: in.Username, Password: in.Password, Admin: in.Admin})
	if err != nil {
		return err
	}
	c.Created("v1", "users", u.Name)
	return c.Resource(http.StatusCreated, u.ETag(), a.userView(u))
}

func checkCredentials(username, password string) error {
	if why := auth.CheckUsername(username); why != "" {
		return model.Invalid("/username", "a user name %s", why)
	}
	if why := auth.CheckPassword(password); why != "" {
		return model.Invalid("/password", "%s", why)
	}
	return nil
}

// getUser gives one user.
//
//	@ID			getUser
//	@Summary	Get a user
//	@Tags		Users
//	@Param		username	path		string	true	"name"
//	@Success	200			{object}	UserView
//	@Header		200			{string}	ETag	"the user's entity tag"
//	@Router		/v1/users/{username} [get]
//	@x-errors	["unknown-user"]
func (a *API) getUser(c *route.Call) error {
	u, err := a.userOf(c)
	if err != nil {
		return err
	}
	return c.Resource(http.StatusOK, u.ETag(), a.userView(u))
}

// updateUser changes rights and state of a user.
//
//	@ID			updateUser
//	@Summary	Change a user
//	@Tags		Users
//	@Param		username	path		string		true	"name"
//	@Param		If-Match	header		string		false	"entity tag that the user must have"
//	@Param		body		body		UserUpdate	true	"what to change"
//	@Success	200			{object}	UserView
//	@Header		200			{string}	ETag	"the user's entity tag"
//	@Router		/v1/users/{username} [patch]
//	@x-errors	["unknown-user","last-admin","etag-mismatch"]
func (a *API) updateUser(c *route.Call) error {
	in, err := route.Decode[UserUpdate](c)
	if err != nil {
		return err
	}
	match, err := c.IfMatch()
	if err != nil {
		return err
	}
	u, err := a.userOf(c)
	if err != nil {
		return err
	}
	u, err = a.service.AlterUser(c.Request.Context(), u.Name, auth.UserChange{Admin: in.Admin, Disabled: in.Disabled, IfMatch: match})
	if err != nil {
		return err
	}
	return c.Resource(http.StatusOK, u.ETag(), a.userView(u))
}

// deleteUser deletes a user with its sessions, tokens and ACL rules.
//
//	@ID			deleteUser
//	@Summary	Delete a user
//	@Tags		Users
//	@Param		username	path		string	true	"name"
//	@Param		dry_run		query		bool	false	"only tell what would go"
//	@Param		If-Match	header		string	false	"entity tag that the user must have"
//	@Success	200			{object}	UserDeletion	"dry_run: what would go"
//	@Success	204			"deleted"
//	@Router		/v1/users/{username} [delete]
//	@x-errors	["unknown-user","last-admin","etag-mismatch"]
func (a *API) deleteUser(c *route.Call) error {
	dry, err := c.QueryBool("dry_run")
	if err != nil {
		return err
	}
	match, err := c.IfMatch()
	if err != nil {
		return err
	}
	u, err := a.userOf(c)
	if err != nil {
		return err
	}
	if dry {
		if err := route.Matches(match, u.ETag()); err != nil {
			return err
		}
		if err := a.service.MayDeleteUser(u); err != nil {
			return err
		}
		return c.JSON(http.StatusOK, a.userDeletion(u))
	}
	if err := a.service.DeleteUser(c.Request.Context(), u.Name, match); err != nil {
		return err
	}
	return c.NoContent()
}

func (a *API) userDeletion(u *metadata.User) UserDeletion {
	img := a.cluster.Image()
	d := UserDeletion{Username: u.Name, Quota: img.Quota(u.Name) != nil}
	for range img.SessionsOf(u.Name) {
		d.Sessions++
	}
	for range img.APITokensOf(u.Name) {
		d.Tokens++
	}
	principal := metadata.UserPrincipal(u.Name)
	for r := range img.ACLs() {
		if r.Principal == principal {
			d.ACLs++
		}
	}
	return d
}

// setPassword sets a password and ends the user's sessions. Administrators may set
// others'; one's own needs the current one.
//
//	@ID			setPassword
//	@Summary	Set a password
//	@Tags		Users
//	@Param		username	path	string			true	"name"
//	@Param		If-Match	header	string			false	"entity tag that the user must have"
//	@Param		body		body	PasswordRequest	true	"the passwords"
//	@Success	204			"set; the user's sessions have ended"
//	@Router		/v1/users/{username}/set-password [post]
//	@x-errors	["unknown-user","bad-credentials","conflict","etag-mismatch","login-locked","rate-limited"]
func (a *API) setPassword(c *route.Call) error {
	in, err := route.Decode[PasswordRequest](c)
	if err != nil {
		return err
	}
	if why := auth.CheckPassword(in.Password); why != "" {
		return model.Invalid("/password", "%s", why)
	}
	match, err := c.IfMatch()
	if err != nil {
		return err
	}
	find := a.userOf
	if c.PathValue("username") == c.Principal.Name && !c.Principal.Scoped() {
		find = a.knownUser
	}
	u, err := find(c)
	if err != nil {
		return err
	}
	if err := route.Matches(match, u.ETag()); err != nil {
		return err
	}
	err = a.service.SetPassword(c.Request.Context(), c.Principal, auth.PasswordChange{
		Username: u.Name, Password: in.Password, Current: in.CurrentPassword, Host: c.Host(),
	})
	if err != nil {
		return err
	}
	return c.NoContent()
}
