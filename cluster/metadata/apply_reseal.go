package metadata

import (
	"bytes"

	"tidewire/internal/model"
)

func applyReseal(t *tx, c Reseal) (any, *model.Error) {
	changed := 0
	for _, x := range c.SigningKeys {
		k, _ := t.keys.Get([]byte(x.KID))
		if k == nil {
			continue
		}
		n := *k
		if x.Private.replace(&n.SealedPrivate) {
			t.putKey(&n)
			changed++
		}
	}
	for _, x := range c.Users {
		u := t.user(x.Name)
		if u == nil {
			continue
		}
		n := *u
		first := x.SCRAMSHA256.replace(&n.SCRAMSHA256)
		if second := x.SCRAMSHA512.replace(&n.SCRAMSHA512); first || second {
			t.putUser(&n)
			changed++
		}
	}
	return changed, nil
}

// replace sets a value that is still the one that was opened.
func (r Resealed) replace(value *[]byte) bool {
	if len(r.From) == 0 || len(r.To) == 0 || !bytes.Equal(*value, r.From) {
		return false
	}
	*value = r.To
	return true
}
