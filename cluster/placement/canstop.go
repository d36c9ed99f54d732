package placement

import (
	"fmt"
	"slices"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// CanStop tells why a broker had better not be stopped now; nothing: it can be. voters are the
// brokers that vote in the metadata quorum.
func CanStop(img *metadata.Image, id model.BrokerID, voters []model.BrokerID) []string {
	b := img.Broker(id)
	if b == nil || b.Fenced {
		return nil // it serves nothing
	}
	var alone, short findings
	for t := range img.Topics("") {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			left := slices.DeleteFunc(slices.Clone(p.ISR), func(x model.BrokerID) bool { return x == id })
			switch {
			case !slices.Contains(p.ISR, id) && p.Leader != id:
			case len(left) == 0:
				alone.note(t, i)
			case int64(len(left)) < t.Config.MinInsyncReplicas:
				short.note(t, i)
			}
		}
	}
	var out []string
	if alone.n > 0 {
		out = append(out, fmt.Sprintf("%s would have no leader: no other replica is in sync", &alone))
	}
	if short.n > 0 {
		out = append(out, fmt.Sprintf("%s would take no acks=all writes: fewer than min.insync.replicas would be in sync", &short))
	}
	if why := quorumWithout(img, id, voters); why != "" {
		out = append(out, why)
	}
	return out
}

// quorumWithout is why the metadata quorum cannot do without a voter.
func quorumWithout(img *metadata.Image, id model.BrokerID, voters []model.BrokerID) string {
	if !slices.Contains(voters, id) {
		return ""
	}
	live := 0
	for _, v := range voters {
		if b := img.Broker(v); b != nil && !b.Fenced && v != id {
			live++
		}
	}
	if 2*live > len(voters) {
		return ""
	}
	return fmt.Sprintf("the metadata quorum would lose its majority: %d of %d voters would be online", live, len(voters))
}

// findings are partitions that something is true of.
type findings struct {
	n     int
	first string
}

func (f *findings) note(t *metadata.Topic, partition int) {
	if f.n++; f.n == 1 {
		f.first = fmt.Sprintf("partition %d of %q", partition, t.Name)
	}
}

func (f *findings) String() string {
	if f.n == 1 {
		return f.first
	}
	return fmt.Sprintf("%s and %d others", f.first, f.n-1)
}
