package browse

import (
	"bytes"

	"tidewire/storage/record"
)

// Parts says in which parts of a record a text is looked for.
type Parts uint8

// The parts of a record. Headers are their names and their values.
const (
	InKey Parts = 1 << iota
	InValue
	InHeaders
	InAll = InKey | InValue | InHeaders
)

var partNames = []struct {
	part Parts
	name string
}{{InKey, "key"}, {InValue, "value"}, {InHeaders, "headers"}}

// Names are the parts as clients name them.
func (p Parts) Names() []string {
	out := []string{}
	for _, x := range partNames {
		if p&x.part != 0 {
			out = append(out, x.name)
		}
	}
	return out
}

// ParseParts reads the names of parts; not ok: one is unknown or given twice, or there is
// none.
func ParseParts(names []string) (in Parts, ok bool) {
	for _, name := range names {
		var p Parts
		for _, x := range partNames {
			if x.name == name {
				p = x.part
			}
		}
		if p == 0 || in&p != 0 {
			return 0, false
		}
		in |= p
	}
	return in, in != 0
}

// Filter says which records a read gives. The zero value gives all.
type Filter struct {
	// Text is a run of bytes that one of the parts In holds; empty: none is looked for.
	Text []byte
	In   Parts
	// Key is what the record's key is equal to, where HasKey.
	Key    []byte
	HasKey bool
	// To leaves out records whose timestamp, in milliseconds, is To or later, where HasTo.
	To    int64
	HasTo bool
}

// IsZero reports whether every record passes.
func (f *Filter) IsZero() bool { return len(f.Text) == 0 && !f.HasKey && !f.HasTo }

// Match reports whether a record passes.
func (f *Filter) Match(r *record.Record) bool {
	switch {
	case f.HasTo && r.Timestamp >= f.To:
		return false
	case f.HasKey && (r.Key == nil || !bytes.Equal(r.Key, f.Key)):
		return false
	}
	return len(f.Text) == 0 || f.holds(r)
}

func (f *Filter) holds(r *record.Record) bool {
	if f.In&InKey != 0 && bytes.Contains(r.Key, f.Text) || f.In&InValue != 0 && bytes.Contains(r.Value, f.Text) {
		return true
	}
	if f.In&InHeaders == 0 {
		return false
	}
	for i := range r.Headers {
		if bytes.Contains(r.Headers[i].Name, f.Text) || bytes.Contains(r.Headers[i].Value, f.Text) {
			return true
		}
	}
	return false
}
