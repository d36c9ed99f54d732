//go:build !linux

package bench

import "context"

func (s *sockets) follow(ctx context.Context) error { return s.followAlone(ctx) }

// Descriptors are for epoll.
func (x *socket) closeDescriptor() {}

func (x *socket) writeDescriptor([]byte) error { return errFrame }
