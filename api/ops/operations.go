package ops

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tidewire/api/problem"
	"tidewire/api/route"
	"tidewire/broker/operations"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// OperationView is long work of a node.
type OperationView struct {
	ID        string            `json:"id"`
	Kind      string            `json:"kind" enums:"open-partitions,create-partitions,delete-partitions,delete-topics,compact,move-partition,drain-broker"`
	State     string            `json:"state" enums:"running,done,failed,cancelled"`
	Progress  ProgressView      `json:"progress"`
	ETAMs     *int64            `json:"eta_ms" extensions:"x-nullable"` // until its end, by how long it took so far, and of moves by the throttle; null where that cannot be told
	Error     *problem.Problem  `json:"error" extensions:"x-nullable"`  // why it has failed
	Resource  OperationResource `json:"resource"`
	Principal *string           `json:"principal" extensions:"x-nullable"` // the user who asked for it; null: the node itself
	Broker    int32             `json:"broker"`                            // the node that does it
	CreatedAt route.Time        `json:"created_at" swaggertype:"string" format:"date-time"`
	EndedAt   *route.Time       `json:"ended_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	Actions   []string          `json:"actions"`
	ETag      string            `json:"etag"` // changes with the state
}

// ProgressView is how much of an operation is done.
type ProgressView struct {
	Done  int64  `json:"done"`
	Total int64  `json:"total"`
	Unit  string `json:"unit" enums:"partitions,topics,bytes"`
}

// OperationResource is what an operation works on.
type OperationResource struct {
	Type      string  `json:"type" enums:"broker,topic,topics,partition"`
	Name      *string `json:"name" extensions:"x-nullable"` // of the topic, or the number of the node
	Partition *int32  `json:"partition" extensions:"x-nullable"`
}

func (a *API) operationView(c *route.Call, v *operations.View) OperationView {
	out := OperationView{
		ID: v.ID, Kind: string(v.Spec.Kind), State: string(v.State), Broker: int32(v.Broker), Actions: []string{},
		Progress:  ProgressView{Done: v.Done, Total: v.Total, Unit: v.Spec.Unit},
		Resource:  OperationResource{Type: v.Spec.Resource.Type},
		CreatedAt: route.TimeOf(v.CreatedAt), ETag: string(operationTag(v)),
	}
	if left, known := v.Remaining(a.now()); known {
		out.ETAMs = new(left.Milliseconds())
	}
	if v.Err != nil {
		at := c.Occurrence()
		at.Write = true // whether it was applied matters, however it is asked for
		out.Error = new(problem.Of(v.Err, at))
	}
	if v.Spec.Resource.Name != "" {
		out.Resource.Name = &v.Spec.Resource.Name
	}
	if p := v.Spec.Resource.Partition; p != nil {
		out.Resource.Partition = new(int32(*p))
	}
	if v.Spec.Principal != "" {
		out.Principal = &v.Spec.Principal
	}
	if v.State != operations.Running {
		out.EndedAt = new(route.TimeOf(v.EndedAt))
	} else if v.Spec.Lasting == "" && a.broker.MayCancel(c.Caller(), v) {
		out.Actions = append(out.Actions, "cancel")
	}
	return out
}

func operationTag(v *operations.View) metadata.ETag {
	return metadata.ETag(string(v.State) + "-" + strconv.FormatUint(v.Changes, 36))
}

// states are the values of the query's state.
var states = []operations.State{operations.Running, operations.Done, operations.Failed, operations.Cancelled}

func stateOf(c *route.Call) (operations.State, error) {
	s, given := c.Only("state")
	if given && !slices.Contains(states, operations.State(s)) {
		return "", model.Invalid("query:state", "state is running, done, failed or cancelled, not %q", s)
	}
	return operations.State(s), nil
}

// listOperations lists long work of this node, and the moves and drains of the cluster: what
// runs, and what ended in the last 24 hours, of this the last 500. Who may describe the cluster sees all of it, others what they
// have asked for.
//
//	@ID			listOperations
//	@Summary	List operations
//	@Tags		Cluster
//	@Param		limit		query		int		false	"items of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param		page_token	query		string	false	"next_page_token of the page before"
//	@Param		prefix		query		string	false	"start of the id"
//	@Param		q			query		string	false	"part of the id, in any case"
//	@Param		sort		query		string	false	"a field, with - in front descending"	Enums(id, -id, created_at, -created_at, kind, -kind, state, -state)
//	@Param		fields		query		string	false	"fields of the items, with commas between"
//	@Param		state		query		string	false	"only those in this state"	Enums(running, done, failed, cancelled)
//	@Success	200			{object}	route.Page[OperationView]
//	@Router		/v1/operations [get]
func (a *API) listOperations(c *route.Call) error {
	state, err := stateOf(c)
	if err != nil {
		return err
	}
	l := route.Listing[operations.View, OperationView]{
		Name: func(v operations.View) string { return v.ID }, By: "id",
		View: func(v operations.View) OperationView { return a.operationView(c, &v) },
		Sorts: map[string]func(operations.View) any{
			"created_at": func(v operations.View) any { return float64(v.CreatedAt.UnixMilli()) },
			"kind":       func(v operations.View) any { return string(v.Spec.Kind) },
			"state":      func(v operations.View) any { return string(v.State) },
		},
	}
	return l.Serve(c, func() ([]operations.View, error) {
		all := append(a.broker.VisibleOperations(c.Caller()), a.moving(c)...)
		return slices.DeleteFunc(all, func(v operations.View) bool { return state != "" && v.State != state }), nil
	})
}

// moving are the moves and drains of the cluster that run.
func (a *API) moving(c *route.Call) []operations.View {
	if a.moves == nil {
		return nil
	}
	return a.moves.Operations(c.Request.Context(), c.Caller())
}

// findMoving is one of them; nil where there is none of that id that the caller may see.
func (a *API) findMoving(c *route.Call, id string) *operations.View {
	if !strings.HasPrefix(id, "move-") && !strings.HasPrefix(id, "drain-") {
		return nil
	}
	all := a.moving(c)
	if i := slices.IndexFunc(all, func(v operations.View) bool { return v.ID == id }); i >= 0 {
		return &all[i]
	}
	return nil
}

// getOperation gives one operation with its progress.
//
//	@ID			getOperation
//	@Summary	Get an operation
//	@Tags		Cluster
//	@Param		id	path		string	true	"id"
//	@Success	200	{object}	OperationView
//	@Header		200	{string}	ETag	"the operation's entity tag"
//	@Router		/v1/operations/{id} [get]
//	@x-errors	["not-found"]
func (a *API) getOperation(c *route.Call) error {
	if v := a.findMoving(c, c.PathValue("id")); v != nil {
		return c.Resource(http.StatusOK, operationTag(v), a.operationView(c, v))
	}
	v, err := a.broker.Operation(c.Request.Context(), c.Caller(), c.PathValue("id"))
	if err != nil {
		return err
	}
	return c.Resource(http.StatusOK, operationTag(&v), a.operationView(c, &v))
}

// cancelWait bounds how long a cancellation waits for the operation to end.
const cancelWait = 10 * time.Second

// cancelOperation cancels an operation and answers once it has ended. What it has done by
// then stays done.
//
//	@ID			cancelOperation
//	@Summary	Cancel an operation
//	@Tags		Cluster
//	@Param		id			path	string	true	"id"
//	@Param		If-Match	header	string	false	"entity tag that the operation must have"
//	@Success	204			"cancelled"
//	@Router		/v1/operations/{id} [delete]
//	@x-errors	["not-found","conflict","etag-mismatch"]
func (a *API) cancelOperation(c *route.Call) error {
	match, err := c.IfMatch()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), cancelWait)
	defer cancel()
	if v := a.findMoving(c, c.PathValue("id")); v != nil {
		if err := route.Matches(match, operationTag(v)); err != nil {
			return err
		}
		if found, err := a.moves.CancelOperation(ctx, c.Caller(), v.ID); err != nil {
			return err
		} else if found {
			return c.NoContent()
		}
	}
	err = a.broker.CancelOperation(ctx, c.Caller(), c.PathValue("id"), func(v *operations.View) error {
		return route.Matches(match, operationTag(v))
	})
	if err != nil {
		return err
	}
	return c.NoContent()
}
