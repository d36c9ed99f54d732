package rest

import (
	"strconv"

	"tidewire/api/route"
	"tidewire/broker"
)

// endOf appends what follows the records of a fetch.
func (a *API) endOf(info *broker.FetchInfo, lines bool) func(b []byte) []byte {
	return func(b []byte) []byte {
		if !lines {
			return append(appendOffsets(append(b, "],"...), info), "}\n"...)
		}
		b = append(append(b, `{"end":{"reason":"`...), a.endReason(info)...)
		return append(appendOffsets(append(b, `",`...), info), "}}\n"...)
	}
}

// linesOnly is the Content-Type of NDJSON, as a value of http.Header that all share: it must not
// be changed.
var linesOnly = []string{ndjson}

// answerMedia is the Content-Type of records.
func answerMedia(lines bool) []string {
	if lines {
		return linesOnly
	}
	return route.JSONOnly
}

func (a *API) endReason(info *broker.FetchInfo) string {
	select {
	case <-a.broker.Draining():
		if info.End != broker.AtLimit {
			return "node-stopping"
		}
	default:
	}
	switch info.End {
	case broker.AtLimit:
		return "limit"
	case broker.AtStop:
		return "node-stopping"
	}
	return "latest"
}

func appendOffsets(b []byte, info *broker.FetchInfo) []byte {
	b = strconv.AppendInt(append(b, `"next_offset":`...), int64(info.NextOffset), 10)
	b = strconv.AppendInt(append(b, `,"high_watermark":`...), int64(info.HighWatermark), 10)
	b = strconv.AppendInt(append(b, `,"last_stable_offset":`...), int64(info.LastStable), 10)
	return strconv.AppendInt(append(b, `,"log_start_offset":`...), int64(info.LogStart), 10)
}
