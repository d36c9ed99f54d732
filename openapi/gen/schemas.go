package main

import "strings"

// Markers that fields carry in the tag extensions:"…".
const (
	xOmittable = "x-omittable" // a response field that may be absent
	xKinds     = "x-kinds"     // the types that a value may have, such as string|number|null
	xPairs     = "x-pairs"     // a list whose items are lists of two
)

// direction tells who writes a schema's instances. Requests are checked strictly
// and may leave fields out; answers carry every field and may gain new ones.
type direction int

const (
	inRequest direction = iota
	inResponse
)

// finishSchemas makes the schemas say what the conventions promise.
func (d *document) finishSchemas() {
	walk(d.root, d.flatten)
	walk(d.root, d.completeType)
	requests, responses := d.roots()
	sent := d.reach(requests)
	received := d.reach(responses)
	d.split(requests, sent, received)
	sent, received = d.reach(requests), d.reach(responses)
	d.finish(requests, sent, inRequest)
	d.finish(responses, received, inResponse)
	walk(d.root, func(o object) { delete(o, xOmittable) })
	d.prune()
}

// prune drops the schemas that nothing in the document leads to, such as those
// that only the Go type of a problem led to.
func (d *document) prune() {
	components := d.root["components"].(object)
	used := d.reach([]object{d.root["paths"].(object), components["responses"].(object)})
	for _, name := range sortedKeys(d.schemas) {
		if !used[name] {
			delete(d.schemas, name)
		}
	}
}

// flatten merges an allOf of several members into one object: clients generated
// from it get one type, and it can be closed. An allOf of one reference stays: it
// is how OpenAPI 3.0 puts a description beside a reference.
func (d *document) flatten(schema object) {
	members, ok := schema["allOf"].([]any)
	if !ok || len(members) < 2 {
		return
	}
	delete(schema, "allOf")
	schema["type"] = "object"
	properties := child(schema, "properties")
	for _, m := range members {
		member := d.resolve(m.(object))
		d.flatten(member)
		for name, property := range child(member, "properties") {
			properties[name] = clone(property)
		}
		if required, ok := member["required"].([]any); ok {
			have, _ := schema["required"].([]any)
			schema["required"] = append(have, required...)
		}
	}
}

// allowNull makes a schema without any constraint say that it takes null.
func allowNull(schema object) {
	for key := range schema {
		if key != "description" && key != xOmittable {
			return
		}
	}
	schema["nullable"] = true
}

// giveKinds lets the values of a field, which are those of its map or its lists where it is
// one, have each of the types that x-kinds names.
func giveKinds(field object) {
	if _, ok := field[xPairs]; ok {
		items := field["items"].(object)
		items["minItems"], items["maxItems"] = 2, 2
		delete(field, xPairs)
	}
	kinds, ok := field[xKinds].(string)
	if !ok {
		return
	}
	delete(field, xKinds)
	at := field
	for at["items"] != nil || at["additionalProperties"] != nil {
		inner, isMap := at["additionalProperties"].(object)
		if !isMap {
			inner = at["items"].(object)
		}
		at = inner
	}
	delete(at, "type")
	delete(at, "nullable")
	var of []any
	for kind := range strings.SplitSeq(kinds, "|") {
		if kind == "null" {
			at["nullable"] = true
			continue
		}
		of = append(of, object{"type": kind})
	}
	if len(of) == 1 {
		at["type"] = of[0].(object)["type"]
		return
	}
	at["oneOf"] = of
}

func (d *document) resolve(schema object) object {
	for {
		name, ok := refName(schema)
		if !ok {
			return schema
		}
		schema = d.schemas[name].(object)
	}
}

func refName(schema object) (string, bool) {
	ref, _ := schema["$ref"].(string)
	return strings.CutPrefix(ref, schemaPrefix)
}

// completeType adds what swag cannot say: integers are 64 bits wide, a field of any
// JSON value takes null too, and a nullable reference needs a type beside it for
// nullable to have a meaning (OpenAPI 3.0.3).
func (d *document) completeType(schema object) {
	if schema["type"] == "integer" && schema["format"] == nil {
		schema["format"] = "int64"
	}
	if properties, ok := schema["properties"].(object); ok {
		for _, property := range properties {
			giveKinds(property.(object))
			allowNull(property.(object))
		}
	}
	members, ok := schema["allOf"].([]any)
	if !ok || schema["nullable"] != true || schema["type"] != nil {
		return
	}
	if t, ok := d.resolve(members[0].(object))["type"]; ok {
		schema["type"] = t
	}
}

// roots lists the schemas that stand in the document itself, not in a component,
// and describe a request or an answer.
func (d *document) roots() (requests, responses []object) {
	err := d.eachOperation(func(op operation) error {
		if body, ok := op.node["requestBody"].(object); ok {
			requests = append(requests, contentSchemas(body)...)
		}
		for _, response := range child(op.node, "responses") {
			responses = append(responses, contentSchemas(response.(object))...)
		}
		if frames, ok := op.node[xFrames].(object); ok {
			properties := child(d.resolve(frames), "properties")
			requests = appendObject(requests, properties["client"])
			responses = appendObject(responses, properties["server"])
		}
		return nil
	})
	if err != nil { // the callback returns none
		panic(err)
	}
	return requests, responses
}

func appendObject(list []object, v any) []object {
	if o, ok := v.(object); ok {
		return append(list, o)
	}
	return list
}

func contentSchemas(owner object) []object {
	var out []object
	content, _ := owner["content"].(object)
	for _, mediaType := range sortedKeys(content) {
		out = appendObject(out, content[mediaType].(object)["schema"])
	}
	return out
}

// reach returns the names of the components that the schemas lead to.
func (d *document) reach(from []object) map[string]bool {
	seen := map[string]bool{}
	var follow func(o object)
	follow = func(o object) {
		name, ok := refName(o)
		if !ok || seen[name] {
			return
		}
		seen[name] = true
		walk(d.schemas[name], follow)
	}
	for _, schema := range from {
		walk(schema, follow)
	}
	return seen
}

// split gives the request side its own copy, NameInput, of each object that both
// sides use: closing it, or making every field required, would be wrong for one of
// them.
func (d *document) split(requests []object, sent, received map[string]bool) {
	renamed := map[string]string{}
	for name := range sent {
		if received[name] && name != problemName && d.hasObject(name) {
			renamed[name] = name + "Input"
		}
	}
	redirect := func(o object) {
		if name, ok := refName(o); ok && renamed[name] != "" {
			o["$ref"] = schemaPrefix + renamed[name]
		}
	}
	for from, to := range renamed {
		d.schemas[to] = clone(d.schemas[from])
	}
	for name := range sent {
		if to, ok := renamed[name]; ok {
			name = to
		} else if received[name] {
			continue
		}
		walk(d.schemas[name], redirect)
	}
	for _, schema := range requests {
		walk(schema, redirect)
	}
}

// hasObject tells whether the component is an object with fields, or leads to one.
func (d *document) hasObject(name string) bool {
	for reached := range d.reach([]object{reference(name)}) {
		if isStruct(d.schemas[reached].(object)) {
			return true
		}
	}
	return false
}

func isStruct(schema object) bool {
	_, ok := schema["properties"].(object)
	return ok
}

// finish applies the rules of a direction to the schemas and the components that
// they lead to.
func (d *document) finish(roots []object, components map[string]bool, dir direction) {
	rule := func(o object) {
		if isStruct(o) {
			finishObject(o, dir)
		}
	}
	for _, schema := range roots {
		walk(schema, rule)
	}
	for name := range components {
		if name != problemName {
			walk(d.schemas[name], rule)
		}
	}
}

func finishObject(schema object, dir direction) {
	if dir == inRequest {
		schema["additionalProperties"] = false
		return
	}
	var required []any
	properties := schema["properties"].(object)
	for _, name := range sortedKeys(properties) {
		if property := properties[name].(object); property[xOmittable] != true {
			required = append(required, name)
		}
	}
	delete(schema, "required")
	if len(required) > 0 {
		schema["required"] = required
	}
}
