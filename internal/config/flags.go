package config

import (
	"strings"

	"github.com/spf13/pflag"
)

// AddFlags adds one flag per setting. The flags hold text: Load reads and checks
// it, so that parsing flags fails only for a flag that does not exist.
func AddFlags(fs *pflag.FlagSet) {
	for _, r := range table() {
		v := &rawFlag{setting: r.Setting}
		f := fs.VarPF(v, r.Name, "", usage(r.Setting))
		if r.Type == Bool {
			f.NoOptDefVal = "true"
		}
	}
}

func usage(s Setting) string {
	out := strings.ReplaceAll(s.Doc, "`", "")
	if s.Unit != "" {
		out += " (" + s.Unit + ")"
	}
	return out
}

// rawFlag keeps what was written, each time for a list, the last time otherwise.
type rawFlag struct {
	setting Setting
	given   []string
}

// String gives what was written, or the default. A secret's is not shown: pflag
// prints it in help texts.
func (f *rawFlag) String() string {
	switch {
	case len(f.given) == 0:
		return f.setting.Default
	case f.setting.Secret:
		return mask
	}
	return strings.Join(f.given, ",")
}

// Set takes any text.
func (f *rawFlag) Set(t string) error {
	if f.setting.Type != List {
		f.given = f.given[:0]
	}
	f.given = append(f.given, t)
	return nil
}

// Type is the word for the value in help texts.
func (f *rawFlag) Type() string { return string(f.setting.Type) }

// raw is the value for the row's read.
func (f *rawFlag) raw() any {
	if f.setting.Type == List {
		return append([]string(nil), f.given...)
	}
	return f.given[len(f.given)-1]
}
