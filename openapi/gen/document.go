package main

// formatVersion is the version of the OpenAPI specification we write. Most client
// generators read no later one.
const formatVersion = "3.0.3"

const description = `The HTTP interface of a Tidewire node. Every node of a cluster answers every request.

Offsets, counts and record times (milliseconds since 1970) are JSON numbers below 2^53; other times are RFC 3339 in UTC. Every documented field of an answer is present; what is unknown is null. Unknown fields and query parameters in a request are refused. Every error is application/problem+json. Every GET has a HEAD.`

// describe sets what is said about the document as a whole.
func (d *document) describe() {
	d.root["openapi"] = formatVersion
	d.root["info"] = object{
		"title":       "Tidewire",
		"version":     "1",
		"description": description,
		"license":     object{"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
	}
	d.root["servers"] = []any{object{"url": "/"}}
	d.root["security"] = []any{object{"bearer": []any{}}, object{"session": []any{}}}
	delete(d.root, "tags")
	components := child(d.root, "components")
	components["securitySchemes"] = object{
		"bearer":  object{"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
		"session": object{"type": "apiKey", "in": "cookie", "name": "tidewire_session", "description": "Set by login with session=cookie; writes also need X-CSRF-Token."},
	}
	components["responses"] = problemResponses()
	d.schemas[problemName] = problemSchema()
}

// secure marks public operations; all others have the document's default.
func (d *document) secure(op operation) {
	delete(op.node, "security")
	if isPublic(op) {
		op.node["security"] = []any{}
	}
}
