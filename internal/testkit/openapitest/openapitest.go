// Package openapitest checks HTTP answers against the OpenAPI document, so that
// the document cannot say one thing and a node do another. API tests hand it every
// exchange they make:
//
//	v := openapitest.New(t, openapi.JSON())
//	v.Check(t, openapitest.Exchange{Method: "GET", Target: "/v1/topics", Status: 200, Header: h, Body: b})
//
// It is stricter than the document in two points. An answer may not hold fields
// that the document does not name, since such a field is one that somebody forgot
// to describe. (A client must accept them: later versions add fields.) And a
// date-time is in UTC, with Z and milliseconds.
package openapitest

import (
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// Exchange is a request that was made and its answer.
type Exchange struct {
	Method string
	Target string // path and query as sent, percent-encoded
	Status int
	Header http.Header // of the answer
	Body   []byte      // of the answer, decompressed
}

// Validator checks exchanges against one document. It is safe for concurrent use.
type Validator struct {
	doc    *openapi3.T
	routes []route

	mu   sync.Mutex
	seen map[string]bool // guarded by mu: "METHOD path status" of what was checked
}

// route is a path template, split into its segments.
type route struct {
	path     string
	segments []string
	item     *openapi3.PathItem
}

// New loads the document and fails the test when it is not valid.
func New(t testing.TB, document []byte) *Validator {
	t.Helper()
	v, err := Load(document)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// pointInTime is how the interface writes times: RFC 3339, UTC, with milliseconds.
const pointInTime = `^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z$`

var times = sync.OnceFunc(func() {
	openapi3.DefineStringFormatValidator("date-time", openapi3.NewRegexpFormatValidator(pointInTime))
})

// Load is New for callers without a test at hand, such as TestMain.
func Load(document []byte) (*Validator, error) {
	times()
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(document)
	if err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	if err := doc.Validate(loader.Context); err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	closeAnswers(doc)
	v := &Validator{doc: doc, seen: map[string]bool{}}
	for path, item := range doc.Paths.Map() {
		v.routes = append(v.routes, route{path: path, segments: strings.Split(path, "/"), item: item})
	}
	// A template with its literals further left is the more specific one; "{" sorts
	// behind every letter of our paths.
	slices.SortFunc(v.routes, func(a, b route) int { return slices.Compare(a.segments, b.segments) })
	return v, nil
}

// Check fails the test when the exchange is not what the document says.
func (v *Validator) Check(t testing.TB, x Exchange) {
	t.Helper()
	if err := v.Validate(x); err != nil {
		t.Errorf("%s %s answered %d, against the OpenAPI document: %v\n%s", x.Method, x.Target, x.Status, err, excerpt(x.Body))
	}
}

func excerpt(body []byte) string {
	const most = 2000
	if len(body) > most {
		return string(body[:most]) + "…"
	}
	return string(body)
}

// Validate returns how the exchange differs from what the document says. Paths
// that the document does not have must answer 404, and methods it does not have
// 405, as problems.
func (v *Validator) Validate(x Exchange) error {
	target, err := url.Parse(x.Target)
	if err != nil {
		return err
	}
	method := x.Method
	if method == http.MethodHead { // answers as GET
		method = http.MethodGet
	}
	r, ok := v.match(target.EscapedPath(), method)
	if !ok {
		return v.undocumented(x, http.StatusNotFound)
	}
	operation := r.item.GetOperation(method)
	if operation == nil {
		return v.undocumented(x, http.StatusMethodNotAllowed)
	}
	response := operation.Responses.Value(strconv.Itoa(x.Status))
	if response == nil {
		response = operation.Responses.Value("default")
	}
	if response == nil {
		return fmt.Errorf("status %d is not documented for %s", x.Status, r.path)
	}
	v.mu.Lock()
	v.seen[fmt.Sprintf("%s %s %d", method, r.path, x.Status)] = true
	v.mu.Unlock()
	if fields := target.Query().Get("fields"); fields != "" && x.Status == http.StatusOK && x.Method != http.MethodHead {
		return validateProjection(x.Body, response.Value, strings.Split(fields, ","))
	}
	return v.validateResponse(x, response.Value)
}

// Seen lists what was checked so far, as "METHOD path status" with the path's
// template, sorted: a test can demand that every operation has been tried.
func (v *Validator) Seen() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make([]string, 0, len(v.seen))
	for s := range v.seen {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

// Operations lists the document's operations as "METHOD path", sorted, to compare
// with a server's routes.
func (v *Validator) Operations() []string {
	var out []string
	for _, r := range v.routes {
		for method := range r.item.Operations() {
			out = append(out, method+" "+r.path)
		}
	}
	slices.Sort(out)
	return out
}

// match finds the template of an escaped path, so that %2F stays within a segment; of several
// the first that has the method: a topic may have the name of another resource.
func (v *Validator) match(escaped, method string) (first route, found bool) {
	segments := strings.Split(escaped, "/")
	for _, r := range v.routes {
		if !slices.EqualFunc(r.segments, segments, segmentMatches) {
			continue
		}
		if r.item.GetOperation(method) != nil {
			return r, true
		}
		if !found {
			first, found = r, true
		}
	}
	return first, found
}

func segmentMatches(template, segment string) bool {
	if strings.HasPrefix(template, "{") {
		return segment != ""
	}
	return template == segment
}

func (v *Validator) undocumented(x Exchange, status int) error {
	if x.Status != status {
		return fmt.Errorf("the document does not have it: want %d, have %d", status, x.Status)
	}
	problem := v.doc.Components.Schemas["Problem"]
	if problem == nil {
		return fmt.Errorf("the document has no schema Problem")
	}
	content := openapi3.Content{"application/problem+json": openapi3.NewMediaType().WithSchemaRef(problem)}
	return v.validateResponse(x, &openapi3.Response{Content: content})
}

func (v *Validator) validateResponse(x Exchange, response *openapi3.Response) error {
	for name, header := range response.Headers {
		if header.Value.Required && x.Header.Get(name) == "" {
			return fmt.Errorf("the header %s is missing", name)
		}
	}
	if x.Method == http.MethodHead {
		return nil
	}
	if len(response.Content) == 0 {
		if len(x.Body) > 0 {
			return fmt.Errorf("a body where the document has none")
		}
		return nil
	}
	mediaType, _, err := mime.ParseMediaType(x.Header.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("Content-Type %q: %w", x.Header.Get("Content-Type"), err)
	}
	content := response.Content.Get(mediaType)
	if content == nil {
		return fmt.Errorf("the media type %s is not documented for status %d", mediaType, x.Status)
	}
	if content.Schema == nil {
		return nil
	}
	return validateBody(mediaType, x.Body, content.Schema.Value)
}
