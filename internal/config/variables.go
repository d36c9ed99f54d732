package config

import (
	"regexp"
	"strings"
	"unicode"
)

// Variables that are no settings of a node.
const (
	AdminPasswordVariable = "TIDEWIRE_ADMIN_PASSWORD" // read by serve into Config.AdminPassword
	ServerVariable        = "TIDEWIRE_SERVER"         // read by client commands
	TokenVariable         = "TIDEWIRE_TOKEN"          // read by client commands
)

// foreign reports whether a variable with our prefix belongs to somebody else: the
// client commands, or Kubernetes, which describes every service of the namespace to
// a pod (a service named tidewire gives TIDEWIRE_SERVICE_HOST,
// TIDEWIRE_PORT=tcp://10.0.0.1:8080, TIDEWIRE_PORT_8080_TCP_ADDR and so on).
func foreign(name, value string) bool {
	switch name {
	case AdminPasswordVariable, ServerVariable, TokenVariable:
		return true
	}
	if injects(name) || strings.HasSuffix(name, "_PORT") && linkValue(value) {
		return true
	}
	service := regexp.MustCompile(`^TIDEWIRE(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)
	return service.MatchString(name)
}

func linkValue(v string) bool {
	scheme, _, ok := strings.Cut(v, "://")
	return ok && (scheme == "tcp" || scheme == "udp" || scheme == "sctp")
}

// didYouMean ends an error line with the nearest known name, if one is near.
func didYouMean(name string, known map[string]Setting) string {
	best, least := "", 3
	for k := range known {
		d := distance(plain(name), plain(k))
		if d < least || d == least && best != "" && k < best {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// plain makes http_listen, httpListen and HTTP-LISTEN equal.
func plain(s string) string {
	return strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(s))
}

// distance is Levenshtein's, in bytes: edits that turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// oneLine makes a text safe within an error line: line breaks (YAML's errors have
// them) become spaces, other control characters are dropped.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, s)
}
