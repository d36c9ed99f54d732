package metadata

import (
	"tidewire/internal/model"
)

// quotaFields are the limits by their JSON names.
func (l *QuotaLimits) fields() [3]struct {
	name  string
	limit *int64
} {
	return [3]struct {
		name  string
		limit *int64
	}{
		{"produce_bytes_per_s", l.ProduceBytesPerS},
		{"fetch_bytes_per_s", l.FetchBytesPerS},
		{"requests_per_s", l.RequestsPerS},
	}
}

// CheckQuota returns what is wrong with limits, one entry per field, or nil. Pointers are
// the JSON names of the fields.
func CheckQuota(l QuotaLimits) []model.FieldError {
	var out []model.FieldError
	given := false
	for _, f := range l.fields() {
		if f.limit == nil {
			continue
		}
		given = true
		if *f.limit < 1 || *f.limit > MaxQuota {
			out = append(out, model.FieldError{Pointer: "/" + f.name, Detail: "a limit is a whole number from 1 to 9007199254740991, or null for none of its own"})
		}
	}
	if !given {
		return []model.FieldError{{Pointer: "", Detail: "at least one limit is needed; DELETE takes a quota away"}}
	}
	return out
}

// Over gives the limits that are in force for who has these, of which others fill the gaps.
func (l QuotaLimits) Over(other QuotaLimits) QuotaLimits {
	if l.ProduceBytesPerS == nil {
		l.ProduceBytesPerS = other.ProduceBytesPerS
	}
	if l.FetchBytesPerS == nil {
		l.FetchBytesPerS = other.FetchBytesPerS
	}
	if l.RequestsPerS == nil {
		l.RequestsPerS = other.RequestsPerS
	}
	return l
}

// Equal reports whether two limits are the same.
func (l QuotaLimits) Equal(other QuotaLimits) bool {
	theirs := other.fields()
	for i, f := range l.fields() {
		a, b := f.limit, theirs[i].limit
		if (a == nil) != (b == nil) || a != nil && *a != *b {
			return false
		}
	}
	return true
}

// EffectiveQuota gives the limits that are in force for a user: its own and, where it has
// none, those of DefaultQuota.
func (m *Image) EffectiveQuota(user string) QuotaLimits {
	var own, general QuotaLimits
	if q := m.Quota(user); q != nil {
		own = q.QuotaLimits
	}
	if q := m.Quota(DefaultQuota); q != nil {
		general = q.QuotaLimits
	}
	return own.Over(general)
}

// quotaOf finds a user's limits, maybe none, in the state that ifMatch says.
func (t *tx) quotaOf(user string, ifMatch ETag) (*Quota, *model.Error) {
	if user != DefaultQuota {
		if _, refusal := t.findUser(user, ""); refusal != nil {
			return nil, refusal
		}
	}
	q, _ := t.quotas.Get([]byte(user))
	if ifMatch != "" && (q == nil || q.ETag() != ifMatch) {
		return nil, etagMismatch("the quota")
	}
	return q, nil
}

func applySetQuota(t *tx, c SetQuota) (any, *model.Error) {
	if refusal := refuseFields(CheckQuota(c.Limits)); refusal != nil {
		return nil, refusal
	}
	q, refusal := t.quotaOf(c.User, c.IfMatch)
	switch {
	case refusal != nil:
		return nil, refusal
	case q != nil && q.Equal(c.Limits):
		return QuotaSet{Quota: q, Existed: true}, nil
	}
	n := &Quota{User: c.User, QuotaLimits: c.Limits, Version: t.index}
	t.putQuota(n)
	return QuotaSet{Quota: n, Existed: q != nil}, nil
}

// NoQuota is the refusal where a user has no limits of its own.
func NoQuota(user string) *model.Error {
	if user == DefaultQuota {
		return model.Errorf(model.NotFound, "there is no quota for all users")
	}
	return model.Errorf(model.NotFound, "the user %q has no quota of its own", user)
}

func applyDeleteQuota(t *tx, c DeleteQuota) (any, *model.Error) {
	q, refusal := t.quotaOf(c.User, "")
	switch {
	case refusal != nil:
		return nil, refusal
	case q == nil:
		return nil, NoQuota(c.User)
	case c.IfMatch != "" && q.ETag() != c.IfMatch:
		return nil, etagMismatch("the quota")
	}
	t.removeQuota(q)
	return q, nil
}
