// Package web is the HTTP server: listener and TLS, limits and timeouts, what every
// request passes (request id, panics, metrics, CORS, the path prefix), the static pages
// /ui/ and /docs, and the WebSocket streams. REST resources come from api/rest.
//
// Start and stop: New builds, Serve runs until Shutdown. Shutdown first makes waiting
// calls answer (the owner drains the broker before), then ends the streams, then waits
// for requests under way.
package web
