package route

import "tidewire/api/strictjson"

// Decode reads a JSON body strictly into a DTO (strictjson.Decode).
func Decode[T any](c *Call) (*T, error) {
	out := new(T)
	err := c.ReadBody(func(b []byte) error { return strictjson.Decode(b, out) })
	return out, err
}
