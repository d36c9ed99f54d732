//go:build !faultinject

package config

// injects reports whether a variable asks for a fault. This build has none.
func injects(string) bool { return false }
