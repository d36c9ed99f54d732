package openapi

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"tidewire/internal/testkit/openapitest"
)

func TestTheDocumentIsValid(t *testing.T) {
	t.Parallel()
	_, err := openapitest.Load(JSON())
	require.NoError(t, err)
}

func TestBothFormsSayTheSame(t *testing.T) {
	t.Parallel()
	var fromYAML any
	require.NoError(t, yaml.Unmarshal(YAML(), &fromYAML))
	reread, err := json.Marshal(fromYAML)
	require.NoError(t, err)
	require.JSONEq(t, string(JSON()), string(reread))
}
