package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"tidewire/internal/model"
)

// Endpoints is the content of endpoints.json: how to reach the node that runs in a
// data folder from its own machine. It matters where a port was given as 0.
type Endpoints struct {
	HTTP      string         // base URL without a slash at the end, path prefix included
	Kafka     string         // host:port; "" when the port is not open
	Gossip    string         // host:port; "" when the port is not open
	Peer      string         // host:port; "" when the port is not open
	PID       int            // of the node's process
	NodeID    model.BrokerID // as given by --node-id
	Version   string         // of the binary
	StartedAt time.Time      // when the addresses were published
}

// endpointsFile is the form on disk: every field is present, null for a port that is
// not open, the time in RFC 3339, UTC, with milliseconds.
type endpointsFile struct {
	HTTP      *string        `json:"http"`
	Kafka     *string        `json:"kafka"`
	Gossip    *string        `json:"gossip"`
	Peer      *string        `json:"peer"`
	PID       int            `json:"pid"`
	NodeID    model.BrokerID `json:"node_id"`
	Version   string         `json:"version"`
	StartedAt string         `json:"started_at"`
}

const timeForm = "2006-01-02T15:04:05.000Z"

// Publish writes endpoints.json, in whole or not at all: a reader sees the old file
// or the new one. It is not synced, as it speaks of the living process only and the
// next Open removes it. Call it when the ports listen.
func (d *Dir) Publish(e Endpoints) error {
	b, err := json.MarshalIndent(endpointsFile{
		HTTP: nullable(e.HTTP), Kafka: nullable(e.Kafka), Gossip: nullable(e.Gossip), Peer: nullable(e.Peer),
		PID: e.PID, NodeID: e.NodeID, Version: e.Version, StartedAt: e.StartedAt.UTC().Format(timeForm),
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", EndpointsName, err)
	}
	path := filepath.Join(d.path, EndpointsName)
	if err := os.WriteFile(path+".tmp", append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", EndpointsName, err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("publish %s: %w", EndpointsName, err)
	}
	return nil
}

func (d *Dir) removeEndpoints() error {
	path := filepath.Join(d.path, EndpointsName)
	for _, p := range []string{path, path + ".tmp"} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", EndpointsName, err)
		}
	}
	return nil
}

// ReadEndpoints reads the endpoints.json of a data folder. The error wraps
// fs.ErrNotExist when no node runs there (or none has opened its ports). After
// kill -9 the file names a dead process until the next start.
func ReadEndpoints(dataDir string) (Endpoints, error) {
	b, err := os.ReadFile(filepath.Join(dataDir, EndpointsName))
	if err != nil {
		return Endpoints{}, err
	}
	var f endpointsFile
	if err := json.Unmarshal(b, &f); err != nil {
		return Endpoints{}, fmt.Errorf("%s: %w", EndpointsName, err)
	}
	at, err := time.Parse(timeForm, f.StartedAt)
	if err != nil {
		return Endpoints{}, fmt.Errorf("%s: started_at: %w", EndpointsName, err)
	}
	return Endpoints{
		HTTP: text(f.HTTP), Kafka: text(f.Kafka), Gossip: text(f.Gossip), Peer: text(f.Peer),
		PID: f.PID, NodeID: f.NodeID, Version: f.Version, StartedAt: at,
	}, nil
}

func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
