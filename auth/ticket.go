package auth

import (
	"context"
	"errors"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// A ticket stands in for a credential where a client can send no header: it opens one
// WebSocket or one stream of events, within 30 seconds. It is a signed token that names the
// session or API token it was given to, so every node can read it and giving one out costs
// no command. That it is used once is decided by the quorum, which remembers used tickets
// with their session for as long as they live (metadata.UseTicket): it holds on every node,
// through restarts and elections. Rejected: tickets in one node's memory, which another
// node would have to ask for.

// TicketTTL is how long a ticket can be used.
const TicketTTL = 30 * time.Second

// ticketAudience is the aud claim of tickets.
const ticketAudience = "tidewire-ticket"

// ticketClaims are the contents of a ticket.
type ticketClaims struct {
	jwt.RegisteredClaims        // iss, aud, sub, iat, nbf, exp, jti
	Session              string `json:"sid,omitempty"` // this or Token
	Token                string `json:"tid,omitempty"`
	Epoch                uint64 `json:"cep,omitempty"` // as in the access token, under a session
	// End is when what the ticket was given for ends, in seconds since 1970; 0 for a
	// browser's session and for API tokens, whose end the metadata has.
	End int64 `json:"end,omitempty"`
}

// Validate adds the checks that jwt does not make; jwt calls it (ClaimsValidator).
func (c ticketClaims) Validate() error {
	if c.Subject == "" || c.ID == "" || (c.Session == "") == (c.Token == "") || c.Session != "" && c.Epoch == 0 {
		return errClaims
	}
	return nil
}

// IssueTicket gives a ticket to the caller.
func (s *Service) IssueTicket(ctx context.Context, p *Principal) (string, error) {
	u, err := s.lookup(ctx, p.Name)
	if err != nil {
		return "", err
	}
	c := ticketClaims{RegisteredClaims: s.registered(u, ticketAudience)}
	c.ExpiresAt = jwt.NewNumericDate(s.now().Add(TicketTTL + time.Second - 1).Truncate(time.Second))
	switch p.Kind {
	case APIToken:
		c.Token = p.TokenID
	case Cookie:
		c.Session, c.Epoch = p.SessionID, p.epoch
	default:
		c.Session, c.Epoch, c.End = p.SessionID, p.epoch, p.ExpiresAt.Unix()
	}
	return s.sign(ctx, ticketType, c)
}

func badTicket() *model.Error {
	return model.Errorf(model.Unauthenticated, "the ticket is not valid, has expired or was used")
}

// UseTicket uses a ticket up and returns who it was given to, with a credential that holds
// for as long as what it was given for. Errors: unauthenticated for a ticket that is not
// good, was used or is too old; rate-limited when too many of one session were used
// lately; the quorum's.
func (s *Service) UseTicket(ctx context.Context, ticket string) (*Principal, Credential, error) {
	if len(ticket) > MaxTokenBytes {
		return nil, nil, badTicket()
	}
	c, err := s.parseTicket(s.cluster.Image(), ticket)
	if errors.Is(err, errUnknownKey) {
		if err := s.cluster.Barrier(ctx); err != nil {
			return nil, nil, err
		}
		c, err = s.parseTicket(s.cluster.Image(), ticket)
	}
	if err != nil {
		return nil, nil, badTicket().WithCause(err)
	}
	_, err = s.propose(ctx, metadata.UseTicket{
		ID: c.ID, SessionID: c.Session, TokenID: c.Token,
		ExpiresAt: metadata.MillisOf(c.ExpiresAt.Time), Now: metadata.MillisOf(s.now()),
	})
	if model.HasCode(err, model.BadCredentials) {
		return nil, nil, badTicket().WithCause(err)
	}
	if err != nil {
		return nil, nil, err
	}
	held := s.heldBy(c)
	p, err := held.Verify(ctx)
	if err != nil {
		return nil, nil, err
	}
	if p.Name != c.Subject {
		return nil, nil, badTicket()
	}
	return p, held, nil
}

func (s *Service) heldBy(c *ticketClaims) Credential {
	if c.Token != "" {
		return &heldToken{s.tokens, c.Token}
	}
	h := &heldSession{s: s, id: c.Session, epoch: c.Epoch, renews: c.End == 0}
	if c.End != 0 {
		h.end = time.Unix(c.End, 0)
	}
	return h
}

func (s *Service) parseTicket(img *metadata.Image, ticket string) (*ticketClaims, error) {
	if img.Cluster().ID == "" || typeOf(ticket) != ticketType {
		return nil, errHeader
	}
	c := &ticketClaims{}
	now := s.now()
	_, err := newParser(img, ticketAudience, s.now).ParseWithClaims(ticket, c, func(tok *jwt.Token) (any, error) {
		kid, err := kidOf(tok.Header)
		if err != nil {
			return nil, err
		}
		return publicKey(img, kid, now)
	})
	return c, err
}
