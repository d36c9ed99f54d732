package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"path/filepath"
	"strings"

	"github.com/swaggo/swag"
)

// maxDependencyDepth bounds how far swag follows imports for the types that
// annotations name.
const maxDependencyDepth = 100

// anyJSON is what swag is told a json.RawMessage is. It takes only its own basic
// types there, so this is the one that no field of ours can have; toVersion3 turns
// it into the schema that allows everything.
const anyJSON = "func"

// parseAnnotations runs swag over the handlers below dirs and returns Swagger 2.0
// as JSON. Types of packages that the handlers import are resolved too.
func parseAnnotations(dirs []string) ([]byte, error) {
	if len(dirs) == 0 {
		return nil, errors.New("name the folders that hold annotated handlers")
	}
	for _, dir := range dirs {
		if _, err := firstGoFile(dir); err != nil {
			return nil, err
		}
	}
	entry, err := firstGoFile(dirs[0])
	if err != nil {
		return nil, err
	}
	p := swag.New(
		swag.SetDebugger(log.New(io.Discard, "", 0)),
		swag.SetParseDependency(1), // models only: dependencies hold no handlers
		swag.ParseUsingGoList(true),
		swag.SetStrict(true),
		swag.SetOverrides(map[string]string{"encoding/json.RawMessage": anyJSON}),
	)
	if err := p.ParseAPIMultiSearchDir(dirs, entry, maxDependencyDepth); err != nil {
		return nil, fmt.Errorf("annotations: %w", err)
	}
	return json.Marshal(p.GetSwagger())
}

// firstGoFile returns the name of a Go file of the package in dir. swag wants one
// to read general information from; ours comes from document.go, so any will do.
func firstGoFile(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if !strings.HasSuffix(f, "_test.go") {
			return filepath.Base(f), nil
		}
	}
	return "", fmt.Errorf("no Go files in %s", dir)
}
