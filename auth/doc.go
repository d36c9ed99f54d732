// Package auth says who a caller is and what they may do. It is the same for every
// door (REST, WebSocket, Kafka) and knows none of them.
//
// Purpose. Passwords are hashed with argon2id and turned into SCRAM verifiers at
// the same moment (Hasher); what must not be read from disk is sealed (Sealer);
// access tokens and API tokens are issued and verified (Tokens); browsers' sessions
// (cookie.go) and one-time tickets (ticket.go) stand beside them as credentials
// (Credential); failed logins are counted (limiter); users, sessions, tokens, setup and
// signing keys change through the quorum (Service); ACL rules are evaluated
// (Rules, pure, and Authorizer, over the present image), under an API token's scopes too.
//
// Callers. The doors call Tokens.Verify for each request and Authorizer for each
// operation; the composition root builds the parts with New, calls
// Service.Bootstrap once the node has an image, and runs Service.Run.
//
// State. All truth is in the metadata image, which never changes once published;
// Tokens, Authorizer and the signer hold caches only, each checked against the
// image's index, so that a change applied on this node holds from the next call
// on. A refusal that rests on the image (unknown user, key or session, no rule)
// may come from an image that is behind: it is confirmed by a read barrier and a
// second look before it is given, and the barrier's error is given when the quorum
// cannot be asked. Refusals that rest on the token alone (form, signature, claims)
// need no barrier.
//
// Locks. The token cache has one lock per shard; the rule index, the signer, the limiter
// and the renewals of sessions have one each, never held across I/O or a channel wait; no
// two are held at once. Password hashings wait for one of two slots without a lock.
//
// Time comes from the clock that New is given.
//
// Rejected. Checking a token's user at a barrier on every request (a round trip per
// request; a node that was cut off serves its last image anyway, and design bounds
// that by the token's 15 minutes). A grace for refresh tokens used twice: it makes
// theft and a lost answer look alike; a client that lost the answer logs in again.
// Kafka's evaluation per rule list: a principal's rules found by name, "*" and the
// prefix lengths in use cost the same with 10 rules as with 10,000.
package auth
