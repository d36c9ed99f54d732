package main

import (
	"encoding/json"
	"maps"
	"slices"
)

// object is a JSON object. The generator works on plain JSON trees: references
// stay what they are in the document, text, and a copy is a copy.
type object = map[string]any

// walk calls visit for every object in the tree, outer ones first.
func walk(v any, visit func(object)) {
	switch v := v.(type) {
	case object:
		visit(v)
		for _, key := range sortedKeys(v) {
			walk(v[key], visit)
		}
	case []any:
		for _, item := range v {
			walk(item, visit)
		}
	}
}

// clone returns a deep copy of a JSON tree.
func clone(v any) any {
	switch v := v.(type) {
	case object:
		c := make(object, len(v))
		for key, member := range v {
			c[key] = clone(member)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, item := range v {
			c[i] = clone(item)
		}
		return c
	}
	return v
}

// child returns the object at key, adding an empty one when there is none.
func child(o object, key string) object {
	if c, ok := o[key].(object); ok {
		return c
	}
	c := object{}
	o[key] = c
	return c
}

func sortedKeys(o object) []string { return slices.Sorted(maps.Keys(o)) }

// reparse turns any value that marshals to a JSON object into a tree.
func reparse(v any) (object, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var o object
	err = json.Unmarshal(b, &o)
	return o, err
}
