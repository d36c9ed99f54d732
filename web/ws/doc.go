// Package ws is the WebSocket door: GET /v1/ws/consume as a reader or as a member of a group,
// and GET /v1/ws/produce (api.md §4). It decodes frames, calls the broker and encodes what
// comes; rights are looked at in the broker, on every read and with every produce frame.
//
// # State, goroutines, memory
//
// A socket is a session with one goroutine of the node's Group that stays, "ws/read", which
// reads one frame at a time and hands it over without a buffer, and one that comes when there
// is something to do, "ws/write": a turn, which has all the state, follows the frames, pulls
// from the log and alone writes (turns). The HTTP handler returns after the handshake. Nothing
// is queued: records are read from the log when the client has taken those before, so a socket
// holds one records frame (256 KiB and the record that passes it) while its client is slow,
// and none while it is idle. Sessions wake by the partitions and the metadata they follow and
// by the clock, never by polling. "ws/watch" wakes all of them when the node ends.
//
// An idle socket costs the stack of "ws/read", 4 KiB as long as nothing deeper is called
// there than the library's reading: frames are decoded in the turn, and a pong only notes the
// time. Lock order: Handler.mu, a session's turns.mu, the Group's; a turn holds none of them
// while it reads or writes. What wakes a session may hold locks of the broker, of which a
// session holds none then.
//
// Of a client that reads slowly or not at all the kernel takes about 128 KiB beyond what is on
// its way, and nothing is read or encoded for it until it has taken half of that (conn_linux.go);
// its frames begin at 32 KiB and grow while it keeps up.
//
// Sockets that read the same place of a partition alike share its text, in at most 16 MiB
// of a node (chunks): it is read and encoded once, while rights, credit and quotas are
// looked at for each. Searches and previews share nothing.
//
// A socket that produces has the same goroutines; its turn waits while frames are under way.
// They are decoded in place by "ws/read" and
// their records copied by the broker, so that what is under way, 128 frames at most, holds
// no text; "ws/write" answers in order and takes no further frame while a client does not
// read its answers. What frames hold counts in the node's budget (internal/inflight).
//
// # Members of groups
//
// With group a socket is a member (groupMember). Its group decides what it has; the session
// asks it for that in a round, when a coordinator.Watch has called, and reads what it was given
// as any socket reads: positions, credit, search, shared text and fairness are those of readers.
// A membership costs no goroutine, and a heartbeat each third of the session timeout. That is
// made only while the client shows that it is there: with it goes a ping, unless pings come as
// often anyhow, and a client that was silent for two thirds of the session timeout keeps
// nothing alive. While a client takes a long frame piece by piece, that is a sign of life too.
//
// A partition that is being revoked yields nothing more once the session has noticed, and is
// not given away before the client was told: revoked follows its last record, and the grace of
// 5 s began when the round named it. With auto_commit what was written is committed before
// revoked and released behind it, since nothing is left to be done. Positions go to the
// coordinator as cursors, so that a commit never covers what was not written, and never goes
// back; a commit frame may.
//
// A member leaves when its client closes with a close frame, unsubscribes, or may not read any
// more; by all other ends its session goes on, and a socket with member_id resumes it.
//
// # Start and stop
//
// New starts nothing. Shutdown ends all sockets with end {reason: "node-stopping"} and
// 1001 and waits; so do the draining of the broker and the end of the Group's context.
//
// # Choices that the contract leaves open
//
//   - A membership that is over (fenced, by another connection of the member or an instance
//     that took over; member-expired) closes with 4409. That includes a poll of the member over
//     HTTP. A topic of a member that is deleted ends nothing: its partitions are revoked.
//   - commit is answered by committed also without an id. released is answered where it has one.
//   - A resumed member keeps what it joined with; another value of it in subscribe is refused.
//     What belongs to the socket (auto_commit, credit, max_records, …) may be another.
//   - take_over and client_id, which joining over HTTP has, are taken too. from may be none
//     with a group; auto_offset_reset is no time, as over HTTP.
//   - A position that is out of range is set by auto_offset_reset, and told by a further
//     assigned. Under none the socket ends with offset-out-of-range.
//   - pause, seek and commit of what the member does not have are not-owner. seek stores nothing.
//   - Where the coordinator cannot do what it is asked the socket tries again for as long as
//     the session may last, and goes on reading.
//   - A topic in topics is read whole, partitions that are added later too (from their
//     log start, told by a further assigned frame that names only them). A partition in
//     partitions begins at its next_offset, or without one as from says; where its topic
//     is not in topics only the partitions named are read.
//   - credit, pause, resume, seek and unsubscribe are answered by credited, paused,
//     resumed, sought and unsubscribed where they have an id, and not at all without.
//     After these answers no record frame follows that contradicts them.
//   - id is a string or a number and comes back byte for byte. null means the same as
//     leaving a member out.
//   - q is looked for byte for byte. A search that finds little goes on in pieces, between
//     which the socket follows frames; records that are left out cost no credit. q_in is an
//     array of names in the frame and a list with commas in the query.
//   - In the query topics are separated by commas, partitions is the frame's JSON array.
//   - Close codes besides the contract's: 1013 follows 503 and 504 (come again), 1011
//     other faults of the node. Errors about a frame without id that have no code of
//     their own (501, 409, 413, 416, 422) close with 4400. Frames over 256 KiB are
//     request-too-large and 4400.
//   - Where retention or a deletion of records overtakes a reader it ends with
//     offset-out-of-range, which tells earliest and latest, and 4408: going on at the log
//     start would hide the loss.
//   - A user's quota slows a socket: no further frame of records is sent, or of the client
//     taken, until what passed is paid. A produce frame counts as a request. While it waits
//     a frame of the client waits too, auth included; pings go on.
//   - slow: a client that takes no 128 KiB for 10 s gets timeout and 4408 when it goes on,
//     and is cut after 30 s: a close frame can only follow a whole frame.
//   - An auth that fails ends the socket with an error without id and 4401. One that
//     cannot be decided, since the quorum is not there, ends it with 1013.
//   - A client that offers other subprotocols only is refused (422).
package ws
