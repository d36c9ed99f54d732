package route

import (
	"net/http"
	"time"
)

// stallTimeout is how long a client may take none of an answer that is being streamed before
// it is cut off: files and memory are held for it.
const stallTimeout = 30 * time.Second

// Taken ends what Stall began, once the client has taken what was written: the deadline must
// not meet the connection's next answer.
func (c *Call) Taken() {
	rc := http.NewResponseController(c.Writer)
	_ = rc.Flush()                       // a client that is gone was noticed before, or soon is
	_ = rc.SetWriteDeadline(time.Time{}) // as in Stall
}

// Stall gives the client stallTimeout from now on to take what is written.
func (c *Call) Stall() {
	// A writer without deadlines belongs to a test that has no connection.
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(stallTimeout))
}
