// Package lines produces records that come as lines of JSON (application/x-ndjson), one
// record object a line, in a request of any length. It answers while it reads: a line for
// each record that was refused, or for each at all, and a summary at the end.
//
// # Way of a line
//
//	body ─ reader goroutine ─▶ inbox ─▶ Serve: decode in place, check, submit ─▶ broker
//	client ◀─ writer goroutine ◀─ outbox ◀─ Serve: what became of each batch, in order
//
// Serve, in the goroutine of the request, has all the state. What has arrived when it looks
// is one batch, so that a trickle is stored line by line and a flood in large batches; up to
// four batches are under way. While all four wait for a sync, what arrives is gathered. The
// broker copies records in Submit, so a batch under way holds no text.
//
// # Memory
//
// A request holds an inbox and a text of 256 KiB each (or of one line, if that is longer), a
// chunk of 64 KiB and the tables of five batches of 2,048 records. Where the client does not
// read its answer, results=all stops the reading of its lines; with results=errors the
// answer is kept instead, which 1,000 failures bound: such a client may send all its lines
// before it reads.
//
// # Ends
//
// The body ends; 1,000 lines failed; the token, the right or the topic is gone; the node
// stops; the client neither takes its answer nor sends for half a minute. Except in the last
// case what was submitted is waited for and the summary tells what became of it. After an
// early end the rest of the body is read and dropped for a while, since many clients look
// at no answer before they have sent everything.
package lines
