package auth

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

const anyHost = "10.0.0.1"

// may says what becomes of alice's request on a topic: "ok" or the code.
func may(a *Authorizer, op metadata.Operation, topic string) string {
	return codeOf(a.Authorize(context.Background(), &Principal{Name: "alice"}, Access{Operation: op, Resource: metadata.ResourceTopic, Name: topic, Host: anyHost}))
}

func TestARuleHoldsFromTheNextCallOn(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	rule := topicRule("alice", metadata.OpRead, "orders")
	require.Equal(t, "forbidden", may(n.Authorizer, metadata.OpRead, "orders"))
	_, existed, err := n.Service.CreateACL(t.Context(), rule)
	require.NoError(t, err)
	require.False(t, existed)
	require.Equal(t, "ok", may(n.Authorizer, metadata.OpRead, "orders"))
	first, existed, err := n.Service.CreateACL(t.Context(), rule)
	require.NoError(t, err)
	require.True(t, existed)

	_, _, err = n.Service.CreateACL(t.Context(), with(rule, func(f *metadata.ACLFields) { f.Permission, f.Host = metadata.Deny, "" }))
	require.NoError(t, err)
	require.Equal(t, "forbidden", may(n.Authorizer, metadata.OpRead, "orders"))

	deleted, err := n.Service.DeleteACLs(t.Context(), metadata.ACLFields{Permission: metadata.Deny})
	require.NoError(t, err)
	require.Len(t, deleted, 1)
	require.Equal(t, "*", deleted[0].Host, "an empty host means any")
	require.Equal(t, "ok", may(n.Authorizer, metadata.OpRead, "orders"))

	deleted, err = n.Service.DeleteACLs(t.Context(), rule)
	require.NoError(t, err)
	require.Equal(t, []*metadata.ACL{first}, deleted)
	require.Equal(t, "forbidden", may(n.Authorizer, metadata.OpRead, "orders"))
	_, err = n.Service.DeleteACLs(t.Context(), metadata.ACLFields{})
	requireCode(t, model.InvalidArgument, err)
}

func TestABadRuleIsRefusedWithAPointer(t *testing.T) {
	t.Parallel()
	n := withUsers(t)
	_, _, err := n.Service.CreateACL(t.Context(), with(topicRule("alice", "fly", "orders"), func(*metadata.ACLFields) {}))
	requireCode(t, model.InvalidArgument, err)
	require.Equal(t, "/operation", model.AsError(err).Fields[0].Pointer)
}

func TestAdministratorsBypassTheRules(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	_, _, err := n.Service.CreateACL(t.Context(), with(topicRule("*", metadata.OpAll, "*"), func(f *metadata.ACLFields) { f.Permission = metadata.Deny }))
	require.NoError(t, err)
	d := n.Authorizer.Decide(Access{User: "root", Operation: metadata.OpDelete, Resource: metadata.ResourceTopic, Name: "t"})
	require.Equal(t, Decision{Allowed: true}, d)
	require.NoError(t, n.Authorizer.Authorize(t.Context(), root(), Access{Operation: metadata.OpAlter, Resource: metadata.ResourceCluster, Name: metadata.ClusterResource, Host: anyHost}))
	require.NoError(t, n.Authorizer.RequireAdmin(t.Context(), root(), "managing users"))
	err = n.Authorizer.RequireAdmin(t.Context(), &Principal{Name: "alice", Admin: true}, "managing users")
	requireCode(t, model.Forbidden, err)
	require.Equal(t, `managing users is for administrators and is not allowed to "User:alice"`, model.AsError(err).Detail)
}

func TestWhoIsGoneMayNothing(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	_, _, err := n.Service.CreateACL(t.Context(), topicRule("*", metadata.OpRead, "*"))
	require.NoError(t, err)
	require.Equal(t, "ok", may(n.Authorizer, metadata.OpRead, "t"))
	_, err = n.Service.AlterUser(t.Context(), "alice", UserChange{Disabled: ptr(true), Admin: ptr(true)})
	require.NoError(t, err)
	require.Equal(t, "forbidden", may(n.Authorizer, metadata.OpRead, "t"))
	require.NoError(t, n.Service.DeleteUser(t.Context(), "alice", ""))
	require.Equal(t, "forbidden", may(n.Authorizer, metadata.OpRead, "t"))
}

func TestARefusalNamesTheQuestionAndNotTheState(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	alice := &Principal{Name: "alice"}
	err := n.Authorizer.Authorize(t.Context(), alice, Access{Operation: metadata.OpWrite, Resource: metadata.ResourceTopic, Name: "orders", Host: anyHost})
	requireCode(t, model.Forbidden, err)
	require.Equal(t, `operation "write" on topic "orders" is not allowed to "User:alice"`, model.AsError(err).Detail)
	err = n.Authorizer.Authorize(t.Context(), alice, Access{Operation: metadata.OpDescribe, Resource: metadata.ResourceCluster, Name: metadata.ClusterResource, Host: anyHost})
	require.Equal(t, `operation "describe" on the cluster is not allowed to "User:alice"`, model.AsError(err).Detail)
}

func TestARefusalIsConfirmedByABarrier(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	behind := n.other(t).Authorizer
	_, _, err := n.Service.CreateACL(t.Context(), topicRule("alice", metadata.OpRead, "orders"))
	require.NoError(t, err)
	require.False(t, behind.Allowed(&Principal{Name: "alice"}, Access{Operation: metadata.OpRead, Resource: metadata.ResourceTopic, Name: "orders", Host: anyHost}), "lists go by the image at hand")
	require.Equal(t, "ok", may(behind, metadata.OpRead, "orders"))

	n.cluster.offline.Store(true)
	require.Equal(t, "quorum-unavailable", may(n.Authorizer, metadata.OpWrite, "orders"))
	require.Equal(t, "ok", may(n.Authorizer, metadata.OpRead, "orders"), "an allowed request needs no quorum")
}

func TestCheckingARule(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	for _, user := range []string{"alice", "future"} {
		_, _, err := n.Service.CreateACL(t.Context(), topicRule(user, metadata.OpRead, "orders"))
		require.NoError(t, err)
	}
	ask := Access{Operation: metadata.OpRead, Resource: metadata.ResourceTopic, Name: "orders", Host: anyHost}
	for principal, want := range map[string]bool{"User:alice": true, "User:future": true, "User:nobody": false, "User:root": true, "User:*": false} {
		d, err := n.Authorizer.Check(principal, ask)
		require.NoError(t, err, principal)
		require.Equal(t, want, d.Allowed, principal)
		require.Equal(t, want && principal != "User:root", d.Rule != nil, principal)
	}
	for pointer, q := range map[string]Access{
		"/operation":     {Operation: "fly", Resource: metadata.ResourceTopic},
		"/resource_type": {Operation: metadata.OpRead, Resource: "moon"},
	} {
		_, err := n.Authorizer.Check("User:alice", q)
		requireCode(t, model.InvalidArgument, err)
		require.Equal(t, pointer, model.AsError(err).Fields[0].Pointer)
	}
	for _, principal := range []string{"alice", "User:", "Group:x", ""} {
		_, err := n.Authorizer.Check(principal, ask)
		requireCode(t, model.InvalidArgument, err)
	}
}

func TestTheRuleIndexIsKeptWhileTheRulesStay(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	rule, _, err := n.Service.CreateACL(t.Context(), topicRule("alice", metadata.OpRead, "orders"))
	require.NoError(t, err)
	before := n.Authorizer.rulesOf(n.cluster.Image())
	old := n.cluster.Image()
	n.addUser(t, "bob", false)
	require.Same(t, before, n.Authorizer.rulesOf(n.cluster.Image()))
	require.Same(t, before, n.Authorizer.rulesOf(old), "a request that still holds the older image")

	// As many rules, but one is another.
	_, err = n.Service.DeleteACLs(t.Context(), rule.ACLFields)
	require.NoError(t, err)
	_, _, err = n.Service.CreateACL(t.Context(), topicRule("alice", metadata.OpRead, "orders"))
	require.NoError(t, err)
	require.NotSame(t, before, n.Authorizer.rulesOf(n.cluster.Image()))
}

func TestAnAllowedRequestAllocatesNothing(t *testing.T) {
	n := withUsers(t, "alice")
	_, _, err := n.Service.CreateACL(t.Context(), topicRule("alice", metadata.OpWrite, "orders"))
	require.NoError(t, err)
	alice, ctx := &Principal{Name: "alice"}, t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := n.Authorizer.Authorize(ctx, alice, Access{Operation: metadata.OpWrite, Resource: metadata.ResourceTopic, Name: "orders", Host: anyHost}); err != nil {
			t.Error(err)
		}
	}))
}

func BenchmarkAuthorize(b *testing.B) {
	n := withUsers(b, "alice")
	for i := range 1000 {
		n.cluster.mustPropose(b, metadata.CreateACL{ID: fmt.Sprint(i), Rule: topicRule(fmt.Sprintf("user-%d", i), metadata.OpRead, "orders")})
	}
	n.cluster.mustPropose(b, metadata.CreateACL{ID: "alice", Rule: topicRule("alice", metadata.OpWrite, "orders")})
	alice := &Principal{Name: "alice"}
	b.ReportAllocs()
	for b.Loop() {
		if err := n.Authorizer.Authorize(context.Background(), alice, Access{Operation: metadata.OpWrite, Resource: metadata.ResourceTopic, Name: "orders", Host: anyHost}); err != nil {
			b.Fatal(err)
		}
	}
}

// What coordinators and the audit log keep in topics is opened by no rule, and administrators
// only look and set retention and the like.
func TestReservedTopicsAreReadByAdministratorsAndWrittenByNobody(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	_, _, err := n.Service.CreateACL(t.Context(), topicRule("alice", metadata.OpAll, "*"))
	require.NoError(t, err)
	for _, topic := range []string{AuditTopic, OffsetsTopic} {
		may := func(user string, op metadata.Operation) bool {
			return n.Authorizer.Decide(Access{User: user, Operation: op, Resource: metadata.ResourceTopic, Name: topic}).Allowed
		}
		for _, op := range []metadata.Operation{metadata.OpRead, metadata.OpDescribe, metadata.OpDescribeConfigs, metadata.OpAlterConfigs} {
			require.True(t, may("root", op), "%s of %s", op, topic)
			require.False(t, may("alice", op), "%s of %s", op, topic)
		}
		for _, op := range []metadata.Operation{metadata.OpWrite, metadata.OpDelete, metadata.OpAlter, metadata.OpAll} {
			require.False(t, may("root", op), "%s of %s", op, topic)
			require.False(t, may("alice", op), "%s of %s", op, topic)
		}
	}
}
