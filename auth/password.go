package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"tidewire/internal/model"
)

// Limits of passwords, in bytes of UTF-8. The upper one bounds the work an
// unauthenticated caller can ask for.
const (
	MinPassword = 8
	MaxPassword = 1024
)

// MaxConcurrentHashes is how many password hashings run at once in a process:
// each takes a core for tens of milliseconds and Argon2Params.MemoryKiB of memory.
const MaxConcurrentHashes = 2

// Argon2Params are the cost parameters of argon2id (RFC 9106).
type Argon2Params struct {
	MemoryKiB   uint32
	Iterations  uint32
	Parallelism uint8
}

// DefaultArgon2 returns the parameters new passwords are hashed with: OWASP's
// "m=19456 (19 MiB), t=2, p=1", which OWASP holds equal in strength to RFC 9106's
// second choice per unit of an attacker's time and which a small node can afford.
func DefaultArgon2() Argon2Params {
	return Argon2Params{MemoryKiB: 19456, Iterations: 2, Parallelism: 1}
}

const (
	argonSaltBytes = 16
	argonKeyBytes  = 32
	// Bounds on parameters read back from a stored hash, so that a damaged string
	// cannot ask for gigabytes.
	argonMaxMemoryKiB  = 1 << 20
	argonMaxIterations = 64
)

var errPHC = errors.New("a stored password hash is not in the form $argon2id$v=19$m=,t=,p=$salt$hash")

// CheckPassword returns what is wrong with a new password, or "" when it is
// accepted: MinPassword to MaxPassword bytes of UTF-8 without control characters
// (a trailing newline read from a file is the usual one, and SASL PLAIN cannot
// carry a NUL). There are no rules of composition (NIST SP 800-63B §3.1.1.2).
func CheckPassword(p string) string {
	switch {
	case len(p) < MinPassword:
		return fmt.Sprintf("a password has at least %d bytes", MinPassword)
	case len(p) > MaxPassword:
		return fmt.Sprintf("a password has at most %d bytes", MaxPassword)
	case !utf8.ValidString(p):
		return "a password must be valid UTF-8"
	}
	for _, r := range p {
		if r < 0x20 || r == 0x7f {
			return "a password must not hold control characters, such as a line end"
		}
	}
	return ""
}

// Hasher hashes and verifies passwords, at most MaxConcurrentHashes at once. Make
// one per process. It is safe for concurrent use.
type Hasher struct {
	params Argon2Params
	slots  chan struct{}
	dummy  string // the hash of no one's password: what unknown users are verified against
	// scramIterations is ScramIterations; tests lower it.
	scramIterations int
	// derive is argon2.IDKey; tests put a counter around it.
	derive func(password, salt []byte, time, memory uint32, threads uint8, keyLen uint32) []byte
	// waiting is how many tries wait for a slot.
	waiting *atomic.Int64
}

// NewHasher returns a hasher that makes new hashes with the parameters.
func NewHasher(p Argon2Params) *Hasher {
	h := &Hasher{
		params: p, slots: make(chan struct{}, MaxConcurrentHashes),
		scramIterations: ScramIterations, derive: argon2.IDKey, waiting: new(atomic.Int64),
	}
	// A random key under a random salt: no password is known to match it, and its
	// parameters are those of real hashes, so that verifying against it costs as much.
	h.dummy = formatPHC(p, randomBytes(argonSaltBytes), randomBytes(argonKeyBytes))
	return h
}

// WithScramIterations returns a hasher whose SCRAM verifiers take n iterations, at least
// the 4,096 of RFC 7677. It is for nodes in tests, which make many users.
func (h *Hasher) WithScramIterations(n int) *Hasher {
	c := *h
	c.scramIterations = n
	return &c
}

// Hash returns the password's argon2id hash in PHC string form, with a new random
// salt. It waits for a slot; the error is the context's.
func (h *Hasher) Hash(ctx context.Context, password string) (string, error) {
	salt := randomBytes(argonSaltBytes)
	key, err := h.run(ctx, password, phc{params: h.params, salt: salt, key: make([]byte, argonKeyBytes)})
	if err != nil {
		return "", err
	}
	return formatPHC(h.params, salt, key), nil
}

// Verify reports whether the password has the stored hash. An empty stored hash,
// that of a user who does not exist, costs the same and is never right. It waits
// for a slot; errors are the context's, or a damaged hash.
func (h *Hasher) Verify(ctx context.Context, stored, password string) (bool, error) {
	known := stored != ""
	if !known {
		stored = h.dummy
	}
	p, err := parsePHC(stored)
	if err != nil {
		return false, err
	}
	key, err := h.run(ctx, password, p)
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(key, p.key) == 1 && known, nil
}

// gate is asked, once a slot is free, whether a password may be tried, and told how it
// went before the slot is free again: what others try meanwhile is counted by then.
type gate struct {
	admit  func() error
	settle func(right bool)
}

// maxWaiting is how many tries may wait for a slot; beyond, they are refused at once.
const maxWaiting = 256

// errManyWaiting is told as rate-limited, by busy.
var errManyWaiting = errors.New("too many passwords wait to be checked")

// attempt verifies as Verify does, through a gate. Errors: the gate's, the context's, a
// damaged hash.
func (h *Hasher) attempt(ctx context.Context, stored, password string, g gate) error {
	known := stored != ""
	if !known {
		stored = h.dummy
	}
	p, err := parsePHC(stored)
	if err != nil {
		return err
	}
	if h.waiting.Add(1) > maxWaiting {
		h.waiting.Add(-1)
		return errManyWaiting
	}
	err = h.acquire(ctx)
	h.waiting.Add(-1)
	if err != nil {
		return err
	}
	defer h.release()
	if err := g.admit(); err != nil {
		return err
	}
	key := h.key(password, p)
	g.settle(subtle.ConstantTimeCompare(key, p.key) == 1 && known)
	return nil
}

// run derives a key of len(p.key) bytes once a slot is free.
func (h *Hasher) run(ctx context.Context, password string, p phc) ([]byte, error) {
	if err := h.acquire(ctx); err != nil {
		return nil, err
	}
	defer h.release()
	return h.key(password, p), nil
}

// key derives a key; the caller holds a slot.
func (h *Hasher) key(password string, p phc) []byte {
	pp := p.params
	return h.derive([]byte(password), p.salt, pp.Iterations, pp.MemoryKiB, pp.Parallelism, uint32(len(p.key)))
}

func (h *Hasher) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case h.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *Hasher) release() { <-h.slots }

// phc is a parsed PHC string of argon2id.
type phc struct {
	params Argon2Params
	salt   []byte
	key    []byte
}

func formatPHC(p Argon2Params, salt, key []byte) string {
	e := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version,
		p.MemoryKiB, p.Iterations, p.Parallelism, e.EncodeToString(salt), e.EncodeToString(key))
}

func parsePHC(s string) (phc, error) {
	f := strings.Split(s, "$")
	if len(f) != 6 || f[0] != "" || f[1] != "argon2id" || f[2] != "v="+strconv.Itoa(argon2.Version) {
		return phc{}, errPHC
	}
	params, err := parseArgonParams(f[3])
	if err != nil {
		return phc{}, err
	}
	salt, err1 := base64.RawStdEncoding.DecodeString(f[4])
	key, err2 := base64.RawStdEncoding.DecodeString(f[5])
	if err1 != nil || err2 != nil || len(salt) < 8 || len(salt) > 64 || len(key) < 16 || len(key) > 64 {
		return phc{}, errPHC
	}
	return phc{params: params, salt: salt, key: key}, nil
}

func parseArgonParams(s string) (Argon2Params, error) {
	f := strings.Split(s, ",")
	if len(f) != 3 {
		return Argon2Params{}, errPHC
	}
	var n [3]uint64
	for i, name := range [3]string{"m=", "t=", "p="} {
		v, ok := strings.CutPrefix(f[i], name)
		if !ok {
			return Argon2Params{}, errPHC
		}
		var err error
		if n[i], err = strconv.ParseUint(v, 10, 32); err != nil {
			return Argon2Params{}, errPHC
		}
	}
	m, t, p := n[0], n[1], n[2]
	if t < 1 || t > argonMaxIterations || p < 1 || p > 255 || m < 8*p || m > argonMaxMemoryKiB {
		return Argon2Params{}, errPHC
	}
	return Argon2Params{MemoryKiB: uint32(m), Iterations: uint32(t), Parallelism: uint8(p)}, nil
}

// randomBytes returns n bytes from the system's generator, which cannot fail
// (crypto/rand.Read ends the process when it does).
func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// busy turns an error of waiting for a slot into what a client is told.
func busy(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errManyWaiting) {
		return model.Errorf(model.RateLimited, "too many passwords are being checked at the moment").WithCause(err)
	}
	return err
}
