package metadata

import (
	"slices"
	"strconv"
	"strings"

	"tidewire/internal/model"
)

var (
	resourceTypes = []ResourceType{ResourceTopic, ResourceGroup, ResourceTransactionalID, ResourceCluster}
	patterns      = []Pattern{PatternLiteral, PatternPrefixed}
	operations    = []Operation{
		OpRead, OpWrite, OpCreate, OpDelete, OpAlter, OpDescribe, OpDescribeConfigs,
		OpAlterConfigs, OpClusterAction, OpIdempotentWrite, OpAll,
	}
	permissions = []Permission{Allow, Deny}
)

// aclKey identifies a rule within its resource and orders the rules of one resource.
func aclKey(f *ACLFields) string {
	return strings.Join([]string{f.Principal, f.Host, string(f.Operation), string(f.Permission)}, "\x00")
}

// CheckACL returns what is wrong with the fields of a rule, one entry per field, or nil.
// Pointers are the JSON names of the fields, under prefix.
func CheckACL(prefix string, f ACLFields) []model.FieldError {
	var out []model.FieldError
	check := func(ok bool, field, detail string) {
		if !ok {
			out = append(out, model.FieldError{Pointer: prefix + "/" + field, Detail: detail})
		}
	}
	name, isUser := strings.CutPrefix(f.Principal, principalPrefix)
	check(isUser && model.CheckName(name) == "", "principal", `a principal is "User:" and a user name, or "User:*"`)
	out = append(out, checkResource(prefix, f.ResourceType, f.ResourceName, f.Pattern)...)
	check(slices.Contains(operations, f.Operation), "operation", allowed("an operation", operations, f.Operation))
	check(slices.Contains(permissions, f.Permission), "permission", allowed("a permission", permissions, f.Permission))
	check(f.Host != "" && model.CheckName(f.Host) == "", "host", `a host is an address, or "*"`)
	return out
}

// CheckScope does the same for a token's scope.
func CheckScope(prefix string, s Scope) []model.FieldError {
	out := checkResource(prefix, s.ResourceType, s.ResourceName, s.Pattern)
	if !slices.Contains(operations, s.Operation) {
		out = append(out, model.FieldError{Pointer: prefix + "/operation", Detail: allowed("an operation", operations, s.Operation)})
	}
	return out
}

// allowed says which words a field of a rule can have.
func allowed[W ~string](what string, words []W, given W) string {
	var b strings.Builder
	b.WriteString(what + " is one of ")
	for i, w := range words {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(w))
	}
	g := string(given)
	if len(g) > 64 {
		g = g[:64] + "…"
	}
	return b.String() + "; not " + strconv.Quote(g)
}

// RuleField is the JSON name of a field of a rule.
type RuleField string

// CheckWord tells what is wrong with a word that a field of a rule or of a question about
// rules has: resource_type, pattern, operation or permission; "" for nothing.
func CheckWord(field RuleField, word string) string {
	switch {
	case field == "resource_type" && !slices.Contains(resourceTypes, ResourceType(word)):
		return allowed("a resource type", resourceTypes, ResourceType(word))
	case field == "pattern" && !slices.Contains(patterns, Pattern(word)):
		return allowed("a pattern", patterns, Pattern(word))
	case field == "operation" && !slices.Contains(operations, Operation(word)):
		return allowed("an operation", operations, Operation(word))
	case field == "permission" && !slices.Contains(permissions, Permission(word)):
		return allowed("a permission", permissions, Permission(word))
	}
	return ""
}

func checkResource(prefix string, t ResourceType, name string, p Pattern) []model.FieldError {
	var out []model.FieldError
	if !slices.Contains(resourceTypes, t) {
		out = append(out, model.FieldError{Pointer: prefix + "/resource_type", Detail: allowed("a resource type", resourceTypes, t)})
	}
	if problem := model.CheckName(name); problem != "" && !(p == PatternPrefixed && (name == "." || name == "..")) {
		out = append(out, model.FieldError{Pointer: prefix + "/resource_name", Detail: "a resource name " + problem})
	}
	if !slices.Contains(patterns, p) {
		out = append(out, model.FieldError{Pointer: prefix + "/pattern", Detail: allowed("a pattern", patterns, p)})
	}
	return out
}

func refuseFields(fields []model.FieldError) *model.Error {
	if fields == nil {
		return nil
	}
	return &model.Error{Code: model.InvalidArgument, Detail: fields[0].Detail, Fields: fields}
}

func applyCreateACL(t *tx, c CreateACL) (any, *model.Error) {
	if refusal := refuseFields(CheckACL("", c.Rule)); refusal != nil {
		return nil, refusal
	}
	if c.ID == "" {
		return nil, model.Invalid("/id", "a rule id must not be empty")
	}
	if other, taken := t.aclsByID.Get([]byte(c.ID)); taken && other.ACLFields != c.Rule {
		return nil, model.Errorf(model.Conflict, "the rule id is taken")
	}
	rule, existed := t.putACL(&ACL{ID: c.ID, ACLFields: c.Rule, CreatedAt: c.Now, Version: t.index})
	return ACLCreated{ACL: rule, Existed: existed}, nil
}

// putACL adds a rule unless there is an equal one, which it returns then.
func (t *tx) putACL(rule *ACL) (kept *ACL, existed bool) {
	key := resourceKeyOf(&rule.ACLFields)
	rules, _ := t.acls.Get(key)
	at, found := searchACL(rules, &rule.ACLFields)
	if found {
		return rules[at], true
	}
	t.acls.Insert(key, slices.Insert(slices.Clone(rules), at, rule))
	t.aclsByID.Insert([]byte(rule.ID), rule)
	note(&t.delta.ACLs, rule.ID, Created)
	return rule, false
}

func resourceKeyOf(f *ACLFields) []byte {
	return aclResourceKey(f.ResourceType, f.Pattern, f.ResourceName)
}

func searchACL(rules []*ACL, f *ACLFields) (int, bool) {
	return slices.BinarySearchFunc(rules, aclKey(f), func(r *ACL, key string) int {
		return strings.Compare(aclKey(&r.ACLFields), key)
	})
}

func applyDeleteACLs(t *tx, c DeleteACLs) (any, *model.Error) {
	if c.Filter == (ACLFields{}) {
		return nil, model.Errorf(model.InvalidArgument, "at least one field is needed")
	}
	rules := t.matchACLs(c.Filter)
	for _, r := range rules {
		t.removeACL(r)
	}
	return rules, nil
}

// Matches reports whether a rule equals every field of the filter that is not empty.
func (f *ACLFields) Matches(filter ACLFields) bool {
	same := func(want, have string) bool { return want == "" || want == have }
	return same(filter.Principal, f.Principal) &&
		same(string(filter.ResourceType), string(f.ResourceType)) &&
		same(filter.ResourceName, f.ResourceName) &&
		same(string(filter.Pattern), string(f.Pattern)) &&
		same(string(filter.Operation), string(f.Operation)) &&
		same(string(filter.Permission), string(f.Permission)) &&
		same(filter.Host, f.Host)
}

func (t *tx) matchACLs(filter ACLFields) []*ACL {
	out := []*ACL{}
	t.acls.Root().Walk(func(_ []byte, rules []*ACL) bool {
		for _, r := range rules {
			if r.Matches(filter) {
				out = append(out, r)
			}
		}
		return false
	})
	return out
}

func (t *tx) removeACL(r *ACL) {
	key := resourceKeyOf(&r.ACLFields)
	rules, _ := t.acls.Get(key)
	at, found := searchACL(rules, &r.ACLFields)
	if !found {
		return
	}
	if len(rules) == 1 {
		t.acls.Delete(key)
	} else {
		t.acls.Insert(key, slices.Delete(slices.Clone(rules), at, at+1))
	}
	t.aclsByID.Delete([]byte(r.ID))
	note(&t.delta.ACLs, r.ID, Deleted)
}
