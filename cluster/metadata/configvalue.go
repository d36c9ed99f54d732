package metadata

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"tidewire/internal/model"
)

// ConfigText turns a config value as it may stand in JSON (string, number, boolean)
// into the text that commands carry. Numbers may be json.Number or float64. ok is false
// for anything else.
func ConfigText(v any) (text string, ok bool) {
	switch x := v.(type) {
	case string:
		return x, true
	case json.Number:
		return x.String(), true
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64), true
	case bool:
		return strconv.FormatBool(x), true
	}
	return "", false
}

// DefaultAt is the default for a topic of that replication factor; of the cluster's default
// replication factor it is that factor itself, which the number of nodes decides.
func (d *ConfigDef) DefaultAt(replicationFactor int) string {
	switch {
	case !d.DefaultVaries:
		return d.Default
	case d.Name == defaultReplicationFactor:
		return strconv.Itoa(replicationFactor)
	}
	return strconv.Itoa(defaultMinInsync(replicationFactor))
}

// defaultMinInsync is a majority of three or more replicas, else 1.
func defaultMinInsync(rf int) int {
	if rf >= 3 {
		return rf/2 + 1
	}
	return 1
}

// Normalise checks a value and gives its one canonical text: numbers in decimal,
// booleans in lower case, lists without blanks or repetition. problem is what is wrong
// with the value, or "".
func (d *ConfigDef) Normalise(value string) (text, problem string) {
	value = strings.TrimSpace(value)
	switch d.Type {
	case TypeBoolean:
		return d.normaliseBool(value)
	case TypeInt, TypeLong:
		return d.normaliseInt(value)
	case TypeDouble:
		return d.normaliseDouble(value)
	case TypeList:
		return d.normaliseList(value)
	}
	if d.Allowed != nil && !slices.Contains(d.Allowed, value) {
		return "", fmt.Sprintf("%s must be one of %s", d.Name, strings.Join(d.Allowed, ", "))
	}
	return value, ""
}

func (d *ConfigDef) normaliseBool(v string) (string, string) {
	if v = strings.ToLower(v); v != "true" && v != "false" {
		return "", d.Name + " must be true or false"
	}
	return v, ""
}

func (d *ConfigDef) normaliseInt(v string) (string, string) {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		// JSON writers may give a whole number as 1e6 or 5.0.
		f, ferr := strconv.ParseFloat(v, 64)
		if ferr != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<53 {
			return "", d.Name + " must be a whole number"
		}
		n = int64(f)
	}
	if p := d.checkBounds(float64(n)); p != "" {
		return "", p
	}
	return strconv.FormatInt(n, 10), ""
}

func (d *ConfigDef) normaliseDouble(v string) (string, string) {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return "", d.Name + " must be a number"
	}
	if p := d.checkBounds(f); p != "" {
		return "", p
	}
	return strconv.FormatFloat(f, 'f', -1, 64), ""
}

func (d *ConfigDef) normaliseList(v string) (string, string) {
	var items []string
	for item := range strings.SplitSeq(v, ",") {
		item = strings.TrimSpace(item)
		if item == "" && v == "" && d.Allowed == nil {
			continue
		}
		if d.Allowed != nil && !slices.Contains(d.Allowed, item) {
			return "", fmt.Sprintf("%s must be a list of %s", d.Name, strings.Join(d.Allowed, ", "))
		}
		if !slices.Contains(items, item) {
			items = append(items, item)
		}
	}
	return strings.Join(items, ","), ""
}

func (d *ConfigDef) checkBounds(v float64) string {
	if d.Min != nil && v < *d.Min {
		return fmt.Sprintf("%s must be at least %s", d.Name, trimFloat(*d.Min))
	}
	if d.Max != nil && v > *d.Max {
		return fmt.Sprintf("%s must be at most %s", d.Name, trimFloat(*d.Max))
	}
	return ""
}

func trimFloat(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// setField parses a normalised value into the field of a struct of settings.
func setField(field any, v string) error {
	var err error
	switch f := field.(type) {
	case *string:
		*f = v
	case *bool:
		*f, err = strconv.ParseBool(v)
	case *int64:
		*f, err = strconv.ParseInt(v, 10, 64)
	case *float64:
		*f, err = strconv.ParseFloat(v, 64)
	case *CleanupPolicy:
		items := strings.Split(v, ",")
		*f = CleanupPolicy{Delete: slices.Contains(items, "delete"), Compact: slices.Contains(items, "compact")}
	}
	return err
}

// Effective parses the settings in force: a topic's overrides, else the cluster's, else
// the defaults for the replication factor. A min.insync.replicas of the cluster's above
// the replication factor counts as the replication factor. Values must be normalised.
func Effective(overrides, clusterConfig map[string]string, replicationFactor int) (*TopicConfig, error) {
	c := &TopicConfig{}
	for i := range topicConfigDefs {
		d := &topicConfigDefs[i]
		v, ok := overrides[d.Name]
		if !ok {
			if v, ok = clusterConfig[d.Name]; !ok {
				v = d.DefaultAt(replicationFactor)
			}
		}
		if err := setField(d.field(c), v); err != nil {
			return nil, fmt.Errorf("config %s: %w", d.Name, err)
		}
	}
	if _, own := overrides[minInsync]; !own {
		c.MinInsyncReplicas = min(c.MinInsyncReplicas, int64(max(replicationFactor, 1)))
	}
	return c, nil
}

const minInsync = "min.insync.replicas"

// CheckTopicConfig normalises the settings of a topic of that replication factor. The
// refusal is an invalid-argument with a pointer, under prefix, for each wrong key.
// version is the cluster's metadata version; a key it does not know yet is unknown.
func CheckTopicConfig(prefix string, values map[string]string, replicationFactor int, version MetadataVersion) (map[string]string, *model.Error) {
	return checkConfig(prefix, values, func(name, value string) (text, problem string) {
		text, problem = normaliseKey(name, value, version)
		if problem == "" && name == minInsync {
			problem = checkMinInsync(text, replicationFactor)
		}
		return text, problem
	})
}

// checkConfig normalises values, each by itself, and collects what is wrong with them.
func checkConfig(prefix string, values map[string]string, normalise func(name, value string) (text, problem string)) (map[string]string, *model.Error) {
	out := make(map[string]string, len(values))
	var fields []model.FieldError
	for _, name := range sortedKeys(values) {
		text, problem := normalise(name, values[name])
		if problem != "" {
			fields = append(fields, model.FieldError{Pointer: prefix + "/" + pointerToken(name), Detail: problem})
			continue
		}
		out[name] = text
	}
	if fields != nil {
		return nil, &model.Error{Code: model.InvalidArgument, Detail: fields[0].Detail, Fields: fields}
	}
	return out, nil
}

// checkMinInsync says what is wrong with a normalised min.insync.replicas.
func checkMinInsync(text string, replicationFactor int) string {
	n, err := strconv.Atoi(text)
	if err == nil && n > replicationFactor {
		return fmt.Sprintf("%s must not be above the replication factor %d", minInsync, replicationFactor)
	}
	return ""
}

func normaliseKey(name, value string, version MetadataVersion) (text, problem string) {
	d, ok := TopicConfigDef(name)
	if !ok || d.Since > version {
		return "", fmt.Sprintf("there is no topic config %q", name)
	}
	return d.Normalise(value)
}

// pointerToken escapes a key for a JSON Pointer (RFC 6901 §3).
func pointerToken(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
