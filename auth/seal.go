package auth

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// SecretKeyName is the file in the node's meta folder that holds the sealing
// secret of a node without a cluster key.
const SecretKeyName = "secret.key"

// secretBytes is the length of a cluster key and of secret.key.
const secretBytes = 32

// The sealed form, version 1:
//
//	byte 0      version (1)
//	bytes 1–8   key id: which secret it was sealed under
//	bytes 9–20  nonce, random
//	rest        AES-256-GCM ciphertext and 16-byte tag
//
// with associated data "tidewire-seal" ‖ version ‖ key id ‖ purpose.
const (
	sealVersion = 1
	sealKeyID   = 8
	sealHeader  = 1 + sealKeyID
)

// Errors of opening a sealed value.
var (
	// ErrSealedForm says the bytes are not a sealed value of a known version.
	ErrSealedForm = errors.New("the sealed value is damaged or of a newer version")
	// ErrSealedKey says the value was sealed under another cluster key or secret.key.
	ErrSealedKey = errors.New("the value was sealed under another key (is the cluster key or meta/secret.key the one it was made with?)")
	// ErrSealedAuth says the value was changed, or belongs to another purpose.
	ErrSealedAuth = errors.New("the sealed value does not authenticate")
	// ErrSecretKey says that meta/secret.key cannot be used as it is.
	ErrSecretKey = errors.New("the sealing secret is not usable")
)

// Sealer encrypts what the metadata holds and its readers on disk must not see:
// signing private keys and SCRAM verifiers. It is safe for concurrent use.
type Sealer struct {
	aead  cipher.AEAD
	keyID [sealKeyID]byte
}

// NewSealer derives a sealer by HKDF-SHA256 (RFC 5869) from a secret of 32 bytes:
// the cluster key, or the contents of meta/secret.key.
func NewSealer(secret []byte) (*Sealer, error) {
	if len(secret) != secretBytes {
		return nil, fmt.Errorf("%w: it has %d bytes instead of %d", ErrSecretKey, len(secret), secretBytes)
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "tidewire sealing key v1", 32)
	if err != nil {
		return nil, err
	}
	id, err := hkdf.Key(sha256.New, secret, nil, "tidewire sealing key id v1", sealKeyID)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &Sealer{aead: aead, keyID: [sealKeyID]byte(id)}, nil
}

// Seal encrypts plain for a purpose, which Open must repeat. Every call gives
// other bytes.
func (s *Sealer) Seal(purpose string, plain []byte) []byte {
	out := make([]byte, sealHeader, sealHeader+len(plain)+s.aead.Overhead())
	out[0] = sealVersion
	copy(out[1:], s.keyID[:])
	return s.aead.Seal(out, nil, plain, sealAAD(out[:sealHeader], purpose))
}

// Open decrypts what Seal made for the same purpose under the same secret.
func (s *Sealer) Open(purpose string, sealed []byte) ([]byte, error) {
	if len(sealed) < sealHeader+s.aead.Overhead() || sealed[0] != sealVersion {
		return nil, ErrSealedForm
	}
	if !bytes.Equal(sealed[1:sealHeader], s.keyID[:]) {
		return nil, ErrSealedKey
	}
	plain, err := s.aead.Open(nil, nil, sealed[sealHeader:], sealAAD(sealed[:sealHeader], purpose))
	if err != nil {
		return nil, ErrSealedAuth
	}
	return plain, nil
}

func sealAAD(header []byte, purpose string) []byte {
	aad := append([]byte("tidewire-seal"), header...)
	return append(aad, purpose...)
}

// LoadSecret returns the 32 bytes of secret.key in the meta folder; the first call
// creates the file with random bytes and mode 0600, synced with its folder before
// it is used. A file that others may read, or of another length, is an error that
// wraps ErrSecretKey and says what to do. The caller holds the data folder's lock.
func LoadSecret(metaDir string) ([]byte, error) {
	path := filepath.Join(metaDir, SecretKeyName)
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return createSecret(metaDir, path)
	}
	if err != nil {
		return nil, err
	}
	switch perm := info.Mode().Perm(); {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrSecretKey, path)
	case perm&0o077 != 0:
		return nil, fmt.Errorf("%w: %s has mode %04o and others can read it; set it to 0600", ErrSecretKey, path, perm)
	case info.Size() != secretBytes:
		return nil, fmt.Errorf("%w: %s has %d bytes instead of %d; restore it from a backup", ErrSecretKey, path, info.Size(), secretBytes)
	}
	secret, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(secret) != secretBytes {
		return nil, fmt.Errorf("%w: %s changed while it was read", ErrSecretKey, path)
	}
	return secret, nil
}

// createSecret writes the file beside its place, syncs it, moves it into place
// and syncs the folder: a crash leaves all of it or nothing.
func createSecret(dir, path string) ([]byte, error) {
	secret := randomBytes(secretBytes)
	f, err := os.CreateTemp(dir, SecretKeyName+".tmp-*") // mode 0600
	if err != nil {
		return nil, err
	}
	_, err = f.Write(secret)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()))
	}
	return secret, syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
