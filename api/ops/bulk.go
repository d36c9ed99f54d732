package ops

import (
	"net/http"

	"tidewire/api/problem"
	"tidewire/api/route"
	"tidewire/broker"
)

// TopicsDelete names topics to be deleted.
type TopicsDelete struct {
	Names []string `json:"names" binding:"required" minItems:"1" maxItems:"1000"`
}

// TopicsDeleted tells of each topic, in the order of the request, what became of it.
type TopicsDeleted struct {
	Results []TopicDeleted `json:"results"`
}

// TopicDeleted is what became of one topic: without a problem it is gone, or in a dry run
// would go, with what is counted.
type TopicDeleted struct {
	Name       string           `json:"name"`
	Problem    *problem.Problem `json:"problem" extensions:"x-nullable"`
	Partitions *int             `json:"partitions" extensions:"x-nullable"`
	Records    *int64           `json:"records" extensions:"x-nullable"`
	SizeBytes  *int64           `json:"size_bytes" extensions:"x-nullable"`
}

// deleteTopics deletes many topics with their records, each by the caller's right to it.
// Some may fail while others are deleted. While it lasts it is an operation, which can be
// cancelled: topics that have not been begun stay then.
//
//	@ID			deleteTopics
//	@Summary	Delete topics
//	@Tags		Topics
//	@Param		dry_run	query		bool			false	"only tell what would go"
//	@Param		body	body		TopicsDelete	true	"which topics"
//	@Success	200		{object}	TopicsDeleted
//	@Router		/v1/topics/delete [post]
func (a *API) deleteTopics(c *route.Call) error {
	in, err := route.Decode[TopicsDelete](c)
	if err != nil {
		return err
	}
	dry, err := c.QueryBool("dry_run")
	if err != nil {
		return err
	}
	if err := broker.CheckDeletions(in.Names); err != nil {
		return err
	}
	deletions := a.broker.DeleteTopics(c.Request.Context(), c.Caller(), in.Names, dry)
	out := TopicsDeleted{Results: make([]TopicDeleted, len(deletions))}
	for i := range deletions {
		d := &deletions[i]
		out.Results[i].Name = d.Name
		if d.Err != nil {
			out.Results[i].Problem = new(problem.Of(d.Err, c.Occurrence()))
			continue
		}
		out.Results[i].Partitions, out.Results[i].Records, out.Results[i].SizeBytes = &d.Partitions, &d.Records, &d.SizeBytes
	}
	return c.JSON(http.StatusOK, out)
}
