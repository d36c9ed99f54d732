package genclient

import (
	"context"
	"net/http"
	"os"
	"testing"
)

// login gives a client whose requests carry an access token.
func login(t *testing.T, node string) *ClientWithResponses {
	t.Helper()
	anonymous, err := NewClientWithResponses(node)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := anonymous.LoginWithResponse(t.Context(), nil, LoginRequest{Username: "admin", Password: "tidewire"})
	if err != nil {
		t.Fatal(err)
	}
	if answer.JSON200 == nil {
		t.Fatalf("login: %s %s", answer.Status(), answer.Body)
	}
	granted, err := answer.JSON200.AsTokenAnswer()
	if err != nil {
		t.Fatal(err)
	}
	token := granted.AccessToken
	client, err := NewClientWithResponses(node, WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestTheClientCreatesProducesAndFetches(t *testing.T) {
	node := os.Getenv("TEST_NODE")
	if node == "" {
		t.Fatal("TEST_NODE is not set; the test in the folder above starts a node and sets it")
	}
	client := login(t, node)
	const topic = "generated-client"
	created, err := client.CreateTopicWithResponse(t.Context(), TopicCreate{Name: topic})
	if err != nil {
		t.Fatal(err)
	}
	if created.JSON201 == nil || created.JSON201.Name != topic {
		t.Fatalf("create: %s %s", created.Status(), created.Body)
	}
	records := []RecordInput{{Key: "k", Value: map[string]any{"n": 1}}}
	produced, err := client.ProduceWithResponse(t.Context(), topic, &ProduceParams{}, ProduceRequest{Records: records})
	if err != nil {
		t.Fatal(err)
	}
	if produced.JSON200 == nil || len(produced.JSON200.Results) != 1 {
		t.Fatalf("produce: %s %s", produced.Status(), produced.Body)
	}
	earliest := "earliest"
	fetched, err := client.FetchWithResponse(t.Context(), topic, 0, &FetchParams{Offset: &earliest})
	if err != nil {
		t.Fatal(err)
	}
	if fetched.JSON200 == nil || len(fetched.JSON200.Records) != 1 {
		t.Fatalf("fetch: %s %s", fetched.Status(), fetched.Body)
	}
	value, _ := fetched.JSON200.Records[0].Value.(map[string]any)
	if value["n"] != float64(1) {
		t.Fatalf("the value came back as %v", fetched.JSON200.Records[0].Value)
	}
	again, err := client.CreateTopicWithResponse(t.Context(), TopicCreate{Name: topic})
	if err != nil {
		t.Fatal(err)
	}
	if p := again.ApplicationproblemJSON409; p == nil || p.Code != "topic-exists" {
		t.Fatalf("create again: %s %s", again.Status(), again.Body)
	}
}
