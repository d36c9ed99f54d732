package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"
)

// encode validates the document and writes it as JSON and as YAML, with the
// members of every object in the order of their names, so that equal annotations
// give equal bytes.
func encode(doc object) (asJSON, asYAML []byte, err error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return nil, nil, err
	}
	asJSON = b.Bytes()
	if err := validate(asJSON); err != nil {
		return nil, nil, err
	}
	asYAML, err = toYAML(asJSON)
	return asJSON, asYAML, err
}

func validate(asJSON []byte) error {
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(asJSON)
	if err != nil {
		return fmt.Errorf("the document does not load: %w", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return fmt.Errorf("the document is not valid OpenAPI: %w", err)
	}
	return nil
}

// toYAML rewrites JSON, which is YAML already, in YAML's usual block style.
func toYAML(asJSON []byte) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(asJSON, &root); err != nil {
		return nil, err
	}
	blockStyle(&root)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(&root); err != nil {
		return nil, err
	}
	return b.Bytes(), enc.Close()
}

func blockStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		blockStyle(c)
	}
}
