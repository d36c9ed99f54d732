package rest

import (
	"net/http"
	"slices"
	"strconv"

	"tidewire/api/problem"
	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/broker/audit"
	"tidewire/broker/health"
	"tidewire/broker/replication"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// TopicItem is a topic in a list.
type TopicItem struct {
	Name              string           `json:"name"`
	ID                string           `json:"id" format:"uuid"`
	Internal          bool             `json:"internal"`
	Partitions        int              `json:"partitions"`
	ReplicationFactor int              `json:"replication_factor"`
	Health            string           `json:"health" enums:"healthy,under-replicated,under-min-isr,offline"`
	SizeBytes         int64            `json:"size_bytes"`
	Records           int64            `json:"records"` // between log start and high watermark
	BytesInPerS       float64          `json:"bytes_in_per_s"`
	BytesOutPerS      float64          `json:"bytes_out_per_s"`
	RetentionMs       int64            `json:"retention_ms"` // −1: no limit
	CleanupPolicy     string           `json:"cleanup_policy"`
	Actions           []string         `json:"actions"`
	ETag              string           `json:"etag"`
	Error             *problem.Problem `json:"error" extensions:"x-nullable"` // why sizes and records are not complete
}

// TopicCreate describes a new topic.
type TopicCreate struct {
	Name              string `json:"name" binding:"required" minLength:"1" maxLength:"249"`
	Partitions        *int   `json:"partitions" minimum:"1" maximum:"10000" extensions:"x-nullable"` // default: num.partitions of the cluster, 1 unless set
	ReplicationFactor *int   `json:"replication_factor" minimum:"1" extensions:"x-nullable"`         // default: default.replication.factor of the cluster; 3 where there are as many nodes, else 1
	// Settings by name; values are strings, numbers or booleans.
	Config map[string]string `json:"config" extensions:"x-kinds=string|number|boolean"`
}

// TopicUpdate raises the number of partitions.
type TopicUpdate struct {
	Partitions *int `json:"partitions" binding:"required" minimum:"1" maximum:"10000"`
}

// TopicView is a topic with its partitions.
type TopicView struct {
	Name              string               `json:"name"`
	ID                string               `json:"id" format:"uuid"`
	Internal          bool                 `json:"internal"`
	ReplicationFactor int                  `json:"replication_factor"`
	Health            string               `json:"health" enums:"healthy,under-replicated,under-min-isr,offline"`
	CreatedAt         *route.Time          `json:"created_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	Partitions        []PartitionStateView `json:"partitions"`
	Actions           []string             `json:"actions"`
	ETag              string               `json:"etag"`
}

// PartitionStateView is one partition. Where its state is not known here, offsets and sizes
// are null and error says why.
type PartitionStateView struct {
	Partition        int32            `json:"partition"`
	Health           string           `json:"health" enums:"healthy,under-replicated,under-min-isr,offline"`
	Leader           *int32           `json:"leader" extensions:"x-nullable"`
	LeaderEpoch      int32            `json:"leader_epoch"`
	Replicas         []int32          `json:"replicas"`
	ISR              []int32          `json:"isr"`
	Adding           []int32          `json:"adding"`   // replicas that a reassignment adds
	Removing         []int32          `json:"removing"` // replicas that it takes away in the end
	LogStartOffset   *int64           `json:"log_start_offset" extensions:"x-nullable"`
	HighWatermark    *int64           `json:"high_watermark" extensions:"x-nullable"`
	LastStableOffset *int64           `json:"last_stable_offset" extensions:"x-nullable"`
	LogEndOffset     *int64           `json:"log_end_offset" extensions:"x-nullable"`
	SizeBytes        *int64           `json:"size_bytes" extensions:"x-nullable"`
	Segments         *int             `json:"segments" extensions:"x-nullable"`
	ReplicaStates    []ReplicaState   `json:"replica_states"`
	Error            *problem.Problem `json:"error" extensions:"x-nullable"`
}

// ReplicaState is what the leader knows of a replica. Offsets are null where it has not heard
// of it since it leads.
type ReplicaState struct {
	Broker         int32  `json:"broker"`
	InSync         bool   `json:"in_sync"`
	LogEndOffset   *int64 `json:"log_end_offset" extensions:"x-nullable"`
	StableOffset   *int64 `json:"stable_offset" extensions:"x-nullable"`     // up to which it is synced to the disk; null for the leader
	Lag            *int64 `json:"lag" extensions:"x-nullable"`               // in records, behind the leader's log end
	LastCaughtUpMs *int64 `json:"last_caught_up_ms" extensions:"x-nullable"` // when it last was at the log end, ms since 1970; null for the leader
}

// TopicDeletion is what deleting a topic takes along.
type TopicDeletion struct {
	Name       string `json:"name"`
	Partitions int    `json:"partitions"`
	Records    int64  `json:"records"`
	SizeBytes  int64  `json:"size_bytes"`
}

// OffsetsAnswer has one offset a partition.
type OffsetsAnswer struct {
	Offsets []OffsetView `json:"offsets"`
}

// OffsetView is where a time, or an end, is in a partition. Offset is null where no
// record is late enough; timestamp is the record's, and null where none was looked for.
type OffsetView struct {
	Partition int32  `json:"partition"`
	Offset    *int64 `json:"offset" extensions:"x-nullable"`
	Timestamp *int64 `json:"timestamp" extensions:"x-nullable"`
}

// topicActions are what a caller may do to a topic, in the order they are listed.
var topicActions = []struct {
	name string
	op   metadata.Operation
}{
	{"read", metadata.OpRead}, {"write", metadata.OpWrite}, {"alter", metadata.OpAlter},
	{"alter-configs", metadata.OpAlterConfigs}, {"delete", metadata.OpDelete},
	{"describe-configs", metadata.OpDescribeConfigs},
}

func (a *API) topicActions(c *route.Call, name string) []string {
	out := []string{}
	for _, t := range topicActions {
		if a.broker.Allowed(c.Caller(), t.op, metadata.ResourceTopic, name) {
			out = append(out, t.name)
		}
	}
	return out
}

// topicHealth sums up a topic's partitions: the worst one counts.
func (a *API) topicHealth(s *broker.TopicState) string {
	worst := health.Healthy
	for _, h := range a.partitionHealths(s) {
		worst = max(worst, h)
	}
	return worst.String()
}

func (a *API) partitionHealths(s *broker.TopicState) []health.State {
	seen := health.Seen(a.cluster.Seen())
	out := make([]health.State, len(s.Partitions))
	for i := range s.Partitions {
		p := &s.Partitions[i]
		out[i] = health.Of(&p.Partition, s.Topic.Config.MinInsyncReplicas, seen, p.Err != nil).State
	}
	return out
}

// topicStates are the states of topics of one list, asked for together.
type topicStates struct {
	a  *API
	c  *route.Call
	by map[string]*broker.TopicState
}

// ready asks for those that were not yet.
func (x *topicStates) ready(list []*metadata.Topic) {
	var missing []*metadata.Topic
	for _, t := range list {
		if x.by[t.Name] == nil {
			missing = append(missing, t)
		}
	}
	for i, s := range x.a.broker.States(x.c.Request.Context(), missing) {
		x.by[missing[i].Name] = s
	}
}

func (a *API) topicItem(c *route.Call, s *broker.TopicState) TopicItem {
	t := s.Topic
	it := TopicItem{
		Name: t.Name, ID: t.ID.String(), Internal: t.Internal, Partitions: len(t.Partitions),
		ReplicationFactor: t.ReplicationFactor(), Health: a.topicHealth(s), SizeBytes: s.SizeBytes, Records: s.RecordsNow,
		BytesInPerS: s.BytesInPerS, BytesOutPerS: s.OutPerS, RetentionMs: t.Config.RetentionMs,
		CleanupPolicy: cleanupPolicy(t.Config.CleanupPolicy), Actions: a.topicActions(c, t.Name), ETag: string(t.ETag()),
	}
	for i := range s.Partitions {
		if err := s.Partitions[i].Err; err != nil {
			it.Error = new(problem.Of(err, c.Occurrence()))
			break
		}
	}
	return it
}

func cleanupPolicy(p metadata.CleanupPolicy) string {
	switch {
	case p.Compact && p.Delete:
		return "compact,delete"
	case p.Compact:
		return "compact"
	}
	return "delete"
}

func (a *API) topicView(c *route.Call, s *broker.TopicState) TopicView {
	t := s.Topic
	v := TopicView{
		Name: t.Name, ID: t.ID.String(), Internal: t.Internal, ReplicationFactor: t.ReplicationFactor(),
		Health: a.topicHealth(s), CreatedAt: route.TimeOfMillis(t.CreatedAt), Partitions: make([]PartitionStateView, len(s.Partitions)),
		Actions: a.topicActions(c, t.Name), ETag: string(t.ETag()),
	}
	for i, h := range a.partitionHealths(s) {
		v.Partitions[i] = a.partitionStateView(c, &s.Partitions[i])
		v.Partitions[i].Health = h.String()
	}
	return v
}

func (a *API) partitionStateView(c *route.Call, p *broker.PartitionState) PartitionStateView {
	v := PartitionStateView{
		Partition: int32(p.ID), LeaderEpoch: int32(p.LeaderEpoch), Replicas: brokerIDs(p.Replicas),
		ISR: brokerIDs(p.ISR), Adding: brokerIDs(p.Adding()), Removing: brokerIDs(p.Removing()), ReplicaStates: []ReplicaState{},
	}
	if p.Leader != metadata.NoLeader {
		v.Leader = new(int32(p.Leader))
	}
	if p.Err != nil {
		v.Error = new(problem.Of(p.Err, c.Occurrence()))
		return v
	}
	v.LogStartOffset, v.HighWatermark = new(int64(p.LogStart)), new(int64(p.HighWatermark))
	v.LastStableOffset, v.LogEndOffset = new(int64(p.LastStable)), new(int64(p.LogEnd))
	v.SizeBytes, v.Segments = new(p.SizeBytes), new(p.Segments)
	v.ReplicaStates = replicaStates(p, a.now().UnixMilli())
	return v
}

// replicaStates are those of the leader and of its followers, in the order of the replicas.
func replicaStates(p *broker.PartitionState, nowMs int64) []ReplicaState {
	out := []ReplicaState{}
	for _, id := range p.Replicas {
		r := ReplicaState{Broker: int32(id), InSync: slices.Contains(p.ISR, id)}
		i := slices.IndexFunc(p.Followers, func(f replication.FollowerState) bool { return f.ID == id })
		switch {
		case id == p.Leader:
			r.LogEndOffset, r.Lag = new(int64(p.LogEnd)), new(int64(0))
		case i >= 0:
			f := p.Followers[i]
			r.LastCaughtUpMs = new(nowMs - f.BehindMs)
			if f.LogEnd >= 0 {
				// It may have fetched since the end was looked at.
				r.LogEndOffset, r.StableOffset = new(int64(f.LogEnd)), new(int64(max(f.StableEnd, 0)))
				r.Lag = new(max(int64(p.LogEnd-f.LogEnd), 0))
			}
		}
		out = append(out, r)
	}
	return out
}

func brokerIDs(ids []model.BrokerID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

// listTopics lists the topics that the caller may describe.
//
//	@ID			listTopics
//	@Summary	List topics
//	@Tags		Topics
//	@Param		limit		query		int		false	"items of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param		page_token	query		string	false	"next_page_token of the page before"
//	@Param		prefix		query		string	false	"start of the name"
//	@Param		q			query		string	false	"part of the name, in any case"
//	@Param		sort		query		string	false	"a field, with - in front descending"	Enums(name, -name, partitions, -partitions, size_bytes, -size_bytes, records, -records, bytes_in_per_s, -bytes_in_per_s, bytes_out_per_s, -bytes_out_per_s)
//	@Param		fields		query		string	false	"fields of the items, with commas between"
//	@Param		internal	query		bool	false	"with the internal topics"
//	@Success	200			{object}	route.Page[TopicItem]
//	@Router		/v1/topics [get]
func (a *API) listTopics(c *route.Call) error {
	internal, err := c.QueryBool("internal")
	if err != nil {
		return err
	}
	states := &topicStates{a, c, map[string]*broker.TopicState{}}
	by := func(f func(*broker.TopicState) float64) func(*metadata.Topic) any {
		return func(t *metadata.Topic) any { return f(states.by[t.Name]) }
	}
	l := route.Listing[*metadata.Topic, TopicItem]{
		Name: func(t *metadata.Topic) string { return t.Name }, By: "name",
		View: func(t *metadata.Topic) TopicItem { return a.topicItem(c, states.by[t.Name]) }, Ready: states.ready,
		Sorts: map[string]func(*metadata.Topic) any{
			"partitions":      func(t *metadata.Topic) any { return float64(len(t.Partitions)) },
			"size_bytes":      by(func(s *broker.TopicState) float64 { return float64(s.SizeBytes) }),
			"records":         by(func(s *broker.TopicState) float64 { return float64(s.RecordsNow) }),
			"bytes_in_per_s":  by(func(s *broker.TopicState) float64 { return s.BytesInPerS }),
			"bytes_out_per_s": by(func(s *broker.TopicState) float64 { return s.OutPerS }),
		},
	}
	prefix, _ := c.Only("prefix")
	return l.Serve(c, func() ([]*metadata.Topic, error) {
		return a.broker.VisibleTopics(c.Caller(), prefix, internal), nil
	})
}

// createTopic creates a topic.
//
//	@ID			createTopic
//	@Summary	Create a topic
//	@Tags		Topics
//	@Param		body	body		TopicCreate	true	"the topic"
//	@Success	201		{object}	TopicView
//	@Header		201		{string}	Location	"where the topic is"
//	@Header		201		{string}	ETag		"the topic's entity tag"
//	@Router		/v1/topics [post]
//	@x-errors	["topic-exists","leader-unavailable"]
func (a *API) createTopic(c *route.Call) error {
	in, err := route.Decode[TopicCreate](c)
	if err != nil {
		return err
	}
	c.About(audit.Resource{Type: "topic", Name: in.Name})
	n := broker.NewTopic{Name: in.Name, Config: in.Config}
	if in.Partitions != nil {
		if n.Partitions = *in.Partitions; n.Partitions < 1 {
			return model.Invalid("/partitions", "a topic has 1 to %d partitions", broker.MaxPartitions)
		}
	}
	if in.ReplicationFactor != nil {
		if n.ReplicationFactor = *in.ReplicationFactor; n.ReplicationFactor < 1 {
			return model.Invalid("/replication_factor", "the replication factor is at least 1")
		}
	}
	if err := a.checkConfig(in.Config); err != nil {
		return err
	}
	t, err := a.broker.CreateTopic(c.Request.Context(), c.Caller(), n)
	if err != nil {
		return err
	}
	c.Created("v1", "topics", t.Name)
	return c.Resource(http.StatusCreated, t.ETag(), a.topicView(c, a.broker.State(c.Request.Context(), t)))
}

// checkConfig refuses what no topic can have; what depends on the topic is decided with it.
func (a *API) checkConfig(values map[string]string) error {
	const anyReplicationFactor = 1 << 15
	_, err := metadata.CheckTopicConfig("/config", values, anyReplicationFactor, a.cluster.Image().Cluster().MetadataVersion)
	if err != nil {
		return err
	}
	return nil
}

// getTopic gives a topic with its partitions.
//
//	@ID			getTopic
//	@Summary	Get a topic
//	@Tags		Topics
//	@Param		topic	path		string	true	"name"
//	@Success	200		{object}	TopicView
//	@Header		200		{string}	ETag	"the topic's entity tag"
//	@Router		/v1/topics/{topic} [get]
//	@x-errors	["unknown-topic"]
func (a *API) getTopic(c *route.Call) error {
	s, err := a.broker.DescribeTopic(c.Request.Context(), c.Caller(), c.PathValue("topic"))
	if err != nil {
		return err
	}
	return c.Resource(http.StatusOK, s.Topic.ETag(), a.topicView(c, s))
}

// updateTopic raises the number of partitions. Keys map to partitions anew; records
// that are there stay where they are.
//
//	@ID			updateTopic
//	@Summary	Add partitions
//	@Tags		Topics
//	@Param		topic		path		string		true	"name"
//	@Param		dry_run		query		bool		false	"change nothing, only check"
//	@Param		If-Match	header		string		false	"entity tag that the topic must have"
//	@Param		body		body		TopicUpdate	true	"how many"
//	@Success	200			{object}	TopicView
//	@Header		200			{string}	ETag	"the topic's entity tag"
//	@Router		/v1/topics/{topic} [patch]
//	@x-errors	["unknown-topic","conflict","etag-mismatch","leader-unavailable"]
func (a *API) updateTopic(c *route.Call) error {
	in, err := route.Decode[TopicUpdate](c)
	if err != nil {
		return err
	}
	g := broker.Growth{Topic: c.PathValue("topic"), Partitions: *in.Partitions}
	if g.DryRun, err = c.QueryBool("dry_run"); err != nil {
		return err
	}
	if g.IfMatch, err = c.IfMatch(); err != nil {
		return err
	}
	t, err := a.broker.GrowTopic(c.Request.Context(), c.Caller(), g)
	if err != nil {
		return err
	}
	return c.Resource(http.StatusOK, t.ETag(), a.topicView(c, a.broker.State(c.Request.Context(), t)))
}

// deleteTopic deletes a topic with its records.
//
//	@ID			deleteTopic
//	@Summary	Delete a topic
//	@Tags		Topics
//	@Param		topic		path		string	true	"name"
//	@Param		dry_run		query		bool	false	"only tell what would go"
//	@Param		If-Match	header		string	false	"entity tag that the topic must have"
//	@Success	200			{object}	TopicDeletion	"dry_run: what would go"
//	@Success	204			"deleted"
//	@Router		/v1/topics/{topic} [delete]
//	@x-errors	["unknown-topic","etag-mismatch"]
func (a *API) deleteTopic(c *route.Call) error {
	dry, err := c.QueryBool("dry_run")
	if err != nil {
		return err
	}
	match, err := c.IfMatch()
	if err != nil {
		return err
	}
	name := c.PathValue("topic")
	if dry {
		t, err := a.broker.MayDeleteTopic(c.Request.Context(), c.Caller(), name)
		if err != nil {
			return err
		}
		if err := route.Matches(match, t.ETag()); err != nil {
			return err
		}
		s := a.broker.State(c.Request.Context(), t)
		return c.JSON(http.StatusOK, TopicDeletion{t.Name, len(t.Partitions), s.RecordsNow, s.SizeBytes})
	}
	if err := a.broker.DeleteTopic(c.Request.Context(), c.Caller(), name, match); err != nil {
		return err
	}
	return c.NoContent()
}

// topicOffsets resolves a time, or the ends, on every partition.
//
//	@ID			topicOffsets
//	@Summary	Offsets of a topic by time
//	@Tags		Topics
//	@Param		topic		path		string	true	"name"
//	@Param		timestamp	query		string	true	"milliseconds since 1970, earliest or latest"
//	@Success	200			{object}	OffsetsAnswer
//	@Router		/v1/topics/{topic}/offsets [get]
//	@x-errors	["unknown-topic","leader-unavailable","storage-error"]
func (a *API) topicOffsets(c *route.Call) error {
	at, err := offsetsPosition(c)
	if err != nil {
		return err
	}
	found, err := a.broker.Offsets(c.Request.Context(), c.Caller(), c.PathValue("topic"), at)
	if err != nil {
		return err
	}
	out := OffsetsAnswer{Offsets: make([]OffsetView, len(found))}
	for i, f := range found {
		v := OffsetView{Partition: int32(f.Partition)}
		if f.Found {
			v.Offset = new(int64(f.Offset))
		}
		if f.Found && f.Timestamp >= 0 {
			v.Timestamp = new(f.Timestamp)
		}
		out.Offsets[i] = v
	}
	return c.JSON(http.StatusOK, out)
}

func offsetsPosition(c *route.Call) (broker.Position, error) {
	switch s, ok := c.Only("timestamp"); {
	case !ok:
		return broker.Position{}, model.Invalid("query:timestamp", "timestamp is needed: milliseconds since 1970, earliest or latest")
	case s == "earliest":
		return broker.Position{Kind: broker.Earliest}, nil
	case s == "latest":
		return broker.Position{Kind: broker.Latest}, nil
	default:
		ms, err := strconv.ParseInt(s, 10, 64)
		if err != nil || ms < 0 {
			return broker.Position{}, model.Invalid("query:timestamp", "timestamp is a number of milliseconds from 0, earliest or latest, not %q", s)
		}
		return broker.Position{Kind: broker.AtTime, Value: ms}, nil
	}
}
