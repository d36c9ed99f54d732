package openapitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
)

// validateBody checks a body against the schema of its media type: one JSON value,
// one per line, or bytes as a string.
func validateBody(mediaType string, body []byte, schema *openapi3.Schema) error {
	switch {
	case mediaType == "application/x-ndjson":
		return validateLines(body, schema)
	case mediaType == "application/json" || strings.HasSuffix(mediaType, "+json"):
		return validateJSON(body, schema)
	case strings.HasPrefix(mediaType, "text/") && !utf8.Valid(body):
		return fmt.Errorf("a text that is not UTF-8")
	}
	return schema.VisitJSON(string(body), openapi3.VisitAsResponse())
}

func validateLines(body []byte, schema *openapi3.Schema) error {
	text, ended := bytes.CutSuffix(body, []byte("\n"))
	if !ended && len(body) > 0 {
		return fmt.Errorf("the last line does not end")
	}
	if len(text) == 0 {
		return nil
	}
	for i, line := range bytes.Split(text, []byte("\n")) {
		if err := validateJSON(line, schema); err != nil {
			return fmt.Errorf("line %d: %w", i, err)
		}
	}
	return nil
}

// validateProjection checks a list whose items were asked for with some of their fields:
// each has these, as the document describes them, and no others.
func validateProjection(body []byte, response *openapi3.Response, fields []string) error {
	content := response.Content.Get("application/json")
	if content == nil || content.Schema == nil || content.Schema.Value.Properties["items"] == nil {
		return fmt.Errorf("fields were asked for of what the document does not have as a list")
	}
	page := *content.Schema.Value
	items := *page.Properties["items"].Value
	item := *items.Items.Value
	chosen := openapi3.Schemas{}
	for _, f := range fields {
		if item.Properties[f] == nil {
			return fmt.Errorf("the document's items have no field %s", f)
		}
		chosen[f] = item.Properties[f]
	}
	no := false
	item.Properties, item.Required = chosen, fields
	item.AdditionalProperties = openapi3.AdditionalProperties{Has: &no}
	items.Items = &openapi3.SchemaRef{Value: &item}
	page.Properties = maps.Clone(page.Properties)
	page.Properties["items"] = &openapi3.SchemaRef{Value: &items}
	return validateJSON(body, &page)
}

func validateJSON(body []byte, schema *openapi3.Schema) error {
	if !utf8.Valid(body) {
		return fmt.Errorf("JSON that is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("something follows the JSON value")
	}
	return schema.VisitJSON(value, openapi3.VisitAsResponse(), openapi3.MultiErrors())
}

// closeAnswers forbids, in the loaded copy of the document, fields that a schema
// of answers does not name. Schemas that say themselves what else they take stay
// as they are.
func closeAnswers(doc *openapi3.T) {
	c := closer{done: map[*openapi3.Schema]bool{}}
	if doc.Components != nil {
		for _, s := range doc.Components.Schemas {
			c.close(s)
		}
	}
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			for _, r := range op.Responses.Map() {
				for _, m := range r.Value.Content {
					c.close(m.Schema)
				}
			}
		}
	}
}

type closer struct{ done map[*openapi3.Schema]bool }

func (c closer) close(ref *openapi3.SchemaRef) {
	if ref == nil || ref.Value == nil || c.done[ref.Value] {
		return
	}
	s := ref.Value
	c.done[s] = true
	open := s.AdditionalProperties.Has == nil && s.AdditionalProperties.Schema == nil
	if len(s.Properties) > 0 && open {
		no := false
		s.AdditionalProperties.Has = &no
	}
	for _, p := range s.Properties {
		c.close(p)
	}
	c.close(s.Items)
	c.close(s.AdditionalProperties.Schema)
	for _, list := range []openapi3.SchemaRefs{s.AllOf, s.OneOf, s.AnyOf} {
		for _, m := range list {
			c.close(m)
		}
	}
}
