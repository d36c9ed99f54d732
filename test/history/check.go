package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Kind names a fault.
type Kind string

// The faults that Check finds.
const (
	Malformed          Kind = "malformed"           // the history itself is wrong: an answer without its send, a value sent twice
	InconsistentOffset Kind = "inconsistent-offset" // two values at one offset, or a value elsewhere than was told
	Duplicate          Kind = "duplicate"           // one value at two offsets without a retry
	Lost               Kind = "lost"                // acknowledged, below what somebody read, read by nobody
	Unseen             Kind = "unseen"              // acknowledged, above what anybody read, not there at the end
	Vanished           Kind = "vanished"            // somebody read it, and it is not there at the end
	Phantom            Kind = "phantom"             // read and never sent
	FailedRead         Kind = "failed-read"         // read, though the writer was told that it was not applied
	AbortedRead        Kind = "aborted-read"        // read, though its transaction aborted
	UncommittedRead    Kind = "uncommitted-read"    // read before its transaction was asked to commit
	OwnUncommitted     Kind = "own-uncommitted"     // a transaction read what it wrote itself
	Skipped            Kind = "skipped"             // a poll went past a record without a move of the consumer
	Backward           Kind = "backward"            // a poll went back without a move of the consumer
	Misordered         Kind = "misordered"          // a producer's records stand in another order than it sent them
	Gap                Kind = "gap"                 // an offset without a record at the end
	TornTransaction    Kind = "torn-transaction"    // a part of a transaction is there at the end, another is not
	Cycle              Kind = "cycle"               // transactions that read each other's writes
)

// Violation is one fault found.
type Violation struct {
	Kind   Kind
	Detail string
}

// String is the kind and the detail.
func (v Violation) String() string { return string(v.Kind) + ": " + v.Detail }

// place is an offset of a partition.
type place struct {
	partition string
	offset    int64
}

func (p place) String() string { return fmt.Sprintf("%s@%d", p.partition, p.offset) }

// outcome of a write as its client was told.
type outcome int

const (
	unanswered outcome = iota
	acked
	failed
)

// value is all that is known of one value.
type value struct {
	text      string
	producer  string
	sequence  int // of its producer's values, in the order of sending
	op        string
	acks      string
	retry     bool
	txn       string
	outcome   outcome
	told      *place  // by the acknowledgement
	seen      []place // by reads; almost always one
	readLine  int     // of the first read by a consumer, 0: none
	readByTxn []string
}

// txn is all that is known of one transaction.
type txn struct {
	commitAsked, abortAsked int // lines, 0: never
	committed, aborted      bool
	values                  []*value
}

// whole is what the final reads of one partition hold.
type whole struct {
	from, to int64
	sparse   bool
	at       map[int64]string
}

// consumer is where a consumer is in each partition: the last offset read.
type consumer map[string]int64

// poll is a consumer's step from one offset to the next in a partition.
type poll struct {
	client, partition string
	from, to          int64
	line              int
}

// checker is one run of Check.
type checker struct {
	values    map[string]*value
	ops       map[string][]*value
	sequences map[string]int
	txns      map[string]*txn
	byPlace   map[place]string
	highest   map[string]int64 // partition → highest offset that anybody read
	consumers map[string]consumer
	polls     []poll
	finals    map[string]*whole
	reads     []readOf
	found     []Violation
}

// readOf is one value got by one poll.
type readOf struct {
	line        int
	client, txn string
	uncommitted bool
	v           *value
	at          place
}

// Check returns the violations of a history in the order in which they were found.
func Check(events []Event) []Violation {
	c := &checker{
		values: map[string]*value{}, ops: map[string][]*value{}, sequences: map[string]int{}, txns: map[string]*txn{},
		byPlace: map[place]string{}, highest: map[string]int64{}, consumers: map[string]consumer{}, finals: map[string]*whole{},
	}
	for i := range events {
		c.take(&events[i], i+1)
	}
	c.checkPolls()
	c.checkReads()
	for _, v := range c.sorted() {
		c.checkPlaces(v)
		c.checkPresence(v)
	}
	c.checkOrder()
	c.checkFinals()
	c.checkTorn()
	c.checkCycles()
	return c.found
}

func (c *checker) report(k Kind, format string, args ...any) {
	c.found = append(c.found, Violation{k, fmt.Sprintf(format, args...)})
}

// sorted returns the values in the order in which they were sent.
func (c *checker) sorted() []*value {
	return slices.SortedFunc(maps.Values(c.values), func(a, b *value) int {
		return cmp.Or(cmp.Compare(a.producer, b.producer), cmp.Compare(a.sequence, b.sequence), cmp.Compare(a.text, b.text))
	})
}

func (c *checker) take(e *Event, line int) {
	switch e.Type {
	case Send:
		c.takeSend(e, line)
	case Ack:
		c.takeAck(e, line)
	case Fail, Unknown:
		values, ok := c.ops[e.Op]
		if !ok {
			c.report(Malformed, "line %d ends op %q, which was not sent", line, e.Op)
		}
		if e.Type == Fail {
			c.takeFail(e, values, line)
		}
	case Read:
		c.takeRead(e, line)
	case Assign:
		delete(c.consumers, e.Client)
	case Final:
		c.takeFinal(e, line)
	case Commit, Abort, Committed, Aborted:
		c.takeTxn(e, line)
	default:
		c.report(Malformed, "line %d has the type %q", line, e.Type)
	}
}

func (c *checker) txn(id string) *txn {
	t := c.txns[id]
	if t == nil {
		t = &txn{}
		c.txns[id] = t
	}
	return t
}

func (c *checker) takeSend(e *Event, line int) {
	if _, again := c.ops[e.Op]; again {
		c.report(Malformed, "line %d sends op %q again", line, e.Op)
	}
	for _, r := range e.Records {
		if _, again := c.values[r.Value]; again {
			c.report(Malformed, "line %d sends %q again", line, r.Value)
			continue
		}
		v := &value{text: r.Value, producer: e.Client, sequence: c.sequences[e.Client], op: e.Op, acks: e.Acks, retry: e.Retry, txn: e.Txn}
		c.sequences[e.Client]++
		c.values[r.Value] = v
		c.ops[e.Op] = append(c.ops[e.Op], v)
		if e.Txn != "" {
			t := c.txn(e.Txn)
			t.values = append(t.values, v)
		}
	}
}

func (c *checker) takeAck(e *Event, line int) {
	for _, r := range e.Records {
		v := c.values[r.Value]
		if v == nil || !slices.Contains(c.ops[e.Op], v) {
			c.report(Malformed, "line %d acknowledges %q, which op %q did not send", line, r.Value, e.Op)
			continue
		}
		p := place{r.Partition, r.Offset}
		v.outcome, v.told = acked, &p
		if v.acks != Leader { // a weak acknowledgement's offset may be given again after a crash
			c.occupy(p, v.text)
		}
	}
}

func (c *checker) takeFail(e *Event, values []*value, line int) {
	if len(e.Records) == 0 {
		for _, v := range values {
			v.outcome = failed
		}
		return
	}
	for _, r := range e.Records {
		if v := c.values[r.Value]; v != nil && slices.Contains(values, v) {
			v.outcome = failed
			continue
		}
		c.report(Malformed, "line %d fails %q, which op %q did not send", line, r.Value, e.Op)
	}
}

// occupy notes which value is at a place.
func (c *checker) occupy(p place, text string) {
	if other, taken := c.byPlace[p]; taken && other != text {
		c.report(InconsistentOffset, "%s holds %q and %q", p, other, text)
		return
	}
	c.byPlace[p] = text
}

func (c *checker) takeRead(e *Event, line int) {
	at := c.consumers[e.Client]
	if at == nil {
		at = consumer{}
		c.consumers[e.Client] = at
	}
	for _, r := range e.Records {
		p := place{r.Partition, r.Offset}
		if before, moving := at[r.Partition]; moving && r.Offset != before+1 {
			c.polls = append(c.polls, poll{e.Client, r.Partition, before, r.Offset, line})
		}
		at[r.Partition] = r.Offset
		v := c.see(p, r.Value, line)
		if v == nil {
			continue
		}
		if v.readLine == 0 {
			v.readLine = line
		}
		if e.Txn != "" {
			v.readByTxn = append(v.readByTxn, e.Txn)
		}
		c.reads = append(c.reads, readOf{line, e.Client, e.Txn, e.Uncommitted, v, p})
	}
}

// see notes that a value was found at a place.
func (c *checker) see(p place, text string, line int) *value {
	c.occupy(p, text)
	if high, any := c.highest[p.partition]; !any || p.offset > high {
		c.highest[p.partition] = p.offset
	}
	v := c.values[text]
	if v == nil {
		c.report(Phantom, "line %d reads %q at %s, which nobody had sent", line, text, p)
		return nil
	}
	if !slices.Contains(v.seen, p) {
		v.seen = append(v.seen, p)
	}
	return v
}

func (c *checker) takeFinal(e *Event, line int) {
	f := c.finals[e.Partition]
	if f == nil {
		f = &whole{from: e.From, to: e.To, sparse: e.Sparse, at: map[int64]string{}}
		c.finals[e.Partition] = f
	}
	f.from, f.to, f.sparse = min(f.from, e.From), max(f.to, e.To), f.sparse || e.Sparse
	for _, r := range e.Records {
		if r.Partition != e.Partition {
			c.report(Malformed, "line %d, a final read of %s, holds %s", line, e.Partition, r.Partition)
			continue
		}
		f.at[r.Offset] = r.Value
		if v := c.see(place{r.Partition, r.Offset}, r.Value, line); v != nil {
			c.reads = append(c.reads, readOf{line: line, client: "the final read", v: v, at: place{r.Partition, r.Offset}})
		}
	}
}

func (c *checker) takeTxn(e *Event, line int) {
	t := c.txn(e.Txn)
	switch e.Type {
	case Commit:
		t.commitAsked = cmp.Or(t.commitAsked, line)
	case Abort:
		t.abortAsked = cmp.Or(t.abortAsked, line)
	case Committed:
		t.committed = true
	case Aborted:
		t.aborted = true
	}
	if t.committed && t.aborted {
		c.report(Malformed, "line %d: transaction %q committed and aborted", line, e.Txn)
	}
}
