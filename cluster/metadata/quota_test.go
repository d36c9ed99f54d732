package metadata

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What a user has of its own wins, limit by limit; the rest comes from the default.
func TestEachLimitOfAUserComesFromTheDefaultWhereItHasNoneOfItsOwn(t *testing.T) {
	t.Parallel()
	m := image(t, append(founding(),
		SetQuota{User: DefaultQuota, Limits: QuotaLimits{ProduceBytesPerS: limit(10), FetchBytesPerS: limit(20)}},
		SetQuota{User: "alice", Limits: QuotaLimits{FetchBytesPerS: limit(1), RequestsPerS: limit(2)}})...)
	require.True(t, m.EffectiveQuota("alice").Equal(QuotaLimits{ProduceBytesPerS: limit(10), FetchBytesPerS: limit(1), RequestsPerS: limit(2)}))
	require.True(t, m.EffectiveQuota("root").Equal(QuotaLimits{ProduceBytesPerS: limit(10), FetchBytesPerS: limit(20)}))
	require.True(t, image(t, founding()...).EffectiveQuota("alice").Equal(QuotaLimits{}))
	require.Equal(t, 2, m.QuotaCount())
}

// Setting replaces the whole; setting the same writes nothing, so that its etag stays.
func TestAQuotaIsReplacedWhole(t *testing.T) {
	t.Parallel()
	m := image(t, append(founding(), SetQuota{User: "alice", Limits: QuotaLimits{FetchBytesPerS: limit(1)}})...)
	tag := m.Quota("alice").ETag()
	m, d, res := Apply(m, 50, SetQuota{User: "alice", Limits: QuotaLimits{FetchBytesPerS: limit(1)}, IfMatch: tag})
	require.Nil(t, res.Refusal)
	require.True(t, d.IsEmpty())
	require.Equal(t, QuotaSet{Quota: m.Quota("alice"), Existed: true}, res.Value)
	require.Equal(t, tag, m.Quota("alice").ETag())
	m, d, res = Apply(m, 51, SetQuota{User: "alice", Limits: QuotaLimits{RequestsPerS: limit(3)}, IfMatch: tag})
	require.Nil(t, res.Refusal)
	require.Equal(t, map[string]Change{"alice": Changed}, d.Quotas)
	require.Nil(t, m.Quota("alice").FetchBytesPerS)
	require.NotEqual(t, tag, m.Quota("alice").ETag())
	m, d, res = Apply(m, 52, DeleteQuota{User: "alice"})
	require.Nil(t, res.Refusal)
	require.Equal(t, map[string]Change{"alice": Deleted}, d.Quotas)
	require.Nil(t, m.Quota("alice"))
}
