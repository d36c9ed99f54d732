package broker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/broker/quota"
)

// The quotas of users, of which package quota tells the rules. A call that stands for itself
// is refused with rate-limited before anything is applied or read; one that lasts is slowed:
// it does what it does and then waits until its delay is over. Bytes are those of keys,
// values and headers, of ready-made batches those of the batches.

// takeProduce counts bytes that a call is about to append, or refuses it.
func (b *Broker) takeProduce(c Caller, bytes int) error {
	if !b.quotas.On() {
		return nil
	}
	return b.quotas.Take(ownerOf(c), quota.Produce, bytes, b.now())
}

// countProduce counts a request that is about to be appended, or refuses it where it stands
// for itself.
func (b *Broker) countProduce(c Caller, req *ProduceRequest) error {
	n := 0
	for i := range req.Records {
		n += recordBytes(&req.Records[i])
	}
	if !req.Stream {
		return b.takeProduce(c, n)
	}
	b.chargeProduce(c, n)
	b.quotas.Charge(ownerOf(c), quota.Requests, 1, b.now())
	return nil
}

// chargeProduce counts bytes of a call that lasts.
func (b *Broker) chargeProduce(c Caller, bytes int) {
	if b.quotas.On() {
		b.quotas.Charge(ownerOf(c), quota.Produce, bytes, b.now())
	}
}

// allowFetch lets a call read, or refuses it.
func (b *Broker) allowFetch(c Caller) error {
	if !b.quotas.On() {
		return nil
	}
	return b.quotas.Allow(ownerOf(c), quota.Fetch, b.now())
}

// chargeFetch counts bytes that were given to a caller.
func (b *Broker) chargeFetch(c Caller, bytes int) {
	if b.quotas.On() {
		b.quotas.Charge(ownerOf(c), quota.Fetch, bytes, b.now())
	}
}

// AdoptQuotas has quotas that were changed through this node in force for the next call, which
// may come before the news of them.
func (b *Broker) AdoptQuotas() {
	if b.quotas != nil {
		b.quotas.Set(b.meta.Image())
	}
}

// Limited reports whether anybody has a quota.
func (b *Broker) Limited() bool { return b.quotas.On() }

// Admit counts a request of a user, or refuses it with rate-limited, and refuses one of a
// kind whose limit is used up already: what is refused anyway need not be read and looked at
// first.
func (b *Broker) Admit(user string, kind quota.Kind) error {
	now := b.now()
	if kind != quota.Requests {
		if err := b.quotas.Allow(user, kind, now); err != nil {
			return err
		}
	}
	return b.quotas.Take(user, quota.Requests, 1, now)
}

// delay is how long a call that lasts has to wait.
func (b *Broker) delay(c Caller, kind quota.Kind) time.Duration {
	if !b.quotas.On() {
		return 0
	}
	return b.quotas.Delay(ownerOf(c), kind, b.now())
}

// Delay is how long the stream has to wait before it reads more; 0: not at all. It is to be
// asked again after that time.
func (s *Stream) Delay() time.Duration { return s.b.delay(s.guard.caller, quota.Fetch) }

// FetchDelay is how long a stream of reads on a caller's behalf has to wait before the next
// one; 0: not at all. It is to be asked again after that time.
func (b *Broker) FetchDelay(c Caller) time.Duration { return b.delay(c, quota.Fetch) }

// Delay is how long the producer has to wait before it submits more; 0: not at all. It is to
// be asked again after that time.
func (p *Producer) Delay() time.Duration { return p.b.delay(p.guard.caller, quota.Produce) }

// ProduceDelay is how long a stream of produce requests, each of which has Stream set, has to
// wait before the next one; 0: not at all. Each counts as a request.
func (b *Broker) ProduceDelay(c Caller) time.Duration {
	return max(b.delay(c, quota.Produce), b.delay(c, quota.Requests))
}

// quotaCollector tells what quotas did. There is no label per user: their number has no
// bound.
type quotaCollector struct {
	limiter                  *quota.Limiter
	refused, slowed, buckets *prometheus.Desc
}

func newQuotaCollector(l *quota.Limiter) *quotaCollector {
	return &quotaCollector{
		limiter: l,
		refused: prometheus.NewDesc("tidewire_quota_refused_total", "Requests refused with 429 by a quota of their user.", []string{"quota"}, nil),
		slowed:  prometheus.NewDesc("tidewire_quota_slowed_total", "Times that a stream had to wait for a quota of its user.", []string{"quota"}, nil),
		buckets: prometheus.NewDesc("tidewire_quota_users", "Users whose use is counted against a quota now.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *quotaCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.refused
	out <- c.slowed
	out <- c.buckets
}

// Collect implements prometheus.Collector.
func (c *quotaCollector) Collect(out chan<- prometheus.Metric) {
	for _, k := range []quota.Kind{quota.Produce, quota.Fetch, quota.Requests} {
		out <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(c.limiter.Refused(k)), k.String())
		out <- prometheus.MustNewConstMetric(c.slowed, prometheus.CounterValue, float64(c.limiter.Slowed(k)), k.String())
	}
	out <- prometheus.MustNewConstMetric(c.buckets, prometheus.GaugeValue, float64(c.limiter.Buckets()))
}
