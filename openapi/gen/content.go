package main

import (
	"fmt"
	"strings"
)

const mediaJSON = "application/json"

// keepOnlyJSON drops every media type but JSON, which is all that Swagger 2.0 can
// describe well: its one list of types stands for all requests or answers alike.
// Carriers, responses with a status from 600, only bring schemas into the
// document, for x-content to name; they go too.
func (d *document) keepOnlyJSON(op operation) {
	if body, ok := op.node["requestBody"].(object); ok {
		delete(body, "x-originalParamName")
		body["content"] = onlyJSON(child(body, "content"))
	}
	responses := child(op.node, "responses")
	for _, status := range sortedKeys(responses) {
		if status >= "600" && status != "default" {
			delete(responses, status)
			continue
		}
		response := responses[status].(object)
		if content, ok := response["content"].(object); ok {
			response["content"] = onlyJSON(content)
		}
	}
}

func onlyJSON(content object) object {
	for _, key := range sortedKeys(content) {
		if _, hasSchema := content[key].(object)["schema"]; hasSchema {
			return object{mediaJSON: content[key]}
		}
	}
	return object{}
}

// addContent adds the media types of @x-content:
//
//	{"request": {type: schema}, "response": {"200": {type: schema}}}
func (d *document) addContent(op operation) error {
	extra, ok := op.node[xContent].(object)
	if !ok {
		return nil
	}
	for key := range extra {
		if key != "request" && key != "response" {
			return fmt.Errorf("@x-content has the member %q; it takes request and response", key)
		}
	}
	if request, ok := extra["request"].(object); ok {
		body := child(op.node, "requestBody")
		if err := d.addTypes(body, request); err != nil {
			return err
		}
	}
	answers, _ := extra["response"].(object)
	for _, status := range sortedKeys(answers) {
		response, ok := child(op.node, "responses")[status].(object)
		if !ok {
			return fmt.Errorf("@x-content names status %s, which the operation does not document", status)
		}
		if err := d.addTypes(response, answers[status]); err != nil {
			return err
		}
	}
	return nil
}

func (d *document) addTypes(owner object, types any) error {
	byType, ok := types.(object)
	if !ok {
		return fmt.Errorf("@x-content: want an object of media type to schema, have %v", types)
	}
	content := child(owner, "content")
	for _, mediaType := range sortedKeys(byType) {
		schema, err := d.contentSchema(byType[mediaType])
		if err != nil {
			return fmt.Errorf("@x-content: %s: %w", mediaType, err)
		}
		content[mediaType] = object{"schema": schema}
	}
	return nil
}

// contentSchema reads a schema of @x-content: "text", "binary", the name of a Go
// type as swag knows it (rest.RecordLine), {"oneOf": [schema, …]}, or a literal schema.
func (d *document) contentSchema(v any) (any, error) {
	switch v := v.(type) {
	case object:
		if list, ok := v["oneOf"].([]any); ok {
			return d.oneOf(list)
		}
		return clone(v), nil
	case string:
		switch v {
		case "text":
			return object{"type": "string"}, nil
		case "binary":
			return object{"type": "string", "format": "binary"}, nil
		}
		if name, ok := d.goNames[v]; ok {
			return reference(name), nil
		}
		return nil, fmt.Errorf("no schema %s is known here; bring it in with a carrier, as @Success 600 {object} %s", v, v)
	}
	return nil, fmt.Errorf("a schema is a name or an object, not %v", v)
}

func (d *document) oneOf(list []any) (any, error) {
	out := make([]any, len(list))
	for i, v := range list {
		var err error
		if out[i], err = d.contentSchema(v); err != nil {
			return nil, err
		}
	}
	return object{"oneOf": out}, nil
}

func reference(name string) object { return object{"$ref": schemaPrefix + name} }

// xFrames tells which schema describes the frames of a WebSocket operation: its
// properties client and server say what may be sent each way.
const xFrames = "x-websocket-frames"

// moveFrames takes the schema of status 101, which has no body, as the description
// of the frames that follow.
func (d *document) moveFrames(op operation) {
	response, ok := child(op.node, "responses")["101"].(object)
	if !ok {
		return
	}
	if json, ok := child(response, "content")[mediaJSON].(object); ok {
		op.node[xFrames] = json["schema"]
	}
	delete(response, "content")
}

// isVersioned tells the service's resources, which follow all the conventions,
// from the endpoints about the process itself.
func isVersioned(path string) bool { return strings.HasPrefix(path, "/v1/") }
