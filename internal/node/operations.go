package node

import (
	"context"
	"path/filepath"

	"tidewire/broker/operations"
	"tidewire/internal/fsx"
)

// openOperations reads the account of the node's long work and keeps it written.
func (n *Node) openOperations() *operations.Registry {
	account := operations.New(n.cfg.NodeID, n.now)
	file := operations.File{FS: fsx.OS(), Name: filepath.Join(n.dir.Path(), "operations"), Logger: n.logger}
	account.Load(file)
	n.onStop("the list of operations", func(context.Context) error {
		if err := account.Save(file); err != nil { // it is no reason for an unclean stop
			n.logger.Warn("what this run has done is not in the list of operations", "error", err)
		}
		return nil
	})
	n.group.Go("operations", func(ctx context.Context) { account.Run(ctx, file) })
	return account
}
