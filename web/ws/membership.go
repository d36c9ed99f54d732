package ws

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"tidewire/broker"
	"tidewire/broker/group"
	"tidewire/broker/group/assign"
	"tidewire/internal/model"
)

// membership is what a subscription asks of a group.
type membership struct {
	group    string // "": the socket reads without a group
	memberID string // of a membership that goes on; "": a new one
	instance string
	takeOver bool
	clientID string
	assignor assign.Name // "": the group's
	session  int64       // ms; 0: not given

	policy  string // auto_offset_reset as it was given; "": it was not
	reset   group.ResetPolicy
	resetMs int64 // with group.FromTime

	autoCommit bool
	commitMs   int64 // between two commits
}

// Defaults of a membership.
const (
	defaultSessionMs  = 10_000
	defaultCommitMs   = 5_000
	leastCommitMs     = 100
	mostCommitMs      = 3_600_000
	longestClientText = group.MaxClientText
)

// fields are the members of a subscribe frame that belong to groups.
func (w *membership) fields() []field {
	return []field{
		{"group", false, into(&w.group, named("the name of a group"))},
		{"member_id", false, into(&w.memberID, named("a member id"))},
		{"instance_id", false, into(&w.instance, named("an instance id"))},
		{"take_over", false, into(&w.takeOver, boolean)},
		{"client_id", false, into(&w.clientID, clientText)},
		{"assignor", false, into(&w.assignor, assignorName)},
		{"session_timeout_ms", false, into(&w.session, whole(group.MinSessionTimeout.Milliseconds(), group.MaxSessionTimeout.Milliseconds()))},
		{"auto_offset_reset", false, into(&w.policy, resetPolicy)},
		{"auto_commit", false, into(&w.autoCommit, boolean)},
		{"auto_commit_interval_ms", false, into(&w.commitMs, whole(leastCommitMs, mostCommitMs))},
	}
}

// ofGroups are the names of fields, but for group itself.
func ofGroups() []string {
	var w membership
	var out []string
	for _, f := range w.fields()[1:] {
		out = append(out, f.name)
	}
	return out
}

// named reads a name of the kind that users and groups have.
func named(what string) func(at string, raw json.RawMessage) (string, error) {
	return func(at string, raw json.RawMessage) (string, error) {
		s, err := text(at, raw)
		if err != nil {
			return "", err
		}
		if why := model.CheckName(s); why != "" {
			return "", model.Invalid(at, "%s %s", what, why)
		}
		return s, nil
	}
}

func boolean(at string, raw json.RawMessage) (bool, error) {
	switch string(raw) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, model.Invalid(at, "true or false is expected, not %s", short(string(raw)))
}

func clientText(at string, raw json.RawMessage) (string, error) {
	s, err := text(at, raw)
	if err == nil && len(s) > longestClientText {
		err = model.Invalid(at, "a client id has at most %d bytes", longestClientText)
	}
	return s, err
}

func assignorName(at string, raw json.RawMessage) (assign.Name, error) {
	s, err := text(at, raw)
	if err == nil && !assign.Known(assign.Name(s)) {
		err = model.Invalid(at, "assignor is range, roundrobin or sticky, not %q", short(s))
	}
	return assign.Name(s), err
}

func resetPolicy(at string, raw json.RawMessage) (string, error) {
	s, err := text(at, raw)
	if err == nil && !slices.Contains([]string{string(group.Earliest), string(group.Latest), string(group.Never)}, s) {
		err = model.Invalid(at, "auto_offset_reset is earliest, latest or none, not %q; a time goes with from", short(s))
	}
	return s, err
}

// checkMembership looks at what belongs together: list is what was given.
func (s *subscription) checkMembership(at string, list []member) error {
	w := s.wanted
	if w.group == "" {
		for _, m := range list {
			if slices.Contains(ofGroups(), m.name) && !m.isNull() {
				return model.Invalid(at+m.name, "%s goes with group", m.name)
			}
		}
		if s.fromText == string(group.Never) {
			return model.Invalid(at+"from", "from is earliest, latest or a time in milliseconds; none goes with group")
		}
		return nil
	}
	switch {
	case len(s.partitions) > 0:
		return model.Invalid(at+"partitions", "the group gives a member its partitions; seek reads elsewhere in them")
	case s.fromGiven && w.policy != "":
		return model.Invalid(at+"auto_offset_reset", "from and auto_offset_reset say the same; give one of them")
	case w.memberID != "" && w.takeOver:
		return model.Invalid(at+"take_over", "with member_id nobody's place is taken")
	case len(s.topics) > group.MaxSubscription:
		return model.Invalid(at+"topics", "a member names at most %d topics", group.MaxSubscription)
	}
	for i, t := range s.topics {
		if why := model.CheckTopicName(t); why != "" {
			return model.Invalid(fmt.Sprintf("%stopics/%d", at, i), "%s", why)
		}
	}
	w.choosePolicy(s)
	if w.commitMs == 0 {
		w.commitMs = defaultCommitMs
	}
	return nil
}

func (w *membership) choosePolicy(s *subscription) {
	switch {
	case w.policy != "":
		w.reset = group.ResetPolicy(w.policy)
	case !s.fromGiven:
		w.reset = group.Latest
	case s.from.Kind == broker.AtTime:
		w.policy, w.reset, w.resetMs = s.fromText, group.FromTime, s.from.Value
	default:
		w.policy, w.reset = s.fromText, group.ResetPolicy(s.fromText)
	}
}

// differs tells what was asked for that the member which is to go on has otherwise; "" if
// nothing is.
func (w *membership) differs(topics []string, m *group.Member, assignor assign.Name) string {
	switch {
	case len(topics) > 0 && !slices.Equal(slices.Sorted(slices.Values(topics)), m.Topics):
		return "topics"
	case w.instance != "" && w.instance != m.InstanceID:
		return "instance_id"
	case w.clientID != "" && w.clientID != m.ClientID:
		return "client_id"
	case w.assignor != "" && w.assignor != assignor:
		return "assignor"
	case w.session != 0 && w.sessionTimeout() != m.SessionTimeout:
		return "session_timeout_ms"
	case w.policy != "" && (w.reset != m.Reset || w.resetMs != m.ResetFromMs):
		return "auto_offset_reset"
	}
	return ""
}

func (w *membership) sessionTimeout() time.Duration {
	if w.session == 0 {
		return defaultSessionMs * time.Millisecond
	}
	return time.Duration(w.session) * time.Millisecond
}

// policyText is a member's auto_offset_reset as frames give it.
func policyText(m *group.Member) string {
	if m.Reset == group.FromTime {
		return fmt.Sprint(m.ResetFromMs)
	}
	return string(m.Reset)
}

// asGiven makes the pointers of an error those of the query, where that subscribed: the
// coordinator's are of frames.
func asGiven(at string, err error) error {
	e := model.AsError(err)
	if at == "/" || len(e.Fields) == 0 {
		return err
	}
	out := *e
	out.Fields = slices.Clone(e.Fields)
	for i := range out.Fields {
		out.Fields[i].Pointer = at + strings.TrimPrefix(out.Fields[i].Pointer, "/")
	}
	return &out
}

// oneOffset reads one offset of a commit.
func oneOffset(at string, raw json.RawMessage) (MemberOffset, error) {
	var o MemberOffset
	var n int64
	list, err := object(at, raw)
	if err != nil {
		return o, err
	}
	err = decodeFields(at+"/", list, []field{
		{"topic", true, into(&o.Topic, topicName)},
		{"partition", true, into(&n, whole(0, 1<<31-1))},
		{"next_offset", true, into(&o.NextOffset, whole(0, int64(model.MaxOffset)))},
		{"metadata", false, into(&o.Metadata, text)},
	})
	o.Partition = int32(n)
	return o, err
}
