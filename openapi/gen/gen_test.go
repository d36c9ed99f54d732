package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "rewrite golden files")

// sampleSwagger runs swag over the sample once: it loads packages, which is slow.
var sampleSwagger = sync.OnceValues(func() ([]byte, error) {
	return parseAnnotations([]string{filepath.Join("testdata", "rest")})
})

func sample(t *testing.T) object {
	t.Helper()
	swagger, err := sampleSwagger()
	require.NoError(t, err)
	doc, err := convert(swagger)
	require.NoError(t, err)
	return doc
}

func TestTheSampleGivesTheGoldenDocument(t *testing.T) {
	t.Parallel()
	asJSON, _, err := encode(sample(t))
	require.NoError(t, err)
	golden := filepath.Join("testdata", "sample.golden.json")
	if *update {
		require.NoError(t, os.WriteFile(golden, asJSON, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), string(asJSON))
}

func TestEqualAnnotationsGiveEqualBytes(t *testing.T) {
	t.Parallel()
	first, firstYAML, err := encode(sample(t))
	require.NoError(t, err)
	for range 10 {
		again, againYAML, err := encode(sample(t))
		require.NoError(t, err)
		require.Equal(t, string(first), string(again))
		require.Equal(t, string(firstYAML), string(againYAML))
	}
}

func TestYAMLAndJSONSayTheSame(t *testing.T) {
	t.Parallel()
	asJSON, asYAML, err := encode(sample(t))
	require.NoError(t, err)
	var fromYAML, fromJSON any
	require.NoError(t, yaml.Unmarshal(asYAML, &fromYAML))
	require.NoError(t, json.Unmarshal(asJSON, &fromJSON))
	reread, err := json.Marshal(fromYAML)
	require.NoError(t, err)
	want, err := json.Marshal(fromJSON)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(reread))
}

// at follows a path of object members.
func at(t *testing.T, doc object, path ...string) object {
	t.Helper()
	for _, key := range path {
		next, ok := doc[key].(object)
		require.Truef(t, ok, "no object %q on the way %q", key, path)
		doc = next
	}
	return doc
}

func schemaOf(t *testing.T, doc object, name string) object {
	t.Helper()
	return at(t, doc, "components", "schemas", name)
}

func TestEveryErrorIsAProblem(t *testing.T) {
	t.Parallel()
	doc := sample(t)
	d := &document{root: doc}
	checked := 0
	require.NoError(t, d.eachOperation(func(op operation) error {
		for status, response := range op.node["responses"].(object) {
			r := response.(object)
			if ref, ok := r["$ref"].(string); ok {
				r = at(t, doc, "components", "responses", filepath.Base(ref))
			}
			if isError(status) {
				checked++
				require.Equal(t, problemContent(), r["content"], "%s %s", op, status)
			}
		}
		return nil
	}))
	require.Greater(t, checked, 30)
}

func TestCommonErrorsFollowFromWhatAnOperationIs(t *testing.T) {
	t.Parallel()
	doc := sample(t)
	responses := func(path, method string) []string {
		return sortedKeys(at(t, doc, "paths", path, method, "responses"))
	}
	require.Equal(t, []string{"200", "406", "413", "415", "422", "500", "501"}, responses("/healthz", "get"), "neither versioned nor protected")
	require.Equal(t, []string{"200", "400", "401", "406", "413", "415", "422", "429", "500", "501", "503", "504"},
		responses("/v1/auth/login", "post"), "public: 401 only for its own codes, no 403")
	require.Equal(t, []string{"200", "401", "403", "406", "413", "415", "422", "429", "500", "501", "503", "504"},
		responses("/v1/topics", "get"), "without a body: no 400")
	require.Contains(t, responses("/v1/topics", "post"), "409")
}

func TestTheHandlersWordsForAStatusStay(t *testing.T) {
	t.Parallel()
	r := at(t, sample(t), "paths", "/v1/topics/{topic}", "delete", "responses", "404")
	require.Equal(t, "no topic of this name", r["description"])
	require.Contains(t, r, "content")
}

func TestPublicOperationsAloneNeedNoToken(t *testing.T) {
	t.Parallel()
	doc := sample(t)
	require.Equal(t, []any{}, at(t, doc, "paths", "/v1/auth/login", "post")["security"])
	require.NotContains(t, at(t, doc, "paths", "/v1/topics", "get"), "security")
	require.NotEmpty(t, doc["security"])
}

func TestMediaTypesBeyondJSONComeFromTheExtension(t *testing.T) {
	t.Parallel()
	doc := sample(t)
	content := at(t, doc, "paths", "/v1/topics/{topic}/partitions/{partition}/records", "get", "responses", "200", "content")
	require.Equal(t, []string{"application/json", "application/vnd.kafka.record-batches", "application/x-ndjson"}, sortedKeys(content))
	require.Equal(t, reference("FetchLine"), at(t, content, "application/x-ndjson")["schema"])
	body := at(t, doc, "paths", "/v1/topics/{topic}/records", "post", "requestBody", "content")
	require.Equal(t, []string{"*/*", "application/json"}, sortedKeys(body))
	health := at(t, doc, "paths", "/healthz", "get", "responses", "200", "content")
	require.Equal(t, []string{"text/plain"}, sortedKeys(health))
}

func TestNoMarkForTheGeneratorIsLeft(t *testing.T) {
	t.Parallel()
	walk(sample(t), func(o object) {
		for _, key := range append(ownExtensions, xOmittable, "x-nullable", "x-originalParamName") {
			require.NotContains(t, o, key)
		}
		require.NotContains(t, o, "600", "a carrier is no answer")
	})
}

func TestRequestsAreClosedAndAnswersComplete(t *testing.T) {
	t.Parallel()
	doc := sample(t)
	create := schemaOf(t, doc, "TopicCreate")
	require.Equal(t, false, create["additionalProperties"])
	require.Equal(t, []any{"name"}, create["required"])
	require.NotContains(t, at(t, create, "properties", "config"), "properties", "a map takes any key")
	topic := schemaOf(t, doc, "Topic")
	require.NotContains(t, topic, "additionalProperties")
	require.Equal(t, []any{"limits", "name", "origin", "partitions"}, topic["required"], "all but the omittable one")
}

func TestAnObjectOfBothDirectionsGetsASchemaForEach(t *testing.T) {
	t.Parallel()
	doc := sample(t)
	require.Equal(t, reference("LimitsInput"), at(t, schemaOf(t, doc, "TopicCreate"), "properties", "limits"))
	require.Equal(t, reference("Limits"), at(t, schemaOf(t, doc, "Topic"), "properties", "limits"))
	require.Equal(t, false, schemaOf(t, doc, "LimitsInput")["additionalProperties"])
	require.NotContains(t, schemaOf(t, doc, "LimitsInput"), "required")
	require.Equal(t, []any{"bytes"}, schemaOf(t, doc, "Limits")["required"])
}

func TestFramesAreRequestsOneWayAndAnswersTheOther(t *testing.T) {
	t.Parallel()
	doc := sample(t)
	op := at(t, doc, "paths", "/v1/ws/consume", "get")
	require.Equal(t, reference("ConsumeFrames"), op[xFrames])
	require.NotContains(t, at(t, op, "responses", "101"), "content")
	require.Equal(t, false, schemaOf(t, doc, "SubscribeFrame")["additionalProperties"])
	require.Equal(t, []any{"op", "records"}, schemaOf(t, doc, "RecordsFrame")["required"])
}

func TestNullableReachesReferencesAndFreeValues(t *testing.T) {
	t.Parallel()
	doc := sample(t)
	origin := at(t, schemaOf(t, doc, "Topic"), "properties", "origin")
	require.Equal(t, true, origin["nullable"])
	require.Equal(t, "object", origin["type"], "nullable means nothing without a type beside it")
	require.Equal(t, object{"nullable": true}, at(t, schemaOf(t, doc, "Record"), "properties", "value"))
}

func TestSchemaNamesAreThePublicOnes(t *testing.T) {
	t.Parallel()
	for goName, want := range map[string]string{
		"rest.TopicView":                "Topic",
		"rest.Page-rest_TopicView":      "TopicPage",
		"route.Page-rest_TopicView":     "TopicPage",
		"rest.Page-array_rest_RuleView": "RuleListPage",
		"rest.View":                     "View",
		"model.FieldError":              "FieldError",
		"rest.frame":                    "Frame",
	} {
		require.Equal(t, want, publicName(goName), goName)
	}
	_, err := newNames([]string{"rest.Topic", "rest.TopicView"})
	require.ErrorContains(t, err, "rest.Topic and rest.TopicView")
}

func TestSeveralMembersOfAllOfBecomeOneObject(t *testing.T) {
	t.Parallel()
	d := &document{schemas: object{"Base": object{"type": "object", "properties": object{"a": object{"type": "string"}}, "required": []any{"a"}}}}
	schema := object{"allOf": []any{
		reference("Base"),
		object{"type": "object", "properties": object{"b": object{"type": "integer"}}},
	}}
	d.flatten(schema)
	require.NotContains(t, schema, "allOf")
	require.Equal(t, []string{"a", "b"}, sortedKeys(at(t, schema, "properties")))
	require.Equal(t, []any{"a"}, schema["required"])
}

func TestWrongAnnotationsAreNamed(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(op object)
		want   string
	}{
		"no operation id":    {func(op object) { delete(op, "operationId") }, "@ID"},
		"unknown code":       {func(op object) { op[xErrors] = []any{"no-such-code"} }, "no-such-code"},
		"codes not a list":   {func(op object) { op[xErrors] = "forbidden" }, "list of codes"},
		"unknown schema":     {func(op object) { op[xContent] = object{"request": object{"text/csv": "rest.Nothing"}} }, "carrier"},
		"unknown status":     {func(op object) { op[xContent] = object{"response": object{"299": object{"text/csv": "text"}}} }, "299"},
		"misspelt direction": {func(op object) { op[xContent] = object{"requests": object{}} }, "requests"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			swagger, err := sampleSwagger()
			require.NoError(t, err)
			var two object
			require.NoError(t, json.Unmarshal(swagger, &two))
			row.change(at(t, two, "paths", "/v1/topics", "get"))
			changed, err := json.Marshal(two)
			require.NoError(t, err)
			_, err = convert(changed)
			require.ErrorContains(t, err, row.want)
			require.ErrorContains(t, err, "GET /v1/topics")
		})
	}
}

func TestAFolderWithoutGoFilesIsRefused(t *testing.T) {
	t.Parallel()
	_, err := parseAnnotations([]string{t.TempDir()})
	require.ErrorContains(t, err, "no Go files")
	_, err = parseAnnotations(nil)
	require.Error(t, err)
}
