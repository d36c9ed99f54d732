package route

import "tidewire/api/coding"

// Media is the type of the route's that the client likes best; checkAccept has seen to it
// that there is one.
func (c *Call) Media() string {
	h := c.Request.Header["Accept"]
	if len(h) == 0 {
		return c.Route.types()[0]
	}
	return coding.Media(h, c.Route.types())
}
