package rest

import (
	"net/http"
	"strconv"

	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// ConfigItem is one setting of a topic.
type ConfigItem struct {
	Name          string   `json:"name"`
	Value         string   `json:"value"`
	Default       string   `json:"default"`
	Source        string   `json:"source" enums:"default,topic,cluster"`
	Type          string   `json:"type"`
	Unit          *string  `json:"unit" extensions:"x-nullable"`
	Min           *float64 `json:"min" extensions:"x-nullable"`
	Max           *float64 `json:"max" extensions:"x-nullable"`
	AllowedValues []string `json:"allowed_values"` // empty: any
	Doc           string   `json:"doc"`
}

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
	Set   map[string]string `json:"set"`
	Unset []string          `json:"unset"`
}

func (a *API) configView(c *route.Call, t *metadata.Topic) ConfigView {
	v := ConfigView{Items: []ConfigItem{}, Actions: []string{}, ETag: string(t.ConfigETag())}
	inherited := a.cluster.Image().Cluster().Config
	for _, d := range metadata.TopicConfigDefs() {
		v.Items = append(v.Items, configItem(&d, t, inherited))
	}
	v.Total = len(v.Items)
	if a.broker.Allowed(c.Caller(), metadata.OpAlterConfigs, metadata.ResourceTopic, t.Name) {
		v.Actions = append(v.Actions, "alter-configs")
	}
	return v
}

func configItem(d *metadata.ConfigDef, t *metadata.Topic, inherited map[string]string) ConfigItem {
	it := ConfigItem{
		Name: d.Name, Default: d.DefaultAt(t.ReplicationFactor()), Source: "default", Type: string(d.Type),
		Min: d.Min, Max: d.Max, AllowedValues: append([]string{}, d.Allowed...), Doc: d.Doc,
	}
	if d.Unit != "" {
		it.Unit = &d.Unit
	}
	it.Value = it.Default
	if v, ok := inherited[d.Name]; ok {
		it.Value, it.Source = v, "cluster"
	}
	if v, ok := t.Overrides[d.Name]; ok {
		it.Value, it.Source = v, "topic"
	}
	return it
}

// getTopicConfig gives every setting of a topic with what it means.
//
//	@ID			getTopicConfig
//	@Summary	Settings of a topic
//	@Tags		Topics
//	@Param		topic	path		string	true	"name"
//	@Success	200		{object}	ConfigView
//	@Header		200		{string}	ETag	"the config's entity tag"
//	@Router		/v1/topics/{topic}/config [get]
//	@x-errors	["unknown-topic"]
func (a *API) getTopicConfig(c *route.Call) error {
	t, err := a.broker.TopicConfig(c.Request.Context(), c.Caller(), c.PathValue("topic"))
	if err != nil {
		return err
	}
	return c.Resource(http.StatusOK, t.ConfigETag(), a.configView(c, t))
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
	if err := a.checkConfig("/set", in.Set); err != nil {
		return err
	}
	if err := checkUnset(in); err != nil {
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

// checkUnset refuses names that no topic has and those that are set at the same time.
func checkUnset(in *ConfigUpdate) error {
	for i, name := range in.Unset {
		pointer := "/unset/" + strconv.Itoa(i)
		if _, ok := metadata.TopicConfigDef(name); !ok {
			return model.Invalid(pointer, "there is no topic config %q", name)
		}
		if _, both := in.Set[name]; both {
			return model.Invalid(pointer, "%q is both set and unset", name)
		}
	}
	return nil
}

// checkConfig refuses what no topic can have; what depends on the topic is decided with
// it.
func (a *API) checkConfig(pointer string, values map[string]string) error {
	const anyReplicationFactor = 1 << 15
	_, err := metadata.CheckTopicConfig(pointer, values, anyReplicationFactor, a.cluster.Image().Cluster().MetadataVersion)
	if err != nil {
		return err
	}
	return nil
}
