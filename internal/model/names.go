package model

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of names, in bytes.
const (
	MaxTopicName = 249
	MaxName      = 255
)

// CheckTopicName returns what is wrong with a topic's name, or "" when it is
// legal: 1–249 of A–Z a–z 0–9 . _ -, and neither "." nor "..".
func CheckTopicName(s string) string {
	switch {
	case s == "":
		return "a topic name must not be empty"
	case len(s) > MaxTopicName:
		return fmt.Sprintf("a topic name has at most %d characters", MaxTopicName)
	case s == "." || s == "..":
		return `a topic must not be named "." or ".."`
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		if !ok {
			return "a topic name may hold only the characters A-Z a-z 0-9 . _ -"
		}
	}
	return ""
}

// TopicCollisionKey maps names that collide to one string: metric names make no
// difference between "." and "_", so two topics may not differ by these alone.
func TopicCollisionKey(s string) string { return strings.ReplaceAll(s, ".", "_") }

// CheckName returns what is wrong with the name of a user, a group or a
// transactional id, or "" when it is legal: 1–255 bytes of UTF-8 without control
// characters, and neither "." nor "..".
func CheckName(s string) string {
	switch {
	case s == "":
		return "must not be empty"
	case len(s) > MaxName:
		return fmt.Sprintf("has at most %d bytes", MaxName)
	case s == "." || s == "..":
		return `must not be "." or ".."`
	case !utf8.ValidString(s):
		return "must be valid UTF-8"
	}
	for _, r := range s {
		if r < 0x20 || r >= 0x7f && r <= 0x9f {
			return "must not hold control characters"
		}
	}
	return ""
}
