package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Login is what a login gave: the tokens of one user at a server.
type Login struct {
	Server       string    `json:"server"`
	Username     string    `json:"username"`
	AccessToken  string    `json:"access_token"`
	RefreshToken string    `json:"refresh_token"`
	IssuedAt     time.Time `json:"issued_at"`
	ExpiresAt    time.Time `json:"expires_at"` // of the access token
}

// fresh reports whether the access token can still be used: it is renewed when an
// eighth of its life, at most 30 s, is left.
func (l *Login) fresh(now time.Time) bool {
	margin := min(l.ExpiresAt.Sub(l.IssuedAt)/8, 30*time.Second)
	return l.AccessToken != "" && now.Add(margin).Before(l.ExpiresAt)
}

// Store keeps contexts in one file, readable by its owner only, in a folder of its
// own. Processes that share it are kept apart by a lock on a second file.
type Store struct{ dir string }

// NewStore returns the store in a folder, which is made when first written to.
func NewStore(dir string) *Store { return &Store{dir: dir} }

// DefaultStoreDir is the folder below the user's configuration directory.
func DefaultStoreDir() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("no place for logins: %w", err)
	}
	return filepath.Join(dir, "tidewire"), nil
}

// contents is the file's form.
type contents struct {
	Current  string    `json:"current"` // name of the context used when none is named
	Contexts []Context `json:"logins"`
}

func (s *Store) file() string { return filepath.Join(s.dir, "logins.json") }

func (s *Store) read() (*contents, error) {
	c := &contents{}
	b, err := os.ReadFile(s.file())
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, c); err != nil {
		return nil, fmt.Errorf("%s cannot be read; log in again after removing it: %w", s.file(), err)
	}
	c.nameAll()
	return c, nil
}

// write replaces the file at once: a reader sees the old or the new one, whole.
func (s *Store) write(c *contents) (err error) {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(s.dir, "logins-*.tmp") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), s.file())
}

// lockPoll is how often a held lock is tried again.
const lockPoll = 20 * time.Millisecond

// lock takes the lock between processes and returns what gives it back.
func (s *Store) lock(ctx context.Context) (func(), error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(s.dir, "logins.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // closing gives the lock back
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		}
	}
}

// update changes the file under the lock.
func (s *Store) update(ctx context.Context, change func(*contents) error) error {
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := s.read()
	if err != nil {
		return err
	}
	if err := change(c); err != nil {
		return err
	}
	return s.write(c)
}
