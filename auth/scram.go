package auth

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/xdg-go/scram"
)

// ScramIterations is the PBKDF2 count of new verifiers: the highest that Kafka's
// own server accepts for its users, above RFC 7677's floor of 4096.
const ScramIterations = 16384

// ScramMechanism names a SASL mechanism of RFC 5802 and RFC 7677.
type ScramMechanism string

// The mechanisms a verifier is kept for.
const (
	ScramSHA256 ScramMechanism = "SCRAM-SHA-256"
	ScramSHA512 ScramMechanism = "SCRAM-SHA-512"
)

// ScramVerifier is what a server keeps for a user and mechanism (RFC 5802 §3). It
// lets its holder impersonate the server and test guesses, so it is stored sealed.
type ScramVerifier struct {
	Salt       []byte
	Iterations int
	StoredKey  []byte
	ServerKey  []byte
}

var (
	errScramMechanism = errors.New("unknown SCRAM mechanism")
	errScramForm      = errors.New("a stored SCRAM verifier is damaged")
)

func scramHash(m ScramMechanism) (scram.HashGeneratorFcn, int, error) {
	switch m {
	case ScramSHA256:
		return scram.SHA256, 32, nil
	case ScramSHA512:
		return scram.SHA512, 64, nil
	}
	return nil, 0, errScramMechanism
}

// Scram derives the verifier of a password for a mechanism, under a new random
// salt. It takes one of the hasher's slots. The password is used as its bytes are:
// Kafka's clients (Java, librdkafka) do not apply SASLprep either, and SASLprep
// refuses passwords that CheckPassword accepts.
func (h *Hasher) Scram(ctx context.Context, m ScramMechanism, password string) (ScramVerifier, error) {
	hash, _, err := scramHash(m)
	if err != nil {
		return ScramVerifier{}, err
	}
	if err := h.acquire(ctx); err != nil {
		return ScramVerifier{}, err
	}
	defer h.release()
	client, err := hash.NewClientUnprepped("", password, "")
	if err != nil {
		return ScramVerifier{}, err
	}
	salt := randomBytes(16)
	c, err := client.GetStoredCredentialsWithError(scram.KeyFactors{Salt: string(salt), Iters: h.scramIterations})
	if err != nil {
		return ScramVerifier{}, err
	}
	return ScramVerifier{Salt: salt, Iterations: h.scramIterations, StoredKey: c.StoredKey, ServerKey: c.ServerKey}, nil
}

// Credentials gives the verifier in the form xdg-go/scram's server takes.
func (v ScramVerifier) Credentials() scram.StoredCredentials {
	return scram.StoredCredentials{
		KeyFactors: scram.KeyFactors{Salt: string(v.Salt), Iters: v.Iterations},
		StoredKey:  v.StoredKey, ServerKey: v.ServerKey,
	}
}

// scramFormat is the version of the binary form: version, 4-byte iterations, then
// salt, stored key and server key, each after a byte of length.
const scramFormat = 1

func (v ScramVerifier) encode() []byte {
	b := binary.BigEndian.AppendUint32([]byte{scramFormat}, uint32(v.Iterations))
	for _, part := range [][]byte{v.Salt, v.StoredKey, v.ServerKey} {
		b = append(append(b, byte(len(part))), part...)
	}
	return b
}

func decodeScram(m ScramMechanism, b []byte) (ScramVerifier, error) {
	_, size, err := scramHash(m)
	if err != nil {
		return ScramVerifier{}, err
	}
	if len(b) < 5 || b[0] != scramFormat {
		return ScramVerifier{}, errScramForm
	}
	v := ScramVerifier{Iterations: int(binary.BigEndian.Uint32(b[1:5]))}
	b = b[5:]
	for _, part := range []*[]byte{&v.Salt, &v.StoredKey, &v.ServerKey} {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			return ScramVerifier{}, errScramForm
		}
		*part, b = b[1:1+int(b[0])], b[1+int(b[0]):]
	}
	if len(b) != 0 || len(v.StoredKey) != size || len(v.ServerKey) != size || len(v.Salt) == 0 || v.Iterations < 4096 {
		return ScramVerifier{}, errScramForm
	}
	return v, nil
}

// scramPurpose binds a sealed verifier to its mechanism and user.
func scramPurpose(m ScramMechanism, user string) string { return string(m) + ":" + user }

// SealScram returns the verifier sealed for the user and mechanism.
func (s *Sealer) SealScram(m ScramMechanism, user string, v ScramVerifier) []byte {
	return s.Seal(scramPurpose(m, user), v.encode())
}

// OpenScram opens what SealScram sealed for the same user and mechanism.
func (s *Sealer) OpenScram(m ScramMechanism, user string, sealed []byte) (ScramVerifier, error) {
	b, err := s.Open(scramPurpose(m, user), sealed)
	if err != nil {
		return ScramVerifier{}, err
	}
	return decodeScram(m, b)
}
