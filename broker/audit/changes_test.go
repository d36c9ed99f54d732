package audit

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// history folds commands and gives the image after each.
func history(t *testing.T, cmds ...metadata.Command) []*metadata.Image {
	t.Helper()
	out := []*metadata.Image{metadata.Empty()}
	for i, c := range append([]metadata.Command{
		metadata.BootstrapCluster{ClusterID: "c", MetadataVersion: 1}, metadata.RegisterBroker{ID: 1, StorageID: "s", Incarnation: 1},
	}, cmds...) {
		next, _, res := metadata.Apply(out[len(out)-1], uint64(i+1), c)
		require.Nil(t, res.Refusal, "%s", c.Kind())
		out = append(out, next)
	}
	return out[2:]
}

func TestChangesNameTheFieldsThatDiffer(t *testing.T) {
	t.Parallel()
	creds := metadata.Credentials{PasswordHash: "$argon2id$secret", SCRAMSHA256: []byte("secret"), SCRAMSHA512: []byte("secret")}
	images := history(t,
		metadata.CreateTopic{ID: model.TopicID{15: 1}, Name: "t", Assignments: [][]model.BrokerID{{1}}, Config: map[string]string{"retention.ms": "5", "segment.ms": "7"}},
		metadata.AlterTopicConfig{Name: "t", Set: map[string]string{"retention.ms": "6"}, Unset: []string{"segment.ms"}},
		metadata.CreateUser{Name: "u", Admin: true, Credentials: creds},
		metadata.SetQuota{User: "u", Limits: metadata.QuotaLimits{RequestsPerS: new(int64(5))}},
		metadata.CreateAPIToken{ID: "k", User: "u", Name: "ci", Hash: []byte("secret"), Scopes: []metadata.Scope{{ResourceType: "topic", ResourceName: "t", Pattern: "literal", Operation: "read"}}},
		metadata.CreateSession{ID: "s", User: "u", IfEpoch: 5, RefreshHash: []byte("secret"), ExpiresAt: 9, Now: 1},
		metadata.RevokeSessions{ID: "s", User: "u"},
		metadata.DeleteTopic{Name: "t"},
	)
	type object = map[string]any
	for _, c := range []struct {
		step          int
		about         Resource
		before, after object
	}{
		{1, Resource{"topic", "t"}, nil, object{"id": images[1].Topic("t").ID.String(), "partitions": 1, "replication_factor": 1, "config.retention.ms": "5", "config.segment.ms": "7"}},
		{2, Resource{"topic", "t"}, object{"config.retention.ms": "5", "config.segment.ms": "7"}, object{"config.retention.ms": "6"}},
		{3, Resource{"user", "u"}, nil, object{"admin": true, "disabled": false}},
		{3, Resource{"topic", "t"}, nil, nil},
		{4, Resource{"quota", "u"}, nil, object{"requests_per_s": int64(5)}},
		{5, Resource{"token", "k"}, nil, object{"user": "u", "name": "ci", "scopes": []string{"read topic t literal"}}},
		{6, Resource{"session", "s"}, nil, object{"user": "u", "revoked": false}},
		{7, Resource{"session", "s"}, object{"revoked": false}, object{"revoked": true}},
		{8, Resource{"none", "t"}, nil, nil},
	} {
		before, after := Changes(images[c.step-1], images[c.step], c.about)
		require.Equal(t, c.before, before, "%d %s", c.step, c.about)
		require.Equal(t, c.after, after, "%d %s", c.step, c.about)
		b, err := json.Marshal([]any{before, after})
		require.NoError(t, err)
		require.NotContains(t, string(b), "secret")
	}
	before, after := Changes(images[7], images[8], Resource{"topic", "t"})
	require.NotEmpty(t, before)
	require.Nil(t, after)
}
