package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A raw value is what a layer holds: a string (environment, flag, default), a
// []string (flag of a list), or what the YAML parser made. The as… functions bring
// them together and refuse what would change its meaning on the way.

func asText(raw any) (string, error) {
	switch v := raw.(type) {
	case string:
		if strings.ContainsRune(v, 0) {
			return "", errors.New("holds a null character")
		}
		return v, nil
	case nil:
		return "", errNoValue
	case []any, map[string]any, []string:
		return "", errors.New("must be one value")
	}
	// The parser has turned it into another type, and the text cannot be had back.
	return "", fmt.Errorf("must be text; put it in quotes (it was read as %v)", raw)
}

var errNoValue = errors.New("has no value; give one or leave the key out")

func asInt(raw any) (int64, error) {
	switch v := raw.(type) {
	case int:
		return int64(v), nil
	case int64:
		return v, nil
	case uint64:
		return 0, fmt.Errorf("%d is too large", v)
	case float64, bool:
		return 0, fmt.Errorf("%v is not a whole number", v)
	}
	t, err := asText(raw)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(t), 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%s is too large", quote(t))
	} else if err != nil {
		return 0, fmt.Errorf("%s is not a whole number", quote(t))
	}
	return n, nil
}

func asBool(raw any) (bool, error) {
	switch v := raw.(type) {
	case bool:
		return v, nil
	case int, int64, float64:
		return false, fmt.Errorf("%v is neither true nor false", v)
	}
	t, err := asText(raw)
	if err != nil {
		return false, err
	}
	switch strings.ToLower(t) {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, fmt.Errorf("%s is neither true nor false", quote(t))
}

// asQuantity gives the text of a number with a unit. Zero needs none.
func asQuantity(raw any, example string) (string, error) {
	switch v := raw.(type) {
	case int:
		if v == 0 {
			return "0", nil
		}
		return "", fmt.Errorf("%d needs a unit, such as %s", v, example)
	case int64, uint64, float64:
		return "", fmt.Errorf("%v needs a unit, such as %s", v, example)
	}
	t, err := asText(raw)
	if err != nil {
		return "", err
	}
	t = strings.TrimSpace(t)
	if _, err := strconv.ParseFloat(t, 64); err == nil && t != "0" {
		return "", fmt.Errorf("%s needs a unit, such as %s", quote(t), example)
	}
	return t, nil
}

// asList splits at commas, whatever the layer, and drops the space around items.
func asList(raw any) ([]string, error) {
	var parts []string
	switch v := raw.(type) {
	case []string:
		parts = v
	case []any:
		for _, e := range v {
			t, err := asText(e)
			if err != nil {
				return nil, fmt.Errorf("an item of the list %w", err)
			}
			parts = append(parts, t)
		}
	default:
		t, err := asText(raw)
		if err != nil {
			return nil, err
		}
		parts = []string{t}
	}
	out := []string{}
	for _, p := range parts {
		if strings.TrimSpace(p) == "" {
			continue // an empty list, so that a flag can undo the file's
		}
		for item := range strings.SplitSeq(p, ",") {
			if item = strings.TrimSpace(item); item == "" {
				return nil, fmt.Errorf("%s has an empty item", quote(p))
			}
			out = append(out, item)
		}
	}
	return out, nil
}

func parseDuration(t string) (time.Duration, error) {
	d, err := time.ParseDuration(t)
	if err != nil {
		return 0, fmt.Errorf("%s is not a duration such as 30s, 2ms or 1m30s (units h, m, s, ms, µs, ns; at most 292 years)", quote(t))
	}
	if d < 0 {
		return 0, fmt.Errorf("%s is negative", quote(t))
	}
	return d, nil
}

type unit struct {
	name  string
	bytes int64
}

// sizeUnits goes from large to small, so that a suffix of another comes after it
// and String finds the largest that fits.
func sizeUnits() []unit {
	return []unit{
		{"TiB", 1 << 40}, {"TB", 1e12}, {"GiB", 1 << 30}, {"GB", 1e9},
		{"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB", 1e3}, {"B", 1},
	}
}

// ParseSize reads a whole number with a unit: B, kB, MB, GB, TB (powers of 1000) or
// KiB, MiB, GiB, TiB (powers of 1024). Zero needs no unit.
func ParseSize(t string) (Size, error) {
	bad := fmt.Errorf("%s is not a size such as 256MiB (a whole number and one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)", quote(t))
	digits := strings.TrimLeft(t, "0123456789")
	number, suffix := t[:len(t)-len(digits)], strings.TrimLeft(digits, " ")
	switch {
	case strings.HasPrefix(t, "-"):
		return 0, fmt.Errorf("%s is negative", quote(t))
	case number == "":
		return 0, bad
	case suffix == "" && strings.Trim(number, "0") == "":
		return 0, nil
	case suffix == "":
		return 0, fmt.Errorf("%s needs a unit, such as 256MiB or 1GB", quote(t))
	}
	for _, u := range sizeUnits() {
		if u.name != suffix {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n > math.MaxInt64/u.bytes {
			return 0, fmt.Errorf("%s is too large", quote(t))
		}
		return Size(n * u.bytes), nil
	}
	return 0, bad
}

// String gives the shortest exact form that ParseSize reads.
func (s Size) String() string {
	best := strconv.FormatInt(int64(s), 10) + "B"
	for _, u := range sizeUnits() {
		if s == 0 || int64(s)%u.bytes != 0 {
			continue
		}
		if t := strconv.FormatInt(int64(s)/u.bytes, 10) + u.name; len(t) < len(best) {
			best = t
		}
	}
	return best
}
