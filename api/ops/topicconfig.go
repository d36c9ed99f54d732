package ops

import (
	"net/http"

	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/cluster/metadata"
)

// ConfigView is the settings of a topic. Its etag is the config's own.
type ConfigView struct {
	Items         []ConfigItem `json:"items"`
	NextPageToken *string      `json:"next_page_token" extensions:"x-nullable"`
	Total         int          `json:"total"`
	Actions       []string     `json:"actions"`
	ETag          string       `json:"etag"`
}

// ConfigUpdate sets and unsets the named settings; others stay.
type ConfigUpdate struct {
	// Settings by name; values are strings, numbers or booleans.
	Set   map[string]string `json:"set" extensions:"x-kinds=string|number|boolean"`
	Unset []string          `json:"unset"`
}

func (a *API) configView(c *route.Call, t *metadata.Topic) ConfigView {
	v := ConfigView{Items: []ConfigItem{}, Actions: []string{}, ETag: string(t.ConfigETag())}
	k := held{cluster: a.cluster.Image().Cluster().Config, topic: t.Overrides, replicationFactor: t.ReplicationFactor()}
	for _, d := range metadata.TopicConfigDefs() {
		v.Items = append(v.Items, k.item(&d))
	}
	v.Total = len(v.Items)
	if a.broker.Allowed(c.Caller(), metadata.OpAlterConfigs, metadata.ResourceTopic, t.Name) {
		v.Actions = append(v.Actions, "alter-configs")
	}
	return v
}

// getTopicConfig gives every setting of a topic with what it means.
//
//	@ID			getTopicConfig
//	@Summary	Settings of a topic
//	@Tags		Topics
//	@Param		topic		path		string	true	"name"
//	@Param		limit		query		int		false	"items of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param		page_token	query		string	false	"next_page_token of the page before"
//	@Param		prefix		query		string	false	"start of the name"
//	@Param		q			query		string	false	"part of the name, in any case"
//	@Param		sort		query		string	false	"a field, with - in front descending"	Enums(name, -name)
//	@Param		fields		query		string	false	"fields of the items, with commas between"
//	@Success	200			{object}	ConfigView
//	@Header		200			{string}	ETag	"the config's entity tag"
//	@Router		/v1/topics/{topic}/config [get]
//	@x-errors	["unknown-topic"]
func (a *API) getTopicConfig(c *route.Call) error {
	var whole ConfigView
	page, err := configListing.Page(c, func() ([]ConfigItem, error) {
		t, err := a.broker.TopicConfig(c.Request.Context(), c.Caller(), c.PathValue("topic"))
		if err != nil {
			return nil, err
		}
		whole = a.configView(c, t)
		return whole.Items, nil
	})
	if err != nil {
		return err
	}
	return c.Resource(http.StatusOK, metadata.ETag(whole.ETag), configPage{page, whole.Actions, whole.ETag})
}

// configPage is a ConfigView of which a query wants a part.
type configPage struct {
	route.Page[any]
	Actions []string `json:"actions"`
	ETag    string   `json:"etag"`
}

// updateTopicConfig changes the named settings.
//
//	@ID			updateTopicConfig
//	@Summary	Change settings of a topic
//	@Tags		Topics
//	@Param		topic		path		string			true	"name"
//	@Param		If-Match	header		string			false	"entity tag that the config must have"
//	@Param		body		body		ConfigUpdate	true	"what to set and unset"
//	@Success	200			{object}	ConfigView
//	@Header		200			{string}	ETag	"the config's entity tag"
//	@Router		/v1/topics/{topic}/config [patch]
//	@x-errors	["unknown-topic","etag-mismatch"]
func (a *API) updateTopicConfig(c *route.Call) error {
	in, err := route.Decode[ConfigUpdate](c)
	if err != nil {
		return err
	}
	if err := a.checkTopicConfig(in); err != nil {
		return err
	}
	ch := broker.ConfigChange{Topic: c.PathValue("topic"), Set: in.Set, Unset: in.Unset}
	if ch.IfMatch, err = c.IfMatch(); err != nil {
		return err
	}
	t, err := a.broker.AlterTopicConfig(c.Request.Context(), c.Caller(), ch)
	if err != nil {
		return err
	}
	return c.Resource(http.StatusOK, t.ConfigETag(), a.configView(c, t))
}

// checkTopicConfig refuses what no topic can have; what depends on the topic is decided
// with it.
func (a *API) checkTopicConfig(in *ConfigUpdate) error {
	const anyReplicationFactor = 1 << 15
	version := a.cluster.Image().Cluster().MetadataVersion
	if _, err := metadata.CheckTopicConfig("/set", in.Set, anyReplicationFactor, version); err != nil {
		return err
	}
	if err := metadata.CheckTopicUnset("/unset", in.Unset, in.Set, version); err != nil {
		return err
	}
	return nil
}
