// Package openapi holds the OpenAPI 3.0 document of the HTTP interface.
//
// The document is derived from the code: `go generate ./openapi` (or `make
// generate`) runs openapi/gen over the annotated handlers and writes openapi.json
// and openapi.yaml beside this file. Both are committed, and embedded so that a
// node serves exactly the document it was built with. DESIGN.md in openapi/gen
// says which annotations the generator reads and what it adds to them.
package openapi

import _ "embed"

//go:generate go run ./gen -o . ../api/rest ../api/admin ../api/ops ../api/groups ../api/partitions ../api/moves ../web

//go:embed openapi.json
var jsonDocument []byte

//go:embed openapi.yaml
var yamlDocument []byte

// JSON returns the document as JSON, as served at /openapi.json. The caller must
// not change the bytes.
func JSON() []byte { return jsonDocument }

// YAML returns the same document as YAML, as served at /openapi.yaml. The caller
// must not change the bytes.
func YAML() []byte { return yamlDocument }
