package operations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/internal/sealed"
)

// File is where a registry is kept over restarts.
type File struct {
	FS     fsx.FS
	Name   string
	Logger *slog.Logger
}

const (
	magic = sealed.Magic("TWOPS\x01")
	// maxFile bounds what is read: the most that can be there is far below.
	maxFile   = 64 << 20
	saveEvery = time.Second
)

// stored is an operation in the file. The names are persisted.
type stored struct {
	ID        string         `json:"id"`
	Kind      Kind           `json:"kind"`
	Resource  Resource       `json:"resource"`
	Principal string         `json:"principal"`
	Broker    model.BrokerID `json:"broker"`
	State     State          `json:"state"`
	Done      int64          `json:"done"`
	Total     int64          `json:"total"`
	Unit      string         `json:"unit"`
	Code      model.Code     `json:"code,omitempty"`
	Detail    string         `json:"detail,omitempty"`
	CreatedMs int64          `json:"created_ms"`
	EndedMs   int64          `json:"ended_ms"` // 0: it ran when the file was written
	Changes   uint64         `json:"changes"`
}

// Load takes over what an earlier run of the node has left. What ran then has failed. A
// damaged file is dropped, with a line in the log.
func (r *Registry) Load(f File) {
	b, err := sealed.Read(f.FS, f.Name, magic, maxFile)
	var list []stored
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		f.Logger.Warn("the list of operations of earlier runs cannot be read and is dropped", "file", f.Name, "error", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range list {
		r.ended = append(r.ended, list[i].view(r.now()))
	}
	r.changed = true
	r.pruneLocked()
}

func (s *stored) view(now time.Time) View {
	v := View{
		ID: s.ID, Broker: s.Broker, State: s.State, Done: s.Done, Total: s.Total, Changes: s.Changes,
		Spec:      Spec{Kind: s.Kind, Resource: s.Resource, Principal: s.Principal, Total: s.Total, Unit: s.Unit},
		CreatedAt: time.UnixMilli(s.CreatedMs), EndedAt: time.UnixMilli(s.EndedMs),
	}
	switch {
	case s.State == Running:
		v.State, v.EndedAt, v.Changes = Failed, now, s.Changes+1
		v.Err = model.Errorf(model.CommitUnknown, "the node stopped before it ended: a part of it may be done")
	case s.Code != "":
		v.Err = model.Errorf(s.Code, "%s", s.Detail)
	}
	return v
}

func storedOf(v *View) stored {
	s := stored{
		ID: v.ID, Kind: v.Spec.Kind, Resource: v.Spec.Resource, Principal: v.Spec.Principal, Broker: v.Broker, State: v.State,
		Done: v.Done, Total: v.Total, Unit: v.Spec.Unit, CreatedMs: v.CreatedAt.UnixMilli(), Changes: v.Changes,
	}
	if v.State != Running {
		s.EndedMs = v.EndedAt.UnixMilli()
	}
	if v.Err != nil {
		s.Code, s.Detail = v.Err.Code, v.Err.Detail
	}
	return s
}

// Save writes the file where something has begun or ended since.
func (r *Registry) Save(f File) error {
	r.mu.Lock()
	changed := r.changed
	r.changed = false
	r.mu.Unlock()
	if !changed {
		return nil
	}
	list := []stored{}
	for _, v := range r.List() {
		list = append(list, storedOf(&v))
	}
	b, err := json.Marshal(list)
	if err == nil {
		err = sealed.Write(f.FS, f.Name, magic, b)
	}
	if err != nil {
		r.mu.Lock()
		r.changed = true
		r.mu.Unlock()
		return fmt.Errorf("the list of operations: %w", err)
	}
	return nil
}

// Run saves until ctx ends. What the disk refuses is tried again, and logged once.
func (r *Registry) Run(ctx context.Context, f File) {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		err := r.Save(f)
		if err != nil && !failing {
			f.Logger.Warn("the list of operations could not be written; it is tried again", "error", err)
		}
		failing = err != nil
	}
}
