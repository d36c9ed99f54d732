package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
	yamlv3 "go.yaml.in/yaml/v3"
)

// delim splits nested keys for koanf. No setting is nested.
const delim = "."

// Load returns the effective settings from the flags that AddFlags made (nil for
// none), the environment in the form of os.Environ, and the YAML file that one of
// the two names. What is wrong is an *Error of one line, about the first fault.
func Load(flags *pflag.FlagSet, environ []string) (*Config, error) {
	rows := table()
	fromFlags, err := flagLayer(flags, rows)
	if err != nil {
		return nil, err
	}
	fromEnv, err := environmentLayer(environ, rows)
	if err != nil {
		return nil, err
	}
	strongest := []layer{fromFlags, fromEnv}
	path, given, err := filePath(strongest)
	if err != nil {
		return nil, err
	}
	if path != "" {
		fromFile, err := fileLayer(path, given, rows)
		if err != nil {
			return nil, err
		}
		strongest = append(strongest, fromFile)
	}
	c, err := merge(rows, strongest)
	if err != nil {
		return nil, err
	}
	c.AdminPassword = NewSecret(lookup(environ, AdminPasswordVariable))
	return c, c.check()
}

// layer is what one source gives: a koanf instance and how it names a setting.
type layer struct {
	k    *koanf.Koanf
	kind SourceKind
	path string // of the file
}

func (l layer) source(s Setting) Source {
	switch l.kind {
	case FromFlag:
		return Source{FromFlag, s.Flag()}
	case FromEnvironment:
		return Source{FromEnvironment, s.Env()}
	}
	return Source{l.kind, l.path}
}

func flagLayer(flags *pflag.FlagSet, rows []row) (layer, error) {
	l := layer{k: koanf.New(delim), kind: FromFlag}
	if flags == nil {
		return l, nil
	}
	ours := names(rows, func(s Setting) string { return s.Name })
	provider := posflag.ProviderWithFlag(flags, delim, nil, func(f *pflag.Flag) (string, any) {
		v, ok := f.Value.(*rawFlag)
		if _, known := ours[f.Name]; !ok || !known || !f.Changed {
			return "", nil
		}
		return f.Name, v.raw()
	})
	if err := l.k.Load(provider, nil); err != nil {
		return l, fmt.Errorf("flags: %w", err)
	}
	return l, nil
}

// environmentLayer refuses variables with our prefix that mean nothing to us. An
// empty variable counts as not set.
func environmentLayer(environ []string, rows []row) (layer, error) {
	l := layer{k: koanf.New(delim), kind: FromEnvironment}
	ours := names(rows, Setting.Env)
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if _, known := ours[name]; known || !strings.HasPrefix(name, envPrefix) || foreign(name, value) {
			continue
		}
		return l, &Error{name, Source{FromEnvironment, name}, "there is no such setting" + didYouMean(name, ours)}
	}
	provider := env.Provider(delim, env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			if value == "" {
				return "", nil
			}
			return ours[name].Name, value // "" for a variable of others: passed over
		},
	})
	if err := l.k.Load(provider, nil); err != nil {
		return l, fmt.Errorf("environment: %w", err)
	}
	return l, nil
}

// filePath tells which file to read and who named it.
func filePath(strongest []layer) (string, Source, error) {
	for _, l := range strongest {
		if l.k.Exists(configSetting) {
			at := l.source(Setting{Name: configSetting})
			path, err := asText(l.k.Get(configSetting))
			if err != nil {
				return "", at, &Error{configSetting, at, err.Error()}
			}
			return path, at, nil
		}
	}
	return "", Source{}, nil
}

func fileLayer(path string, given Source, rows []row) (layer, error) {
	l := layer{k: koanf.New(delim), kind: FromFile, path: path}
	if err := l.k.Load(file.Provider(path), oneDocument{yaml.Parser()}); err != nil {
		var pathError *os.PathError
		if errors.As(err, &pathError) {
			return l, &Error{configSetting, given, err.Error()}
		}
		return l, &Error{configSetting, given, path + " is not a YAML file of settings: " + err.Error()}
	}
	known := names(rows, func(s Setting) string { return s.Name })
	keys := make([]string, 0, len(known))
	for k := range l.k.Raw() {
		keys = append(keys, k)
	}
	sort.Strings(keys) // so that the same file always gives the same line
	for _, k := range keys {
		if _, ok := known[k]; !ok {
			return l, &Error{k, Source{FromFile, path}, "there is no such setting" + didYouMean(k, known)}
		}
		if k == configSetting {
			return l, &Error{k, Source{FromFile, path}, "cannot be set in the config file itself"}
		}
	}
	return l, nil
}

// oneDocument refuses what the parser would pass over in silence, a second document,
// and what it would explain in Go's types, a top level that is no mapping.
type oneDocument struct{ *yaml.YAML }

var (
	errDocuments = errors.New("it has more than one document")
	errTopLevel  = errors.New("its top level is not a mapping of keys to values")
)

// Unmarshal parses the one document; an empty one has no settings.
func (p oneDocument) Unmarshal(b []byte) (map[string]any, error) {
	d := yamlv3.NewDecoder(bytes.NewReader(b))
	var first, second yamlv3.Node
	if err := d.Decode(&first); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := d.Decode(&second); err == nil {
		return nil, errDocuments
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	root := first.Content[0]
	if root.Kind != yamlv3.MappingNode && root.Tag != "!!null" {
		return nil, errTopLevel
	}
	return p.YAML.Unmarshal(b)
}

// merge lays the layers over the defaults and reads every setting by its row.
func merge(rows []row, strongest []layer) (*Config, error) {
	merged := koanf.New(delim)
	for _, r := range rows {
		if err := merged.Set(r.Name, r.Default); err != nil {
			return nil, fmt.Errorf("default of %s: %w", r.Name, err)
		}
	}
	for i := len(strongest) - 1; i >= 0; i-- {
		if err := merged.Merge(strongest[i].k); err != nil {
			return nil, fmt.Errorf("merge settings: %w", err)
		}
	}
	c := &Config{}
	for _, r := range rows {
		at := Source{Kind: FromDefault}
		for i := len(strongest) - 1; i >= 0; i-- {
			if _, ok := strongest[i].k.Raw()[r.Name]; ok {
				at = strongest[i].source(r.Setting)
			}
		}
		v, err := r.read(merged.Raw()[r.Name])
		if err != nil {
			return nil, &Error{spelt(r.Setting, at), at, err.Error()}
		}
		r.store(c, v)
		c.items = append(c.items, Item{Setting: r.Setting, Value: r.show(v), Source: at})
	}
	return c, nil
}

// spelt is the setting's name as its source writes it.
func spelt(s Setting, at Source) string {
	if at.Kind == FromEnvironment {
		return s.Env()
	}
	return s.Name
}

func names(rows []row, by func(Setting) string) map[string]Setting {
	out := make(map[string]Setting, len(rows))
	for _, r := range rows {
		out[by(r.Setting)] = r.Setting
	}
	return out
}

func lookup(environ []string, name string) string {
	value := ""
	for _, entry := range environ {
		if n, v, ok := strings.Cut(entry, "="); ok && n == name {
			value = v
		}
	}
	return value
}
