// Package route is what every handler of the HTTP interface is written against: a table's
// row (Route), one request (Call), and the gate that a request passes before its handler.
//
// The gate makes the checks in the order that the HTTP contract fixes: 404 and 405 by the
// router, 401, 413 by Content-Length, 415, 406, 501, then the query and the path. What
// the request alone shows beyond that (400, 413, 422) is the handler's, by Decode,
// Call.QueryInt and the like. The error that a handler returns becomes the problem that
// is answered. Lists are answered by a Listing, streams written by a Paced.
//
// The package knows no resource. It holds no state of a request once it has been answered.
package route
