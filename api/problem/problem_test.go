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

// contract has the codes that clients were promised, by status.
var contract = map[int][]model.Code{
	400: {"malformed-body"},
	401: {"unauthenticated", "bad-credentials", "token-expired"},
	403: {"forbidden", "csrf"},
	404: {
		"not-found", "unknown-topic", "unknown-partition", "unknown-group", "unknown-member", "unknown-user", "unknown-broker", "unknown-transaction",
	},
	405: {"method-not-allowed"},
	406: {"not-acceptable"},
	409: {
		"topic-exists", "user-exists", "group-not-empty", "last-admin", "conflict", "fenced", "not-owner", "idempotency-in-progress",
		"out-of-order-sequence", "unknown-producer", "invalid-transaction-state", "concurrent-transactions",
	},
	410: {"member-expired"},
	412: {"etag-mismatch", "offset-mismatch"},
	413: {"record-too-large", "request-too-large"},
	415: {"unsupported-media-type"},
	416: {"offset-out-of-range"},
	422: {"invalid-argument", "invalid-timestamp", "corrupt-batch", "idempotency-key-reused"},
	429: {"rate-limited", "login-locked"},
	500: {"storage-error", "internal"},
	501: {"not-implemented"},
	503: {"leader-unavailable", "not-enough-replicas", "quorum-unavailable", "storage-full"},
	504: {"timeout", "not-enough-replicas-after-append", "commit-unknown"},
}

func TestTheCodesOfTheContractHaveTheirStatusAndOutcome(t *testing.T) {
	t.Parallel()
	known := map[model.Code]bool{}
	for _, c := range model.Codes() {
		known[c] = true
	}
	for status, codes := range contract {
		for _, c := range codes {
			if !known[c] {
				t.Errorf("%s is not in the table", c)
			}
			w := httptest.NewRecorder()
			Write(w, model.Errorf(c, "x"), Occurrence{Write: true})
			var p struct {
				Status    int
				Retryable bool
				Outcome   model.Outcome
			}
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != status || p.Status != status {
				t.Errorf("%s: %d, %s, want %d", c, w.Code, w.Body, status)
			}
			maybe := status == 500 || status == 504 || c == "idempotency-in-progress" // what is in progress may be applied
			if maybe != (p.Outcome == model.Unknown) {
				t.Errorf("%s: outcome %s", c, p.Outcome)
			}
			if hasRetry := w.Header().Get("Retry-After") != ""; hasRetry != (status == 503 || status == 429) {
				t.Errorf("%s: Retry-After %t", c, hasRetry)
			}
			if c == "concurrent-transactions" && !p.Retryable {
				t.Errorf("%s is retryable", c)
			}
		}
	}
}
