package rest

import (
	"net/http"
	"strconv"

	"tidewire/api/recordjson"
	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

var (
	recordQuery = []string{"isolation", "encoding", "key_encoding", "header_encoding", "preview_bytes"}
	recordMedia = []string{"application/json", mediaBytes}
)

// getRecord reads one record.
//
//	@ID				getRecord
//	@Summary		Read one record
//	@Description	As application/octet-stream it is the bytes of the record's value; a null value is 204. An offset within the log that holds no record to see (removed by compaction, a transaction's marker, aborted, not yet readable) is 404; outside the log it is 416.
//	@Tags			Records
//	@Param			topic			path		string	true	"topic"
//	@Param			partition		path		int		true	"partition"	minimum(0)
//	@Param			offset			path		int		true	"the record's offset"	minimum(0)
//	@Param			isolation		query		string	false	"which records are seen"	Enums(read_committed, read_uncommitted)	default(read_committed)
//	@Param			encoding		query		string	false	"how the value is given"	Enums(auto, json, text, base64)	default(auto)
//	@Param			key_encoding	query		string	false	"how the key is given"	Enums(auto, json, text, base64)	default(auto)
//	@Param			header_encoding	query		string	false	"how header values are given"	Enums(auto, json, text, base64)	default(auto)
//	@Param			preview_bytes	query		int		false	"cut each key, value and header value to so many bytes; the record then tells its lengths. application/octet-stream comes whole"	minimum(0)	maximum(1048576)
//	@Success		200				{object}	RecordView
//	@Success		204				"application/octet-stream of a record whose value is null"
//	@Router			/v1/topics/{topic}/partitions/{partition}/records/{offset} [get]
//	@x-content		{"response":{"200":{"application/octet-stream":"binary"}}}
//	@x-errors		["unknown-topic","unknown-partition","not-found","offset-out-of-range","rate-limited","leader-unavailable","storage-error"]
func (a *API) getRecord(c *route.Call) error {
	req := &broker.FetchRequest{Topic: c.PathValue("topic"), MaxRecords: 1, MaxBytes: 1, MinBytes: 1}
	var err error
	if req.Partition, err = c.PathPartition(); err != nil {
		return err
	}
	offset, err := strconv.ParseInt(c.PathValue("offset"), 10, 64)
	if err != nil || offset < 0 {
		return model.Invalid("path:offset", "an offset is a whole number from 0, not %q", c.PathValue("offset"))
	}
	req.From = broker.Position{Kind: broker.AtOffset, Value: offset}
	if req.Isolation, err = Isolation(c); err != nil {
		return err
	}
	enc, err := encodings(c)
	if err != nil {
		return err
	}
	found := false
	_, err = a.broker.Fetch(c.Request.Context(), c.Caller(), req, func(r *record.Record, logAppendTime bool) {
		if int64(r.Offset) != offset {
			return
		}
		found = true
		c.Stall()
		defer c.Taken()
		if c.Media() == mediaBytes {
			answerValue(c, r.Value)
			return
		}
		meta := recordjson.Meta{Topic: req.Topic, Partition: req.Partition, LogAppendTime: logAppendTime}
		c.Bytes(http.StatusOK, route.JSONOnly[0], append(recordjson.AppendRecord(nil, &meta, r, enc), '\n'))
	})
	if err == nil && !found {
		err = model.Errorf(model.NotFound, "offset %d of partition %d of %q holds no record that can be read", offset, req.Partition, req.Topic)
	}
	return err
}

// answerValue answers with a record's value as it is.
func answerValue(c *route.Call, v []byte) {
	if v == nil {
		c.Writer.Header()["Cache-Control"] = route.NoStore
		c.Writer.WriteHeader(http.StatusNoContent)
		return
	}
	c.Bytes(http.StatusOK, mediaBytes, v)
}
