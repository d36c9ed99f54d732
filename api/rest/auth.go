package rest

import (
	"net/http"

	"tidewire/auth"
)

// LoginRequest is a user name with its password.
type LoginRequest struct {
	Username string `json:"username" binding:"required"`
	Password string `json:"password" binding:"required"`
}

// RefreshRequest is the refresh token of a login or of the refresh before.
type RefreshRequest struct {
	RefreshToken string `json:"refresh_token" binding:"required"`
}

// TokenAnswer is a pair of tokens, in the form of OAuth 2.0 (RFC 6749 §5.1).
type TokenAnswer struct {
	AccessToken  string `json:"access_token"`
	TokenType    string `json:"token_type" enums:"Bearer"`
	ExpiresIn    int64  `json:"expires_in"` // seconds
	RefreshToken string `json:"refresh_token"`
}

// Identity is who the caller is.
type Identity struct {
	Username  string  `json:"username"`
	Admin     bool    `json:"admin"`
	CSRFToken *string `json:"csrf_token" extensions:"x-nullable"` // of a cookie session
	ExpiresAt Time    `json:"expires_at" swaggertype:"string" format:"date-time"`
}

// SetupState tells whether the first administrator is still to be made.
type SetupState struct {
	Required bool `json:"required"`
}

// SetupRequest makes the first administrator.
type SetupRequest struct {
	Token    string `json:"token" binding:"required"`
	Username string `json:"username" binding:"required"`
	Password string `json:"password" binding:"required"`
}

func tokens(g *auth.Grant) TokenAnswer {
	return TokenAnswer{
		AccessToken: g.AccessToken, TokenType: "Bearer",
		ExpiresIn: int64(g.ExpiresIn.Seconds()), RefreshToken: g.RefreshToken,
	}
}

// login checks a password and gives tokens.
//
//	@ID			login
//	@Summary	Log in
//	@Tags		Auth
//	@Param		body	body		LoginRequest	true	"credentials"
//	@Success	200		{object}	TokenAnswer
//	@Router		/v1/auth/login [post]
//	@x-public	true
//	@x-errors	["bad-credentials","rate-limited"]
func (a *API) login(c *Call) error {
	in, err := decode[LoginRequest](c)
	if err != nil {
		return err
	}
	g, err := a.service.Login(c.Request.Context(), in.Username, in.Password)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, tokens(g))
}

// refresh gives new tokens for a refresh token, which it ends. Using one twice ends the
// whole session.
//
//	@ID			refresh
//	@Summary	Renew the tokens
//	@Tags		Auth
//	@Param		body	body		RefreshRequest	true	"the refresh token"
//	@Success	200		{object}	TokenAnswer
//	@Router		/v1/auth/refresh [post]
//	@x-public	true
//	@x-errors	["unauthenticated","token-expired"]
func (a *API) refresh(c *Call) error {
	in, err := decode[RefreshRequest](c)
	if err != nil {
		return err
	}
	g, err := a.service.Refresh(c.Request.Context(), in.RefreshToken)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, tokens(g))
}

// logout ends the session of the token.
//
//	@ID			logout
//	@Summary	End the session
//	@Tags		Auth
//	@Success	204	"ended"
//	@Router		/v1/auth/logout [post]
func (a *API) logout(c *Call) error {
	if err := a.service.Logout(c.Request.Context(), c.Principal); err != nil {
		return err
	}
	return c.NoContent()
}

// me tells who the caller is.
//
//	@ID			me
//	@Summary	Who am I
//	@Tags		Auth
//	@Success	200	{object}	Identity
//	@Router		/v1/auth/me [get]
func (a *API) me(c *Call) error {
	id := a.service.Me(c.Principal)
	return c.JSON(http.StatusOK, Identity{Username: id.Username, Admin: id.Admin, ExpiresAt: timeOf(id.ExpiresAt)})
}

// jwks gives the public keys that verify access tokens (RFC 7517).
//
//	@ID			jwks
//	@Summary	Public keys of access tokens
//	@Tags		Auth
//	@Success	200	{object}	auth.JWKS
//	@Router		/.well-known/jwks.json [get]
//	@x-public	true
func (a *API) jwks(c *Call) error { return c.JSON(http.StatusOK, a.service.JWKS()) }

// setupState tells whether the setup is open.
//
//	@ID			setupState
//	@Summary	Whether the first administrator is to be made
//	@Tags		Auth
//	@Success	200	{object}	SetupState
//	@Router		/v1/setup [get]
//	@x-public	true
func (a *API) setupState(c *Call) error {
	return c.JSON(http.StatusOK, SetupState{a.service.SetupRequired()})
}

// setup makes the first administrator for the holder of the setup token.
//
//	@ID			setup
//	@Summary	Make the first administrator
//	@Tags		Auth
//	@Param		body	body		SetupRequest	true	"token and credentials"
//	@Success	201		{object}	UserView
//	@Header		201		{string}	Location	"where the user is"
//	@Header		201		{string}	ETag		"the user's entity tag"
//	@Router		/v1/setup [post]
//	@x-public	true
//	@x-errors	["bad-credentials","conflict"]
func (a *API) setup(c *Call) error {
	in, err := decode[SetupRequest](c)
	if err != nil {
		return err
	}
	u, err := a.service.CompleteSetup(c.Request.Context(), in.Token, in.Username, in.Password)
	if err != nil {
		return err
	}
	c.created("v1", "users", u.Name)
	return c.Resource(http.StatusCreated, u.ETag(), a.userView(u))
}
