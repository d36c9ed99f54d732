//go:build faultinject

package config

// ClockOffsetVariable names a file with a duration, such as "-1h", by which the node's wall clock
// is off. Only a binary with the build tag faultinject, which is for tests, knows it.
const ClockOffsetVariable = "TIDEWIRE_FAULT_CLOCK_OFFSET_FILE"

// injects reports whether a variable asks for a fault.
func injects(name string) bool { return name == ClockOffsetVariable }
