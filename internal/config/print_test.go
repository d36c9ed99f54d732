package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	yamlv3 "go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write the settings table of docs/configuration.md anew")

func TestTableNamesValueAndSourceOfEverySetting(t *testing.T) {
	t.Parallel()
	c, path, err := given{
		yaml: "rack: ' Gestell ü '\ndisk-reserve: 1073741824B\n",
		env:  []string{"TIDEWIRE_CORS_ORIGIN=http://a,http://b", "TIDEWIRE_CLUSTER_KEY=" + testKey('s'), "TIDEWIRE_ADMIN_PASSWORD=hush"},
		args: []string{"--node-id=3", "--metrics-public", "--data-dir=tab\there"},
	}.load(t)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, Print(&out, c))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	require.Len(t, lines, len(Settings())+1)
	var fields [][]string
	for _, l := range lines {
		fields = append(fields, strings.Fields(l))
	}
	require.Equal(t, []string{"SETTING", "VALUE", "FROM"}, fields[0])
	for _, want := range []string{
		"node-id 3 flag --node-id",
		`data-dir "tab\there" flag --data-dir`,
		`rack " Gestell ü " config file ` + path,
		"disk-reserve 1GiB config file " + path,
		"cors-origin http://a,http://b environment variable TIDEWIRE_CORS_ORIGIN",
		"cluster-key ******** environment variable TIDEWIRE_CLUSTER_KEY",
		"cluster-key-file - default",
		"metrics-public true flag --metrics-public",
		"http-listen 127.0.0.1:8080 default",
		"join - default",
	} {
		require.Contains(t, fields, strings.Fields(want))
	}
	require.NotContains(t, out.String(), "hush")
}

func TestJSONNamesValueAndSourceOfEverySetting(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, given{
		env:  []string{"TIDEWIRE_RACK=<ü>", "TIDEWIRE_ADMIN_PASSWORD=hush"},
		args: []string{"--cluster-key=" + testKey('s'), "--node-id=3", "--join=a:1,b:2"},
	})
	var out bytes.Buffer
	require.NoError(t, PrintJSON(&out, c))
	var got struct{ Items []map[string]any }
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	require.Len(t, got.Items, len(Settings()))
	byName := map[string]map[string]any{}
	for _, it := range got.Items {
		require.Len(t, it, 9, "every field is present")
		byName[it["name"].(string)] = it
	}
	require.Equal(t, map[string]any{
		"name": "node-id", "value": 3.0, "source": "flag", "source_name": "--node-id", "type": "int", "unit": nil,
		"default": "1", "env": "TIDEWIRE_NODE_ID", "secret": false,
	}, byName["node-id"])
	require.Equal(t, map[string]any{
		"name": "cluster-key", "value": mask, "source": "flag", "source_name": "--cluster-key", "type": "text",
		"unit": "base64 of 32 bytes", "default": nil, "env": "TIDEWIRE_CLUSTER_KEY", "secret": true,
	}, byName["cluster-key"])
	require.Equal(t, []any{"a:1", "b:2"}, byName["join"]["value"])
	require.Equal(t, []any{}, byName["cors-origin"]["value"])
	require.Equal(t, "<ü>", byName["rack"]["value"])
	require.Equal(t, "environment", byName["rack"]["source"])
	require.Nil(t, byName["http-tls-cert"]["value"])
	require.Nil(t, byName["http-tls-cert"]["source_name"])
	require.Equal(t, false, byName["dev"]["value"])
	require.NotContains(t, out.String(), "hush")
	require.NotContains(t, out.String(), testKey('s'))
}

// What is printed, written into a file, gives the same configuration.
func TestPrintedValuesAreAcceptedByTheFile(t *testing.T) {
	t.Parallel()
	key := []string{"TIDEWIRE_CLUSTER_KEY=" + testKey('k')} // which is not printed
	c := mustLoad(t, given{env: key, args: []string{
		"--data-dir=/d/ö: #x", "--node-id=0", "--rack=007", "--join=[::1]:1,b:2", "--bootstrap-expect=3", "--http-listen=:0",
		"--http-advertise=a:0", "--http-tls-cert=true", "--http-tls-key=null", "--http-path-prefix=/a/", "--cors-origin=*",
		"--trusted-proxies=10.0.0.0/8,::1", "--metrics-public", "--kafka-listen=off", "--gossip-listen=[::1]:0",
		"--log-format=json", "--log-level=WARN", "--shutdown-timeout=90s", "--disk-reserve=1536B", "--log-sync-interval=100us",
	}})
	file := map[string]any{}
	for _, it := range c.Items() {
		if it.Name != configSetting && !it.Secret && emptyToNil(it.Value) != nil {
			file[it.Name] = it.Value
		}
	}
	text, err := yamlv3.Marshal(file)
	require.NoError(t, err)
	back := mustLoad(t, given{env: key, yaml: string(text)})
	for i, it := range back.items {
		if it.Name != configSetting {
			require.Equal(t, c.items[i].Value, it.Value, it.Name)
		}
	}
	back.File, back.items, c.items = "", nil, nil
	require.Equal(t, c, back)
}

func TestSecretsDoNotShowThemselves(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, given{env: []string{"TIDEWIRE_CLUSTER_KEY=" + testKey('s'), "TIDEWIRE_ADMIN_PASSWORD=hush"}})
	raw := strings.Repeat("s", KeySize)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "password", c.AdminPassword, "key", c.ClusterKey, "config", c)
	asJSON, err := json.Marshal(c)
	require.NoError(t, err)
	for _, shown := range []string{fmt.Sprintf("%v %+v %#v %s", *c, *c, *c, c.ClusterKey), fmt.Sprintf("%#v %v %q", c.AdminPassword, c.ClusterKey, c.AdminPassword), log.String(), string(asJSON)} {
		require.NotContains(t, shown, "hush")
		require.NotContains(t, shown, raw)
		require.NotContains(t, shown, testKey('s'))
		require.Contains(t, shown, mask)
	}
	require.Equal(t, "", Secret{}.String()+Key{}.String())
	require.Nil(t, Key{}.Bytes())
	require.Equal(t, "hush", c.AdminPassword.Reveal())
	require.Equal(t, raw, string(c.ClusterKey.Bytes()))
}

func TestFlagsShowNoSecretInHelp(t *testing.T) {
	t.Parallel()
	f := &rawFlag{setting: Setting{Secret: true, Type: Text}}
	require.NoError(t, f.Set("hush"))
	require.Equal(t, mask, f.String())
	require.Equal(t, "hush", f.raw())
}

func TestPortsThatAreNotOpenedAreNamed(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"kafka-listen 127.0.0.1:9092: the Kafka protocol is not built yet, the port is not opened",
		"gossip-listen 127.0.0.1:7946: there is no cluster key, so this node is alone and the port is not opened",
		"peer-listen 127.0.0.1:0: there is no cluster key, so this node is alone and the port is not opened",
	}, mustLoad(t, given{args: []string{"--peer-listen=127.0.0.1:0"}}).Unopened())
	require.Len(t, mustLoad(t, given{args: []string{"--kafka-listen=off"}}).Unopened(), 2)
	keyed := mustLoad(t, given{args: []string{"--kafka-listen=off", "--cluster-key=" + testKey('k')}})
	require.Empty(t, keyed.Unopened())
	require.True(t, keyed.Clustered())
}

func TestAddressesToldToOthers(t *testing.T) {
	t.Parallel()
	addr := func(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }
	for _, r := range []struct{ advertise, actual, want string }{
		{"", "127.0.0.1:41", "127.0.0.1:41"},
		{"", "0.0.0.0:41", "127.0.0.1:41"},
		{"", "[::]:41", "127.0.0.1:41"},
		{"", "[::1]:41", "[::1]:41"},
		{"", "10.0.0.1:41", "10.0.0.1:41"},
		{"a.example:7", "0.0.0.0:41", "a.example:7"},
		{"a.example:0", "0.0.0.0:41", "a.example:41"},
		{"[fd00::1]:0", "[::]:41", "[fd00::1]:41"},
	} {
		got, err := Listener{Advertise: r.advertise}.Advertised(addr(r.actual))
		require.NoError(t, err)
		require.Equal(t, r.want, got)
	}
	_, err := Dialable(&net.UnixAddr{Name: "/s"})
	require.ErrorIs(t, err, errNotTCP)
	_, err = Listener{Advertise: "a:0"}.Advertised(&net.UnixAddr{Name: "/s"})
	require.ErrorIs(t, err, errNotTCP)
	require.Equal(t, "http://127.0.0.1:1", HTTP{}.URL("127.0.0.1:1"))
	require.Equal(t, "https://[::1]:1/a/b", HTTP{TLSCert: "c", PathPrefix: "/a/b"}.URL("[::1]:1"))
}

// docs/configuration.md holds the table of settings between two marks.
func TestDocumentationHoldsEverySetting(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- settings: begin -->\n", "<!-- settings: end -->\n"
	path := filepath.Join("..", "..", "docs", "configuration.md")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	head, rest, found := strings.Cut(string(b), begin)
	require.True(t, found)
	_, tail, found := strings.Cut(rest, end)
	require.True(t, found)
	want := head + begin + documentation() + end + tail
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(b), "run the test with -update to write the table anew")
}

func documentation() string {
	var out strings.Builder
	out.WriteString("| flag, key | variable | type | default | meaning |\n|---|---|---|---|---|\n")
	for _, s := range Settings() {
		kind, def := string(s.Type), "–"
		if s.Unit != "" {
			kind += ": " + strings.ReplaceAll(s.Unit, "|", `\|`)
		}
		if s.Default != "" {
			def = "`" + s.Default + "`"
		}
		fmt.Fprintf(&out, "| `%s` | `%s` | %s | %s | %s |\n", s.Flag(), s.Env(), kind, def, s.Doc)
	}
	return out.String()
}
