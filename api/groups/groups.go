package groups

import (
	"context"
	"log/slog"
	"net/http"
	"slices"

	"tidewire/api/route"
	"tidewire/auth"
	"tidewire/broker"
	"tidewire/broker/coordinator"
	"tidewire/broker/quota"
	"tidewire/cluster/metadata"
	"tidewire/internal/inflight"
	"tidewire/internal/model"
)

// Authorization decides who may do what.
type Authorization interface {
	Authorize(ctx context.Context, p *auth.Principal, q auth.Access) error
}

// Config is what a Door is made of.
type Config struct {
	Groups *coordinator.Coordinator
	Broker *broker.Broker
	Authz  Authorization
	Logger *slog.Logger
	// Inflight bounds the bytes of events under way; nil: nothing does.
	Inflight *inflight.Budget
}

// Door holds the endpoints.
type Door struct {
	groups   *coordinator.Coordinator
	broker   *broker.Broker
	authz    Authorization
	logger   *slog.Logger
	inflight *inflight.Budget
}

// New returns a Door, whose Routes are to be registered with a route.Gate.
func New(c Config) *Door {
	return &Door{groups: c.Groups, broker: c.Broker, authz: c.Authz, logger: c.Logger, inflight: c.Inflight}
}

const (
	get    = http.MethodGet
	post   = http.MethodPost
	put    = http.MethodPut
	remove = http.MethodDelete

	// maxOffsetsBody bounds bodies that may name thousands of partitions.
	maxOffsetsBody = 4 << 20

	memberTraffic = "what members do all the time"
	readEach      = "read group, and read topic, each "
)

// Routes are the rows of the endpoints.
func (d *Door) Routes() []*route.Route {
	const one, member = "/v1/groups/{group}", "/v1/groups/{group}/members/{member}"
	dry := []string{"dry_run"}
	return []*route.Route{
		{Method: get, Path: "/v1/groups", ID: "listGroups", Needs: "describe group, each listed", Query: route.ListQuery, Handle: d.listGroups},
		{Method: get, Path: "/v1/topics/{topic}/groups", ID: "listTopicGroups", Needs: "describe topic, and describe group, each listed", Query: route.ListQuery, Handle: d.listTopicGroups},
		{Method: get, Path: one, ID: "getGroup", Needs: "describe group, and describe topic, each told of", Handle: d.getGroup},
		{Method: remove, Path: one, ID: "deleteGroup", Needs: "delete group", Query: dry, Handle: d.deleteGroup},
		{Method: post, Path: one + "/members", ID: "joinGroup", Unaudited: memberTraffic, Needs: readEach + "named", Body: route.JSON, Handle: d.joinGroup},
		{Method: get, Path: member + "/records", ID: "readMember", Needs: readEach + "read", Records: true, Quota: read, Query: readQuery, Accept: readAccept, Handle: d.readMember},
		{Method: post, Path: member + "/poll", ID: "pollMember", Unaudited: memberTraffic, Needs: readEach + "read", Records: true, Quota: read, Body: route.JSON, Handle: d.pollMember},
		{Method: post, Path: member + "/commit", ID: "commitOffsets", Unaudited: memberTraffic, Needs: readEach + "named", Body: route.JSON, MaxBody: maxOffsetsBody, Handle: d.commitOffsets},
		{Method: post, Path: member + "/seek", ID: "seekMember", Unaudited: memberTraffic, Needs: readEach + "named", Body: route.JSON, MaxBody: maxOffsetsBody, Handle: d.seekMember},
		{Method: post, Path: member + "/heartbeat", ID: "heartbeat", Unaudited: memberTraffic, Needs: "read group", Handle: d.heartbeat},
		{Method: remove, Path: member, ID: "leaveGroup", Unaudited: memberTraffic, Needs: "read group", Query: []string{"cursor"}, Handle: d.leaveGroup},
		{Method: get, Path: one + "/offsets", ID: "getGroupOffsets", Needs: "describe group, and describe topic, each told of", Handle: d.getOffsets},
		{Method: put, Path: one + "/offsets", ID: "setGroupOffsets", Needs: readEach + "named", Body: route.JSON, MaxBody: maxOffsetsBody, Handle: d.setOffsets},
		{Method: remove, Path: one + "/offsets", ID: "deleteGroupOffsets", Needs: "delete group, and read topic", Query: slices.Concat(dry, []string{"topic"}), Handle: d.deleteOffsets},
		{Method: post, Path: one + "/reset-offsets", ID: "resetGroupOffsets", Needs: readEach + "moved", Body: route.JSON, MaxBody: maxOffsetsBody, Query: dry, Handle: d.resetOffsets},
	}
}

// read tells which limit of its user a member's read stands for; a stream is slowed instead.
func read(c *route.Call) quota.Kind {
	if c.Media() != route.JSONOnly[0] {
		return quota.Requests
	}
	return quota.Fetch
}

// mayGroup looks at a right on the group of the path.
func (d *Door) mayGroup(c *route.Call, op metadata.Operation) error {
	return d.may(c, op, broker.Need{Resource: metadata.ResourceGroup, Name: c.PathValue("group")})
}

// mayUse looks at the rights of who uses the group of the path with topics, which may be
// named more than once.
func (d *Door) mayUse(c *route.Call, topics []string) error {
	if err := d.mayGroup(c, metadata.OpRead); err != nil {
		return err
	}
	return d.mayRead(c, topics)
}

func (d *Door) mayRead(c *route.Call, topics []string) error {
	seen := map[string]bool{}
	for _, t := range topics {
		if seen[t] {
			continue
		}
		seen[t] = true
		if err := d.may(c, metadata.OpRead, broker.Need{Resource: metadata.ResourceTopic, Name: t}); err != nil {
			return err
		}
	}
	return nil
}

func (d *Door) may(c *route.Call, op metadata.Operation, n broker.Need) error {
	return d.authz.Authorize(c.Request.Context(), c.Principal, auth.Access{Operation: op, Resource: n.Resource, Name: n.Name, Host: c.Host()})
}

// visible are the topics that the caller may hear of.
func (d *Door) visible(c *route.Call) coordinator.TopicFilter {
	caller, known := c.Caller(), map[string]bool{}
	return func(topic string) bool {
		may, asked := known[topic]
		if !asked {
			may = d.broker.Allowed(caller, metadata.OpDescribe, metadata.ResourceTopic, topic)
			known[topic] = may
		}
		return may
	}
}

// match is the request's If-Match.
func match(c *route.Call) (coordinator.Match, error) {
	tag, err := c.IfMatch()
	return coordinator.Match(tag), err
}

// actions are what the caller may do to a group.
func (d *Door) actions(c *route.Call, group string) []string {
	out := []string{}
	caller := c.Caller()
	if d.broker.Allowed(caller, metadata.OpRead, metadata.ResourceGroup, group) {
		out = append(out, "read", "reset")
	}
	if d.broker.Allowed(caller, metadata.OpDelete, metadata.ResourceGroup, group) {
		out = append(out, "delete")
	}
	return out
}

// nonNil is the offset, or nil where there is none.
func nonNil(o model.Offset) *int64 {
	if o < 0 {
		return nil
	}
	return new(int64(o))
}
