// Package config holds the settings of a node: one table (Settings) from which the
// flags, the TIDEWIRE_… environment variables, the keys of the YAML file and the
// documentation derive.
//
// Load merges the layers with koanf; flags win over the environment, the
// environment over the file, the file over the defaults. Every value is read and
// checked by its row of the table, whatever layer it comes from, so a bad value has
// the same error line everywhere; rules that join several settings follow. The
// result is a plain struct: nothing else in the project reads flags or environment
// for these settings.
//
// Callers: `tidewire serve` and `tidewire config`. The package has no state, starts
// no goroutine, and reads only the files named by --config and --cluster-key-file.
//
// Decisions: flags hold raw text (not pflag's typed values) so that parsing sits in
// one place and an error names setting and source; an empty environment variable
// counts as not set, since compose files and unit files produce them; a YAML value
// must have the setting's own type (a rack written 007 would otherwise come out as
// 7); variables that Kubernetes injects for a service named tidewire are not ours
// and are passed over.
package config
