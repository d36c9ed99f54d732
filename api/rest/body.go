package rest

import "tidewire/api/strictjson"

// decode reads a JSON body strictly into a DTO (strictjson.Decode).
func decode[T any](c *Call) (*T, error) {
	out := new(T)
	err := c.readBody(func(b []byte) error { return strictjson.Decode(b, out) })
	return out, err
}
