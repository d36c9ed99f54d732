package metadata

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"tidewire/internal/model"
)

// kindRow says everything there is to know about one kind of command.
type kindRow struct {
	kind      Kind
	since     MetadataVersion // refused while the image's version is lower
	ignorable bool            // a node that does not know the kind skips it
	decode    func(body []byte) (Command, error)
	apply     func(*tx, Command) (any, *model.Error)
}

// row makes the row of command type C. A kind may be ignorable only if it leaves the
// image as it is; there is none yet.
func row[C Command](since MetadataVersion, apply func(*tx, C) (any, *model.Error)) kindRow {
	var zero C
	return kindRow{
		kind:  zero.Kind(),
		since: since,
		decode: func(body []byte) (Command, error) {
			var c C
			err := decodeStrict(body, &c)
			return c, err
		},
		apply: func(t *tx, c Command) (any, *model.Error) { return apply(t, c.(C)) },
	}
}

// kindRows is the one table of commands. Its names are persisted.
var kindRows = []kindRow{
	row(0, applyBootstrapCluster),
	row(1, applyRegisterBroker),
	row(1, applyUnfenceBroker),
	row(1, applyCreateTopic),
	row(1, applyDeleteTopic),
	row(1, applyCreatePartitions),
	row(1, applyAlterTopicConfig),
	row(1, applyAlterClusterConfig),
	row(1, applyCreateUser),
	row(1, applyAlterUser),
	row(1, applySetPassword),
	row(1, applyDeleteUser),
	row(1, applyCreateACL),
	row(1, applyDeleteACLs),
	row(1, applyCreateSession),
	row(1, applyRotateSession),
	row(1, applyRevokeSessions),
	row(1, applyCreateAPIToken),
	row(1, applyDeleteAPIToken),
	row(1, applyAddSigningKey),
	row(1, applyPrune),
	row(1, applySetSetupToken),
	row(1, applyAllocateProducerIDs),
	row(1, applyRenewSession),
	row(1, applyUseTicket),
	row(1, applyTouchAPITokens),
	row(1, applySetQuota),
	row(1, applyDeleteQuota),
	row(1, applyFenceBroker),
	row(1, applyAlterPartitions),
	row(1, applyAlterReassignments),
	row(1, applyCancelReassignments),
	row(1, applyElectLeaders),
	row(1, applySetBrokerState),
	row(1, applyUnregisterBroker),
	row(1, applyReseal),
}

var kindTable = func() map[Kind]kindRow {
	m := make(map[Kind]kindRow, len(kindRows))
	for _, r := range kindRows {
		m[r.kind] = r
	}
	return m
}()

// Kind implements Command; the strings are persisted.
func (BootstrapCluster) Kind() Kind    { return "bootstrap-cluster" }
func (RegisterBroker) Kind() Kind      { return "register-broker" }
func (UnfenceBroker) Kind() Kind       { return "unfence-broker" }
func (CreateTopic) Kind() Kind         { return "create-topic" }
func (DeleteTopic) Kind() Kind         { return "delete-topic" }
func (CreatePartitions) Kind() Kind    { return "create-partitions" }
func (AlterTopicConfig) Kind() Kind    { return "alter-topic-config" }
func (AlterClusterConfig) Kind() Kind  { return "alter-cluster-config" }
func (CreateUser) Kind() Kind          { return "create-user" }
func (AlterUser) Kind() Kind           { return "alter-user" }
func (SetPassword) Kind() Kind         { return "set-password" }
func (DeleteUser) Kind() Kind          { return "delete-user" }
func (CreateACL) Kind() Kind           { return "create-acl" }
func (DeleteACLs) Kind() Kind          { return "delete-acls" }
func (CreateSession) Kind() Kind       { return "create-session" }
func (RotateSession) Kind() Kind       { return "rotate-session" }
func (RevokeSessions) Kind() Kind      { return "revoke-sessions" }
func (CreateAPIToken) Kind() Kind      { return "create-api-token" }
func (DeleteAPIToken) Kind() Kind      { return "delete-api-token" }
func (AddSigningKey) Kind() Kind       { return "add-signing-key" }
func (Prune) Kind() Kind               { return "prune" }
func (SetSetupToken) Kind() Kind       { return "set-setup-token" }
func (AllocateProducerIDs) Kind() Kind { return "allocate-producer-ids" }
func (RenewSession) Kind() Kind        { return "renew-session" }
func (UseTicket) Kind() Kind           { return "use-ticket" }
func (TouchAPITokens) Kind() Kind      { return "touch-api-tokens" }
func (SetQuota) Kind() Kind            { return "set-quota" }
func (DeleteQuota) Kind() Kind         { return "delete-quota" }
func (FenceBroker) Kind() Kind         { return "fence-broker" }
func (AlterPartitions) Kind() Kind     { return "alter-partitions" }
func (AlterReassignments) Kind() Kind  { return "alter-reassignments" }
func (CancelReassignments) Kind() Kind { return "cancel-reassignments" }
func (ElectLeaders) Kind() Kind        { return "elect-leaders" }
func (SetBrokerState) Kind() Kind      { return "set-broker-state" }
func (UnregisterBroker) Kind() Kind    { return "unregister-broker" }
func (Reseal) Kind() Kind              { return "reseal" }

// MaxCommandBytes is the largest encoded command; a larger one is not proposed.
const MaxCommandBytes = 4 << 20

// commandVersion is the first byte of an encoded command.
const commandVersion = 1

// flagIgnorable in the second byte lets nodes that do not know the kind skip it.
const flagIgnorable = 1

// ErrUnknownKind is returned by DecodeCommand for a kind this binary does not know and
// must not skip: the node has to stop, since it cannot follow the others.
var ErrUnknownKind = errors.New("command kind is not known to this version")

var errCommandForm = errors.New("command is malformed")

// EncodeCommand gives the bytes for the log: version, flags, length of the kind, the
// kind, and the command as JSON with its fields in the order of the struct.
func EncodeCommand(c Command) ([]byte, error) {
	r, ok := kindTable[c.Kind()]
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrUnknownKind, c.Kind())
	}
	body, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", c.Kind(), err)
	}
	if len(body)+len(r.kind)+3 > MaxCommandBytes {
		return nil, model.Errorf(model.RequestTooLarge, "the change is too large: %d bytes, at most %d", len(body), MaxCommandBytes)
	}
	out := make([]byte, 0, len(body)+len(r.kind)+3)
	var flags byte
	if r.ignorable {
		flags |= flagIgnorable
	}
	out = append(out, commandVersion, flags, byte(len(r.kind)))
	out = append(out, r.kind...)
	return append(out, body...), nil
}

// KindOf is the kind of what EncodeCommand wrote; "" where it is none.
func KindOf(b []byte) Kind {
	if len(b) < 3 || len(b) < 3+int(b[2]) {
		return ""
	}
	return Kind(b[3 : 3+int(b[2])])
}

// MakesRoom tells of kinds that a node whose disk is full is most in need of: those that take
// away, those without which nobody can ask for that, and what the controller decides. They
// are taken when there is no room for others any more.
func (k Kind) MakesRoom() bool {
	switch k {
	case DeleteTopic{}.Kind(), AlterTopicConfig{}.Kind(), DeleteUser{}.Kind(), DeleteACLs{}.Kind(), DeleteAPIToken{}.Kind(), DeleteQuota{}.Kind(),
		Prune{}.Kind(), CreateSession{}.Kind(), RotateSession{}.Kind(), RenewSession{}.Kind(), RevokeSessions{}.Kind(),
		RegisterBroker{}.Kind(), UnfenceBroker{}.Kind(), FenceBroker{}.Kind(), SetBrokerState{}.Kind(), UnregisterBroker{}.Kind(),
		AlterPartitions{}.Kind(), ElectLeaders{}.Kind(), CancelReassignments{}.Kind():
		return true
	}
	return false
}

// DecodeCommand reads what EncodeCommand wrote. A kind that is unknown and ignorable
// gives a nil command without an error. An unknown field is an error: skipping it would
// let nodes differ.
func DecodeCommand(b []byte) (Command, error) {
	if len(b) < 3 || len(b) > MaxCommandBytes || b[0] != commandVersion || len(b) < 3+int(b[2]) {
		return nil, errCommandForm
	}
	kind, body := Kind(b[3:3+int(b[2])]), b[3+int(b[2]):]
	r, ok := kindTable[kind]
	switch {
	case ok:
		c, err := r.decode(body)
		if err != nil {
			return nil, fmt.Errorf("decode %s: %w", kind, err)
		}
		return c, nil
	case b[1]&flagIgnorable != 0:
		return nil, nil
	}
	return nil, fmt.Errorf("%w: %q", ErrUnknownKind, kind)
}

// decodeStrict reads exactly one JSON value with known fields only.
func decodeStrict(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errCommandForm
	}
	return nil
}
