package client

import (
	"io"

	"tidewire/api/recordjson"
)

// Printer returns an emit function for Consume: "json" writes each record as it came
// and a line feed, "value" its value's bytes and a line feed, "raw" those bytes alone.
// It must not be used by two goroutines at once.
func Printer(w io.Writer, output string) func(raw []byte) error {
	if output == "json" {
		return func(raw []byte) error { return writeLine(w, raw) }
	}
	var req recordjson.Request
	return func(raw []byte) error {
		req.Reset()
		if err := req.DecodeRecord(raw); err != nil { // in place: raw is not used again
			return err
		}
		value := req.Records[0].Value
		if output == "value" {
			return writeLine(w, value)
		}
		_, err := w.Write(value)
		return err
	}
}

func writeLine(w io.Writer, line []byte) error {
	if _, err := w.Write(line); err != nil {
		return err
	}
	_, err := w.Write([]byte{'\n'})
	return err
}
