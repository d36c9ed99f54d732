package rest

import (
	"encoding/json"
	"net/http"
	"strconv"

	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/internal/model"
)

// RecordDeletionRequest asks for the oldest records of partitions to go.
type RecordDeletionRequest struct {
	Partitions []PartitionDeletion `json:"partitions" binding:"required"`
}

// PartitionDeletion says up to where. The record at before_offset stays.
type PartitionDeletion struct {
	Partition *int32 `json:"partition" binding:"required"`
	// An offset, or the text high_watermark for all committed records.
	BeforeOffset any `json:"before_offset" binding:"required" extensions:"x-kinds=integer|string"`
}

// RecordDeletion says where the partitions begin now, in the order of the request.
type RecordDeletion struct {
	Partitions []LogStartView `json:"partitions"`
}

// LogStartView is where a partition begins.
type LogStartView struct {
	Partition      int32 `json:"partition"`
	LogStartOffset int64 `json:"log_start_offset"`
}

// highWatermark is before_offset for all that is committed.
const highWatermark = "high_watermark"

// deleteRecords moves the starts of partitions up. It answers once that is durable on every
// replica in sync, else with timeout, whose outcome is unknown: asking again is safe. All
// partitions are checked before any is changed; an offset at or below a partition's start
// changes nothing.
//
//	@ID			deleteRecords
//	@Summary	Delete the oldest records
//	@Tags		Topics
//	@Param		topic	path		string					true	"name"
//	@Param		dry_run	query		bool					false	"change nothing, tell where the partitions would begin"
//	@Param		body	body		RecordDeletionRequest	true	"up to where"
//	@Success	200		{object}	RecordDeletion
//	@Router		/v1/topics/{topic}/delete-records [post]
//	@x-errors	["unknown-topic","unknown-partition","conflict","offset-out-of-range","storage-full","leader-unavailable","storage-error","timeout"]
func (a *API) deleteRecords(c *route.Call) error {
	in, err := route.Decode[RecordDeletionRequest](c)
	if err != nil {
		return err
	}
	what, err := recordDeletions(in.Partitions)
	if err != nil {
		return err
	}
	dry, err := c.QueryBool("dry_run")
	if err != nil {
		return err
	}
	done, err := a.broker.DeleteRecords(c.Request.Context(), c.Caller(), c.PathValue("topic"), what, dry)
	if err != nil {
		return err
	}
	out := RecordDeletion{Partitions: make([]LogStartView, len(done))}
	for i, d := range done {
		out.Partitions[i] = LogStartView{int32(d.Partition), int64(d.LogStart)}
	}
	c.Note("partitions", out.Partitions)
	return c.JSON(http.StatusOK, out)
}

func recordDeletions(in []PartitionDeletion) ([]broker.RecordDeletion, error) {
	if len(in) == 0 {
		return nil, model.Invalid("/partitions", "at least one partition is needed")
	}
	out := make([]broker.RecordDeletion, len(in))
	for i, p := range in {
		at := "/partitions/" + strconv.Itoa(i)
		if *p.Partition < 0 {
			return nil, model.Invalid(at+"/partition", "a partition is a number from 0")
		}
		out[i].Partition = model.PartitionID(*p.Partition)
		var off int64
		err := strconv.ErrSyntax
		switch v := p.BeforeOffset.(type) {
		case string:
			out[i].HighWatermark = v == highWatermark
		case json.Number:
			off, err = strconv.ParseInt(v.String(), 10, 64)
		}
		if !out[i].HighWatermark && (err != nil || off < 0) {
			return nil, model.Invalid(at+"/before_offset", "before_offset is a number from 0, or %q", highWatermark)
		}
		out[i].Before = model.Offset(off)
	}
	return out, nil
}
