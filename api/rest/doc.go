// Package rest is the REST door: one file a resource with its handlers and its DTOs,
// and one table of routes (routes.go) from which registration, the checks before a
// handler, the rows that answer 501, the OpenAPI document and docs/security.md derive.
//
// A request passes, in the order that the HTTP contract fixes: 404 and 405 by the
// router, 401, 413 by Content-Length, 415, 406, 501, then what the request alone shows
// (400, 413, 422) in the handler, and behind the façade 403, 404, and what stored state
// decides. Handlers decode, call the broker or auth, and encode; they hold no state and
// no locks.
package rest
