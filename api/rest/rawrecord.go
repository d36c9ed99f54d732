package rest

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

const (
	keyHeader    = "Tidewire-Key"
	headerPrefix = "Tidewire-Header-"
)

// rawRecord makes the one record whose value is the whole body, with its key, headers,
// partition and timestamp from the query and the request's headers.
func (s *produceScratch) rawRecord(c *route.Call, body []byte, path *model.PartitionID) error {
	rec := record.Record{Timestamp: broker.NoTimestamp, Value: body}
	if rec.Value == nil {
		rec.Value = []byte{}
	}
	var to broker.Routing
	var err error
	if rec.Key, err = rawKey(c); err != nil {
		return err
	}
	if v, ok := c.Only("null"); ok {
		switch {
		case v != "value":
			return model.Invalid("query:null", "null takes the word value, not %q", v)
		case len(body) > 0:
			return model.Invalid("query:null", "null=value stores a tombstone and takes no body")
		}
		rec.Value = nil
	}
	if c.Query().Has("timestamp") {
		if rec.Timestamp, err = rawTimestamp(c); err != nil {
			return err
		}
	}
	if to, err = rawPartition(c, path); err != nil {
		return err
	}
	if rec.Headers, err = rawHeaders(c.Request.Header); err != nil {
		return err
	}
	s.records = append(s.records[:0], rec)
	s.routing = append(s.routing[:0], to)
	return nil
}

func rawTimestamp(c *route.Call) (int64, error) {
	s, _ := c.Only("timestamp")
	ts, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil:
		return 0, model.Invalid("query:timestamp", "a timestamp is a number of milliseconds since 1970, not %q", s)
	case ts < 0:
		e := model.Errorf(model.InvalidTimestamp, "a record's timestamp must not be negative")
		e.Fields = []model.FieldError{{Pointer: "query:timestamp", Detail: e.Detail}}
		return 0, e
	}
	return ts, nil
}

func rawPartition(c *route.Call, path *model.PartitionID) (broker.Routing, error) {
	var to broker.Routing
	if path != nil {
		to.Partition, to.HasPartition = *path, true
	}
	if !c.Query().Has("partition") {
		return to, nil
	}
	n, err := c.QueryInt("partition", route.IntRange{Def: 0, Min: 0, Max: 1<<31 - 1})
	if err != nil {
		return to, err
	}
	if path != nil && model.PartitionID(n) != *path {
		return to, model.Invalid("query:partition", "partition %d is not the path's partition %d", n, *path)
	}
	to.Partition, to.HasPartition = model.PartitionID(n), true
	return to, nil
}

// rawKey takes the key from the query or the header; giving both is refused.
func rawKey(c *route.Call) ([]byte, error) {
	q, inQuery := c.Only("key")
	h, inHeader := c.Request.Header[keyHeader]
	enc, encoded := c.Only("key_encoding")
	switch {
	case inQuery && inHeader:
		return nil, model.Invalid("query:key", "the key is given twice, as key and as %s", keyHeader)
	case inHeader:
		if q = h[0]; len(h) > 1 {
			return nil, model.Invalid("header:"+keyHeader, "%s is given more than once", keyHeader)
		}
	case !inQuery && encoded:
		return nil, model.Invalid("query:key_encoding", "key_encoding is given without a key")
	case !inQuery:
		return nil, nil
	}
	return decodeKey(q, enc, encoded)
}

func decodeKey(key, enc string, encoded bool) ([]byte, error) {
	switch {
	case encoded && enc == "base64":
		b, err := base64.StdEncoding.DecodeString(key)
		if err != nil {
			return nil, model.Invalid("query:key", "the key is not valid base64")
		}
		return slices.Concat([]byte{}, b), nil
	case encoded && enc != "text":
		return nil, model.Invalid("query:key_encoding", "key_encoding is text or base64 for a raw body, not %q", enc)
	case !utf8.ValidString(key):
		return nil, model.Invalid("query:key", "the key is not valid UTF-8; give it with key_encoding=base64")
	}
	return []byte(key), nil
}

// rawHeaders makes the record's headers of Tidewire-Header-<name>. HTTP does not keep
// the order of different names nor their case: they are sorted and in lower case.
func rawHeaders(h http.Header) ([]record.Header, error) {
	var names []string
	for k := range h {
		if strings.HasPrefix(k, headerPrefix) && len(k) > len(headerPrefix) {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	var out []record.Header
	for _, k := range names {
		for _, v := range h[k] {
			if !utf8.ValidString(v) {
				return nil, model.Invalid("header:"+k, "the header's value is not valid UTF-8")
			}
			out = append(out, record.Header{Name: []byte(strings.ToLower(k[len(headerPrefix):])), Value: []byte(v)})
		}
	}
	return out, nil
}
