package auth

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewire/cluster/metadata"
)

// topicRule allows a user one operation on one topic, from anywhere.
func topicRule(user string, op metadata.Operation, topic string) metadata.ACLFields {
	return metadata.ACLFields{
		Principal: metadata.UserPrincipal(user), ResourceType: metadata.ResourceTopic, ResourceName: topic,
		Pattern: metadata.PatternLiteral, Operation: op, Permission: metadata.Allow, Host: "*",
	}
}

func with(f metadata.ACLFields, change func(*metadata.ACLFields)) metadata.ACLFields {
	change(&f)
	return f
}

func index(fields ...metadata.ACLFields) *Rules {
	rules := make([]*metadata.ACL, len(fields))
	for i, f := range fields {
		rules[i] = &metadata.ACL{ID: fmt.Sprint(i), ACLFields: f}
	}
	return NewRules(slices.Values(rules))
}

func TestEvaluation(t *testing.T) {
	t.Parallel()
	read := topicRule("alice", metadata.OpRead, "orders")
	deny := func(f *metadata.ACLFields) { f.Permission = metadata.Deny }
	prefixed := func(f *metadata.ACLFields) { f.Pattern = metadata.PatternPrefixed }
	ask := func(op metadata.Operation, name string) Access {
		return Access{User: "alice", Operation: op, Resource: metadata.ResourceTopic, Name: name, Host: "10.0.0.1"}
	}
	everyone := func(f *metadata.ACLFields) { f.Principal = AnyUser }
	for name, row := range map[string]struct {
		rules   []metadata.ACLFields
		ask     Access
		allowed bool
		by      int // the rule that decides, -1 for none
	}{
		"no rule means no":               {nil, ask(metadata.OpRead, "orders"), false, -1},
		"a rule allows":                  {[]metadata.ACLFields{read}, ask(metadata.OpRead, "orders"), true, 0},
		"another operation":              {[]metadata.ACLFields{read}, ask(metadata.OpWrite, "orders"), false, -1},
		"another name":                   {[]metadata.ACLFields{read}, ask(metadata.OpRead, "orders2"), false, -1},
		"names have case":                {[]metadata.ACLFields{read}, ask(metadata.OpRead, "Orders"), false, -1},
		"another user":                   {[]metadata.ACLFields{topicRule("bob", metadata.OpRead, "orders")}, ask(metadata.OpRead, "orders"), false, -1},
		"users have case":                {[]metadata.ACLFields{topicRule("Alice", metadata.OpRead, "orders")}, ask(metadata.OpRead, "orders"), false, -1},
		"another type":                   {[]metadata.ACLFields{with(read, func(f *metadata.ACLFields) { f.ResourceType = metadata.ResourceGroup })}, ask(metadata.OpRead, "orders"), false, -1},
		"everyone":                       {[]metadata.ACLFields{with(read, everyone)}, ask(metadata.OpRead, "orders"), true, 0},
		"every name":                     {[]metadata.ACLFields{topicRule("alice", metadata.OpRead, "*")}, ask(metadata.OpRead, "x"), true, 0},
		"a prefix":                       {[]metadata.ACLFields{with(read, prefixed)}, ask(metadata.OpRead, "orders-eu"), true, 0},
		"a prefix covers itself":         {[]metadata.ACLFields{with(read, prefixed)}, ask(metadata.OpRead, "orders"), true, 0},
		"a prefix is not a part":         {[]metadata.ACLFields{with(read, prefixed)}, ask(metadata.OpRead, "my-orders"), false, -1},
		"shorter than the prefix":        {[]metadata.ACLFields{with(read, prefixed)}, ask(metadata.OpRead, "order"), false, -1},
		"prefix * is the character":      {[]metadata.ACLFields{with(topicRule("alice", metadata.OpRead, "*"), prefixed)}, ask(metadata.OpRead, "orders"), false, -1},
		"the host":                       {[]metadata.ACLFields{with(read, func(f *metadata.ACLFields) { f.Host = "10.0.0.1" })}, ask(metadata.OpRead, "orders"), true, 0},
		"another host":                   {[]metadata.ACLFields{with(read, func(f *metadata.ACLFields) { f.Host = "10.0.0.2" })}, ask(metadata.OpRead, "orders"), false, -1},
		"all allows each":                {[]metadata.ACLFields{topicRule("alice", metadata.OpAll, "orders")}, ask(metadata.OpAlterConfigs, "orders"), true, 0},
		"deny wins":                      {[]metadata.ACLFields{read, with(read, deny)}, ask(metadata.OpRead, "orders"), false, 1},
		"deny wins in any order":         {[]metadata.ACLFields{with(read, deny), read}, ask(metadata.OpRead, "orders"), false, 0},
		"deny for everyone wins":         {[]metadata.ACLFields{read, with(with(read, everyone), deny)}, ask(metadata.OpRead, "orders"), false, 1},
		"deny by a prefix wins":          {[]metadata.ACLFields{read, with(with(topicRule("alice", metadata.OpRead, "ord"), prefixed), deny)}, ask(metadata.OpRead, "orders"), false, 1},
		"deny all wins":                  {[]metadata.ACLFields{read, with(topicRule("alice", metadata.OpAll, "*"), deny)}, ask(metadata.OpRead, "orders"), false, 1},
		"deny from elsewhere":            {[]metadata.ACLFields{read, with(with(read, deny), func(f *metadata.ACLFields) { f.Host = "10.0.0.2" })}, ask(metadata.OpRead, "orders"), true, 0},
		"read implies describe":          {[]metadata.ACLFields{read}, ask(metadata.OpDescribe, "orders"), true, 0},
		"write implies describe":         {[]metadata.ACLFields{topicRule("alice", metadata.OpWrite, "orders")}, ask(metadata.OpDescribe, "orders"), true, 0},
		"delete implies describe":        {[]metadata.ACLFields{topicRule("alice", metadata.OpDelete, "orders")}, ask(metadata.OpDescribe, "orders"), true, 0},
		"alter implies describe":         {[]metadata.ACLFields{topicRule("alice", metadata.OpAlter, "orders")}, ask(metadata.OpDescribe, "orders"), true, 0},
		"create does not":                {[]metadata.ACLFields{topicRule("alice", metadata.OpCreate, "orders")}, ask(metadata.OpDescribe, "orders"), false, -1},
		"describe does not imply read":   {[]metadata.ACLFields{topicRule("alice", metadata.OpDescribe, "orders")}, ask(metadata.OpRead, "orders"), false, -1},
		"alter-configs implies its read": {[]metadata.ACLFields{topicRule("alice", metadata.OpAlterConfigs, "orders")}, ask(metadata.OpDescribeConfigs, "orders"), true, 0},
		"alter-configs not describe":     {[]metadata.ACLFields{topicRule("alice", metadata.OpAlterConfigs, "orders")}, ask(metadata.OpDescribe, "orders"), false, -1},
		"denied read leaves describe": {[]metadata.ACLFields{topicRule("alice", metadata.OpDescribe, "orders"), with(read, deny)},
			ask(metadata.OpDescribe, "orders"), true, 0},
		"denied describe beats implied": {[]metadata.ACLFields{read, with(topicRule("alice", metadata.OpDescribe, "orders"), deny)},
			ask(metadata.OpDescribe, "orders"), false, 1},
		"all asked, one allowed": {[]metadata.ACLFields{read}, ask(metadata.OpAll, "orders"), false, -1},
		"all asked, one denied": {[]metadata.ACLFields{topicRule("alice", metadata.OpAll, "orders"), with(read, deny)},
			ask(metadata.OpAll, "orders"), false, 1},
		"unknown operation": {[]metadata.ACLFields{topicRule("alice", metadata.OpAll, "*")}, ask("fly", "orders"), false, -1},
		"user named *": {[]metadata.ACLFields{read}, Access{User: "*", Operation: metadata.OpRead,
			Resource: metadata.ResourceTopic, Name: "orders"}, false, -1},
	} {
		d := index(row.rules...).Evaluate(row.ask)
		require.Equal(t, row.allowed, d.Allowed, name)
		if row.by < 0 {
			require.Nil(t, d.Rule, name)
			continue
		}
		require.NotNil(t, d.Rule, name)
		require.Equal(t, fmt.Sprint(row.by), d.Rule.ID, name)
	}
}

func TestAPrincipalWithoutAUserMatchesNothing(t *testing.T) {
	t.Parallel()
	for _, principal := range []string{"", "alice", "User:", "Group:alice", "user:alice"} {
		x := index(with(topicRule("alice", metadata.OpAll, "*"), func(f *metadata.ACLFields) { f.Principal = principal }))
		require.False(t, x.Evaluate(Access{User: "alice", Operation: metadata.OpRead, Resource: metadata.ResourceTopic, Name: "t"}).Allowed, principal)
	}
	require.False(t, (&Rules{}).Evaluate(Access{User: "alice", Operation: metadata.OpRead, Resource: metadata.ResourceTopic, Name: "t"}).Allowed)
}

// naive decides as Kafka's documentation words it, one rule after the other.
func naive(rules []*metadata.ACL, a Access) (allowed bool, deciding []*metadata.ACL) {
	implied := map[metadata.Operation][]metadata.Operation{
		metadata.OpDescribe:        {metadata.OpRead, metadata.OpWrite, metadata.OpDelete, metadata.OpAlter},
		metadata.OpDescribeConfigs: {metadata.OpAlterConfigs},
	}
	var allow, deny []*metadata.ACL
	for _, r := range rules {
		who := r.Principal == "User:"+a.User || r.Principal == "User:*"
		where := r.Host == "*" || r.Host == a.Host
		what := r.ResourceType == a.Resource && (r.Pattern == metadata.PatternLiteral && (r.ResourceName == "*" || r.ResourceName == a.Name) ||
			r.Pattern == metadata.PatternPrefixed && strings.HasPrefix(a.Name, r.ResourceName))
		if !who || !where || !what {
			continue
		}
		same := r.Operation == a.Operation || r.Operation == metadata.OpAll
		switch {
		case r.Permission == metadata.Deny && same:
			deny = append(deny, r)
		case r.Permission == metadata.Allow && (same || slices.Contains(implied[a.Operation], r.Operation)):
			allow = append(allow, r)
		}
	}
	if len(deny) > 0 {
		return false, deny
	}
	return len(allow) > 0, allow
}

func TestTheIndexDecidesAsTheNaiveEvaluation(t *testing.T) {
	t.Parallel()
	ops := []metadata.Operation{
		metadata.OpRead, metadata.OpWrite, metadata.OpCreate, metadata.OpDelete, metadata.OpAlter, metadata.OpDescribe,
		metadata.OpDescribeConfigs, metadata.OpAlterConfigs, metadata.OpClusterAction, metadata.OpIdempotentWrite,
	}
	types := []metadata.ResourceType{metadata.ResourceTopic, metadata.ResourceGroup, metadata.ResourceTransactionalID, metadata.ResourceCluster}
	names := []string{"a", "ab", "abc", "b", "ba", "é", "e\u0301"}
	hosts := []string{"10.0.0.1", "::1"}
	rule := rapid.Custom(func(t *rapid.T) *metadata.ACL {
		return &metadata.ACL{ACLFields: metadata.ACLFields{
			Principal:    rapid.SampledFrom([]string{"User:u", "User:v", "User:*"}).Draw(t, "principal"),
			ResourceType: rapid.SampledFrom(types).Draw(t, "type"),
			ResourceName: rapid.SampledFrom(append([]string{"*"}, names...)).Draw(t, "name"),
			Pattern:      rapid.SampledFrom([]metadata.Pattern{metadata.PatternLiteral, metadata.PatternPrefixed}).Draw(t, "pattern"),
			Operation:    rapid.SampledFrom(append([]metadata.Operation{metadata.OpAll}, ops...)).Draw(t, "op"),
			Permission:   rapid.SampledFrom([]metadata.Permission{metadata.Allow, metadata.Allow, metadata.Deny}).Draw(t, "permission"),
			Host:         rapid.SampledFrom(append([]string{"*", "*"}, hosts...)).Draw(t, "host"),
		}}
	})
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(rule, 0, 20).Draw(t, "rules")
		x := NewRules(slices.Values(rules))
		for range 20 {
			a := Access{
				User:      rapid.SampledFrom([]string{"u", "v", "w"}).Draw(t, "user"),
				Operation: rapid.SampledFrom(ops).Draw(t, "op"),
				Resource:  rapid.SampledFrom(types).Draw(t, "type"),
				Name:      rapid.SampledFrom(names).Draw(t, "name"),
				Host:      rapid.SampledFrom(hosts).Draw(t, "host"),
			}
			want, deciding := naive(rules, a)
			got := x.Evaluate(a)
			if got.Allowed != want {
				t.Fatalf("%+v: allowed %v, want %v", a, got.Allowed, want)
			}
			if len(deciding) == 0 && got.Rule != nil || len(deciding) > 0 && !slices.Contains(deciding, got.Rule) {
				t.Fatalf("%+v: decided by %+v", a, got.Rule)
			}
		}
	})
}

// manyRules is a cluster of 1,000 users with ten rules each.
func manyRules() *Rules {
	var fields []metadata.ACLFields
	for u := range 1000 {
		user := fmt.Sprintf("user-%d", u)
		for r := range 8 {
			fields = append(fields, topicRule(user, metadata.OpRead, fmt.Sprintf("topic-%d", u+r)))
		}
		fields = append(fields,
			with(topicRule(user, metadata.OpWrite, user+"."), func(f *metadata.ACLFields) { f.Pattern = metadata.PatternPrefixed }),
			with(topicRule(user, metadata.OpDelete, "*"), func(f *metadata.ACLFields) { f.Permission = metadata.Deny }))
	}
	return index(fields...)
}

func TestEvaluationAllocatesNothing(t *testing.T) {
	x := manyRules()
	a := Access{User: "user-7", Operation: metadata.OpWrite, Resource: metadata.ResourceTopic, Name: "user-7.orders", Host: "10.0.0.1"}
	require.True(t, x.Evaluate(a).Allowed)
	require.Zero(t, testing.AllocsPerRun(100, func() { x.Evaluate(a) }))
}

func BenchmarkEvaluate(b *testing.B) {
	x := manyRules()
	for name, a := range map[string]Access{
		"literal": {User: "user-7", Operation: metadata.OpRead, Resource: metadata.ResourceTopic, Name: "topic-9", Host: "10.0.0.1"},
		"prefix":  {User: "user-7", Operation: metadata.OpWrite, Resource: metadata.ResourceTopic, Name: "user-7.orders", Host: "10.0.0.1"},
		"none":    {User: "user-7", Operation: metadata.OpRead, Resource: metadata.ResourceTopic, Name: "other", Host: "10.0.0.1"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				x.Evaluate(a)
			}
		})
	}
}
