package quorum

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"tidewire/internal/model"
)

// Grant says to which node this one has granted the founding of a cluster; the zero value
// is nobody.
type Grant struct {
	Node      model.BrokerID
	StorageID string
}

const (
	grantFile = "grant"
	grantHead = "tidewire-grant 1"
)

// ErrGrant is returned for a grant file that does not read.
var ErrGrant = errors.New("the file grant of the metadata folder is damaged")

// GrantPath is where the grant of a metadata folder is.
func GrantPath(dir string) string { return filepath.Join(dir, grantFile) }

func (g Grant) encode() []byte {
	body := fmt.Sprintf("%s\nnode %d\nstorage-id %s\n", grantHead, g.Node, g.StorageID)
	return fmt.Appendf(nil, "%scrc32c %08x\n", body, crc32.Checksum([]byte(body), castagnoli))
}

func decodeGrant(b []byte) (Grant, error) {
	var g Grant
	if len(b) > maxIdentity {
		return g, ErrGrant
	}
	if _, err := fmt.Sscanf(string(b), grantHead+"\nnode %d\nstorage-id %s\n", &g.Node, &g.StorageID); err != nil {
		return Grant{}, fmt.Errorf("%w: %w", ErrGrant, err)
	}
	if !bytes.Equal(g.encode(), b) {
		return Grant{}, ErrGrant
	}
	return g, nil
}

// LoadGrant reads the grant of a metadata folder, the zero value where there is none.
func LoadGrant(dir string) (Grant, error) {
	b, err := os.ReadFile(GrantPath(dir))
	if errors.Is(err, os.ErrNotExist) {
		return Grant{}, nil
	}
	if err != nil {
		return Grant{}, err
	}
	return decodeGrant(b)
}

// SaveGrant writes it so that it survives a power cut, or the old one does.
func SaveGrant(dir string, g Grant) error { return replaceFile(dir, grantFile, g.encode()) }
