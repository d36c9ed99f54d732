package route

import (
	"log/slog"
	"net/netip"

	"tidewire/auth"
	"tidewire/internal/inflight"
)

// Config is what a Gate is made of.
type Config struct {
	Service *auth.Service // knows tickets and cookies
	Tokens  *auth.Tokens  // knows bearer tokens
	Logger  *slog.Logger
	// Prefix is the path prefix of all addresses, "" or "/x/y".
	Prefix string
	// Proxies are those that may tell the client's address, and how it asked.
	Proxies []netip.Prefix
	// Inflight bounds the bytes of requests under way; nil: nothing does.
	Inflight *inflight.Budget
}

// Gate lets requests through to the handlers of routes.
type Gate struct {
	service  *auth.Service
	tokens   *auth.Tokens
	logger   *slog.Logger
	prefix   string
	proxies  []netip.Prefix
	inflight *inflight.Budget
}

// New returns a Gate that serves nothing until Register.
func New(c Config) *Gate {
	return &Gate{
		service: c.Service, tokens: c.Tokens, logger: c.Logger, prefix: c.Prefix, proxies: c.Proxies, inflight: c.Inflight,
	}
}
