package auth

import (
	"context"
	"encoding/base64"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// CreateACL adds a rule; existed tells that an equal one was there. An empty host
// becomes "*". Errors: invalid-argument with a pointer to the field.
func (s *Service) CreateACL(ctx context.Context, f metadata.ACLFields) (rule *metadata.ACL, existed bool, err error) {
	if f.Host == "" {
		f.Host = anyName
	}
	res, err := s.propose(ctx, metadata.CreateACL{
		ID: base64.RawURLEncoding.EncodeToString(randomBytes(12)), Rule: f, Now: metadata.MillisOf(s.now()),
	})
	if err != nil {
		return nil, false, err
	}
	created, ok := res.Value.(metadata.ACLCreated)
	if !ok {
		return nil, false, &model.Error{Code: model.Internal, Detail: "the creation of a rule gave no rule"}
	}
	return created.ACL, created.Existed, nil
}

// DeleteACLs deletes the rules whose fields equal every field of the filter that is
// not empty, and returns them. Errors: invalid-argument for an empty filter.
func (s *Service) DeleteACLs(ctx context.Context, filter metadata.ACLFields) ([]*metadata.ACL, error) {
	res, err := s.propose(ctx, metadata.DeleteACLs{Filter: filter})
	if err != nil {
		return nil, err
	}
	deleted, ok := res.Value.([]*metadata.ACL)
	if !ok {
		return nil, &model.Error{Code: model.Internal, Detail: "the deletion of rules gave no rules"}
	}
	return deleted, nil
}
