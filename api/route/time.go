package route

import (
	"time"

	"tidewire/cluster/metadata"
)

// Time is a point in time as answers give it: RFC 3339, UTC, milliseconds.
type Time string

// TimeOf gives a time in that form.
func TimeOf(t time.Time) Time { return Time(t.UTC().Format("2006-01-02T15:04:05.000Z")) }

// TimeOfMillis gives a stored time in that form, nil for the one that was never set.
func TimeOfMillis(m metadata.Millis) *Time {
	if m == 0 {
		return nil
	}
	t := TimeOf(m.Time())
	return &t
}
