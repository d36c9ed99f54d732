package archtest

// row says what a package may import of the project, outside its tests, and why
// no more. "x/..." stands for x and all below it.
type row struct {
	pkg      string
	below    bool // also covers packages below pkg that have no row of their own
	may      []string
	anything bool // no limit within the project
	why      string
}

// table is the dependency rule: imports go only downwards.
var table = []row{
	{pkg: "internal/model", why: "the words of all layers depend on none of them"},
	{pkg: "internal/buildinfo", why: "it holds what the linker writes, nothing else"},
	{pkg: "internal/lifecycle", why: "every layer uses it"},
	{pkg: "internal/budget", may: []string{"internal/model"}, why: "it counts bytes, whatever they are for"},
	{pkg: "internal/fsx", why: "the file system seam knows files, not what is in them"},

	{pkg: "storage/record", may: []string{"internal/model"}, why: "the batch codec is bytes in, records out"},
	{pkg: "storage/ingest", may: []string{"storage/record", "internal/model"}, why: "what a client's batch must be is decided over its bytes and a topic's rules; files and clocks are others'"},
	{pkg: "storage/compact", may: []string{"storage/record", "internal/model"}, why: "what compaction keeps is decided over batches; files and clocks are the log's"},
	{pkg: "storage/checkpoint", may: []string{"internal/model", "internal/fsx"}, why: "a file format: offsets on one side, text on the other"},
	{pkg: "storage/dedupe", may: []string{"storage/record", "internal/model"}, why: "what is remembered of keys follows from batches; files, locks and clocks are the log's"},
	{pkg: "storage/epochs", may: []string{"internal/model"}, why: "leader epochs are arithmetic on offsets; the file is the log's"},
	{pkg: "storage/producer", may: []string{"storage/record", "internal/model"}, why: "the state of producers follows from batches; files and clocks are the log's"},
	{pkg: "storage/visible", may: []string{"storage/producer", "storage/record", "internal/model"}, why: "what a reader sees is decided over headers; files are the log's"},
	{pkg: "storage/files", may: []string{"internal/fsx"}, why: "it knows open files, and not what is in them"},
	{pkg: "storage/index", may: []string{"storage/files", "storage/producer", "internal/model", "internal/fsx"}, why: "an index knows entries and its file, and neither batches nor logs"},
	{pkg: "storage/retention", may: []string{"internal/model"}, why: "what may go is decided over facts of segments; files and clocks are the log's"},
	{pkg: "storage/batches", may: []string{"storage/record", "internal/model", "internal/fsx"}, why: "it finds batches in a file's bytes, and knows no log"},
	{pkg: "storage/syncer", may: []string{"internal/lifecycle"}, why: "it decides who syncs when, and knows nothing of what is synced"},
	{pkg: "storage/trash", may: []string{"internal/model", "internal/fsx"}, why: "discarded folders wait for their deletion; it looks into none"},
	{pkg: "storage/log", may: []string{"storage/checkpoint", "storage/compact", "storage/dedupe", "storage/epochs", "storage/files", "storage/index", "storage/producer", "storage/record", "storage/retention", "storage/batches", "storage/syncer", "storage/trash", "internal/model", "internal/fsx", "internal/lifecycle"}, why: "a log knows bytes and offsets, and neither topics nor brokers"},
	{pkg: "storage/check", may: []string{"storage/record", "internal/model", "internal/fsx"}, why: "it reads the formats by itself, so that a mistake of the engine is found"},
	{pkg: "storage/meta", may: []string{"cluster/metadata", "internal/model", "internal/fsx", "internal/lifecycle"}, why: "the table store holds the applied state of the metadata and knows no quorum"},

	{pkg: "cluster/metadata", may: []string{"internal/model"}, why: "the metadata state machine is pure: no I/O, clock or engine"},
	{pkg: "cluster/fsm", may: []string{"cluster/metadata", "storage/meta", "internal/model", "internal/fsx", "internal/lifecycle"}, why: "it applies committed commands; what follows from them happens elsewhere, from the deltas"},
	{pkg: "cluster/quorum", may: []string{"cluster/fsm", "cluster/metadata", "storage/meta", "internal/model", "internal/fsx", "internal/lifecycle"}, why: "it agrees on commands and knows no partition's data"},
	{pkg: "cluster/peer", may: []string{"internal/lifecycle", "internal/model"}, why: "it carries bytes between nodes, and knows neither quorum nor gossip"},
	{pkg: "cluster/membership", may: []string{"internal/lifecycle", "internal/model"}, why: "it tells who is there; what follows from that is decided elsewhere"},
	{pkg: "cluster/founding", may: []string{"internal/model"}, why: "a core: who founds a cluster follows from what is seen and said"},
	{pkg: "cluster/controller", may: []string{"cluster/metadata", "internal/model"}, why: "a core: what the leader wants follows from the image and from what it sees"},
	{pkg: "cluster/placement", may: []string{"cluster/metadata", "internal/model"}, why: "a core: which replicas go where follows from the image"},
	{pkg: "cluster", may: []string{"cluster/...", "storage/meta", "internal/model", "internal/fsx", "internal/lifecycle", "internal/buildinfo"}, why: "the façade of the metadata knows no record, door or broker"},
	{pkg: "auth", may: []string{"cluster/metadata", "internal/model", "internal/lifecycle"}, why: "authorisation decides over the image, the same for every door"},

	{pkg: "broker/forward", may: []string{"broker/partition", "cluster/metadata", "cluster/peer", "storage/dedupe", "storage/log", "storage/record", "internal/lifecycle", "internal/model"}, why: "it brings calls to the leader of a partition, and knows neither who calls nor topics' settings"},
	{pkg: "broker/partition", may: []string{"broker/replication", "storage/dedupe", "storage/log", "storage/record", "internal/model", "internal/lifecycle"}, why: "an engine: it serves one partition and knows neither door nor quorum"},
	{pkg: "broker/throttle", why: "it counts bytes over time, whoever sends them"},
	{pkg: "broker/partitioner", may: []string{"internal/model"}, why: "a key's partition is arithmetic over its bytes"},
	{pkg: "broker/replicas", may: []string{"broker/follow", "broker/partition", "broker/replication", "broker/throttle", "cluster/metadata", "internal/lifecycle", "internal/model"}, why: "it joins the metadata with what partitions do about their replicas, and knows no door"},
	{pkg: "broker/follow", may: []string{"broker/partition", "broker/replication", "broker/throttle", "internal/lifecycle", "internal/model"}, why: "it carries what leaders and followers say, and knows neither the metadata nor how nodes reach each other"},
	{pkg: "broker/replication", may: []string{"internal/model"}, why: "a core: who is in sync and where logs part follows from what is said; logs, clocks and the network are others'"},
	{pkg: "broker/health", may: []string{"cluster/metadata", "internal/model"}, why: "a core: how a partition is follows from the image and from who is there"},
	{pkg: "broker/producerids", may: []string{"cluster/metadata", "internal/model"}, why: "it counts ids of the quorum's blocks, and knows no producer"},
	{pkg: "broker/operations", may: []string{"internal/model", "internal/fsx", "internal/sealed"}, why: "it keeps account of work, and knows neither who does it nor who asks"},
	{pkg: "internal/history", may: []string{"internal/model", "internal/fsx", "internal/sealed"}, why: "it keeps numbers by time, and measures nothing itself"},
	{pkg: "internal/sealed", may: []string{"internal/fsx"}, why: "a form of small files, whatever is in them"},
	{pkg: "broker/browse", may: []string{"storage/dedupe", "storage/record", "internal/model"}, why: "an engine: it merges what logs hold, and knows neither who asks nor whose logs they are"},
	{pkg: "broker/audit", may: []string{"auth", "broker", "broker/browse", "cluster/metadata", "storage/record", "internal/model"}, why: "it writes and reads one topic through the broker, and knows no door"},
	{pkg: "broker/group/assign", may: []string{"internal/model"}, why: "who reads which partition is arithmetic over counts and names"},
	{pkg: "broker/group/cursor", may: []string{"internal/model"}, why: "a codec: positions on one side, text on the other"},
	{pkg: "broker/group/offsetslog", may: []string{"broker/group", "broker/group/assign", "internal/model"}, why: "a codec: bytes of keys and values on one side, facts of groups on the other"},
	{pkg: "broker/coordinator", may: []string{"auth", "broker", "broker/forward", "cluster/peer", "broker/group", "broker/group/assign", "broker/group/cursor", "broker/group/offsetslog", "broker/partition", "cluster/metadata", "storage/record", "storage/visible", "internal/lifecycle", "internal/model"}, why: "the shell of groups: it reads and writes one topic through the broker, and knows no door"},
	{pkg: "broker/group", may: []string{"broker/group/assign", "broker/group/cursor", "internal/model"}, why: "a core: a group is a fold of its records; log, timers and doors are others'"},
	{pkg: "broker/moves", may: []string{"broker", "broker/operations", "cluster/metadata", "cluster/placement", "internal/model"}, why: "it plans and proposes moves, and knows no door"},
	{pkg: "broker/quota", may: []string{"cluster/metadata", "internal/model"}, why: "a core: who may do how much is decided over the image and the time it is told"},
	{pkg: "broker", may: []string{"broker/...", "auth", "cluster/metadata", "cluster/placement", "storage/dedupe", "storage/ingest", "storage/log", "storage/record", "storage/visible", "internal/model", "internal/budget", "internal/lifecycle", "internal/fsx"}, why: "the façade both doors call knows no door, and reaches the quorum by the interfaces it declares"},

	{pkg: "api/problem", may: []string{"internal/model"}, why: "it turns the error table into answers"},
	{pkg: "api/recordjson", may: []string{"storage/record", "internal/model"}, why: "a codec: JSON on one side, records on the other"},
	{pkg: "api/recordanswer", may: []string{"api/problem", "api/recordjson", "api/route", "storage/record"}, why: "it writes the records of any read, and knows none"},
	{pkg: "api/strictjson", may: []string{"internal/model"}, why: "a codec: bodies on one side, structs on the other"},
	{pkg: "api/coding", may: []string{"internal/model"}, why: "it knows headers and bytes, and no route"},
	{pkg: "api/lines", may: []string{"api/problem", "api/recordjson", "broker", "broker/partition", "storage/record", "internal/inflight", "internal/lifecycle", "internal/model"}, why: "it turns lines into records and answers for them; routes and rights are others' business"},
	{pkg: "api/route", may: []string{"api/coding", "api/problem", "api/strictjson", "auth", "broker", "broker/audit", "broker/quota", "cluster/metadata", "internal/inflight", "internal/model"}, why: "it brings a request to its handler, and knows no resource"},
	{pkg: "api/admin", may: []string{"api/route", "auth", "broker", "broker/audit", "cluster/metadata", "internal/model"}, why: "handlers decode, call and encode; the rules are in auth, broker and the metadata"},
	{pkg: "api/rest", may: []string{"api/coding", "api/route", "api/strictjson", "api/lines", "internal/inflight", "api/problem", "api/recordanswer", "api/recordjson", "auth", "broker", "broker/audit", "broker/browse", "broker/health", "broker/partition", "broker/quota", "broker/replication", "cluster", "cluster/metadata", "storage/record", "openapi", "internal/model", "internal/buildinfo"}, why: "handlers decode, call and encode; streams are in web, logs behind the broker"},
	{pkg: "api/moves", may: []string{"api/problem", "api/route", "broker", "broker/audit", "broker/moves", "cluster/metadata", "cluster/placement", "internal/model"}, why: "handlers decode, call and encode; plans and rights are below"},
	{pkg: "api/ops", may: []string{"api/problem", "api/route", "broker", "broker/operations", "cluster/metadata", "internal/history", "internal/model"}, why: "handlers decode, call and encode; rules and measurements are below"},
	{pkg: "api/partitions", may: []string{"api/problem", "api/route", "broker", "broker/health", "cluster/metadata", "internal/model"}, why: "handlers decode, call and encode; what health is, is below"},
	{pkg: "api/groups", may: []string{"api/problem", "api/recordanswer", "api/recordjson", "api/rest", "api/route", "auth", "broker", "broker/coordinator", "broker/group", "broker/group/assign", "broker/group/cursor", "broker/quota", "cluster/metadata", "storage/record", "internal/inflight", "internal/model"}, why: "handlers decode, call and encode; what groups are is below"},
	{pkg: "web", below: true, may: []string{"web/...", "api/lines", "internal/inflight", "api/problem", "api/recordjson", "api/rest", "api/route", "auth", "broker", "broker/browse", "broker/coordinator", "broker/forward", "broker/group", "broker/group/assign", "broker/partition", "cluster", "cluster/metadata", "storage/record", "openapi", "ui", "internal/model", "internal/lifecycle", "internal/buildinfo"}, why: "the server decodes, calls and encodes; logs are behind the broker"},
	{pkg: "web/starting", may: []string{"api/problem", "internal/lifecycle", "internal/model"}, why: "it answers while there is no node yet"},
	{pkg: "web/conns", why: "it counts connections and knows nothing of what they carry"},
	{pkg: "web/h1", may: []string{"internal/lifecycle"}, why: "a connection loop serves any handler and knows none"},

	{pkg: "openapi", why: "it embeds the document"},
	{pkg: "openapi/gen", may: []string{"internal/model"}, why: "it reads annotations as text, and the error table"},
	{pkg: "ui", why: "it embeds the console"},

	{pkg: "internal/config", may: []string{"internal/model", "internal/buildinfo"}, why: "settings are read before anything is built from them"},
	{pkg: "internal/inflight", may: []string{"internal/model"}, why: "it counts bytes for any door"},
	{pkg: "internal/datadir", may: []string{"internal/model", "internal/fsx"}, why: "it holds the data folder for whoever opens it"},
	{pkg: "internal/client", below: true, may: []string{"internal/client/...", "api/recordjson", "storage/record", "internal/model", "internal/lifecycle", "internal/buildinfo", "internal/config"}, why: "a client knows a node by its HTTP interface alone"},
	{pkg: "internal/node", anything: true, why: "the composition root"},
	{pkg: "cmd/tidewire", may: []string{"internal/node", "internal/config", "internal/client/...", "storage/check", "internal/datadir", "internal/fsx", "internal/model", "internal/lifecycle", "internal/buildinfo"}, why: "the command line starts a node, calls one or has a stopped one's files checked under its lock, and holds no logic"},

	{pkg: "cluster/clustertest", anything: true, why: "help for tests that need a quorum"},
	{pkg: "internal/archtest", why: "it reads the source as text"},
	{pkg: "internal/testkit", below: true, anything: true, why: "help for tests of any layer"},
	{pkg: "test", below: true, anything: true, why: "tests of the whole"},
}

// pending are the packages that the tables list ahead of their first file. The
// test fails when one of them exists and is still here.
var pending = []string{
	"broker/peer", "broker/txn", "api/kafka",
}

// fence says which packages alone may import a library (or all below its path).
type fence struct {
	library  string
	packages []string // with all below them
	tests    bool     // tests may import it anywhere
	why      string
}

var fenced = []fence{
	{"github.com/gin-gonic/gin", []string{"api/route", "web"}, false, "HTTP routing stays in the adapters"},
	{"github.com/gorilla/websocket", []string{"web", "internal/client"}, true, "WebSocket is a way to reach a node, no part of one"},
	{"gorm.io", []string{"storage/meta"}, false, "the table store is derived state behind one package"},
	{"modernc.org/sqlite", []string{"storage/meta"}, false, "the table store is derived state behind one package"},
	{"github.com/hashicorp/serf", []string{"cluster/membership"}, false, "engines know brokers, not gossip"},
	{"github.com/hashicorp/memberlist", []string{"cluster/membership"}, false, "engines know brokers, not gossip"},
	{"github.com/hashicorp/raft", []string{"cluster/fsm", "cluster/quorum"}, false, "consensus stays behind the quorum"},
	{"github.com/hashicorp/raft-wal", []string{"cluster/quorum"}, false, "consensus stays behind the quorum"},
	{"github.com/twmb/franz-go/pkg/kmsg", []string{"api/kafka", "broker/peer", "broker/group", "broker/txn"}, true, "Kafka's messages stay at the port, between nodes and in the coordinators' records"},
	{"github.com/golang-jwt/jwt", []string{"auth"}, true, "tokens are read in one place"},
	{"golang.org/x/crypto/argon2", []string{"auth"}, false, "passwords are hashed in one place"},
	{"github.com/xdg-go/scram", []string{"auth"}, true, "password verifiers are made in one place"},
	{"github.com/spf13/cobra", []string{"cmd/tidewire"}, false, "the command line is an adapter"},
	{"github.com/knadh/koanf", []string{"internal/config"}, false, "settings have one source"},
	{"github.com/swaggo/swag", []string{"openapi/gen"}, false, "the binary serves the document and does not make it"},
	{"github.com/getkin/kin-openapi", []string{"openapi/gen", "internal/testkit/openapitest"}, true, "the binary serves the document and does not read it"},
	{"net/http", []string{"api", "web", "openapi/gen", "internal/client", "internal/node", "internal/testkit", "cmd/tidewire", "test"}, true, "engines never know by which door a call came"},
	{"github.com/stretchr/testify", []string{"internal/testkit", "test"}, true, "it is for tests"},
	{"pgregory.net/rapid", []string{"internal/testkit", "test"}, true, "it is for tests"},
	{"go.uber.org/goleak", []string{"internal/testkit", "test"}, true, "it is for tests"},
}
