package rest

import (
	"net/http"
	"net/url"

	"tidewire/api/route"
	"tidewire/api/strictjson"
	"tidewire/auth"
	"tidewire/broker/audit"
	"tidewire/internal/model"
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

// CookieAnswer is what a browser's login gives, beside the cookie.
type CookieAnswer struct {
	CSRFToken string `json:"csrf_token"` // for the header X-CSRF-Token
	ExpiresIn int64  `json:"expires_in"` // seconds until the session ends when it is not used
}

// Identity is who the caller is.
type Identity struct {
	Username  string      `json:"username"`
	Admin     bool        `json:"admin"`                                                                      // false under a token with scopes
	CSRFToken *string     `json:"csrf_token" extensions:"x-nullable"`                                         // of a cookie session
	ExpiresAt *route.Time `json:"expires_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"` // null: never
}

// Ticket opens one WebSocket or stream of events.
type Ticket struct {
	Ticket    string `json:"ticket"`
	ExpiresIn int64  `json:"expires_in"` // seconds
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

// login checks a password and gives tokens, or a browser a session.
//
//	@ID				login
//	@Summary		Log in
//	@Description	With session=cookie a browser gets the cookie tidewire_session in place of tokens; requests that change something then need the header X-CSRF-Token.
//	@Tags			Auth
//	@Param			session	query		string			false	"what to log in for: a cookie in place of tokens"	Enums(cookie)
//	@Param			body	body		LoginRequest	true	"credentials"
//	@Success		200		{object}	TokenAnswer
//	@Success		600		{object}	CookieAnswer
//	@Router			/v1/auth/login [post]
//	@x-public		true
//	@x-content		{"response":{"200":{"application/json":{"oneOf":["rest.TokenAnswer","rest.CookieAnswer"]}}}}
//	@x-errors		["bad-credentials","rate-limited","login-locked","forbidden"]
func (a *API) login(c *route.Call) error {
	session, forCookie := c.Only("session")
	if forCookie && session != "cookie" {
		return model.Invalid("query:session", "session is cookie, or is left out, not %q", strictjson.Short(session))
	}
	in, err := route.Decode[LoginRequest](c)
	if err != nil {
		return err
	}
	c.About(audit.Resource{Type: "user", Name: in.Username})
	r := auth.LoginRequest{Username: in.Username, Password: in.Password, Host: c.Host()}
	if forCookie {
		return a.loginForCookie(c, r)
	}
	g, err := a.service.Login(c.Request.Context(), r)
	if err != nil {
		return err
	}
	c.Actor(g.Username)
	return c.JSON(http.StatusOK, tokens(g))
}

func (a *API) loginForCookie(c *route.Call, r auth.LoginRequest) error {
	if err := c.CheckPage(); err != nil { // no page may log its visitor in as somebody else
		return err
	}
	g, err := a.service.CookieLogin(c.Request.Context(), r)
	if err != nil {
		return err
	}
	c.Actor(g.Username)
	c.Note("session", "cookie")
	c.SetSession(g.Cookie)
	return c.JSON(http.StatusOK, CookieAnswer{CSRFToken: g.CSRFToken, ExpiresIn: int64(g.ExpiresIn.Seconds())})
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
func (a *API) refresh(c *route.Call) error {
	in, err := route.Decode[RefreshRequest](c)
	if err != nil {
		return err
	}
	if user, session := a.service.SessionOf(in.RefreshToken); session != "" {
		c.About(audit.Resource{Type: "session", Name: session})
		c.Note("user", user)
	}
	g, err := a.service.Refresh(c.Request.Context(), in.RefreshToken)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, tokens(g))
}

// logout ends the session of the token or cookie. An API token has none: it goes on until it
// expires or is deleted, and is told so.
//
//	@ID				logout
//	@Summary		End the session
//	@Description	Of an access token or a cookie. An API token has no session and is refused (422); it ends by deleteToken.
//	@Tags			Auth
//	@Success		204	"ended"
//	@Router			/v1/auth/logout [post]
func (a *API) logout(c *route.Call) error {
	if c.Principal.Kind == auth.APIToken {
		return model.Errorf(model.InvalidArgument, "an API token has no session to end, and goes on working; DELETE /v1/users/%s/tokens/%s ends it", url.PathEscape(c.Principal.Name), c.Principal.TokenID)
	}
	if c.Principal.SessionID != "" {
		c.About(audit.Resource{Type: "session", Name: c.Principal.SessionID})
	}
	if err := a.service.Logout(c.Request.Context(), c.Principal); err != nil {
		return err
	}
	if c.Principal.Kind == auth.Cookie {
		c.SetSession("")
	}
	return c.NoContent()
}

// createTicket gives a ticket, which opens one WebSocket or stream of events by the query
// parameter ticket.
//
//	@ID			createTicket
//	@Summary	Get a ticket for a WebSocket or a stream of events
//	@Tags		Auth
//	@Success	200	{object}	Ticket
//	@Router		/v1/auth/tickets [post]
func (a *API) createTicket(c *route.Call) error {
	t, err := a.service.IssueTicket(c.Request.Context(), c.Principal)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, Ticket{Ticket: t, ExpiresIn: int64(auth.TicketTTL.Seconds())})
}

// me tells who the caller is.
//
//	@ID			me
//	@Summary	Who am I
//	@Tags		Auth
//	@Success	200	{object}	Identity
//	@Router		/v1/auth/me [get]
func (a *API) me(c *route.Call) error {
	id := Identity{Username: c.Principal.Name, Admin: c.Principal.Admin, CSRFToken: c.CSRFToken()}
	if at := c.Principal.ExpiresAt; !at.IsZero() {
		id.ExpiresAt = new(route.TimeOf(at))
	}
	return c.JSON(http.StatusOK, id)
}

// jwks gives the public keys that verify access tokens (RFC 7517).
//
//	@ID			jwks
//	@Summary	Public keys of access tokens
//	@Tags		Auth
//	@Success	200	{object}	auth.JWKS
//	@Router		/.well-known/jwks.json [get]
//	@x-public	true
func (a *API) jwks(c *route.Call) error { return c.JSON(http.StatusOK, a.service.JWKS()) }

// setupState tells whether the setup is open.
//
//	@ID			setupState
//	@Summary	Whether the first administrator is to be made
//	@Tags		Auth
//	@Success	200	{object}	SetupState
//	@Router		/v1/setup [get]
//	@x-public	true
func (a *API) setupState(c *route.Call) error {
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
func (a *API) setup(c *route.Call) error {
	in, err := route.Decode[SetupRequest](c)
	if err != nil {
		return err
	}
	c.About(audit.Resource{Type: "user", Name: in.Username})
	u, err := a.service.CompleteSetup(c.Request.Context(), in.Token, in.Username, in.Password)
	if err != nil {
		return err
	}
	c.Actor(u.Name)
	c.Created("v1", "users", u.Name)
	return c.Resource(http.StatusCreated, u.ETag(), a.userView(u))
}
