package metadata

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	"tidewire/internal/model"
)

// The encoded image (docs/metadata.md): the magic, the index as a big-endian 64-bit
// number, then entities, each as one byte of section, its length as uvarint and its
// JSON; sections in the order of their numbers, entities in the order of their keys;
// last the byte 0 and the CRC-32C of everything before it, big-endian. All of this is
// persisted.
const imageMagic = "TWIMAGE\x01"

const (
	sectionEnd byte = iota
	sectionCluster
	sectionBroker
	sectionTopic
	sectionUser
	sectionACL
	sectionSession
	sectionAPIToken
	sectionSigningKey
	sectionQuota
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrImageForm is returned for bytes that are not an encoded image.
var ErrImageForm = errors.New("not an encoded metadata image")

// Encode gives the image's bytes; equal images have equal bytes.
func Encode(m *Image) []byte {
	e := encoder{buf: binary.BigEndian.AppendUint64([]byte(imageMagic), m.index)}
	e.add(sectionCluster, m.cluster)
	for b := range m.Brokers() {
		e.add(sectionBroker, b)
	}
	for t := range m.Topics("") {
		e.add(sectionTopic, t)
	}
	for u := range m.Users("") {
		e.add(sectionUser, u)
	}
	for r := range m.ACLs() {
		e.add(sectionACL, r)
	}
	for s := range m.Sessions() {
		e.add(sectionSession, s)
	}
	for t := range m.APITokens() {
		e.add(sectionAPIToken, t)
	}
	for k := range m.SigningKeys() {
		e.add(sectionSigningKey, k)
	}
	for q := range m.Quotas() {
		e.add(sectionQuota, q)
	}
	e.buf = append(e.buf, sectionEnd)
	return e.seal()
}

type encoder struct{ buf []byte }

func (e *encoder) add(section byte, entity any) {
	body, err := json.Marshal(entity)
	if err != nil {
		panic("metadata: an entity does not encode: " + err.Error()) // plain structs always do
	}
	e.buf = append(e.buf, section)
	e.buf = binary.AppendUvarint(e.buf, uint64(len(body)))
	e.buf = append(e.buf, body...)
}

func (e *encoder) seal() []byte {
	return binary.BigEndian.AppendUint32(e.buf, crc32.Checksum(e.buf, castagnoli))
}

// Decode reads what Encode wrote.
func Decode(b []byte) (*Image, error) {
	const head, tail = len(imageMagic) + 8, 5
	if len(b) < head+tail || string(b[:len(imageMagic)]) != imageMagic {
		return nil, ErrImageForm
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, fmt.Errorf("%w: checksum differs", ErrImageForm)
	}
	c := Contents{Index: binary.BigEndian.Uint64(b[len(imageMagic):])}
	rest := body[head:]
	for {
		section := rest[0]
		rest = rest[1:]
		if section == sectionEnd {
			break
		}
		n, used := binary.Uvarint(rest)
		if used <= 0 || n >= uint64(len(rest)-used) { // the end mark follows at least
			return nil, fmt.Errorf("%w: an entity is cut short", ErrImageForm)
		}
		if err := c.add(section, rest[used:used+int(n)]); err != nil {
			return nil, fmt.Errorf("%w: section %d: %w", ErrImageForm, section, err)
		}
		rest = rest[used+int(n):]
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%w: bytes after the end", ErrImageForm)
	}
	return NewImage(c)
}

// Contents is an image taken apart: what a store keeps. Topics need no Config.
type Contents struct {
	Index       uint64
	Cluster     *Cluster
	Brokers     []*Broker
	Topics      []*Topic
	Users       []*User
	ACLs        []*ACL
	Sessions    []*Session
	APITokens   []*APIToken
	SigningKeys []*SigningKey
	Quotas      []*Quota
}

func (c *Contents) add(section byte, body []byte) error {
	switch section {
	case sectionCluster:
		if c.Cluster != nil {
			return errTwice
		}
		return decodeStrict(body, &c.Cluster)
	case sectionBroker:
		return decodeInto(body, &c.Brokers)
	case sectionTopic:
		return decodeInto(body, &c.Topics)
	case sectionUser:
		return decodeInto(body, &c.Users)
	case sectionACL:
		return decodeInto(body, &c.ACLs)
	case sectionSession:
		return decodeInto(body, &c.Sessions)
	case sectionAPIToken:
		return decodeInto(body, &c.APITokens)
	case sectionSigningKey:
		return decodeInto(body, &c.SigningKeys)
	case sectionQuota:
		return decodeInto(body, &c.Quotas)
	}
	return errors.New("there is no such section")
}

func decodeInto[T any](body []byte, list *[]*T) error {
	v := new(T)
	if err := decodeStrict(body, v); err != nil {
		return err
	}
	*list = append(*list, v)
	return nil
}

var errTwice = errors.New("an entity is there twice")

// NewImage puts an image together. It fails on what no sequence of commands can have
// led to: two entities under one key, colliding topic names, a config that does not parse.
func NewImage(c Contents) (*Image, error) {
	t := newTx(Empty())
	t.index = c.Index
	if c.Cluster == nil {
		return nil, fmt.Errorf("%w: no cluster", ErrImageForm)
	}
	t.cluster = c.Cluster
	if t.cluster.Config == nil {
		t.cluster.Config = map[string]string{}
	}
	if _, err := t.cluster.parseSettings(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrImageForm, err)
	}
	for _, p := range c.Topics {
		if err := t.loadTopic(p); err != nil {
			return nil, err
		}
	}
	if err := t.loadRest(c); err != nil {
		return nil, err
	}
	return t.commit(), nil
}

func (t *tx) loadTopic(p *Topic) error {
	_, idTaken := t.topicsByID.Get(p.ID[:])
	_, nameTaken := t.collisions.Get([]byte(model.TopicCollisionKey(p.Name)))
	if idTaken || nameTaken {
		return fmt.Errorf("%w: topic %q: %w", ErrImageForm, p.Name, errTwice)
	}
	if p.Overrides == nil {
		p.Overrides = map[string]string{}
	}
	cfg, err := Effective(p.Overrides, t.cluster.Config, p.ReplicationFactor())
	if err != nil {
		return fmt.Errorf("%w: topic %q: %w", ErrImageForm, p.Name, err)
	}
	p.Config = cfg
	t.putTopic(p)
	return nil
}

func (t *tx) loadRest(c Contents) error {
	for _, b := range c.Brokers {
		t.putBroker(b)
	}
	for _, u := range c.Users {
		t.putUser(u)
	}
	for _, r := range c.ACLs {
		if _, existed := t.putACL(r); existed {
			return fmt.Errorf("%w: acl %q: %w", ErrImageForm, r.ID, errTwice)
		}
	}
	for _, s := range c.Sessions {
		t.putSession(s)
	}
	for _, k := range c.APITokens {
		t.putToken(k)
	}
	for _, k := range c.SigningKeys {
		t.putKey(k)
	}
	for _, q := range c.Quotas {
		t.putQuota(q)
	}
	d := &t.delta
	if len(d.Brokers) != len(c.Brokers) || len(d.Users) != len(c.Users) || len(d.ACLs) != len(c.ACLs) ||
		len(d.Sessions) != len(c.Sessions) || len(d.APITokens) != len(c.APITokens) || len(d.SigningKeys) != len(c.SigningKeys) ||
		len(d.Quotas) != len(c.Quotas) {
		return fmt.Errorf("%w: %w", ErrImageForm, errTwice)
	}
	return nil
}
