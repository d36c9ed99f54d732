package coding

import (
	"strconv"
	"strings"
)

// Media picks, of the types offered, the one that the Accept headers like best
// (RFC 9110 §12.5.1); among equals the earlier offer wins. "" means that none is
// acceptable.
func Media(accept, offers []string) string {
	best, bestQ := "", 0.0
	for _, offer := range offers {
		if q := quality(accept, offer); q > bestQ {
			best, bestQ = offer, q
		}
	}
	return best
}

// quality is the weight of the most specific range that covers a type, 0 for none.
func quality(accept []string, offer string) float64 {
	kind, _, _ := strings.Cut(offer, "/")
	q, specific := 0.0, 0
	for _, header := range accept {
		for part := range strings.SplitSeq(header, ",") {
			rng, params, _ := strings.Cut(part, ";")
			level := 0
			switch rng = strings.ToLower(strings.TrimSpace(rng)); rng {
			case offer:
				level = 3
			case kind + "/*":
				level = 2
			case "*/*":
				level = 1
			}
			if level > specific {
				q, specific = weight(params), level
			}
		}
	}
	return q
}

func weight(params string) float64 {
	for p := range strings.SplitSeq(params, ";") {
		name, v, ok := strings.Cut(strings.TrimSpace(p), "=")
		if !ok || !strings.EqualFold(name, "q") {
			continue
		}
		if q, err := strconv.ParseFloat(v, 64); err == nil && q >= 0 && q <= 1 {
			return q
		}
		return 0
	}
	return 1
}
