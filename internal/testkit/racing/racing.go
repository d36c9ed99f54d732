// Package racing keeps tests from the race detector that it can find nothing in.
package racing

import "testing"

// SkipSequential skips a test under the race detector that does one thing after another, for
// long: the detector makes it ten times slower. Packages with such tests are run without the
// detector too (make unit).
func SkipSequential(tb testing.TB) {
	tb.Helper()
	if enabled {
		tb.Skip("it does one thing after another: run without the race detector")
	}
}
