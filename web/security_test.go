package web_test

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"tidewire/api/admin"
	"tidewire/api/groups"
	"tidewire/api/moves"
	"tidewire/api/ops"
	"tidewire/api/partitions"
	"tidewire/api/rest"
	"tidewire/auth"
	"tidewire/web"
)

var update = flag.Bool("update", false, "rewrite the table in docs/security.md")

const (
	securityDoc  = "../docs/security.md"
	tableBegins  = "<!-- the table is written by: go test ./web -run Security -update -->\n"
	tableEnds    = "<!-- end of the table -->\n"
	publicAccess = "public"
)

// securityTable is the table of docs/security.md as the routes have it.
func securityTable() string {
	api := rest.New(rest.Config{Auth: &auth.Auth{}, Logger: slog.New(slog.DiscardHandler)})
	var b strings.Builder
	b.WriteString("| method and path | takes |\n|---|---|\n")
	for _, r := range slices.Concat(api.Routes(), admin.New(admin.Config{}).Routes(), ops.New(ops.Config{}).Routes(), groups.New(groups.Config{}).Routes(), partitions.New(partitions.Config{}).Routes(), moves.New(nil).Routes(), web.NewStreams(nil).Routes()) {
		needs := r.Needs
		switch {
		case !r.Built():
			continue
		case r.Public && needs == "":
			needs = publicAccess
		case r.Public:
			needs = publicAccess + ", with " + needs
		}
		fmt.Fprintf(&b, "| `%s %s` | %s |\n", r.Method, r.Path, needs)
	}
	return b.String()
}

func TestTheSecurityTableListsEveryRoute(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(securityDoc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), tableBegins)
	table, after, ok2 := strings.Cut(rest, tableEnds)
	if !ok || !ok2 {
		t.Fatal("docs/security.md has no table of routes")
	}
	want := securityTable()
	if *update {
		if err := os.WriteFile(securityDoc, []byte(before+tableBegins+want+tableEnds+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != want {
		t.Errorf("the table is not that of the routes; run go test ./web -run Security -update. Want:\n%s", want)
	}
}
