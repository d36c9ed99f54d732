package ws

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"tidewire/api/recordjson"
	"tidewire/broker"
	"tidewire/broker/browse"
	"tidewire/internal/model"
)

// subscription is what a subscribe frame or a query asks for.
type subscription struct {
	topics     []string
	partitions []start
	starts     map[Partition]*int64 // next offsets of partitions, nil: as from says
	from       broker.Position
	fromText   string
	credit     *int64
	maxRecords int64
	encoding   recordjson.Encoding
	isolation  broker.Isolation
	q          string // what records have to contain; "": anything
	qIn        []string
	search     browse.Filter // of q and qIn
	preview    *int64        // bytes that keys and values are cut to; nil: they are not
	fromGiven  bool
	wanted     *membership // of a group; noMembership where there is none
}

// noMembership is what all subscriptions without a group have in common: it does not change.
var noMembership membership

// filter is what records have to pass; nil: all do.
func (s *subscription) filter() *browse.Filter {
	if s.search.IsZero() {
		return nil
	}
	return &s.search
}

// start is where to begin in one partition.
type start struct {
	Partition
	next *int64 // nil: as from says
}

// names are the topics to follow: those that are read whole, then the others.
func (s *subscription) names() []string {
	out := slices.Clone(s.topics)
	seen := map[string]bool{}
	for _, t := range s.topics {
		seen[t] = true
	}
	for _, p := range s.partitions {
		if !seen[p.Topic] {
			seen[p.Topic] = true
			out = append(out, p.Topic)
		}
	}
	return out
}

// startOf tells where reading a partition begins.
func (s *subscription) startOf(name Partition) broker.Position {
	if next := s.starts[name]; next != nil {
		return broker.Position{Kind: broker.AtOffset, Value: *next}
	}
	return s.from
}

// decodeSubscription reads the members of a subscribe frame, or of a query; at is what
// pointers begin with.
func decodeSubscription(at string, list []member) (*subscription, error) {
	s := &subscription{from: broker.Position{Kind: broker.Latest}, fromText: "latest", maxRecords: 500, wanted: &membership{}}
	var credit, preview int64 = -1, -1
	err := decodeFields(at, list, append(s.wanted.fields(), []field{
		{"topics", false, into(&s.topics, listOf(topicName))},
		{"partitions", false, into(&s.partitions, listOf(startPosition))},
		{"from", false, s.decodeFrom},
		{"credit", false, into(&credit, whole(0, maxCredit))},
		{"max_records", false, into(&s.maxRecords, whole(1, 10_000))},
		{"encoding", false, s.decodeEncoding},
		{"isolation", false, s.decodeIsolation},
		{"q", false, into(&s.q, text)},
		{"q_in", false, into(&s.qIn, listOf(text))},
		{"preview_bytes", false, into(&preview, whole(0, maxPreviewBytes))},
	}...))
	if err != nil {
		return nil, err
	}
	if credit >= 0 {
		s.credit = &credit
	}
	if preview >= 0 {
		s.preview = &preview
	}
	if err := s.decodeSearch(at); err != nil {
		return nil, err
	}
	if err := s.check(at); err != nil {
		return nil, err
	}
	if err := s.checkMembership(at, list); err != nil {
		return nil, err
	}
	if s.wanted.group == "" {
		s.wanted = &noMembership
	}
	return s, nil
}

// maxPreviewBytes bounds preview_bytes, as in REST.
const maxPreviewBytes = 1 << 20

// decodeSearch makes the filter of q and q_in.
func (s *subscription) decodeSearch(at string) error {
	if s.q != "" {
		s.search = browse.Filter{Text: []byte(s.q), In: browse.InAll}
	}
	if len(s.q) > browse.MaxTextBytes {
		return model.Invalid(at+"q", "q has at most %d bytes", browse.MaxTextBytes)
	}
	if s.qIn == nil {
		return nil
	}
	if s.q == "" {
		return model.Invalid(at+"q_in", "q_in says where q is looked for, and there is no q")
	}
	var ok bool
	if s.search.In, ok = browse.ParseParts(s.qIn); !ok {
		return model.Invalid(at+"q_in", "q_in is a list of key, value and headers")
	}
	return nil
}

func (s *subscription) check(at string) error {
	if len(s.topics) == 0 && len(s.partitions) == 0 && s.wanted.memberID == "" {
		return model.Invalid(at+"topics", "topics is required: the topics to read")
	}
	seen := map[string]bool{}
	for i, t := range s.topics {
		if seen[t] {
			return model.Invalid(fmt.Sprintf("%stopics/%d", at, i), "topic %q is given twice", t)
		}
		seen[t] = true
	}
	if len(s.partitions) > 0 {
		s.starts = make(map[Partition]*int64, len(s.partitions))
	}
	for i, p := range s.partitions {
		if _, twice := s.starts[p.Partition]; twice {
			return model.Invalid(fmt.Sprintf("%spartitions/%d", at, i), "partition %d of %q is given twice", p.Partition.Partition, p.Topic)
		}
		s.starts[p.Partition] = p.next
	}
	return nil
}

func (s *subscription) decodeFrom(at string, raw json.RawMessage) error {
	v := string(raw)
	if raw[0] == '"' {
		var err error
		if v, err = text(at, raw); err != nil {
			return err
		}
	}
	s.fromGiven = true
	switch v {
	case "none": // of a member: checkMembership
	case "earliest":
		s.from = broker.Position{Kind: broker.Earliest}
	case "latest":
		s.from = broker.Position{Kind: broker.Latest}
	default:
		ms, err := strconv.ParseInt(v, 10, 64)
		if err != nil || ms < 0 {
			return model.Invalid(at, "from is earliest, latest or a time in milliseconds, not %s", short(v))
		}
		s.from = broker.Position{Kind: broker.AtTime, Value: ms}
	}
	s.fromText = v
	return nil
}

func (s *subscription) decodeEncoding(at string, raw json.RawMessage) error {
	v, err := text(at, raw)
	if err != nil {
		return err
	}
	var ok bool
	if s.encoding, ok = recordjson.ParseEncoding(v); !ok {
		return model.Invalid(at, "encoding is auto, json, text or base64, not %q", short(v))
	}
	return nil
}

func (s *subscription) decodeIsolation(at string, raw json.RawMessage) error {
	v, err := text(at, raw)
	if err != nil {
		return err
	}
	switch v {
	case "read_committed":
		s.isolation = broker.ReadCommitted
	case "read_uncommitted":
		s.isolation = broker.ReadUncommitted
	default:
		return model.Invalid(at, "isolation is read_committed or read_uncommitted, not %q", short(v))
	}
	return nil
}

// queryForms says how a query parameter becomes the JSON value that the frame's member
// of that name has.
var queryForms = map[string]func(values []string) json.RawMessage{
	"topics":      splitList,
	"partitions":  verbatim,
	"from":        quoted,
	"credit":      verbatim,
	"max_records": verbatim,
	"encoding":    quoted,
	"isolation":   quoted,
	"q":           quoted,
	"q_in":        splitList,

	"group":                   quoted,
	"assignor":                quoted,
	"instance_id":             quoted,
	"member_id":               quoted,
	"client_id":               quoted,
	"take_over":               verbatim,
	"auto_offset_reset":       quoted,
	"session_timeout_ms":      verbatim,
	"auto_commit":             verbatim,
	"auto_commit_interval_ms": verbatim,

	"preview_bytes": verbatim,
}

// parseQuery reads a subscription from a query; nil where there is none.
func parseQuery(raw string) (*subscription, error) {
	if raw == "" {
		return nil, nil
	}
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, model.Invalid("query:", "the query is not validly encoded")
	}
	names := make([]string, 0, len(query))
	for name := range query {
		if name != "ticket" { // it was used by who authenticated the caller
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	slices.Sort(names)
	list := make([]member, 0, len(names))
	for _, name := range names {
		form := queryForms[name]
		if form == nil {
			form = quoted // unknown, decodeSubscription tells
		}
		if len(query[name]) > 1 && name != "topics" {
			return nil, model.Invalid("query:"+name, "%s is given more than once", name)
		}
		for _, v := range query[name] {
			if !utf8.ValidString(v) {
				return nil, model.Invalid("query:"+name, "%s is not valid UTF-8", name)
			}
		}
		list = append(list, member{name, form(query[name])})
	}
	return decodeSubscription("query:", list)
}

func verbatim(values []string) json.RawMessage {
	if v := values[0]; json.Valid([]byte(v)) && v != "null" && strings.TrimSpace(v) == v {
		return json.RawMessage(v)
	}
	return quoted(values)
}

func quoted(values []string) json.RawMessage { return recordjson.AppendString(nil, values[0]) }

func splitList(values []string) json.RawMessage {
	out := []byte{'['}
	for _, v := range values {
		for t := range strings.SplitSeq(v, ",") {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = recordjson.AppendString(out, t)
		}
	}
	return append(out, ']')
}
