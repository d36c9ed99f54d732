package clienttest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"tidewire/api/recordjson"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// BreakStreams has each of the next streams end in its way.
func (s *Server) BreakStreams(breaks ...Break) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaks = breaks
}

// follow streams a topic as NDJSON, partition by partition as records come; without
// follow=true it ends at what is there. Its cursors are the partitions' next offsets. Of
// what narrows a read it knows q, in values, and key.
func (s *Server) follow(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.mu.Lock()
	parts, ok := s.topicLocked(w, r)
	if !ok {
		s.mu.Unlock()
		return
	}
	var end *Break
	if len(s.breaks) > 0 {
		end, s.breaks = &s.breaks[0], s.breaks[1:]
	}
	next := make([]int, len(parts))
	for p, word := range strings.Split(q.Get("cursor"), ".") {
		if q.Get("cursor") == "" {
			break
		}
		next[p], _ = strconv.Atoi(word)
	}
	if q.Get("from") == "latest" {
		for p := range parts {
			next[p] = len(parts[p])
		}
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-ndjson")
	_, _ = fmt.Fprintf(w, "{\"progress\":{\"cursor\":\"%s\"}}\n", cursorOf(next))
	f := &followed{s: s, w: w, r: r, topic: r.PathValue("topic"), next: next, end: end}
	if only := q.Get("partitions"); only != "" {
		f.only = strings.Split(only, ",")
	}
	for f.more() {
		if q.Get("follow") != "true" {
			_, _ = fmt.Fprintf(w, "{\"end\":{\"reason\":\"latest\",\"cursor\":\"%s\"}}\n", cursorOf(f.next))
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-f.changed:
		case <-s.stopping:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func cursorOf(next []int) string {
	words := make([]string, len(next))
	for i, n := range next {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ".")
}

// followed is one stream.
type followed struct {
	s       *Server
	w       http.ResponseWriter
	r       *http.Request
	topic   string
	only    []string
	next    []int
	given   int
	end     *Break
	changed chan struct{}
}

// more writes what there is; false: the stream has ended.
func (f *followed) more() bool {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.changed = f.s.changed
	for p, log := range f.s.topics[f.topic] {
		if f.only != nil && !slices.Contains(f.only, strconv.Itoa(p)) {
			continue
		}
		for ; f.next[p] < len(log); f.next[p]++ {
			if !f.fits(&log[f.next[p]]) {
				continue
			}
			line := recordjson.AppendRecordLine(nil, &recordjson.Meta{Topic: f.topic, Partition: model.PartitionID(p)}, &log[f.next[p]], recordjson.Encodings{})
			if f.end != nil && f.given == f.end.Records {
				f.stop(line)
				return false
			}
			_, _ = f.w.Write(line)
			f.given++
		}
	}
	return true
}

func (f *followed) fits(r *record.Record) bool {
	q := f.r.URL.Query()
	return strings.Contains(string(r.Value), q.Get("q")) && (q.Get("key") == "" || q.Get("key") == string(r.Key))
}

// stop ends the stream as its Break says; line is what would come next.
func (f *followed) stop(line []byte) {
	if f.end.Line != "" {
		_, _ = fmt.Fprintln(f.w, strings.ReplaceAll(f.end.Line, "CURSOR", cursorOf(f.next)))
		return
	}
	_, _ = f.w.Write(line[:len(line)/2])
	f.w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}
