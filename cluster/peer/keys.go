package peer

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// KeyBytes is the length of a cluster key.
const KeyBytes = 32

// Names under which keys are derived from the cluster key (HKDF-SHA256, RFC 5869). Nodes
// with different names would not understand each other.
const (
	authorityInfo = "tidewire peer authority v1"
	gossipInfo    = "tidewire gossip key v1"
)

// ErrKeySize is returned for a cluster key of another length.
var ErrKeySize = errors.New("a cluster key has 32 bytes")

// Keys is what follows from a cluster key.
type Keys struct {
	authority *x509.Certificate
	signer    ed25519.PrivateKey
	pool      *x509.CertPool
	gossip    []byte
}

// The certificates' validity says nothing about trust, which is in the key: a clock that is
// far off must not keep a node from its cluster.
var (
	validFrom  = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	validUntil = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// NewKeys derives the authority and the gossip key. Equal cluster keys give equal ones.
func NewKeys(clusterKey []byte) (*Keys, error) {
	if len(clusterKey) != KeyBytes {
		return nil, fmt.Errorf("%w, not %d", ErrKeySize, len(clusterKey))
	}
	seed, err := hkdf.Key(sha256.New, clusterKey, nil, authorityInfo, ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	gossip, err := hkdf.Key(sha256.New, clusterKey, nil, gossipInfo, KeyBytes)
	if err != nil {
		return nil, err
	}
	signer := ed25519.NewKeyFromSeed(seed)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tidewire cluster"},
		NotBefore: validFrom, NotAfter: validUntil,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
	if err != nil {
		return nil, err
	}
	authority, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	k := &Keys{authority: authority, signer: signer, pool: x509.NewCertPool(), gossip: gossip}
	k.pool.AddCert(authority)
	return k, nil
}

// Gossip is the key of 32 bytes under which gossip is encrypted.
func (k *Keys) Gossip() []byte { return append([]byte(nil), k.gossip...) }

// mint makes the certificate of this process: a key that never leaves it, for the storage id.
func (k *Keys) mint(storageID string) (tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: storageID}, DNSNames: []string{storageID},
		NotBefore: validFrom, NotAfter: validUntil, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, k.authority, public, k.signer)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, nil
}

// config is the TLS of both sides; what is dialled adds the server's name and one protocol.
func (k *Keys) config(cert tls.Certificate, protocols []string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, NextProtos: protocols,
		RootCAs: k.pool, ClientCAs: k.pool, ClientAuth: tls.RequireAndVerifyClientCert,
		SessionTicketsDisabled: true,
	}
}
