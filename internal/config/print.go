package config

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
)

// Print writes every effective setting with its value and where it comes from, as a
// table for people. Secrets are masked; a setting without value shows "-".
func Print(w io.Writer, c *Config) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "SETTING\tVALUE\tFROM\n") // a failed write is kept for Flush
	for _, it := range c.items {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", it.Name, cell(it.Value), it.Source)
	}
	return tw.Flush()
}

// PrintJSON writes {"items":[…]}, one Item each in its JSON form.
func PrintJSON(w io.Writer, c *Config) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Items []Item `json:"items"`
	}{c.items})
}

// MarshalJSON gives name, type, value, source (default, file, environment, flag),
// source_name (null for a default), default, unit (null for none), env and secret.
// A value that is not there is null.
func (it Item) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name       string     `json:"name"`
		Value      any        `json:"value"`
		Source     SourceKind `json:"source"`
		SourceName *string    `json:"source_name"`
		Type       Type       `json:"type"`
		Unit       *string    `json:"unit"`
		Default    *string    `json:"default"`
		Env        string     `json:"env"`
		Secret     bool       `json:"secret"`
	}{
		it.Name, emptyToNil(it.Value), it.Source.Kind, nullable(it.Source.Name),
		it.Type, nullable(it.Unit), nullable(it.Default), it.Env(), it.Secret,
	})
}

func emptyToNil(v any) any {
	if v == "" {
		return nil
	}
	return v
}

func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func cell(v any) string {
	out := fmt.Sprint(v)
	if l, ok := v.([]string); ok {
		out = strings.Join(l, ",")
	}
	if out == "" {
		return "-"
	}
	if strings.ContainsFunc(out, unicode.IsControl) || out != strings.TrimSpace(out) || out == "-" {
		return strconv.Quote(out)
	}
	return out
}
