package checkpoint

import (
	"encoding/base64"
	"fmt"
	"strings"

	"tidewire/internal/model"
)

// MetadataFile is Kafka's partition.metadata: two lines, no newline at the end,
// the topic id in base64url without padding.
const (
	MetadataFile = "partition.metadata"
	// MaxMetadataFile is how large the file may be, in bytes.
	MaxMetadataFile = 4096
)

// EncodeMetadata gives the file of a topic id.
func EncodeMetadata(id model.TopicID) []byte {
	return fmt.Appendf(nil, "version: 0\ntopic_id: %s", base64.RawURLEncoding.EncodeToString(id[:]))
}

// DecodeMetadata reads the file.
func DecodeMetadata(b []byte) (model.TopicID, error) {
	var id model.TopicID
	v, rest, ok := strings.Cut(strings.TrimSuffix(string(b), "\n"), "\n")
	text, ok2 := strings.CutPrefix(rest, "topic_id: ")
	if !ok || !ok2 || v != "version: 0" {
		return id, fmt.Errorf("%s: not version 0", MetadataFile)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	// The decoder passes over newlines, hence the length of the text.
	if err != nil || len(raw) != len(id) || len(text) != base64.RawURLEncoding.EncodedLen(len(id)) {
		return id, fmt.Errorf("%s: bad topic id", MetadataFile)
	}
	copy(id[:], raw)
	return id, nil
}
