package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
)

// convert turns swag's Swagger 2.0 into our OpenAPI 3.0 document.
func convert(swagger []byte) (object, error) {
	var two object
	if err := json.Unmarshal(swagger, &two); err != nil {
		return nil, err
	}
	definitions, _ := two["definitions"].(object)
	goNames, err := newNames(sortedKeys(definitions))
	if err != nil {
		return nil, err
	}
	goNames.rename(two)
	root, err := toVersion3(two)
	if err != nil {
		return nil, err
	}
	d := &document{root: root, goNames: goNames, schemas: child(child(root, "components"), "schemas")}
	d.describe()
	if err := d.eachOperation(d.finishOperation); err != nil {
		return nil, err
	}
	d.finishSchemas()
	return d.root, nil
}

func toVersion3(two object) (object, error) {
	walk(two, func(o object) {
		if o["type"] == anyJSON {
			delete(o, "type")
		}
	})
	b, err := json.Marshal(two)
	if err != nil {
		return nil, err
	}
	var typed openapi2.T
	if err := json.Unmarshal(b, &typed); err != nil {
		return nil, fmt.Errorf("swag's document: %w", err)
	}
	three, err := openapi2conv.ToV3(&typed)
	if err != nil {
		return nil, fmt.Errorf("conversion to OpenAPI 3.0: %w", err)
	}
	return reparse(three)
}

// document is the OpenAPI 3.0 document while it is being finished.
type document struct {
	root    object
	schemas object // components.schemas of root
	goNames names
}

// operation is one method of one path.
type operation struct {
	method string // lower case
	path   string
	node   object
}

// String names the operation in errors.
func (op operation) String() string { return strings.ToUpper(op.method) + " " + op.path }

var methods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace"}

// eachOperation calls visit for every operation, in the order of the paths.
func (d *document) eachOperation(visit func(operation) error) error {
	paths := child(d.root, "paths")
	for _, path := range sortedKeys(paths) {
		item := paths[path].(object)
		for _, method := range methods {
			node, ok := item[method].(object)
			if !ok {
				continue
			}
			op := operation{method: method, path: path, node: node}
			if err := visit(op); err != nil {
				return fmt.Errorf("%s: %w", op, err)
			}
		}
	}
	return nil
}

// finishOperation does all that one operation needs, in an order that matters:
// what the annotations say about media types and errors is read before the
// extensions that say it are dropped.
func (d *document) finishOperation(op operation) error {
	for _, key := range []string{"operationId", "summary", "tags"} {
		if _, ok := op.node[key]; !ok {
			return fmt.Errorf("has no %s (annotations @ID, @Summary, @Tags)", key)
		}
	}
	d.keepOnlyJSON(op)
	if err := d.addContent(op); err != nil {
		return err
	}
	d.moveFrames(op)
	if err := d.addProblems(op); err != nil {
		return err
	}
	d.secure(op)
	for key := range op.node {
		if slices.Contains(ownExtensions, key) {
			delete(op.node, key)
		}
	}
	return nil
}

// Extensions of operations that speak to this generator and do not belong into
// the document.
const (
	xContent = "x-content"
	xErrors  = "x-errors"
	xPublic  = "x-public"
)

var ownExtensions = []string{xContent, xErrors, xPublic}
