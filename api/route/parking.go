package route

import (
	"net/http"
	"time"

	"tidewire/auth"
)

// Parking lets a request wait without a goroutine, where the server can: see h1.Parking, which
// says what each method does.
type Parking interface {
	Park(state any)
	Parks() bool
	Parked() any
	Wake()
	Keep(since time.Time)
	Since() time.Time
}

// ParkingKey is the key of a request's context for its Parking, where it has one.
var ParkingKey any = parkingKey{}

type parkingKey struct{}

// ParkingOf is the Parking of a request; nil: it cannot wait without its goroutine.
func ParkingOf(r *http.Request) Parking {
	p, _ := r.Context().Value(ParkingKey).(Parking)
	return p
}

// parkedCall is what a call leaves to the one that goes on with its request.
type parkedCall struct {
	principal  *auth.Principal
	credential auth.Credential
	then       Handler
}

// Waker gives the function that wakes the call once it has parked, which may be called at any
// time, even under locks, and more than once. Nil: the call cannot park. Calls that are audited
// cannot, nor those that came by net/http's server.
func (c *Call) Waker() (wake func()) {
	if c.audit != nil {
		return nil
	}
	if p := ParkingOf(c.Request); p != nil {
		return p.Wake
	}
	return nil
}

// Park has the call's goroutine given up once the handler has returned, with what Park returns,
// and then called with another Call of the same request once it was woken or its client is gone.
// That has the principal and credential of this one, and no query, and its body is read. It goes
// through no check, which is for then to make where a right may have ended. It is for calls that have
// a Waker and have written nothing yet.
func (c *Call) Park(then Handler) error {
	ParkingOf(c.Request).Park(&parkedCall{c.Principal, c.Credential, then})
	return nil
}

// resumed goes on with a request that has parked.
func (c *Call) resumed() (then Handler, ok bool) {
	p := ParkingOf(c.Request)
	if p == nil {
		return nil, false
	}
	k, ok := p.Parked().(*parkedCall)
	if !ok {
		return nil, false
	}
	c.Principal, c.Credential, c.query, c.decoded = k.principal, k.credential, noQuery, true
	return k.then, true
}
