// Package client is the HTTP client of the command line: it logs in, calls the
// administration endpoints, loads records from a stream, reads partitions without
// loss, and talks over a WebSocket. It knows the HTTP contract and nothing of the
// server's packages besides the codec of records and the words of internal/model.
//
// A Client is safe for concurrent use. Goroutines are started only by Produce,
// Consume with Follow and WebSocket, and end with the call; the one that reads the
// caller's input ends when its Read returns.
//
// Records are never turned into Go values on their way: produced lines go into the
// request as they are, fetched records come out as the server's bytes.
package client
