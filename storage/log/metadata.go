package log

import (
	"encoding/base64"
	"fmt"
	"path"
	"strings"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
)

// metadataFile is Kafka's partition.metadata: two lines, no newline at the end,
// the topic id in base64url without padding.
const (
	metadataFile    = "partition.metadata"
	maxMetadataFile = 4096
)

func encodeMetadata(id model.TopicID) []byte {
	return fmt.Appendf(nil, "version: 0\ntopic_id: %s", base64.RawURLEncoding.EncodeToString(id[:]))
}

func decodeMetadata(b []byte) (model.TopicID, error) {
	var id model.TopicID
	v, rest, ok := strings.Cut(strings.TrimSuffix(string(b), "\n"), "\n")
	text, ok2 := strings.CutPrefix(rest, "topic_id: ")
	if !ok || !ok2 || v != "version: 0" {
		return id, fmt.Errorf("%s: not version 0", metadataFile)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	// The decoder passes over newlines, hence the length of the text.
	if err != nil || len(raw) != len(id) || len(text) != base64.RawURLEncoding.EncodedLen(len(id)) {
		return id, fmt.Errorf("%s: bad topic id", metadataFile)
	}
	copy(id[:], raw)
	return id, nil
}

// topicIDOf reads the topic id of a folder that is not open.
func (s *Store) topicIDOf(folder string) (model.TopicID, error) {
	b, err := fsx.ReadFile(s.fs, path.Join(s.path(topicsDir), folder, metadataFile), maxMetadataFile)
	if err != nil {
		return model.TopicID{}, err
	}
	return decodeMetadata(b)
}
