package main

import (
	"fmt"
	"sort"
	"strings"
)

// names maps swag's schema names (package.Type) to those of the document.
type names map[string]string

// newNames decides the document's name for each of swag's. Two Go types that
// would get the same name are an error, except the problem's, which document.go
// defines whatever the Go type is.
func newNames(swagNames []string) (names, error) {
	sort.Strings(swagNames)
	n := make(names, len(swagNames))
	taken := map[string]string{}
	for _, s := range swagNames {
		to := publicName(s)
		if other, clash := taken[to]; clash && to != problemName {
			return nil, fmt.Errorf("the Go types %s and %s would both be the schema %s: rename one", other, s, to)
		}
		taken[to] = s
		n[s] = to
	}
	return n, nil
}

// publicName turns a Go type's name into the one clients see: the package and the
// suffix "View" say something about our code only, and an instance of a generic
// type is named after its argument: route.Page-rest_TopicView is TopicPage.
func publicName(swagName string) string {
	outer, args, generic := strings.Cut(swagName, "-")
	name := bareName(outer, ".")
	if !generic {
		return name
	}
	var prefix strings.Builder
	for _, arg := range strings.Split(args, "-") {
		inner, isList := strings.CutPrefix(arg, "array_")
		prefix.WriteString(bareName(inner, "_"))
		if isList {
			prefix.WriteString("List")
		}
	}
	return prefix.String() + name
}

func bareName(qualified, separator string) string {
	if i := strings.LastIndex(qualified, separator); i >= 0 {
		qualified = qualified[i+len(separator):]
	}
	if short := strings.TrimSuffix(qualified, "View"); short != "" {
		qualified = short
	}
	return strings.ToUpper(qualified[:1]) + qualified[1:]
}

const (
	swaggerPrefix = "#/definitions/"
	schemaPrefix  = "#/components/schemas/"
)

// rename applies n to a Swagger 2.0 document: keys of definitions and references.
func (n names) rename(doc object) {
	definitions, _ := doc["definitions"].(object)
	renamed := make(object, len(definitions))
	for from, schema := range definitions {
		renamed[n[from]] = schema
	}
	doc["definitions"] = renamed
	walk(doc, func(o object) {
		if ref, ok := o["$ref"].(string); ok {
			o["$ref"] = swaggerPrefix + n[strings.TrimPrefix(ref, swaggerPrefix)]
		}
	})
}
