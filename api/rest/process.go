package rest

import (
	"net/http"
	"tidewire/api/route"
	"tidewire/api/strictjson"
	"tidewire/auth"

	"tidewire/api/recordjson"
	"tidewire/broker"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
	"tidewire/openapi"
)

// Limits of one read.
const (
	maxFetchRecords = 10_000
	maxFetchBytes   = 64 << 20
	maxWaitMs       = 60_000
)

// Health says that the process runs.
type Health struct {
	Status string `json:"status" enums:"ok"`
}

// Readiness says whether the node serves.
type Readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"` // why not; empty when ready
}

// Info is what a client may want to know of the node.
type Info struct {
	Version    string     `json:"version"`
	NodeID     int32      `json:"node_id"` // of the node that answers
	ServerTime route.Time `json:"server_time" swaggertype:"string" format:"date-time"`
	Limits     Limits     `json:"limits"`
	Features   []string   `json:"features"` // what this version has, by name
}

// Limits are the largest values that the node takes.
type Limits struct {
	MaxRequestBytes      int64 `json:"max_request_bytes"`
	MaxRecordsPerRequest int   `json:"max_records_per_request"`
	MaxFetchRecords      int   `json:"max_fetch_records"`
	MaxFetchBytes        int   `json:"max_fetch_bytes"`
	MaxWaitMs            int   `json:"max_wait_ms"`
	MaxPartitions        int   `json:"max_partitions"`
	MaxJSONDepth         int   `json:"max_json_depth"`
	MaxTopicsPerDeletion int   `json:"max_topics_per_deletion"`
	MaxInflightBytes     int64 `json:"max_inflight_bytes"` // that requests and frames under way hold together; beyond it is 429
	MaxWebSockets        int   `json:"max_websockets"`     // open on this node at a time; beyond it is 429
}

// features names what is built, so that clients need not guess by version.
var features = []string{"rest-produce-json", "rest-produce-raw", "rest-fetch-json", "long-poll", "websocket-reader", "acls", "cookie-sessions", "tickets", "api-tokens",
	"rest-produce-lines", "rest-produce-batches", "idempotent-producers", "expected-offset", "rest-fetch-lines", "rest-fetch-batches", "browse",
	"server-sent-events", "websocket-producer", "compressed-bodies", "retention", "compaction", "delete-records", "quotas",
	"topic-configs", "cluster-config", "bulk-delete", "operations", "metrics-history"}

// health tells that the process runs.
//
//	@ID			healthz
//	@Summary	Liveness
//	@Tags		Process
//	@Success	200	{object}	Health
//	@Router		/healthz [get]
//	@x-public	true
func (a *API) health(c *route.Call) error { return c.JSON(http.StatusOK, Health{"ok"}) }

// ready tells whether the node serves: recovered, registered, its coordinators loaded,
// and not about to stop.
//
//	@ID			readyz
//	@Summary	Readiness
//	@Tags		Process
//	@Success	200	{object}	Readiness
//	@Router		/readyz [get]
//	@x-public	true
//	@x-errors	["leader-unavailable"]
func (a *API) ready(c *route.Call) error {
	reasons := append([]string{}, a.process.Ready()...)
	if len(reasons) > 0 {
		return model.Errorf(model.LeaderUnavailable, "the node is not ready: %s", reasons[0]).
			WithExtra("ready", false).WithExtra("reasons", reasons)
	}
	return c.JSON(http.StatusOK, Readiness{Ready: true, Reasons: reasons})
}

// info tells about the node and its limits.
//
//	@ID			info
//	@Summary	Version, time, limits and features
//	@Tags		Process
//	@Success	200	{object}	Info
//	@Router		/v1/info [get]
func (a *API) info(c *route.Call) error {
	return c.JSON(http.StatusOK, Info{
		Version: a.version, NodeID: int32(a.cluster.NodeID()), ServerTime: route.TimeOf(a.now()), Features: features,
		Limits: Limits{
			MaxRequestBytes: maxProduceBody, MaxRecordsPerRequest: recordjson.MaxRecords, MaxFetchRecords: maxFetchRecords,
			MaxFetchBytes: maxFetchBytes, MaxWaitMs: maxWaitMs, MaxTopicsPerDeletion: broker.MaxDeletions, MaxPartitions: broker.MaxPartitions, MaxJSONDepth: strictjson.MaxDepth,
			MaxInflightBytes: a.inflight.Max(), MaxWebSockets: a.maxWebSockets,
		},
	})
}

// metrics gives the node's metrics in the text format of Prometheus. It takes describe
// on the cluster unless the node was started with --metrics-public or --dev.
//
//	@ID			metrics
//	@Summary	Metrics
//	@Tags		Process
//	@Produce	plain
//	@Success	200	{string}	string	"metrics"
//	@Router		/metrics [get]
//	@x-content	{"response":{"200":{"text/plain":"text"}}}
func (a *API) metrics(c *route.Call) error {
	if !a.metricsPublic {
		err := a.authz.Authorize(c.Request.Context(), c.Principal, auth.Access{Operation: metadata.OpDescribe, Resource: metadata.ResourceCluster, Name: metadata.ClusterResource, Host: c.ClientIP()})
		if err != nil {
			return err
		}
	}
	a.metricsHandler.ServeHTTP(c.Writer, c.Request)
	return nil
}

// openapiJSON gives this document.
//
//	@ID			openapiJSON
//	@Summary	The OpenAPI document
//	@Tags		Process
//	@Success	200	{object}	object
//	@Router		/openapi.json [get]
//	@x-public	true
func (a *API) openapiJSON(c *route.Call) error {
	c.Bytes(http.StatusOK, "application/json", openapi.JSON())
	return nil
}

// openapiYAML gives this document as YAML.
//
//	@ID			openapiYAML
//	@Summary	The OpenAPI document as YAML
//	@Tags		Process
//	@Success	200	{string}	string
//	@Router		/openapi.yaml [get]
//	@x-public	true
//	@x-content	{"response":{"200":{"application/yaml":"text"}}}
func (a *API) openapiYAML(c *route.Call) error {
	c.Bytes(http.StatusOK, "application/yaml", openapi.YAML())
	return nil
}
