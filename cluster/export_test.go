package cluster

import (
	"tidewire/cluster/fsm"
	"tidewire/cluster/quorum"
)

// What the tests need of the packages behind the façade.
var (
	ReadIdentityForTest = func(dir string) (quorum.Identity, error) {
		id, _, err := quorum.LoadIdentity(dir)
		return id, err
	}
	WriteIdentityForTest = quorum.SaveIdentity
	ErrForeignLog        = quorum.ErrForeignLog
	ErrIdentity          = quorum.ErrIdentity
	ErrLogBehind         = fsm.ErrLogBehind
)

// Voters counts the voters that this node knows.
func (c *Cluster) Voters() int { return c.votes() }
