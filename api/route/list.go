package route

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"tidewire/internal/model"
)

// ListQuery is the parameters that every list takes.
var ListQuery = []string{"limit", "page_token", "prefix", "q", "sort", "fields"}

// Page is one page of a list.
type Page[T any] struct {
	Items         []T     `json:"items"`
	NextPageToken *string `json:"next_page_token" extensions:"x-nullable"`
	Total         int     `json:"total"` // of all pages, after prefix and q
}

// Listing describes how items of type T are listed as views of type V.
type Listing[T, V any] struct {
	Name func(T) string
	// Sorts holds what may be sorted by besides the name; a key is a string or a
	// float64, the same type for all items.
	Sorts map[string]func(T) any
	By    string // what the name is called in sort and in views
	View  func(T) V
	// Unique tells items of one name apart; nil where names are unique.
	Unique func(T) string
	// Ready is told of items before Sorts other than the name's, or View, are called with them;
	// nil: nobody wants to know.
	Ready func([]T)
}

// pageToken is where the next page goes on: behind the item of this key and name, in
// the order and under the filter that the first page had.
type pageToken struct {
	Sort   string `json:"s"`
	Prefix string `json:"p,omitempty"`
	Q      string `json:"q,omitempty"`
	Key    any    `json:"k"`
	Name   string `json:"n"`
}

type keyed[T any] struct {
	item T
	name string
	key  any
}

// Serve answers with the page that the query asks for.
func (l *Listing[T, V]) Serve(c *Call, items func() ([]T, error)) error {
	page, err := l.Page(c, items)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, page)
}

// Page makes the page that the query asks for. The query is checked before items is
// called, which authorises the caller and gives what it may see.
func (l *Listing[T, V]) Page(c *Call, items func() ([]T, error)) (page Page[any], err error) {
	limit, err := c.QueryInt("limit", IntRange{Def: 100, Min: 1, Max: 1000})
	if err != nil {
		return page, err
	}
	want, key, descending, err := l.order(c)
	if err != nil {
		return page, err
	}
	start, err := startOf(c, want)
	if err != nil {
		return page, err
	}
	fields, err := Fields[V](c)
	if err != nil {
		return page, err
	}
	c.catchUp()
	all, err := items()
	if err != nil {
		return page, err
	}
	if name := strings.TrimPrefix(want.Sort, "-"); l.Ready != nil && name != "" && name != l.By {
		l.Ready(all)
	}
	found := l.filter(all, want, key)
	slices.SortFunc(found, func(a, b keyed[T]) int { return compareKeyed(a.key, a.name, b.key, b.name, descending) })
	rest := after(found, start, descending)
	page = Page[any]{Items: []any{}, Total: len(found)}
	l.ready(rest, int(limit))
	for i, k := range rest {
		if i == int(limit) {
			want.Key, want.Name = rest[i-1].key, rest[i-1].name
			page.NextPageToken, err = want.encode()
			if err != nil {
				return page, err
			}
			break
		}
		v, err := Project(l.View(k.item), fields)
		if err != nil {
			return page, err
		}
		page.Items = append(page.Items, v)
	}
	return page, nil
}

// ready tells of the items of a page.
func (l *Listing[T, V]) ready(rest []keyed[T], limit int) {
	if l.Ready == nil {
		return
	}
	list := make([]T, min(len(rest), limit))
	for i := range list {
		list[i] = rest[i].item
	}
	l.Ready(list)
}

// catchUpTime is how long a list waits for what the cluster knows. Without a quorum it gives
// what this node knows.
const catchUpTime = 2 * time.Second

// catchUp has a list hold what was made through other nodes before it was asked for.
func (c *Call) catchUp() {
	if c.gate == nil || c.gate.images == nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), catchUpTime)
	defer cancel()
	_ = c.gate.images.Barrier(ctx) // see catchUpTime
}

func (l *Listing[T, V]) order(c *Call) (want pageToken, key func(T) any, descending bool, err error) {
	want.Sort, _ = c.Only("sort")
	want.Prefix, _ = c.Only("prefix")
	want.Q, _ = c.Only("q")
	name, descending := strings.CutPrefix(want.Sort, "-")
	if name == "" && want.Sort == "" || name == l.By {
		return want, func(T) any { return "" }, descending, nil
	}
	key, ok := l.Sorts[name]
	if !ok {
		return want, nil, false, model.Invalid("query:sort", "this list cannot be sorted by %q", name)
	}
	return want, key, descending, nil
}

func (l *Listing[T, V]) filter(items []T, want pageToken, key func(T) any) []keyed[T] {
	q := strings.ToLower(want.Q)
	found := make([]keyed[T], 0, len(items))
	for _, it := range items {
		name := l.Name(it)
		if strings.HasPrefix(name, want.Prefix) && (q == "" || strings.Contains(strings.ToLower(name), q)) {
			found = append(found, keyed[T]{it, l.tie(it, name), key(it)})
		}
	}
	return found
}

// tie is what orders items of one key.
func (l *Listing[T, V]) tie(it T, name string) string {
	if l.Unique == nil {
		return name
	}
	return name + "\x00" + l.Unique(it)
}

// compareKeyed orders by key and then by name, which is unique.
func compareKeyed(ak any, an string, bk any, bn string, descending bool) int {
	order := cmp.Compare(an, bn)
	switch a := ak.(type) {
	case float64:
		b, _ := bk.(float64)
		order = cmp.Or(cmp.Compare(a, b), order)
	case string:
		b, _ := bk.(string)
		order = cmp.Or(cmp.Compare(a, b), order)
	}
	if descending {
		return -order
	}
	return order
}

// startOf reads the page token, nil without one.
func startOf(c *Call, want pageToken) (*pageToken, error) {
	s, ok := c.Only("page_token")
	if !ok {
		return nil, nil
	}
	var t pageToken
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || json.Unmarshal(raw, &t) != nil || t.Name == "" {
		return nil, model.Invalid("query:page_token", "this is not a page token that a list has given")
	}
	if t.Sort != want.Sort || t.Prefix != want.Prefix || t.Q != want.Q {
		return nil, model.Invalid("query:page_token", "the page token belongs to a list with other sort, prefix or q")
	}
	return &t, nil
}

// after is what lies behind a page's last item, whether that is still there or not.
func after[T any](found []keyed[T], t *pageToken, descending bool) []keyed[T] {
	if t == nil {
		return found
	}
	i, exact := slices.BinarySearchFunc(found, t, func(k keyed[T], t *pageToken) int {
		return compareKeyed(k.key, k.name, t.Key, t.Name, descending)
	})
	if exact {
		i++
	}
	return found[i:]
}

func (t pageToken) encode() (*string, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	s := base64.RawURLEncoding.EncodeToString(b)
	return &s, nil
}

// Fields are the names in the query's fields, which must be of members that items of type V
// have; nil without the parameter.
func Fields[V any](c *Call) ([]string, error) {
	s, ok := c.Only("fields")
	if !ok {
		return nil, nil
	}
	var zero V
	known, err := members(zero)
	if err != nil {
		return nil, err
	}
	names := strings.Split(s, ",")
	for _, n := range names {
		if _, ok := known[n]; !ok {
			return nil, model.Invalid("query:fields", "items have no field %q", n)
		}
	}
	return names, nil
}

func members(v any) (map[string]json.RawMessage, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var m map[string]json.RawMessage
	return m, json.Unmarshal(b, &m)
}

// Project leaves only the named fields of a view; all without names.
func Project(v any, fields []string) (any, error) {
	if fields == nil {
		return v, nil
	}
	m, err := members(v)
	if err != nil {
		return nil, err
	}
	out := make(map[string]json.RawMessage, len(fields))
	for _, f := range fields {
		out[f] = m[f]
	}
	return out, nil
}
