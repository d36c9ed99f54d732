package audit

import (
	"reflect"
	"slices"
	"strings"

	"tidewire/cluster/metadata"
)

// Changes tells which fields of a resource differ between two images. One that came to be
// has no before, one that is gone no after. It looks at fields that are no secret, and costs
// nothing where the images are the same.
func Changes(old, next *metadata.Image, r Resource) (before, after map[string]any) {
	if old == next || r.Name == "" && r.Type != "cluster" {
		return nil, nil
	}
	before, after = describe(old, r), describe(next, r)
	if before == nil || after == nil {
		return before, after
	}
	for k, v := range before {
		if w, has := after[k]; has && reflect.DeepEqual(v, w) {
			delete(before, k)
			delete(after, k)
		}
	}
	if len(before) == 0 && len(after) == 0 {
		return nil, nil
	}
	return before, after
}

// describe gives what may be told of a resource; nil where it is not there.
func describe(img *metadata.Image, r Resource) map[string]any {
	switch r.Type {
	case "topic":
		return describeTopic(img.Topic(r.Name))
	case "user":
		if u := img.User(r.Name); u != nil {
			return map[string]any{"admin": u.Admin, "disabled": u.Disabled}
		}
	case "quota":
		return describeQuota(img.Quota(r.Name))
	case "session":
		if s := img.Session(r.Name); s != nil {
			return map[string]any{"user": s.User, "revoked": s.Revoked}
		}
	case "token":
		return describeToken(img.APIToken(r.Name))
	case "cluster":
		out := map[string]any{}
		for k, v := range img.Cluster().Config {
			out[configKey(k)] = v
		}
		return out
	}
	return nil
}

func configKey(name string) string { return "config." + name }

func describeTopic(t *metadata.Topic) map[string]any {
	if t == nil {
		return nil
	}
	out := map[string]any{"id": t.ID.String(), "partitions": len(t.Partitions), "replication_factor": t.ReplicationFactor()}
	for k, v := range t.Overrides {
		out[configKey(k)] = v
	}
	return out
}

func describeQuota(q *metadata.Quota) map[string]any {
	if q == nil {
		return nil
	}
	out := map[string]any{}
	for name, limit := range map[string]*int64{
		"produce_bytes_per_s": q.ProduceBytesPerS, "fetch_bytes_per_s": q.FetchBytesPerS, "requests_per_s": q.RequestsPerS,
	} {
		if limit != nil {
			out[name] = *limit
		}
	}
	return out
}

func describeToken(k *metadata.APIToken) map[string]any {
	if k == nil {
		return nil
	}
	out := map[string]any{"user": k.User, "name": k.Name}
	if k.ExpiresAt != 0 {
		out["expires_at"] = k.ExpiresAt.Time().Format(timeForm)
	}
	if k.Scopes != nil {
		scopes := make([]string, 0, len(k.Scopes))
		for _, s := range k.Scopes {
			scopes = append(scopes, strings.Join([]string{string(s.Operation), string(s.ResourceType), s.ResourceName, string(s.Pattern)}, " "))
		}
		slices.Sort(scopes)
		out["scopes"] = scopes
	}
	return out
}
