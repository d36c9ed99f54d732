package client

import "context"

// HoldLock runs do while it holds a store's lock, as another process would.
func HoldLock(ctx context.Context, s *Store, do func()) error {
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	do()
	return nil
}
