package ws

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"tidewire/api/recordjson"
	"tidewire/broker/partition"
	"tidewire/internal/model"
)

// checkNoQuery refuses what a query may hold: this resource has no parameters.
func checkNoQuery(raw string) error {
	query, err := url.ParseQuery(raw)
	switch {
	case err != nil:
		return model.Invalid("query:", "the query is not validly encoded")
	case query.Has("ticket"):
		return notBuilt("query:ticket", "the query parameter ticket")
	}
	for name := range query {
		return model.Invalid("query:"+name, "unknown query parameter")
	}
	return nil
}

// frameMembers collects the members of a frame besides its records.
type frameMembers struct {
	list   []member
	double error
}

func (m *frameMembers) add(name, value []byte) bool {
	for _, x := range m.list {
		if x.name == string(name) && m.double == nil {
			m.double = model.Invalid("/"+pointerToken(x.name), "%q is given twice", short(x.name))
		}
	}
	if len(m.list) < maxMembers {
		m.list = append(m.list, member{string(name), json.RawMessage(bytes.Clone(value))})
	}
	return true // decodeFields tells those that are not known
}

// maxMembers is more than any frame has.
const maxMembers = 16

// decode reads a frame of a socket that produces, as strictly as decodeFrame. The command
// keeps the frame's memory only where it is a produce.
func (c *produceCmd) decode(b []byte) clientFrame {
	c.req = frameRequests.Get()
	if t := bytes.TrimLeft(b, " \t\r\n"); len(t) > 0 && t[0] != '{' {
		c.refuse()
		return clientFrame{err: model.Errorf(model.MalformedBody, "a frame is a JSON object")}
	}
	var m frameMembers
	hasRecords, err := c.req.DecodeWith(b, m.add)
	f, op, rest := split(m.list)
	switch {
	case f.err != nil: // of the id
	case model.HasCode(err, model.MalformedBody):
		f.err = err
	case m.double != nil:
		f.err = m.double
	case op == "produce":
		if f.err = c.fields(rest, hasRecords); f.err == nil {
			f.err = err
		}
		f.cmd = c
	case err != nil && hasRecords:
		f.err = err
	case hasRecords:
		f.err = model.Invalid("/records", `"records" is not known here`)
	case op == "auth":
		f.cmd, f.err = decodeOp(op, rest)
	case op == "":
		f.err = model.Invalid("/op", "op is required")
	default:
		f.err = model.Invalid("/op", "there is no op %q here", short(op))
	}
	if f.err != nil {
		f.cmd = nil
	}
	if f.cmd != c {
		c.refuse()
	}
	return f
}

// split takes id and op out of a frame's members.
func split(list []member) (f clientFrame, op string, rest []member) {
	for _, m := range list {
		switch {
		case m.name == "id" && m.isNull():
		case m.name == "id":
			if err := checkID(m.raw); err != nil {
				return clientFrame{err: err}, "", nil
			}
			f.id = m.raw
		case m.name == "op":
			var err error
			if op, err = text("/op", m.raw); err != nil && f.err == nil {
				f.err = err
			}
		default:
			rest = append(rest, m)
		}
	}
	return f, op, rest
}

// fields reads what a produce frame has besides its records.
func (c *produceCmd) fields(list []member, hasRecords bool) error {
	c.acks, c.timeout = partition.AcksAll, 30*time.Second
	var ms int64 = -1
	err := decodeFields("/", list, []field{
		{"topic", true, into(&c.topic, topicName)},
		{"acks", false, into(&c.acks, acksLevel)},
		{"timeout_ms", false, into(&ms, whole(1, 600_000))},
	})
	if err == nil {
		if why := model.CheckTopicName(c.topic); why != "" {
			err = model.Invalid("/topic", "%s", why)
		}
	}
	if err == nil && !hasRecords {
		err = model.Invalid("/records", "records is required")
	}
	if ms > 0 {
		c.timeout = time.Duration(ms) * time.Millisecond
	}
	return err
}

// acksLevel reads acks, as a word or as Kafka's number.
func acksLevel(at string, raw json.RawMessage) (partition.Acks, error) {
	v := string(raw)
	if raw[0] == '"' {
		var err error
		if v, err = text(at, raw); err != nil {
			return 0, err
		}
	}
	switch v {
	case "all", "-1":
		return partition.AcksAll, nil
	case "leader", "1":
		return partition.AcksLeader, nil
	case "none", "0":
		return partition.AcksNone, nil
	}
	return 0, model.Invalid(at, "acks is all, leader or none, not %s", short(v))
}

func appendInt(b []byte, n int64) []byte { return strconv.AppendInt(b, n, 10) }

func appendWarning(b []byte, w string) []byte {
	b = append(b, `,"warning":`...)
	if w == "" {
		return append(b, "null"...)
	}
	return recordjson.AppendString(b, w)
}

func notBuilt(pointer, what string) error {
	e := model.Errorf(model.NotImplemented, "%s is not built yet", what)
	e.Fields = []model.FieldError{{Pointer: pointer, Detail: e.Detail}}
	return e
}
