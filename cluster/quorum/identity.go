package quorum

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
)

// Identity says whose data folder this is. StorageID is random, made once per folder,
// and is the raft server id; ClusterID is empty until the node belongs to a cluster.
type Identity struct {
	StorageID string
	ClusterID string
}

// identityFile is the name within the metadata folder. Its four lines are persisted.
const identityFile = "identity"

const identityHead = "tidewire-identity 1"

// maxIdentity bounds what is read of the file.
const maxIdentity = 4096

// ErrIdentity is returned for an identity file that does not read.
var ErrIdentity = errors.New("the file identity of the metadata folder is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (id Identity) encode() []byte {
	body := fmt.Sprintf("%s\nstorage-id %s\ncluster-id %s\n", identityHead, id.StorageID, id.ClusterID)
	return fmt.Appendf(nil, "%scrc32c %08x\n", body, crc32.Checksum([]byte(body), castagnoli))
}

// decodeIdentity reads what encode wrote, and nothing else.
func decodeIdentity(b []byte) (Identity, error) {
	lines := strings.Split(string(b), "\n")
	if len(b) > maxIdentity || len(lines) != 5 {
		return Identity{}, ErrIdentity
	}
	storage, ok1 := strings.CutPrefix(lines[1], "storage-id ")
	cluster, ok2 := strings.CutPrefix(lines[2], "cluster-id ")
	id := Identity{StorageID: storage, ClusterID: cluster}
	if !ok1 || !ok2 || storage == "" || !bytes.Equal(id.encode(), b) {
		return Identity{}, ErrIdentity
	}
	return id, nil
}

// LoadIdentity reads the identity of a metadata folder; found is false when there is
// none.
func LoadIdentity(dir string) (id Identity, found bool, err error) {
	b, err := os.ReadFile(filepath.Join(dir, identityFile))
	if errors.Is(err, os.ErrNotExist) {
		return Identity{}, false, nil
	}
	if err != nil {
		return Identity{}, false, err
	}
	id, err = decodeIdentity(b)
	return id, err == nil, err
}

// SaveIdentity writes the identity so that after a crash either the old or the new one
// is there, whole.
func SaveIdentity(dir string, id Identity) error { return replaceFile(dir, identityFile, id.encode()) }

// replaceFile writes a small file anew; after a crash either the old or the new one is
// there, whole.
func replaceFile(dir, name string, content []byte) (err error) {
	tmp, err := os.CreateTemp(dir, name+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	_, err = tmp.Write(content)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), filepath.Join(dir, name)); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// registeredFile is there once the node was registered as a broker of its cluster. It is empty.
const registeredFile = "registered"

// SaveRegistered notes that the node was registered, over a power cut.
func SaveRegistered(dir string) error { return replaceFile(dir, registeredFile, nil) }

// LoadRegistered tells whether the node was ever registered.
func LoadRegistered(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, registeredFile))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
