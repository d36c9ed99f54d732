package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Constructors of rows, one per type. Each makes the three functions of a row; a
// check returns the normalised text, or an error that says what is wrong.

type check func(string) (string, error)

func same(v any) any { return v }

// text is a setting whose value is a string. One without default may be empty.
func text(s Setting, ok check, field func(*Config) *string) row {
	return row{
		Setting: s,
		read: func(raw any) (any, error) {
			t, err := asText(raw)
			if err != nil || t == "" && s.Default == "" {
				return t, err
			}
			return ok(t)
		},
		store: func(c *Config, v any) {
			if field != nil {
				*field(c) = v.(string)
			}
		},
		show: same,
	}
}

func listenOrOff(s Setting, field func(*Config) *Listener) row {
	r := text(s, func(t string) (string, error) {
		if t == off {
			return t, nil
		}
		return checkListen(t)
	}, nil)
	r.store = func(c *Config, v any) {
		l := field(c)
		if l.Listen, l.Off = v.(string), v == off; l.Off {
			l.Listen = ""
		}
	}
	return r
}

const off = "off"

func enum(s Setting, allowed []string, store func(*Config, string)) row {
	s.Type, s.Unit = Text, strings.Join(allowed, ", ")
	r := text(s, func(t string) (string, error) {
		low := strings.ToLower(t)
		if !slices.Contains(allowed, low) {
			return "", fmt.Errorf("%s is none of %s", quote(t), s.Unit)
		}
		return low, nil
	}, nil)
	r.store = func(c *Config, v any) { store(c, v.(string)) }
	return r
}

func key(s Setting) row {
	s.Type, s.Secret = Text, true
	return row{
		Setting: s,
		read: func(raw any) (any, error) {
			t, ok := raw.(string)
			switch {
			case raw == nil:
				return Key{}, errNoValue
			case !ok:
				return Key{}, errors.New("must be text; put it in quotes") // without the value, which is secret
			case t == "":
				return Key{}, nil
			}
			return parseKey(t)
		},
		store: func(c *Config, v any) { c.ClusterKey = v.(Key) },
		show:  func(v any) any { return v.(Key).String() },
	}
}

// parseKey reads a cluster key; its errors do not repeat the text.
func parseKey(t string) (Key, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(t))
	if err != nil {
		return Key{}, fmt.Errorf("is not base64 of %d bytes (`tidewire cluster keygen` makes one)", KeySize)
	}
	if len(b) != KeySize {
		return Key{}, fmt.Errorf("is base64 of %d bytes, not of %d (`tidewire cluster keygen` makes one)", len(b), KeySize)
	}
	return Key{Secret{string(b)}}, nil
}

func integer(s Setting, least, most int64, store func(*Config, int64)) row {
	s.Type = Int
	return row{
		Setting: s,
		read: func(raw any) (any, error) {
			n, err := asInt(raw)
			if err == nil && (n < least || n > most) {
				err = fmt.Errorf("%d is not from %d to %d", n, least, most)
			}
			return n, err
		},
		store: func(c *Config, v any) { store(c, v.(int64)) },
		show:  same,
	}
}

func boolean(s Setting, field func(*Config) *bool) row {
	s.Type, s.Default = Bool, "false"
	return row{
		Setting: s,
		read:    func(raw any) (any, error) { return asBool(raw) },
		store:   func(c *Config, v any) { *field(c) = v.(bool) },
		show:    same,
	}
}

func duration(s Setting, least, most time.Duration, field func(*Config) *time.Duration) row {
	s.Type = Duration
	return row{
		Setting: s,
		read: func(raw any) (any, error) {
			t, err := asQuantity(raw, "30s or 2ms")
			if err != nil {
				return nil, err
			}
			d, err := parseDuration(t)
			if err == nil && (d < least || d > most) {
				err = fmt.Errorf("%s is not from %s to %s", d, least, most)
			}
			return d, err
		},
		store: func(c *Config, v any) { *field(c) = v.(time.Duration) },
		show:  func(v any) any { return v.(time.Duration).String() },
	}
}

func size(s Setting, field func(*Config) *Size) row {
	s.Type = Bytes
	return row{
		Setting: s,
		read: func(raw any) (any, error) {
			t, err := asQuantity(raw, "256MiB or 1GB")
			if err != nil {
				return nil, err
			}
			return ParseSize(t)
		},
		store: func(c *Config, v any) { *field(c) = v.(Size) },
		show:  func(v any) any { return v.(Size).String() },
	}
}

func list(s Setting, ok check, store func(*Config, []string)) row {
	s.Type = List
	return row{
		Setting: s,
		read: func(raw any) (any, error) {
			items, err := asList(raw)
			if err != nil {
				return nil, err
			}
			for i := range items {
				if items[i], err = ok(items[i]); err != nil {
					return nil, err
				}
			}
			return items, nil
		},
		store: func(c *Config, v any) { store(c, v.([]string)) },
		show:  func(v any) any { return slices.Clone(v.([]string)) },
	}
}

// quote shows a bad value within a line: escaped, and cut when long.
func quote(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return strconv.Quote(string(r[:most])) + "…"
	}
	return strconv.Quote(s)
}
