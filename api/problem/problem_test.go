package problem

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tidewire/internal/model"
)

func TestAProblemCarriesEveryMember(t *testing.T) {
	t.Parallel()
	err := model.Invalid("/records/0/key", "must be a string").WithExtra("earliest", 7)
	w := httptest.NewRecorder()
	Write(w, err, Occurrence{Path: "/v1/x", RequestID: "r1", Write: true})
	if w.Code != 422 || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Fatalf("status %d, type %q", w.Code, w.Header().Get("Content-Type"))
	}
	const want = `{"type":"urn:tidewire:problem:invalid-argument","title":"The request is not valid","status":422,` +
		`"detail":"must be a string","instance":"/v1/x","code":"invalid-argument","retryable":false,"outcome":"not-applied",` +
		`"errors":[{"pointer":"/records/0/key","detail":"must be a string"}],"request_id":"r1","earliest":7}` + "\n"
	if got := w.Body.String(); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func TestAReadHasNoOutcome(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(Of(model.Errorf(model.UnknownTopic, "no"), Occurrence{}))
	if err != nil || !strings.Contains(string(b), `"outcome":null`) || !strings.Contains(string(b), `"errors":[]`) {
		t.Fatalf("%s %v", b, err)
	}
}

func TestAForeignErrorDoesNotLeak(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	Write(w, errors.New("open /secret/path: denied"), Occurrence{Write: true})
	if w.Code != 500 || strings.Contains(w.Body.String(), "secret") || !strings.Contains(w.Body.String(), `"outcome":"unknown"`) {
		t.Fatalf("%d %s", w.Code, w.Body.String())
	}
}

func TestHeadersThatTellTheClientWhatToDo(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err          error
		header, want string
	}{
		{model.Errorf(model.Unauthenticated, ""), "WWW-Authenticate", `Bearer realm="tidewire"`},
		{model.Errorf(model.StorageFull, ""), "Retry-After", "1"},
		{&model.Error{Code: model.LoginLocked, RetryAfter: 1500 * time.Millisecond}, "Retry-After", "2"},
	} {
		w := httptest.NewRecorder()
		Write(w, row.err, Occurrence{})
		if got := w.Header().Get(row.header); got != row.want {
			t.Errorf("%v: %s = %q, want %q", row.err, row.header, got, row.want)
		}
	}
}

func TestEveryCodeHasARowWithATitleAndAStatus(t *testing.T) {
	t.Parallel()
	for _, c := range model.Codes() {
		r := model.Row(c)
		if r.Title == "" || r.Status < 400 || r.Status > 599 || r.Outcome == model.NoOutcome {
			t.Errorf("%s: %+v", c, r)
		}
		if r.Retryable && r.Status != 409 && r.Status != 429 && r.Status < 500 {
			t.Errorf("%s is retryable with status %d", c, r.Status)
		}
		if r.Status == 503 && r.Outcome != model.NotApplied {
			t.Errorf("%s: 503 must mean certainly not applied", c)
		}
	}
}
