// Command gen writes the OpenAPI document of the HTTP interface from the
// annotations on its handlers; see DESIGN.md for what it reads and what it adds.
//
//	go run ./openapi/gen -o openapi api/rest web
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	out := flag.String("o", ".", "folder to write openapi.json and openapi.yaml to")
	flag.Parse()
	if err := run(*out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "openapi/gen:", err)
		os.Exit(1)
	}
}

// run generates the document of the handlers in dirs into the folder out.
func run(out string, dirs []string) error {
	swagger, err := parseAnnotations(dirs)
	if err != nil {
		return err
	}
	doc, err := convert(swagger)
	if err != nil {
		return err
	}
	asJSON, asYAML, err := encode(doc)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "openapi.json"), asJSON, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "openapi.yaml"), asYAML, 0o644)
}
