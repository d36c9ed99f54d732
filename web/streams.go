package web

import (
	"context"
	"net/http"

	"tidewire/api/route"
	"tidewire/web/ws"
)

// streams mounts the WebSocket endpoints behind the checks of every route.
type streams struct{ consume *ws.Handler }

// NewStreams returns the WebSocket endpoints.
func NewStreams(h *ws.Handler) Streams { return &streams{h} }

// Routes are the rows of the WebSocket endpoints.
func (s *streams) Routes() []*route.Route {
	return []*route.Route{
		{Method: http.MethodGet, Path: "/v1/ws/consume", ID: "consume", Needs: "read topic, and read group with group", Stream: true, Handle: func(c *route.Call) error {
			return s.consume.Consume(c.Writer, c.Request, c.Caller())
		}},
		{Method: http.MethodGet, Path: "/v1/ws/produce", ID: "produceSocket", Needs: "write topic, each frame's", Stream: true, Handle: func(c *route.Call) error {
			return s.consume.Produce(c.Writer, c.Request, c.Caller())
		}},
	}
}

// Shutdown ends every stream with the reason node-stopping.
func (s *streams) Shutdown(ctx context.Context) error { return s.consume.Shutdown(ctx) }
