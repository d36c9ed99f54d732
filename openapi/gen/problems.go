package main

import (
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"

	"tidewire/internal/model"
)

const (
	mediaProblem = "application/problem+json"
	problemName  = "Problem"
)

// commonErrors are the codes that an operation can answer because of what it is,
// whatever its handler says.
var commonErrors = []struct {
	when  func(op operation) bool
	codes []model.Code
}{
	{mayHaveBody, []model.Code{model.MalformedBody}},
	{isProtected, []model.Code{model.Unauthenticated, model.TokenExpired, model.Forbidden}},
	{isProtectedWrite, []model.Code{model.CSRF}},
	{isResource, []model.Code{
		model.RateLimited, model.QuorumUnavailable, model.Timeout,
	}},
	{isResourceWrite, []model.Code{model.CommitUnknown}},
	// Any request can ask for a type that is not there, carry a parameter that is not
	// known, or a body that is too large or encoded.
	{always, []model.Code{
		model.NotAcceptable, model.RequestTooLarge, model.UnsupportedMediaType, model.InvalidArgument,
		model.NotImplemented, model.Internal,
	}},
}

func always(operation) bool              { return true }
func isResource(op operation) bool       { return isVersioned(op.path) }
func isResourceWrite(op operation) bool  { return isVersioned(op.path) && isWrite(op) }
func isProtectedWrite(op operation) bool { return isProtected(op) && isWrite(op) }
func isWrite(op operation) bool          { return op.method != "get" && op.method != "head" }
func hasBody(op operation) bool          { _, ok := op.node["requestBody"]; return ok }
func mayHaveBody(op operation) bool      { return hasBody(op) || op.method == "post" }
func isProtected(op operation) bool      { return !isPublic(op) }
func isPublic(op operation) bool         { public, _ := op.node[xPublic].(bool); return public }
func statusOf(c model.Code) string       { return strconv.Itoa(model.Row(c).Status) }
func isError(status string) bool         { return status >= "400" || status == "default" }
func componentName(status string) string { return "Error" + status }
func sortCodes(codes []model.Code) {
	sort.Slice(codes, func(i, j int) bool { return codes[i] < codes[j] })
}
func byStatus(codes []model.Code) codesByStatus {
	m := codesByStatus{}
	for _, c := range codes {
		m[statusOf(c)] = append(m[statusOf(c)], c)
	}
	for _, list := range m {
		sortCodes(list)
	}
	return m
}

type codesByStatus map[string][]model.Code

// addProblems gives every status from 400 on the one error shape, adds the errors
// common to all operations of its kind, and those that @x-errors lists by code.
func (d *document) addProblems(op operation) error {
	responses := child(op.node, "responses")
	for status, response := range responses {
		if isError(status) {
			response.(object)["content"] = problemContent()
		}
	}
	special, err := ownErrors(op)
	if err != nil {
		return err
	}
	var common []model.Code
	for _, rule := range commonErrors {
		if rule.when(op) {
			common = append(common, rule.codes...)
		}
	}
	all := byStatus(append(slices.Clone(common), special...))
	own := byStatus(special)
	for status, codes := range all {
		if _, documented := responses[status]; documented {
			continue // the handler's words are better than the table's
		}
		if len(own[status]) == 0 {
			responses[status] = object{"$ref": "#/components/responses/" + componentName(status)}
			continue
		}
		responses[status] = problemResponse(status, slices.Compact(codes))
	}
	return nil
}

// ownErrors reads @x-errors ["unknown-topic", …].
func ownErrors(op operation) ([]model.Code, error) {
	list, ok := op.node[xErrors]
	if !ok {
		return nil, nil
	}
	items, ok := list.([]any)
	if !ok {
		return nil, fmt.Errorf("@x-errors takes a list of codes, not %v", list)
	}
	known := model.Codes()
	out := make([]model.Code, 0, len(items))
	for _, item := range items {
		name, _ := item.(string)
		if !slices.Contains(known, model.Code(name)) {
			return nil, fmt.Errorf("@x-errors names %v, which the error table does not have", item)
		}
		out = append(out, model.Code(name))
	}
	return out, nil
}

// problemResponses are the components that operations share for common errors.
func problemResponses() object {
	var codes []model.Code
	for _, rule := range commonErrors {
		codes = append(codes, rule.codes...)
	}
	out := object{}
	for status, list := range byStatus(codes) {
		out[componentName(status)] = problemResponse(status, list)
	}
	return out
}

func problemContent() object {
	return object{mediaProblem: object{"schema": reference(problemName)}}
}

func problemResponse(status string, codes []model.Code) object {
	lines := make([]string, len(codes))
	for i, c := range codes {
		lines[i] = fmt.Sprintf("`%s`: %s.", c, model.Row(c).Title)
	}
	response := object{"description": strings.Join(lines, " "), "content": problemContent()}
	switch status {
	case strconv.Itoa(http.StatusUnauthorized):
		response["headers"] = object{"WWW-Authenticate": stringHeader("How to authenticate (RFC 6750).")}
	case strconv.Itoa(http.StatusServiceUnavailable):
		response["headers"] = object{"Retry-After": stringHeader("Seconds to wait before the next try.")}
	case strconv.Itoa(http.StatusTooManyRequests):
		response["headers"] = object{
			"Retry-After":      stringHeader("Seconds to wait before the next try."),
			"RateLimit-Policy": optionalHeader("The quota that was reached: its name, units per window (q), seconds of the window (w) and unit (qu)."),
			"RateLimit":        optionalHeader("Its state: units left (r), seconds until there are more (t)."),
		}
	}
	return response
}

func stringHeader(description string) object {
	return object{"description": description, "required": true, "schema": object{"type": "string"}}
}

func optionalHeader(description string) object {
	return object{"description": description, "schema": object{"type": "string"}}
}

// problemSchema is the error shape (RFC 9457). Some codes carry further members,
// such as earliest and latest of offset-out-of-range.
func problemSchema() object {
	text := func(description string) object { return object{"type": "string", "description": description} }
	outcome := text("Of a failed write: whether it may have been applied.")
	outcome["enum"] = []any{string(model.NotApplied), string(model.Unknown), nil}
	outcome["nullable"] = true
	field := object{
		"type":       "object",
		"required":   []any{"pointer", "detail"},
		"properties": object{"pointer": text("JSON Pointer into the body (RFC 6901), or query:name, header:name, path:name."), "detail": text("What is wrong there.")},
	}
	return object{
		"type":                 "object",
		"description":          "An error (RFC 9457). `code` is stable; `detail` is for people.",
		"required":             []any{"type", "title", "status", "detail", "code", "retryable", "request_id"},
		"additionalProperties": true,
		"properties": object{
			"type":       text("A URI reference that names the kind of problem."),
			"title":      text("The kind of problem in a sentence that does not change."),
			"status":     object{"type": "integer", "description": "The HTTP status."},
			"detail":     text("What went wrong this time."),
			"instance":   text("The path that was asked for."),
			"code":       text("The stable name of the error: " + codeList() + "."),
			"retryable":  object{"type": "boolean", "description": "Whether the same request may succeed later."},
			"outcome":    outcome,
			"errors":     object{"type": "array", "description": "The parts of the request that are wrong.", "items": field},
			"request_id": text("The id of the request, as in X-Request-Id."),
		},
	}
}

func codeList() string {
	codes := model.Codes()
	sortCodes(codes)
	parts := make([]string, len(codes))
	for i, c := range codes {
		parts[i] = "`" + string(c) + "`"
	}
	return strings.Join(parts, ", ")
}
