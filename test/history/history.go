// Package history judges what clients of a log saw. A history is what happened at all
// clients, one JSON object a line in the order in which it was observed; Check finds
// what a correct log cannot have shown. Any client in any language can write one.
//
// Values are strings that are unique in the history: each is sent once, except where a
// send says that it may be repeated. A line is written when its event happens: "send"
// before the request leaves, "ack", "fail" and "unknown" after its answer has come.
package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Type says what an event is.
type Type string

// The types of events.
const (
	// Send begins a write: Client, Op, Records (values, with the partition where the
	// client chose it), Acks, Txn, Retry.
	Send Type = "send"
	// Ack ends a write that was acknowledged: Op, and Records with the values' partitions
	// and offsets. Records that it leaves out keep an unknown outcome, or that of another
	// line of the same Op.
	Ack Type = "ack"
	// Fail ends a write of which the client was told that it was certainly not applied.
	Fail Type = "fail"
	// Unknown ends a write that may have been applied.
	Unknown Type = "unknown"
	// Read is what a consumer got by one poll, in the order in which it came: Client,
	// Records, Txn where it belongs to a transaction, Uncommitted where the consumer
	// asked for uncommitted records.
	Read Type = "read"
	// Assign moves a consumer: by a seek, an assignment, a rebalance. What it reads next
	// may begin anywhere.
	Assign Type = "assign"
	// Final is a read of everything that a partition holds, made when all is over:
	// Partition, From and To (the log start and the high watermark), Records.
	Final Type = "final"
	// Commit and Abort ask for a transaction's end, Committed and Aborted say that it
	// has come: Txn.
	Commit    Type = "commit"
	Abort     Type = "abort"
	Committed Type = "committed"
	Aborted   Type = "aborted"
)

// Acknowledgement levels of a Send.
const (
	All    = "all"    // acknowledged means never lost
	Leader = "leader" // acknowledged and lost is allowed
)

// Record is one value, and where it is. Offset is meaningful in Ack, Read and Final.
type Record struct {
	Partition string `json:"partition"` // topic and number, such as "t/0"; "" where not known yet
	Offset    int64  `json:"offset"`
	Value     string `json:"value"`
}

// Event is one line of a history.
type Event struct {
	Type    Type     `json:"type"`
	Client  string   `json:"client,omitempty"`
	Op      string   `json:"op,omitempty"` // joins a Send and its end; unique in the history
	Records []Record `json:"records,omitempty"`

	Acks        string `json:"acks,omitempty"`
	Retry       bool   `json:"retry,omitempty"` // of a Send: the client may have sent it more than once
	Txn         string `json:"txn,omitempty"`
	Uncommitted bool   `json:"uncommitted,omitempty"`

	Partition string `json:"partition,omitempty"` // of a Final
	From      int64  `json:"from,omitempty"`      // of a Final
	To        int64  `json:"to,omitempty"`        // of a Final: the offset after the last
	Sparse    bool   `json:"sparse,omitempty"`    // of a Final: offsets may be missing (transactions, compaction)
}

// Recorder collects events from many goroutines in one order.
type Recorder struct {
	mu     sync.Mutex
	events []Event // guarded by mu
}

// Add appends an event, and keeps its slices.
func (r *Recorder) Add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// Events returns what was added so far.
func (r *Recorder) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[:len(r.events):len(r.events)]
}

// Write writes events as JSON lines.
func Write(w io.Writer, events []Event) error {
	b := bufio.NewWriter(w)
	enc := json.NewEncoder(b)
	for i := range events {
		if err := enc.Encode(&events[i]); err != nil {
			return err
		}
	}
	return b.Flush()
}

// Parse reads JSON lines. An unknown field or type is an error: what a checker does not
// understand it cannot judge.
func Parse(r io.Reader) ([]Event, error) {
	dec := json.NewDecoder(bufio.NewReader(r))
	dec.DisallowUnknownFields()
	var out []Event
	for {
		var e Event
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err == nil && !known(e.Type) {
			err = fmt.Errorf("unknown type %q", e.Type)
		}
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", len(out)+1, err)
		}
		out = append(out, e)
	}
}

func known(t Type) bool {
	switch t {
	case Send, Ack, Fail, Unknown, Read, Assign, Final, Commit, Abort, Committed, Aborted:
		return true
	}
	return false
}
