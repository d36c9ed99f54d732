package auth

import (
	"cmp"
	"iter"
	"slices"

	"tidewire/cluster/metadata"
)

const (
	// userPrefix begins the principal of a user, as metadata.UserPrincipal makes it.
	userPrefix = "User:"
	// AnyUser is the principal of a rule that holds for every user.
	AnyUser = "User:*"
	// anyName is the literal resource name of a rule that holds for every resource
	// of its type, and the host of a rule that holds wherever a request comes from.
	anyName = "*"
)

// opMask is a set of operations.
type opMask uint16

const opsAll = ^opMask(0)

// opBit gives the set that holds one operation; opsAll for "all", and the empty
// set, which nothing matches, for a word that is not an operation.
func opBit(op metadata.Operation) opMask {
	switch op {
	case metadata.OpRead:
		return 1 << 0
	case metadata.OpWrite:
		return 1 << 1
	case metadata.OpCreate:
		return 1 << 2
	case metadata.OpDelete:
		return 1 << 3
	case metadata.OpAlter:
		return 1 << 4
	case metadata.OpDescribe:
		return 1 << 5
	case metadata.OpDescribeConfigs:
		return 1 << 6
	case metadata.OpAlterConfigs:
		return 1 << 7
	case metadata.OpClusterAction:
		return 1 << 8
	case metadata.OpIdempotentWrite:
		return 1 << 9
	case metadata.OpAll:
		return opsAll
	}
	return 0
}

// ruleMask is the set of operations a rule decides. As in Kafka an allowed read,
// write, delete or alter allows describe, and an allowed alter-configs allows
// describe-configs; a denied operation denies itself only.
func ruleMask(r *metadata.ACL) opMask {
	m := opBit(r.Operation)
	if r.Permission != metadata.Allow {
		return m
	}
	switch r.Operation {
	case metadata.OpRead, metadata.OpWrite, metadata.OpDelete, metadata.OpAlter:
		m |= opBit(metadata.OpDescribe)
	case metadata.OpAlterConfigs:
		m |= opBit(metadata.OpDescribeConfigs)
	}
	return m
}

// Decision is the outcome of evaluating the rules. Rule is the one that decided:
// a deny rule when there is one, else an allow rule, else nil, which denies.
type Decision struct {
	Allowed bool
	Rule    *metadata.ACL
}

// Rules is an index over a set of ACL rules, made once per set and then read
// without locks. The zero value has no rule and allows nothing.
type Rules struct {
	byPrincipal map[string]*principalRules // key: user name without "User:"
	anyone      *principalRules
}

// resourceTypes is how many types of resource there are (resourceIndex).
const resourceTypes = 4

// resourceIndex numbers the types; −1 for a word that is none.
func resourceIndex(t metadata.ResourceType) int {
	switch t {
	case metadata.ResourceTopic:
		return 0
	case metadata.ResourceGroup:
		return 1
	case metadata.ResourceTransactionalID:
		return 2
	case metadata.ResourceCluster:
		return 3
	}
	return -1
}

// principalRules are one principal's rules by type of resource.
type principalRules [resourceTypes]resourceRules

// resourceRules are one principal's rules on one type of resource. Prefixes are
// found by cutting the name to each length in use, longest first, instead of
// trying every prefix.
type resourceRules struct {
	every     []compiledRule // literal "*"
	literal   map[string][]compiledRule
	prefix    map[string][]compiledRule
	prefixLen []int // lengths of the keys of prefix, descending
}

type compiledRule struct {
	ops  opMask
	deny bool
	host string // "" for any
	rule *metadata.ACL
}

// NewRules indexes rules. A rule whose principal is not of the form "User:…" or
// whose words are not known matches nothing. The rules are kept, not copied.
func NewRules(rules iter.Seq[*metadata.ACL]) *Rules {
	x := &Rules{byPrincipal: map[string]*principalRules{}}
	for r := range rules {
		x.add(r)
	}
	for _, p := range x.byPrincipal {
		p.finish()
	}
	if x.anyone != nil {
		x.anyone.finish()
	}
	return x
}

func (x *Rules) add(r *metadata.ACL) {
	t := resourceIndex(r.ResourceType)
	if t < 0 || len(r.Principal) <= len(userPrefix) || r.Principal[:len(userPrefix)] != userPrefix {
		return
	}
	if r.Principal == AnyUser {
		if x.anyone == nil {
			x.anyone = &principalRules{}
		}
		x.anyone[t].add(r)
		return
	}
	user := r.Principal[len(userPrefix):]
	p := x.byPrincipal[user]
	if p == nil {
		p = &principalRules{}
		x.byPrincipal[user] = p
	}
	p[t].add(r)
}

func (s *resourceRules) add(r *metadata.ACL) {
	c := compiledRule{ops: ruleMask(r), deny: r.Permission != metadata.Allow, host: r.Host, rule: r}
	if c.host == anyName {
		c.host = ""
	}
	switch {
	case r.Pattern == metadata.PatternPrefixed:
		if s.prefix == nil {
			s.prefix = map[string][]compiledRule{}
		}
		if _, ok := s.prefix[r.ResourceName]; !ok && !slices.Contains(s.prefixLen, len(r.ResourceName)) {
			s.prefixLen = append(s.prefixLen, len(r.ResourceName))
		}
		s.prefix[r.ResourceName] = append(s.prefix[r.ResourceName], c)
	case r.Pattern != metadata.PatternLiteral:
	case r.ResourceName == anyName:
		s.every = append(s.every, c)
	default:
		if s.literal == nil {
			s.literal = map[string][]compiledRule{}
		}
		s.literal[r.ResourceName] = append(s.literal[r.ResourceName], c)
	}
}

func (p *principalRules) finish() {
	for i := range p {
		slices.SortFunc(p[i].prefixLen, func(a, b int) int { return cmp.Compare(b, a) })
	}
}

// Access is one question: may the user do the operation on the resource, asked
// from the host? Host is the client's address without port.
type Access struct {
	User      string
	Operation metadata.Operation
	Resource  metadata.ResourceType
	Name      string
	Host      string
}

// Evaluate decides by the rules alone, as Kafka does: a deny rule that matches
// wins, else an allow rule that matches, else it is denied. Administrators are
// the caller's business. It allocates nothing.
func (x *Rules) Evaluate(a Access) Decision {
	t, op := resourceIndex(a.Resource), opBit(a.Operation)
	if t < 0 || op == 0 {
		return Decision{}
	}
	m := matcher{op: op, name: a.Name, host: a.Host}
	if p := x.byPrincipal[a.User]; p != nil && m.scan(&p[t]) {
		return Decision{Rule: m.deny}
	}
	if x.anyone != nil && m.scan(&x.anyone[t]) {
		return Decision{Rule: m.deny}
	}
	return Decision{Allowed: m.allow != nil, Rule: m.allow}
}

// matcher collects what matches: the first allow rule, and whether any denies.
type matcher struct {
	op          opMask
	name, host  string
	allow, deny *metadata.ACL
}

// scan reports whether one of the rules denies.
func (m *matcher) scan(s *resourceRules) bool {
	if m.match(s.literal[m.name]) || m.match(s.every) {
		return true
	}
	for _, n := range s.prefixLen {
		if n <= len(m.name) && m.match(s.prefix[m.name[:n]]) {
			return true
		}
	}
	return false
}

func (m *matcher) match(rules []compiledRule) bool {
	for i := range rules {
		r := &rules[i]
		if r.ops&m.op == 0 || r.host != "" && r.host != m.host {
			continue
		}
		if r.deny {
			m.deny = r.rule
			return true
		}
		// A question for "all" is one for every operation: any denied one denies it,
		// and only a rule for "all" allows it.
		if m.allow == nil && r.ops&m.op == m.op {
			m.allow = r.rule
		}
	}
	return false
}
