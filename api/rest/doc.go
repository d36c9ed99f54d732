// Package rest is the REST door: one file a resource with its handlers and its DTOs,
// and one table of routes (routes.go) from which registration, the checks before a
// handler, the rows that answer 501, the OpenAPI document and docs/security.md derive.
//
// A request has passed the gate of api/route when it comes to a handler, which tells what
// the request alone shows (400, 413, 422); behind the façade come 403, 404, and what
// stored state decides. Handlers decode, call the broker or auth, and encode; they hold no
// state and no locks.
package rest
