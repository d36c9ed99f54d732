package ops

import (
	"net/http"

	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/cluster/metadata"
)

// ConfigItem is one setting.
type ConfigItem struct {
	Name          string   `json:"name"`
	Value         string   `json:"value"` // in force; of a secret a mask
	Default       string   `json:"default"`
	Source        string   `json:"source" enums:"default,topic,cluster"`
	Scope         string   `json:"scope" enums:"topic,cluster"` // whose setting it is; the cluster may hold defaults for the topics'
	Type          string   `json:"type" enums:"long,int,double,boolean,string,list"`
	Unit          *string  `json:"unit" extensions:"x-nullable"`
	Min           *float64 `json:"min" extensions:"x-nullable"`
	Max           *float64 `json:"max" extensions:"x-nullable"`
	AllowedValues []string `json:"allowed_values"` // empty: any
	Doc           string   `json:"doc"`
}

// held are the settings of a topic, or with a nil topic those of the cluster.
type held struct {
	cluster, topic    map[string]string
	replicationFactor int // that defaults are for
}

func (k *held) item(d *metadata.ConfigDef) ConfigItem {
	it := ConfigItem{
		Name: d.Name, Default: d.DefaultAt(k.replicationFactor), Source: "default", Scope: string(d.Scope), Type: string(d.Type),
		Min: d.Min, Max: d.Max, AllowedValues: append([]string{}, d.Allowed...), Doc: d.Doc,
	}
	if d.Unit != "" {
		it.Unit = &d.Unit
	}
	it.Value = it.Default
	if v, ok := k.cluster[d.Name]; ok {
		it.Value, it.Source = v, "cluster"
	}
	if v, ok := k.topic[d.Name]; ok {
		it.Value, it.Source = v, "topic"
	}
	it.Value = d.Shown(it.Value)
	return it
}

// ClusterConfigView is the cluster's own settings, and the defaults that it gives to topics.
// Its etag is the config's own.
type ClusterConfigView struct {
	Items         []ConfigItem `json:"items"`
	NextPageToken *string      `json:"next_page_token" extensions:"x-nullable"`
	Total         int          `json:"total"`
	// AffectedTopics counts the topics whose settings in force a change alters; null where
	// nothing was to be changed.
	AffectedTopics *int     `json:"affected_topics" extensions:"x-nullable"`
	Actions        []string `json:"actions"`
	ETag           string   `json:"etag"`
}

// configListing lists settings, which have a view already.
var configListing = route.Listing[ConfigItem, ConfigItem]{
	Name: func(it ConfigItem) string { return it.Name }, By: "name", View: func(it ConfigItem) ConfigItem { return it },
}

// ClusterConfigUpdate sets and unsets the named settings; others stay.
type ClusterConfigUpdate struct {
	// Settings by name; values are strings, numbers or booleans.
	Set   map[string]string `json:"set" extensions:"x-kinds=string|number|boolean"`
	Unset []string          `json:"unset"`
}

func (a *API) clusterConfigView(c *route.Call, cluster *metadata.Cluster) ClusterConfigView {
	v := ClusterConfigView{Items: []ConfigItem{}, Actions: []string{}, ETag: string(cluster.ConfigETag())}
	k := held{cluster: cluster.Config, replicationFactor: broker.NaturalReplicationFactor(a.cluster.Image())}
	ofTopics := held{cluster: cluster.Config, replicationFactor: k.replicationFactor}
	if set := cluster.Settings().DefaultReplicationFactor; set > 0 {
		ofTopics.replicationFactor = int(set)
	}
	for _, d := range metadata.ClusterConfigDefs() {
		if d.Scope == metadata.ScopeCluster {
			v.Items = append(v.Items, k.item(&d))
			continue
		}
		v.Items = append(v.Items, ofTopics.item(&d))
	}
	v.Total = len(v.Items)
	if a.broker.Allowed(c.Caller(), metadata.OpAlterConfigs, metadata.ResourceCluster, metadata.ClusterResource) {
		v.Actions = append(v.Actions, "alter-configs")
	}
	return v
}

// listTopicConfigs lists every setting that a topic can have, with what it means. Values are
// those of a topic that is created now without settings.
//
//	@ID			listTopicConfigs
//	@Summary	Settings that topics can have
//	@Tags		Topics
//	@Param		limit		query		int		false	"items of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param		page_token	query		string	false	"next_page_token of the page before"
//	@Param		prefix		query		string	false	"start of the name"
//	@Param		q			query		string	false	"part of the name, in any case"
//	@Param		sort		query		string	false	"a field, with - in front descending"	Enums(name, -name)
//	@Param		fields		query		string	false	"fields of the items, with commas between"
//	@Success	200			{object}	route.Page[ConfigItem]
//	@Router		/v1/topic-configs [get]
func (a *API) listTopicConfigs(c *route.Call) error {
	img := a.cluster.Image()
	k := held{cluster: img.Cluster().Config, replicationFactor: broker.DefaultReplicationFactor(img)}
	l := route.Listing[metadata.ConfigDef, ConfigItem]{
		Name: func(d metadata.ConfigDef) string { return d.Name }, By: "name",
		View: func(d metadata.ConfigDef) ConfigItem { return k.item(&d) },
	}
	return l.Serve(c, func() ([]metadata.ConfigDef, error) { return metadata.TopicConfigDefs(), nil })
}

// getClusterConfig gives the settings of the cluster with what they mean: its own, and the
// defaults of topics that do not set them.
//
//	@ID			getClusterConfig
//	@Summary	Settings of the cluster
//	@Tags		Cluster
//	@Param		limit		query		int		false	"items of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param		page_token	query		string	false	"next_page_token of the page before"
//	@Param		prefix		query		string	false	"start of the name"
//	@Param		q			query		string	false	"part of the name, in any case"
//	@Param		sort		query		string	false	"a field, with - in front descending"	Enums(name, -name)
//	@Param		fields		query		string	false	"fields of the items, with commas between"
//	@Success	200			{object}	ClusterConfigView
//	@Header		200			{string}	ETag	"the config's entity tag"
//	@Router		/v1/cluster/config [get]
func (a *API) getClusterConfig(c *route.Call) error {
	var whole ClusterConfigView
	page, err := configListing.Page(c, func() ([]ConfigItem, error) {
		cluster, err := a.broker.ClusterConfig(c.Request.Context(), c.Caller())
		if err != nil {
			return nil, err
		}
		whole = a.clusterConfigView(c, cluster)
		return whole.Items, nil
	})
	if err != nil {
		return err
	}
	return c.Resource(http.StatusOK, metadata.ETag(whole.ETag), struct {
		configPage
		AffectedTopics *int `json:"affected_topics"`
	}{configPage{page, whole.Actions, whole.ETag}, whole.AffectedTopics})
}

// updateClusterConfig changes the named settings of the cluster. Topics that do not set
// them themselves follow at once.
//
//	@ID			updateClusterConfig
//	@Summary	Change settings of the cluster
//	@Tags		Cluster
//	@Param		dry_run		query		bool				false	"change nothing, tell what would be"
//	@Param		If-Match	header		string				false	"entity tag that the config must have"
//	@Param		body		body		ClusterConfigUpdate	true	"what to set and unset"
//	@Success	200			{object}	ClusterConfigView
//	@Header		200			{string}	ETag	"the config's entity tag"
//	@Router		/v1/cluster/config [patch]
//	@x-errors	["etag-mismatch"]
func (a *API) updateClusterConfig(c *route.Call) error {
	in, err := route.Decode[ClusterConfigUpdate](c)
	if err != nil {
		return err
	}
	now := a.cluster.Image().Cluster()
	if _, refusal := metadata.CheckClusterConfig("/set", in.Set, now.MetadataVersion); refusal != nil {
		return refusal
	}
	if refusal := metadata.CheckClusterUnset("/unset", in.Unset, in.Set, now.MetadataVersion); refusal != nil {
		return refusal
	}
	ch := broker.ClusterConfigChange{Set: in.Set, Unset: in.Unset}
	if ch.DryRun, err = c.QueryBool("dry_run"); err != nil {
		return err
	}
	if ch.IfMatch, err = c.IfMatch(); err != nil {
		return err
	}
	res, err := a.broker.AlterClusterConfig(c.Request.Context(), c.Caller(), ch)
	if err != nil {
		return err
	}
	v := a.clusterConfigView(c, res.Cluster)
	etag := res.Cluster.ConfigETag()
	if ch.DryRun { // nothing has changed: what is there keeps its tag
		etag = a.cluster.Image().Cluster().ConfigETag()
		v.ETag = string(etag)
	}
	v.AffectedTopics = &res.Topics
	return c.Resource(http.StatusOK, etag, v)
}
