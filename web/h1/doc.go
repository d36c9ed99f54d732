// Package h1 serves HTTP/1.1 for plain requests with less work than net/http, and leaves
// all others to it.
//
// Why: with one record a request, half of a node's work was net/http's: two goroutines and
// three timers for a request, and several small writes. Here a request costs one read, one
// write and the handler, in one goroutine per connection. Rejected: another server
// library, whose handlers are not http.Handler, so that gin and the WebSocket library
// would not fit.
//
// What is plain: HTTP/1.1 over TCP without TLS, a usual method, an origin-form target, one
// Host, header fields in strict syntax (CRLF, no folding, token names, no control
// characters), a body with one Content-Length or none, and a head that came whole with the
// first read. Anything else — chunked bodies, Expect, Upgrade, Connection other than
// keep-alive, what might be malformed, a head in pieces — is handed over: net/http's server
// gets the connection, with the bytes read so far, and keeps it to its end. So this package
// never answers a protocol error and never reads a request otherwise than net/http would:
// it accepts a subset of its grammar (the fuzz target compares the two).
//
// The handler sees what net/http shows: an *http.Request, and a ResponseWriter that
// implements http.Flusher, io.ReaderFrom (by sendfile for a FileRange) and the deadlines and
// full duplex of http.ResponseController. The request's context ends when the handler returns or the client goes away; the latter is
// looked for only once somebody has asked for Done, or a second time for Err, and a moment
// has passed. Not there: Hijack (an upgrade is handed over), CloseNotify, and trailers and a
// Transfer-Encoding of the handler's, which are ignored. What else differs is in
// docs/adr/0016-own-connection-loop.md.
//
// A request that waits can do so without a goroutine; see Parking.
//
// State and locks: a connection belongs to its goroutine, and to a request that waits without one
// until that is woken; what others touch is atomic (its
// state, for Shutdown) or under a lock of the exchange, which is made anew for each request:
// so what a handler keeps, or leaves running, is refused once the handler has returned. A
// connection that waits for its next request holds no buffer, nor does a request that waits once
// what was read is its own.
//
// Start and stop: Serve accepts until Shutdown, which closes what is idle, lets requests
// under way end, and does the same for the connections handed over.
package h1
