package route

import (
	"context"
	"log/slog"
	"net/netip"

	"tidewire/auth"
	"tidewire/broker/quota"
	"tidewire/cluster/metadata"
	"tidewire/internal/inflight"
)

// Limits counts requests against the quotas of users.
type Limits interface {
	// Limited reports whether anybody has a quota.
	Limited() bool
	// Admit counts a request, or refuses it with rate-limited: also where the limit of its
	// kind is used up already.
	Admit(user string, kind quota.Kind) error
}

// Metadata is what the gate needs of the cluster.
type Metadata interface {
	Image() *metadata.Image
	Barrier(ctx context.Context) error
}

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
	// Limits are the quotas of users; nil: nobody is limited.
	Limits Limits
	// Auditor takes what calls that may change something did; nil: nobody is told. Images
	// gives the metadata as they are, to see it.
	Auditor Auditor
	Images  Metadata
}

// Gate lets requests through to the handlers of routes.
type Gate struct {
	service  *auth.Service
	tokens   *auth.Tokens
	logger   *slog.Logger
	prefix   string
	proxies  []netip.Prefix
	inflight *inflight.Budget
	limits   Limits
	auditor  Auditor
	images   Metadata
}

// New returns a Gate that serves nothing until Register.
func New(c Config) *Gate {
	return &Gate{
		service: c.Service, tokens: c.Tokens, logger: c.Logger, prefix: c.Prefix, proxies: c.Proxies, inflight: c.Inflight,
		limits: c.Limits, auditor: c.Auditor, images: c.Images,
	}
}
