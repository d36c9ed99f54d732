package groups

import (
	"tidewire/api/problem"
	"tidewire/api/route"
	"tidewire/broker/coordinator"
	"tidewire/cluster/metadata"
)

// listGroups lists the groups that the caller may describe.
//
//	@ID			listGroups
//	@Summary	List groups
//	@Tags		Groups
//	@Param		limit		query		int		false	"items of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param		page_token	query		string	false	"next_page_token of the page before"
//	@Param		prefix		query		string	false	"start of the name"
//	@Param		q			query		string	false	"part of the name, in any case"
//	@Param		sort		query		string	false	"a field, with - in front descending"	Enums(group, -group, name, -name, state, -state, members, -members, total_lag, -total_lag)
//	@Param		fields		query		string	false	"fields of the items, with commas between"
//	@Success	200			{object}	route.Page[GroupItem]
//	@Router		/v1/groups [get]
//	@x-errors	["leader-unavailable"]
func (d *Door) listGroups(c *route.Call) error {
	return d.serveList(c, func() (string, error) { return "", nil })
}

// listTopicGroups lists the groups that subscribe to a topic or have offsets of it.
//
//	@ID			listTopicGroups
//	@Summary	List the groups of a topic
//	@Tags		Groups
//	@Param		topic		path		string	true	"name"
//	@Param		limit		query		int		false	"items of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param		page_token	query		string	false	"next_page_token of the page before"
//	@Param		prefix		query		string	false	"start of the name"
//	@Param		q			query		string	false	"part of the name, in any case"
//	@Param		sort		query		string	false	"a field, with - in front descending"	Enums(group, -group, name, -name, state, -state, members, -members, total_lag, -total_lag)
//	@Param		fields		query		string	false	"fields of the items, with commas between"
//	@Success	200			{object}	route.Page[GroupItem]
//	@Router		/v1/topics/{topic}/groups [get]
//	@x-errors	["unknown-topic","leader-unavailable"]
func (d *Door) listTopicGroups(c *route.Call) error {
	return d.serveList(c, func() (string, error) {
		t, err := d.broker.MayDescribeTopic(c.Request.Context(), c.Caller(), c.PathValue("topic"))
		if err != nil {
			return "", err
		}
		return t.Name, nil
	})
}

// listed are the rows of one list, asked for together when they are needed: a page that is in
// order of names asks for its own alone.
type listed struct {
	d    *Door
	c    *route.Call
	may  coordinator.TopicFilter
	rows map[string]*coordinator.Summary
}

func (l *listed) of(name string) *coordinator.Summary { return l.rows[name] }

// ready asks for the rows that were not asked for yet.
func (l *listed) ready(names []string) {
	var missing []string
	for _, name := range names {
		if l.rows[name] == nil {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return
	}
	rows := l.d.groups.Summaries(l.c.Request.Context(), missing, l.may)
	for i := range rows {
		l.rows[rows[i].Group] = &rows[i]
	}
}

// serveList answers with a page of groups, those of one topic where only tells it.
func (d *Door) serveList(c *route.Call, only func() (topic string, _ error)) error {
	rows := &listed{d: d, c: c, may: d.visible(c), rows: map[string]*coordinator.Summary{}}
	l := route.Listing[string, GroupItem]{
		Name: func(name string) string { return name }, By: "group", View: rows.item, Ready: rows.ready,
		Sorts: map[string]func(string) any{
			"name":      func(string) any { return "" }, // a group's name is its group
			"state":     func(name string) any { return string(rows.of(name).State) },
			"members":   func(name string) any { return float64(rows.of(name).Members) },
			"total_lag": func(name string) any { return float64(rows.of(name).TotalLag) },
		},
	}
	return l.Serve(c, func() ([]string, error) {
		topic, err := only()
		if err != nil {
			return nil, err
		}
		caller := c.Caller()
		prefix, _ := c.Only("prefix")
		return d.groups.List(c.Request.Context(), coordinator.ListRequest{Topic: topic, Prefix: prefix, May: func(group string) bool {
			return d.broker.Allowed(caller, metadata.OpDescribe, metadata.ResourceGroup, group)
		}})
	})
}

func (l *listed) item(name string) GroupItem {
	s := l.of(name)
	v := GroupItem{Group: name, Topics: append([]string{}, s.Topics...), Actions: l.d.actions(l.c, name)}
	if s.Err != nil {
		v.Error = new(problem.Of(s.Err, l.c.Occurrence()))
		return v
	}
	v.State, v.Members, v.Coordinator, v.ETag = new(string(s.State)), &s.Members, leader(s.Coordinator), &s.Tag
	if s.Unknown == nil { // else it would be less than it is
		v.TotalLag = &s.TotalLag
	}
	return v
}
