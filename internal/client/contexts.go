package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Context is a server with a name of the user's choice, and what calls to it are made
// with: a login, an API token, or neither.
type Context struct {
	Name string `json:"name"`
	Login
	APIToken string `json:"api_token,omitempty"`
}

// Errors of contexts.
var (
	ErrNoContext = errors.New("there is no such context")
	// ErrOtherServer means that a context was named together with another server than
	// its own, whose tokens that server must not see.
	ErrOtherServer = errors.New("the context is for another server")
)

// maxContextName is in bytes.
const maxContextName = 100

// CheckContextName tells what is wrong with a context's name.
func CheckContextName(name string) error {
	odd := func(r rune) bool { return r == utf8.RuneError || unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if name == "" || len(name) > maxContextName || name[0] == '-' || strings.ContainsFunc(name, odd) {
		return fmt.Errorf("a context's name has 1 to %d bytes, no white space, and does not begin with a dash; not %q", maxContextName, name)
	}
	return nil
}

func (c *contents) named(name string) *Context {
	for i := range c.Contexts {
		if c.Contexts[i].Name == name {
			return &c.Contexts[i]
		}
	}
	return nil
}

// at finds the context of a server: the preferred or the current one, else the first.
func (c *contents) at(server, prefer string) *Context {
	for _, name := range []string{prefer, c.Current} {
		if x := c.named(name); x != nil && x.Server == server {
			return x
		}
	}
	for i := range c.Contexts {
		if c.Contexts[i].Server == server {
			return &c.Contexts[i]
		}
	}
	return nil
}

// nameAll names what an older version stored, which knew servers alone.
func (c *contents) nameAll() {
	for i := range c.Contexts {
		x := &c.Contexts[i]
		if x.Name != "" {
			continue
		}
		x.Name = c.freeName(x.Server)
		if c.Current == x.Server {
			c.Current = x.Name
		}
	}
}

// freeName makes a name of a server's address: without the scheme, and with a number
// where others have it.
func (c *contents) freeName(server string) string {
	_, base, ok := strings.Cut(server, "://")
	if !ok {
		base = server
	}
	base = base[:min(len(base), maxContextName-10)]
	if CheckContextName(base) != nil {
		base = "server"
	}
	name := base
	for n := 2; c.named(name) != nil; n++ {
		name = base + "-" + strconv.Itoa(n)
	}
	return name
}

// Choice says which context is wanted. The zero value is the current one.
type Choice struct {
	Name   string // of the context; "": by Server
	Server string // as ParseServer gives it; "": by Name, or the current context
	Prefer string // the one to take where several contexts are of Server
}

// Find returns a context. It is ErrNoContext when there is none, ErrOtherServer when the
// one named is not of the server named.
func (s *Store) Find(by Choice) (*Context, error) {
	c, err := s.read()
	if err != nil {
		return nil, err
	}
	var x *Context
	switch {
	case by.Name != "":
		x = c.named(by.Name)
	case by.Server != "":
		x = c.at(by.Server, by.Prefer)
	default:
		x = c.named(c.Current)
	}
	switch {
	case x == nil && by.Name != "":
		return nil, fmt.Errorf("%w: %q", ErrNoContext, by.Name)
	case x == nil:
		return nil, ErrNoContext
	case by.Server != "" && x.Server != by.Server:
		return nil, fmt.Errorf("%w: %q is for %s, not for %s", ErrOtherServer, x.Name, x.Server, by.Server)
	}
	return x, nil
}

// Contexts returns all contexts by name, and the name of the current one, "" without.
func (s *Store) Contexts() (list []Context, current string, _ error) {
	c, err := s.read()
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(c.Contexts, func(a, b Context) int { return cmp.Compare(a.Name, b.Name) })
	if c.named(c.Current) == nil {
		c.Current = ""
	}
	return c.Contexts, c.Current, nil
}

// Save stores a login in the context of a name, which becomes the current one. Without a
// name it is the preferred one, the current one, or any of that server, else a new one.
// It returns the context's name.
func (s *Store) Save(ctx context.Context, in Choice, l Login) (name string, _ error) {
	err := s.update(ctx, func(c *contents) error {
		x := c.named(in.Name)
		if in.Name == "" {
			x = c.at(l.Server, in.Prefer)
		}
		if x == nil {
			c.Contexts = append(c.Contexts, Context{Name: cmp.Or(in.Name, c.freeName(l.Server))})
			x = &c.Contexts[len(c.Contexts)-1]
		}
		x.Login, x.APIToken = l, ""
		c.Current, name = x.Name, x.Name
		return nil
	})
	return name, err
}

// Set stores a context: its server and, where given, its API token, in place of a login.
// A login to the same server stays where no token is given. The first context becomes
// the current one.
func (s *Store) Set(ctx context.Context, want Context) (*Context, error) {
	var made Context
	err := s.update(ctx, func(c *contents) error {
		x := c.named(want.Name)
		if x == nil {
			c.Contexts = append(c.Contexts, Context{Name: want.Name})
			x = &c.Contexts[len(c.Contexts)-1]
		}
		if x.Server != want.Server || want.APIToken != "" {
			x.Login, x.APIToken = Login{Server: want.Server}, want.APIToken
		}
		if c.named(c.Current) == nil {
			c.Current = x.Name
		}
		made = *x
		return nil
	})
	return &made, err
}

// Use makes a context the current one.
func (s *Store) Use(ctx context.Context, name string) error {
	return s.change(ctx, name, func(c *contents, x *Context) { c.Current = x.Name })
}

// Forget removes what a context's calls are made with; its name and server stay.
func (s *Store) Forget(ctx context.Context, name string) error {
	return s.change(ctx, name, func(_ *contents, x *Context) { x.Login, x.APIToken = Login{Server: x.Server}, "" })
}

// Delete removes contexts, all or, where one of them is not there, none.
func (s *Store) Delete(ctx context.Context, names []string) error {
	return s.update(ctx, func(c *contents) error {
		for _, name := range names {
			if c.named(name) == nil {
				return fmt.Errorf("%w: %q", ErrNoContext, name)
			}
		}
		c.Contexts = slices.DeleteFunc(c.Contexts, func(x Context) bool { return slices.Contains(names, x.Name) })
		if slices.Contains(names, c.Current) {
			c.Current = ""
		}
		return nil
	})
}

func (s *Store) change(ctx context.Context, name string, change func(*contents, *Context)) error {
	return s.update(ctx, func(c *contents) error {
		x := c.named(name)
		if x == nil {
			return fmt.Errorf("%w: %q", ErrNoContext, name)
		}
		change(c, x)
		return nil
	})
}

// Tokens returns where the tokens of calls in a context come from.
func (s *Store) Tokens(x *Context, now func() time.Time) (TokenSource, error) {
	if x.APIToken != "" || x.AccessToken == "" {
		return StaticToken(x.APIToken), nil
	}
	return NewSession(s, *x, now)
}
