package metadata

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

// Each row applies one command to the founding image (plus given ones) and says what
// becomes of it; a refusal must leave everything but the index as it was.
func TestRefusals(t *testing.T) {
	t.Parallel()
	session := CreateSession{ID: "s1", User: "alice", IfEpoch: 8, RefreshHash: []byte("h1"), ExpiresAt: t0 + day, Now: t0}
	key := AddSigningKey{KID: "k1", PublicKey: []byte("p"), SealedPrivate: []byte("s"), SignUntil: t0 + 1, VerifyUntil: t0 + 2, Now: t0}
	key2 := key
	key2.KID = "k2"
	long := make([]byte, 250)
	for i := range long {
		long[i] = 'x'
	}
	for name, row := range map[string]struct {
		given []Command
		cmd   Command
		want  model.Code // "" for success
	}{
		"second bootstrap":            {cmd: BootstrapCluster{ClusterID: "c-2", MetadataVersion: 1}, want: model.Conflict},
		"topic exists":                {cmd: CreateTopic{ID: topicID(9), Name: "a_b", Assignments: one(1)}, want: model.TopicExists},
		"topic collides":              {cmd: CreateTopic{ID: topicID(9), Name: "a.b", Assignments: one(1)}, want: model.TopicExists},
		"topic id taken":              {cmd: CreateTopic{ID: topicID(1), Name: "n", Assignments: one(1)}, want: model.Conflict},
		"topic without id":            {cmd: CreateTopic{Name: "n", Assignments: one(1)}, want: model.InvalidArgument},
		"topic without name":          {cmd: CreateTopic{ID: topicID(9), Assignments: one(1)}, want: model.InvalidArgument},
		"topic name ..":               {cmd: CreateTopic{ID: topicID(9), Name: "..", Assignments: one(1)}, want: model.InvalidArgument},
		"topic name of 250":           {cmd: CreateTopic{ID: topicID(9), Name: string(long), Assignments: one(1)}, want: model.InvalidArgument},
		"topic name of 249":           {cmd: CreateTopic{ID: topicID(9), Name: string(long[1:]), Assignments: one(1)}},
		"topic without partitions":    {cmd: CreateTopic{ID: topicID(9), Name: "n"}, want: model.InvalidArgument},
		"topic on an unknown broker":  {cmd: CreateTopic{ID: topicID(9), Name: "n", Assignments: [][]model.BrokerID{{7}}}, want: model.InvalidArgument},
		"topic twice on one broker":   {cmd: CreateTopic{ID: topicID(9), Name: "n", Assignments: [][]model.BrokerID{{1, 1}}}, want: model.InvalidArgument},
		"topic with uneven replicas":  {cmd: CreateTopic{ID: topicID(9), Name: "n", Assignments: [][]model.BrokerID{{1}, {1, 2}}}, want: model.InvalidArgument},
		"topic with an unknown key":   {cmd: CreateTopic{ID: topicID(9), Name: "n", Assignments: one(1), Config: map[string]string{"x": "1"}}, want: model.InvalidArgument},
		"min isr above replicas":      {cmd: CreateTopic{ID: topicID(9), Name: "n", Assignments: one(1), Config: map[string]string{"min.insync.replicas": "2"}}, want: model.InvalidArgument},
		"delete an unknown topic":     {cmd: DeleteTopic{Name: "n"}, want: model.UnknownTopic},
		"delete another topic's id":   {cmd: DeleteTopic{Name: "a_b", ID: topicID(2)}, want: model.UnknownTopic},
		"delete by an old etag":       {cmd: DeleteTopic{Name: "a_b", IfMatch: "1"}, want: model.ETagMismatch},
		"delete by id and etag":       {cmd: DeleteTopic{Name: "a_b", ID: topicID(1), IfMatch: etagOf(9)}},
		"grow to fewer":               {cmd: CreatePartitions{Name: "a_b", From: 2}, want: model.InvalidArgument},
		"grow from elsewhere":         {cmd: CreatePartitions{Name: "a_b", From: 1, Assignments: one(1)}, want: model.Conflict},
		"grow an unknown topic":       {cmd: CreatePartitions{Name: "n", From: 1, Assignments: one(1)}, want: model.UnknownTopic},
		"config of an unknown topic":  {cmd: AlterTopicConfig{Name: "n"}, want: model.UnknownTopic},
		"config by an old etag":       {cmd: AlterTopicConfig{Name: "a_b", IfMatch: "1"}, want: model.ETagMismatch},
		"config set and unset":        {cmd: AlterTopicConfig{Name: "a_b", Set: map[string]string{"segment.ms": "5"}, Unset: []string{"segment.ms"}}, want: model.InvalidArgument},
		"config unset of unknown":     {cmd: AlterTopicConfig{Name: "a_b", Unset: []string{"x"}}, want: model.InvalidArgument},
		"cluster config unknown key":  {cmd: AlterClusterConfig{Set: map[string]string{"x": "1"}}, want: model.InvalidArgument},
		"cluster config by old etag":  {cmd: AlterClusterConfig{IfMatch: "zz"}, want: model.ETagMismatch},
		"user exists":                 {cmd: CreateUser{Name: "alice", Credentials: creds("x")}, want: model.UserExists},
		"first user beside others":    {cmd: CreateUser{Name: "u", Credentials: creds("x"), OnlyIfNoUsers: true}, want: model.Conflict},
		"setup with a used token":     {cmd: CreateUser{Name: "u", Credentials: creds("x"), SetupTokenHash: []byte("s")}, want: model.BadCredentials},
		"setup token beside users":    {cmd: SetSetupToken{Hash: []byte("s")}, want: model.Conflict},
		"user without password":       {cmd: CreateUser{Name: "u"}, want: model.InvalidArgument},
		"user with a control char":    {cmd: CreateUser{Name: "u\n", Credentials: creds("x")}, want: model.InvalidArgument},
		"alter an unknown user":       {cmd: AlterUser{Name: "u"}, want: model.UnknownUser},
		"alter by an old etag":        {cmd: AlterUser{Name: "alice", Admin: yes(), IfMatch: "1"}, want: model.ETagMismatch},
		"last admin loses admin":      {cmd: AlterUser{Name: "root", Admin: no()}, want: model.LastAdmin},
		"last admin is disabled":      {cmd: AlterUser{Name: "root", Disabled: yes()}, want: model.LastAdmin},
		"last admin is deleted":       {cmd: DeleteUser{Name: "root"}, want: model.LastAdmin},
		"a disabled admin is no help": {given: []Command{AlterUser{Name: "alice", Admin: yes(), Disabled: yes()}}, cmd: DeleteUser{Name: "root"}, want: model.LastAdmin},
		"one of two admins goes":      {given: []Command{AlterUser{Name: "alice", Admin: yes()}}, cmd: DeleteUser{Name: "root"}},
		"a disabled admin goes":       {given: []Command{AlterUser{Name: "alice", Admin: yes(), Disabled: yes()}}, cmd: DeleteUser{Name: "alice"}},
		"password of an unknown user": {cmd: SetPassword{Name: "u", Credentials: creds("x")}, want: model.UnknownUser},
		"password after another":      {given: []Command{SetPassword{Name: "alice", Credentials: creds("1")}}, cmd: SetPassword{Name: "alice", Credentials: creds("2"), IfEpoch: 8}, want: model.Conflict},
		"delete an unknown user":      {cmd: DeleteUser{Name: "u"}, want: model.UnknownUser},
		"rule of nobody":              {cmd: CreateACL{ID: "x", Rule: rule("alice", "t", PatternLiteral)}, want: model.InvalidArgument},
		"rule without resource":       {cmd: CreateACL{ID: "x", Rule: rule("User:alice", "", PatternLiteral)}, want: model.InvalidArgument},
		"rule without id":             {cmd: CreateACL{Rule: rule("User:alice", "t", PatternLiteral)}, want: model.InvalidArgument},
		"delete all rules":            {cmd: DeleteACLs{}, want: model.InvalidArgument},
		"session of nobody":           {cmd: CreateSession{ID: "s", User: "u", RefreshHash: []byte("h"), ExpiresAt: 2, Now: 1}, want: model.BadCredentials},
		"session of an old password":  {cmd: CreateSession{ID: "s", User: "alice", IfEpoch: 7, RefreshHash: []byte("h"), ExpiresAt: 2, Now: 1}, want: model.BadCredentials},
		"session id taken":            {given: []Command{session}, cmd: session, want: model.Conflict},
		"session that has ended":      {cmd: CreateSession{ID: "s", User: "alice", IfEpoch: 8, RefreshHash: []byte("h"), ExpiresAt: 1, Now: 1}, want: model.InvalidArgument},
		"rotate no session":           {cmd: RotateSession{ID: "s", Now: 1}, want: model.BadCredentials},
		"rotate after the end":        {given: []Command{session}, cmd: RotateSession{ID: "s1", CurrentHash: []byte("h1"), NextHash: []byte("h2"), ExpiresAt: t0 + 3*day, Now: t0 + day}, want: model.TokenExpired},
		"rotate after disabling":      {given: []Command{session, AlterUser{Name: "alice", Disabled: yes()}}, cmd: RotateSession{ID: "s1", CurrentHash: []byte("h1"), NextHash: []byte("h2"), ExpiresAt: t0 + day, Now: t0}, want: model.BadCredentials},
		"rotate after new password":   {given: []Command{session, SetPassword{Name: "alice", Credentials: creds("n")}}, cmd: RotateSession{ID: "s1", CurrentHash: []byte("h1"), NextHash: []byte("h2"), ExpiresAt: t0 + day, Now: t0}, want: model.BadCredentials},
		"rotate after logout":         {given: []Command{session, RevokeSessions{ID: "s1"}}, cmd: RotateSession{ID: "s1", CurrentHash: []byte("h1"), NextHash: []byte("h2"), ExpiresAt: t0 + day, Now: t0}, want: model.BadCredentials},
		"revoke no session":           {cmd: RevokeSessions{ID: "s"}},
		"renew no session":            {cmd: RenewSession{ID: "s", Hash: []byte("h1"), ExpiresAt: t0 + day, Now: t0}, want: model.BadCredentials},
		"renew by another hash":       {given: []Command{session}, cmd: RenewSession{ID: "s1", Hash: []byte("h2"), ExpiresAt: t0 + 2*day, Now: t0 + 1}, want: model.BadCredentials},
		"renew without a hash":        {given: []Command{session}, cmd: RenewSession{ID: "s1", ExpiresAt: t0 + 2*day, Now: t0 + 1}, want: model.BadCredentials},
		"renew after the end":         {given: []Command{session}, cmd: RenewSession{ID: "s1", Hash: []byte("h1"), ExpiresAt: t0 + 3*day, Now: t0 + day}, want: model.TokenExpired},
		"renew after logout":          {given: []Command{session, RevokeSessions{ID: "s1"}}, cmd: RenewSession{ID: "s1", Hash: []byte("h1"), ExpiresAt: t0 + 2*day, Now: t0 + 1}, want: model.BadCredentials},
		"renew after disabling":       {given: []Command{session, AlterUser{Name: "alice", Disabled: yes()}}, cmd: RenewSession{ID: "s1", Hash: []byte("h1"), ExpiresAt: t0 + 2*day, Now: t0 + 1}, want: model.BadCredentials},
		"ticket of no session":        {cmd: UseTicket{ID: "w", SessionID: "s", ExpiresAt: t0 + 1, Now: t0}, want: model.BadCredentials},
		"ticket of no token":          {cmd: UseTicket{ID: "w", TokenID: "t", ExpiresAt: t0 + 1, Now: t0}, want: model.BadCredentials},
		"ticket that has expired":     {given: []Command{session}, cmd: UseTicket{ID: "w", SessionID: "s1", ExpiresAt: t0, Now: t0}, want: model.BadCredentials},
		"ticket after logout":         {given: []Command{session, RevokeSessions{ID: "s1"}}, cmd: UseTicket{ID: "w", SessionID: "s1", ExpiresAt: t0 + 1, Now: t0}, want: model.BadCredentials},
		"ticket that was used":        {given: []Command{session, UseTicket{ID: "w", SessionID: "s1", ExpiresAt: t0 + 9, Now: t0}}, cmd: UseTicket{ID: "w", SessionID: "s1", ExpiresAt: t0 + 9, Now: t0 + 8}, want: model.BadCredentials},
		"another ticket":              {given: []Command{session, UseTicket{ID: "w", SessionID: "s1", ExpiresAt: t0 + 9, Now: t0}}, cmd: UseTicket{ID: "v", SessionID: "s1", ExpiresAt: t0 + 9, Now: t0 + 8}},
		"one token too many":          {given: []Command{CreateAPIToken{ID: "t", User: "alice", Name: "n"}}, cmd: CreateAPIToken{ID: "u", User: "alice", Name: "n", MaxTokens: 1}, want: model.Conflict},
		"the last token there may be": {given: []Command{CreateAPIToken{ID: "t", User: "alice", Name: "n"}}, cmd: CreateAPIToken{ID: "u", User: "alice", Name: "n", MaxTokens: 2}},
		"delete a token by old etag":  {given: []Command{CreateAPIToken{ID: "t", User: "alice", Name: "n"}}, cmd: DeleteAPIToken{ID: "t", User: "alice", IfMatch: "1"}, want: model.ETagMismatch},
		"token of nobody":             {cmd: CreateAPIToken{ID: "t", User: "u", Name: "n"}, want: model.UnknownUser},
		"token without name":          {cmd: CreateAPIToken{ID: "t", User: "alice"}, want: model.InvalidArgument},
		"token that has ended":        {cmd: CreateAPIToken{ID: "t", User: "alice", Name: "n", ExpiresAt: 5, Now: 5}, want: model.InvalidArgument},
		"token with a bad scope":      {cmd: CreateAPIToken{ID: "t", User: "alice", Name: "n", Scopes: []Scope{{}}}, want: model.InvalidArgument},
		"delete another's token":      {given: []Command{CreateAPIToken{ID: "t", User: "alice", Name: "n"}}, cmd: DeleteAPIToken{ID: "t", User: "root"}, want: model.NotFound},
		"key beside an unseen one":    {given: []Command{key}, cmd: key2, want: model.Conflict},
		"key that never signs":        {cmd: AddSigningKey{KID: "k", PublicKey: []byte("p"), SealedPrivate: []byte("s"), Now: t0}, want: model.InvalidArgument},
		"no producer ids":             {cmd: AllocateProducerIDs{Broker: 1, Epoch: 2}, want: model.InvalidArgument},
		"producer ids of an old life": {cmd: AllocateProducerIDs{Broker: 1, Epoch: 1, Size: 1}, want: model.Fenced},
		"producer ids of nobody":      {cmd: AllocateProducerIDs{Broker: 9, Epoch: 1, Size: 1}, want: model.UnknownBroker},
		"fence an old life":           {cmd: FenceBroker{ID: 2, Epoch: 1}, want: model.Fenced},
		"fence nobody":                {cmd: FenceBroker{ID: 9, Epoch: 1}, want: model.UnknownBroker},
		"unfence an old life":         {cmd: UnfenceBroker{ID: 2, Epoch: 1}, want: model.Fenced},
		"quota of nobody":             {cmd: SetQuota{User: "u", Limits: QuotaLimits{RequestsPerS: limit(1)}}, want: model.UnknownUser},
		"quota of all":                {cmd: SetQuota{User: DefaultQuota, Limits: QuotaLimits{RequestsPerS: limit(1)}}},
		"quota without limits":        {cmd: SetQuota{User: "alice"}, want: model.InvalidArgument},
		"quota of 0":                  {cmd: SetQuota{User: "alice", Limits: QuotaLimits{FetchBytesPerS: limit(0)}}, want: model.InvalidArgument},
		"largest quota":               {cmd: SetQuota{User: "alice", Limits: QuotaLimits{FetchBytesPerS: limit(1<<53 - 1)}}},
		"quota beyond JSON's numbers": {cmd: SetQuota{User: "alice", Limits: QuotaLimits{FetchBytesPerS: limit(1 << 53)}}, want: model.InvalidArgument},
		"new quota by an etag":        {cmd: SetQuota{User: "alice", Limits: QuotaLimits{FetchBytesPerS: limit(1)}, IfMatch: "1"}, want: model.ETagMismatch},
		"quota by an old etag":        {given: []Command{SetQuota{User: "alice", Limits: QuotaLimits{FetchBytesPerS: limit(1)}}}, cmd: SetQuota{User: "alice", Limits: QuotaLimits{FetchBytesPerS: limit(2)}, IfMatch: "1"}, want: model.ETagMismatch},
		"delete no quota":             {cmd: DeleteQuota{User: "alice"}, want: model.NotFound},
		"delete no quota of all":      {cmd: DeleteQuota{User: DefaultQuota}, want: model.NotFound},
		"delete the quota of nobody":  {cmd: DeleteQuota{User: "u"}, want: model.UnknownUser},
		"delete a quota by old etag":  {given: []Command{SetQuota{User: "alice", Limits: QuotaLimits{FetchBytesPerS: limit(1)}}}, cmd: DeleteQuota{User: "alice", IfMatch: "1"}, want: model.ETagMismatch},
		"node id in use":              {cmd: RegisterBroker{ID: 1, StorageID: "other"}, want: model.Conflict},
		"negative node id":            {cmd: RegisterBroker{ID: -1, StorageID: "other"}, want: model.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := image(t, append(founding(), row.given...)...)
			next, d, res := Apply(m, 100, row.cmd)
			if row.want == "" {
				require.Nil(t, res.Refusal)
				return
			}
			require.NotNil(t, res.Refusal)
			require.Equal(t, row.want, res.Refusal.Code, res.Refusal.Error())
			require.NotEmpty(t, res.Refusal.Detail)
			require.True(t, d.IsEmpty(), "a refusal changed %+v", d)
			head := len(imageMagic) + 8
			a, b := Encode(m), Encode(next)
			require.True(t, bytes.Equal(a[head:len(a)-4], b[head:len(b)-4]), "a refusal changed the image")
		})
	}
}

func TestNothingIsAppliedBeforeTheClusterHasItsID(t *testing.T) {
	t.Parallel()
	_, _, res := Apply(Empty(), 1, CreateUser{Name: "u", Credentials: creds("u")})
	require.Equal(t, model.Conflict, res.Refusal.Code)
}

func TestACollisionNamesTheOtherTopic(t *testing.T) {
	t.Parallel()
	_, _, res := Apply(image(t, founding()...), 100, CreateTopic{ID: topicID(9), Name: "a.b", Assignments: one(1)})
	require.Equal(t, "a_b", res.Refusal.Extra["existing"])
	require.Contains(t, res.Refusal.Detail, `"a_b"`)
}

func TestTheFirstUserClosesTheSetup(t *testing.T) {
	t.Parallel()
	m := image(t, founding()[:6]...)
	require.Equal(t, []byte("s"), m.Cluster().SetupTokenHash)
	_, _, res := Apply(m, 50, CreateUser{Name: "u", Admin: true, Credentials: creds("u"), SetupTokenHash: []byte("wrong")})
	require.Equal(t, model.BadCredentials, res.Refusal.Code)
	m, d, res := Apply(m, 51, CreateUser{Name: "u", Admin: true, Credentials: creds("u"), OnlyIfNoUsers: true})
	require.Nil(t, res.Refusal)
	require.Nil(t, m.Cluster().SetupTokenHash)
	require.True(t, d.Cluster)
}

func TestReuseOfARefreshTokenRevokesTheFamily(t *testing.T) {
	t.Parallel()
	m := image(t, append(founding(),
		CreateSession{ID: "s1", User: "alice", IfEpoch: 8, RefreshHash: []byte("h1"), ExpiresAt: t0 + day, Now: t0},
		RotateSession{ID: "s1", CurrentHash: []byte("h1"), NextHash: []byte("h2"), ExpiresAt: t0 + day, Now: t0})...)
	require.Equal(t, []byte("h1"), m.Session("s1").PreviousHash)
	next, d, res := Apply(m, 100, RotateSession{ID: "s1", CurrentHash: []byte("h1"), NextHash: []byte("h3"), ExpiresAt: t0 + day, Now: t0})
	require.Equal(t, model.BadCredentials, res.Refusal.Code)
	require.True(t, next.Session("s1").Revoked)
	require.Equal(t, Changed, d.Sessions["s1"])
	_, _, res = Apply(next, 101, RotateSession{ID: "s1", CurrentHash: []byte("h2"), NextHash: []byte("h3"), ExpiresAt: t0 + day, Now: t0})
	require.Equal(t, model.BadCredentials, res.Refusal.Code, "the honest client's token is dead too")
}

func TestCredentialEpochsOutliveTheUser(t *testing.T) {
	t.Parallel()
	m := image(t, founding()...)
	first := m.User("alice").CredentialsEpoch
	m, _, _ = Apply(m, 50, SetPassword{Name: "alice", Credentials: creds("2")})
	require.Greater(t, m.User("alice").CredentialsEpoch, first)
	m, _, _ = Apply(m, 51, DeleteUser{Name: "alice"})
	m, _, _ = Apply(m, 52, CreateUser{Name: "alice", Credentials: creds("3")})
	require.Equal(t, uint64(52), m.User("alice").CredentialsEpoch)
	enabled, _, _ := Apply(m, 53, AlterUser{Name: "alice", Admin: yes()})
	require.Equal(t, uint64(52), enabled.User("alice").CredentialsEpoch, "becoming admin ends no token")
}

func TestADeletedUserLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	m := image(t, append(founding(),
		CreateSession{ID: "s1", User: "alice", IfEpoch: 8, RefreshHash: []byte("h"), ExpiresAt: t0 + day, Now: t0},
		CreateAPIToken{ID: "t1", User: "alice", Name: "ci", Now: t0},
		CreateACL{ID: "r1", Rule: rule("User:alice", "x", PatternLiteral)},
		SetQuota{User: "alice", Limits: QuotaLimits{RequestsPerS: limit(3)}},
		SetQuota{User: DefaultQuota, Limits: QuotaLimits{RequestsPerS: limit(5)}},
		CreateACL{ID: "r2", Rule: rule("User:alicia", "x", PatternLiteral)})...)
	m, d, res := Apply(m, 100, DeleteUser{Name: "alice"})
	require.Nil(t, res.Refusal)
	require.Nil(t, m.Session("s1"))
	require.Nil(t, m.APIToken("t1"))
	require.Nil(t, m.ACL("r1"))
	require.NotNil(t, m.ACL("r2"))
	require.Nil(t, m.Quota("alice"))
	require.NotNil(t, m.Quota(DefaultQuota))
	require.Equal(t, Delta{
		Quotas: map[string]Change{"alice": Deleted},
		Users:  map[string]Change{"alice": Deleted}, Sessions: map[string]Change{"s1": Deleted},
		APITokens: map[string]Change{"t1": Deleted}, ACLs: map[string]Change{"r1": Deleted},
	}, d)
}

func TestExpiredThingsArePrunedByTheCommandsClock(t *testing.T) {
	t.Parallel()
	m := image(t, history()...)
	_, _, res := Apply(m, 100, Prune{Now: t0})
	require.Equal(t, 0, res.Value)
	next, _, res := Apply(m, 101, Prune{Now: t0 + 2*day})
	require.NotZero(t, res.Value)
	for s := range next.Sessions() {
		require.Greater(t, s.ExpiresAt, t0+2*day)
	}
	require.NotNil(t, next.APIToken("t2"), "a token without an end stays")
	require.Nil(t, next.SigningKey("k1"))
	require.Equal(t, "k2", next.NewestSigningKey().KID)
}

func TestARestartedLeaderIsFollowedByAnotherAndALostOneLeavesTheISR(t *testing.T) {
	t.Parallel()
	m := image(t, append(founding(), UnfenceBroker{ID: 2, Epoch: 4}, UnfenceBroker{ID: 3, Epoch: 5},
		CreateTopic{ID: topicID(5), Name: "alone", Assignments: one(1), Now: t0},
		CreateTopic{ID: topicID(3), Name: "three", Assignments: [][]model.BrokerID{{1, 2, 3}, {2, 3, 1}}, Now: t0})...)
	again := RegisterBroker{ID: 1, StorageID: m.Broker(1).StorageID, Incarnation: 11, Host: "moved"}
	same, _, _ := Apply(m, 50, again)
	require.Equal(t, int64(2), same.Broker(1).Epoch, "the same process keeps its epoch")
	require.False(t, same.Broker(1).Fenced)
	require.Equal(t, "moved", same.Broker(1).Host)

	again.Incarnation = 12
	next, d, res := Apply(m, 50, again)
	require.Nil(t, res.Refusal)
	require.Equal(t, int64(50), next.Broker(1).Epoch)
	require.True(t, next.Broker(1).Fenced)
	require.Equal(t, Changed, d.Topics[topicID(3)])
	p := next.Topic("three").Partitions
	require.Equal(t, Partition{Leader: 2, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: ids(1, 2, 3), ISR: ids(2, 3), ELR: ids()}, p[0])
	require.Equal(t, Partition{Leader: 2, LeaderEpoch: 0, PartitionEpoch: 1, Replicas: ids(2, 3, 1), ISR: ids(2, 3), ELR: ids()}, p[1])
	require.Equal(t, Partition{Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: ids(1), ISR: ids(1), ELR: ids()}, next.Topic("alone").Partitions[0], "nobody else has its records")
	require.Equal(t, m.Topic("three").ETag(), next.Topic("three").ETag(), "leadership is not the topic's state")

	lost, _, res := Apply(next, 60, RegisterBroker{ID: 1, StorageID: "new disk", Incarnation: 13})
	require.Nil(t, res.Refusal, "its node id is free, since it is fenced")
	p = lost.Topic("three").Partitions
	require.Equal(t, next.Topic("three").Partitions, p)
	require.Equal(t, Partition{Leader: NoLeader, LeaderEpoch: 2, PartitionEpoch: 2, Replicas: ids(1), ISR: ids(), ELR: ids()}, lost.Topic("alone").Partitions[0])
}

func ids(n ...model.BrokerID) []model.BrokerID { return append([]model.BrokerID{}, n...) }

func TestAnEqualRuleIsNotAddedTwice(t *testing.T) {
	t.Parallel()
	m := image(t, append(founding(), CreateACL{ID: "r1", Rule: rule("User:alice", "x", PatternLiteral)})...)
	next, d, res := Apply(m, 100, CreateACL{ID: "r9", Rule: rule("User:alice", "x", PatternLiteral)})
	require.Equal(t, ACLCreated{ACL: m.ACL("r1"), Existed: true}, res.Value)
	require.True(t, d.IsEmpty())
	require.Equal(t, 1, next.ACLCount())
	next, _, res = Apply(next, 101, DeleteACLs{Filter: ACLFields{ResourceName: "x", Operation: OpRead}})
	require.Len(t, res.Value, 1)
	require.Equal(t, 0, next.ACLCount())
}

func TestConfigChangesTouchOnlyTheNamedKeys(t *testing.T) {
	t.Parallel()
	m := image(t, founding()...)
	require.Equal(t, int64(-1), m.Topic("a_b").Config.RetentionMs)
	version, etag := m.Topic("a_b").ETag(), m.Topic("a_b").ConfigETag()
	m, d, res := Apply(m, 50, AlterTopicConfig{Name: "a_b", Set: map[string]string{"cleanup.policy": "compact, delete", "segment.bytes": "65536"}, IfMatch: etag})
	require.Nil(t, res.Refusal)
	require.Equal(t, Changed, d.Topics[topicID(1)])
	p := m.Topic("a_b")
	require.Equal(t, map[string]string{"retention.ms": "-1", "cleanup.policy": "compact,delete", "segment.bytes": "65536"}, p.Overrides)
	require.Equal(t, CleanupPolicy{Delete: true, Compact: true}, p.Config.CleanupPolicy)
	require.Equal(t, int64(65536), p.Config.SegmentBytes)
	require.Equal(t, version, p.ETag())
	require.NotEqual(t, etag, p.ConfigETag())

	_, d, res = Apply(m, 51, AlterTopicConfig{Name: "a_b", Set: map[string]string{"segment.bytes": "65536"}})
	require.Nil(t, res.Refusal)
	require.True(t, d.IsEmpty(), "a change that changes nothing writes nothing")
}

func TestTheClustersConfigIsTheDefaultOfEveryTopic(t *testing.T) {
	t.Parallel()
	m := image(t, founding()...)
	m, d, _ := Apply(m, 50, AlterClusterConfig{Set: map[string]string{"retention.ms": "5", "segment.ms": "7", "min.insync.replicas": "3"}})
	require.True(t, d.ClusterConfig)
	c := m.Topic("a_b").Config
	require.Equal(t, int64(-1), c.RetentionMs, "the topic's own value wins")
	require.Equal(t, int64(7), c.SegmentMs)
	require.Equal(t, int64(1), c.MinInsyncReplicas, "never above the replication factor")
	require.Same(t, m.Topic("a_b"), m.TopicByID(topicID(1)))
	m, _, _ = Apply(m, 51, AlterClusterConfig{Unset: []string{"segment.ms"}})
	require.Equal(t, int64(604800000), m.Topic("a_b").Config.SegmentMs)
}

func TestProducerIDBlocksDoNotOverlap(t *testing.T) {
	t.Parallel()
	m := image(t, founding()...)
	var next int64
	for i, size := range []int{1, 1000, 7} {
		var res Result
		m, _, res = Apply(m, uint64(50+i), AllocateProducerIDs{Broker: 1, Epoch: 2, Size: size})
		require.Equal(t, ProducerIDBlock{First: model.ProducerID(next), Size: size}, res.Value)
		next += int64(size)
	}
}
