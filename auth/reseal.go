package auth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"tidewire/cluster/metadata"
)

// resealBatch is how many users' verifiers go into one command.
const resealBatch = 500

// FormerSealer is the sealer of the secret that a node has used before it was given a cluster key;
// nil where it never ran without one.
func FormerSealer(metaDir string) (*Sealer, error) {
	if _, err := os.Lstat(filepath.Join(metaDir, SecretKeyName)); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	secret, err := LoadSecret(metaDir)
	if err != nil {
		return nil, err
	}
	return NewSealer(secret)
}

// Reseal seals anew what was sealed by another sealer, so that every node with this one's secret
// can open it. It may be repeated. The error is the quorum's.
func (s *Service) Reseal(ctx context.Context, from *Sealer) error {
	img := s.cluster.Image()
	var keys []metadata.ResealedKey
	for k := range img.SigningKeys() {
		if x := s.sealer.anew(from, signingPurpose(k.KID), k.SealedPrivate); len(x.To) > 0 {
			keys = append(keys, metadata.ResealedKey{KID: k.KID, Private: x})
		}
	}
	var users []metadata.ResealedUser
	for u := range img.Users("") {
		x := metadata.ResealedUser{
			Name:        u.Name,
			SCRAMSHA256: s.sealer.anew(from, scramPurpose(ScramSHA256, u.Name), u.SCRAMSHA256),
			SCRAMSHA512: s.sealer.anew(from, scramPurpose(ScramSHA512, u.Name), u.SCRAMSHA512),
		}
		if len(x.SCRAMSHA256.To) > 0 || len(x.SCRAMSHA512.To) > 0 {
			users = append(users, x)
		}
	}
	if len(keys)+len(users) == 0 {
		return nil
	}
	s.log.Info("secrets are sealed anew with the cluster key", "signing_keys", len(keys), "users", len(users))
	for first := true; first || len(users) > 0; first = false {
		n := min(len(users), resealBatch)
		if _, err := s.propose(ctx, metadata.Reseal{SigningKeys: keys, Users: users[:n]}); err != nil {
			return fmt.Errorf("seal secrets anew with the cluster key: %w", err)
		}
		keys, users = nil, users[n:]
	}
	return nil
}

// anew seals what the other sealer has sealed; what it has not stays as it is.
func (s *Sealer) anew(from *Sealer, purpose string, sealed []byte) metadata.Resealed {
	plain, err := from.Open(purpose, sealed)
	if err != nil {
		return metadata.Resealed{}
	}
	return metadata.Resealed{From: sealed, To: s.Seal(purpose, plain)}
}
