package auth

import (
	"context"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// QuotaChange gives a user, or all under metadata.DefaultQuota, other limits in place of
// those there are. IfMatch is the etag that these must have, "" for any or none.
type QuotaChange struct {
	User    string
	Limits  metadata.QuotaLimits
	IfMatch metadata.ETag
}

// SetQuota sets limits; existed tells that there were some before. Errors: invalid-argument
// with pointers, unknown-user, etag-mismatch.
func (s *Service) SetQuota(ctx context.Context, c QuotaChange) (q *metadata.Quota, existed bool, err error) {
	res, err := s.propose(ctx, metadata.SetQuota{User: c.User, Limits: c.Limits, IfMatch: c.IfMatch})
	if err != nil {
		return nil, false, err
	}
	set, ok := res.Value.(metadata.QuotaSet)
	if !ok {
		return nil, false, &model.Error{Code: model.Internal, Detail: "the change of a quota gave no quota"}
	}
	return set.Quota, set.Existed, nil
}

// DeleteQuota takes a user's limits away. Errors: unknown-user, not-found, etag-mismatch.
func (s *Service) DeleteQuota(ctx context.Context, user string, ifMatch metadata.ETag) error {
	_, err := s.propose(ctx, metadata.DeleteQuota{User: user, IfMatch: ifMatch})
	return err
}

// Quota returns the limits that a user, or all under metadata.DefaultQuota, has of its own.
// Errors, once a read barrier has confirmed them: unknown-user, not-found.
func (s *Service) Quota(ctx context.Context, user string) (*metadata.Quota, error) {
	if q := s.cluster.Image().Quota(user); q != nil {
		return q, nil
	}
	if err := s.cluster.Barrier(ctx); err != nil {
		return nil, err
	}
	img := s.cluster.Image()
	if q := img.Quota(user); q != nil {
		return q, nil
	}
	if user != metadata.DefaultQuota && img.User(user) == nil {
		return nil, model.Errorf(model.UnknownUser, "there is no user %q", user)
	}
	return nil, metadata.NoQuota(user)
}
