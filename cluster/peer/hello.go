package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"tidewire/internal/model"
)

// Version is the version of the protocol between nodes, and Oldest the oldest that this
// binary still speaks.
const (
	Version = 1
	Oldest  = 1
)

// Identity is who a node is.
type Identity struct {
	Node    model.BrokerID
	Storage string // id of the data folder
	Cluster string // "" while the node belongs to none
	Binary  string // version of the binary, for people
}

// Errors of the handshake. Each says in one line what is wrong.
var (
	// ErrKey: the other side does not have this cluster's key.
	ErrKey = errors.New("the node there has another cluster key")
	// ErrOtherCluster: it belongs to another cluster.
	ErrOtherCluster = errors.New("the node there belongs to another cluster")
	// ErrVersion: there is no version of the protocol that both speak.
	ErrVersion = errors.New("the node there speaks another version of the protocol between nodes")
	// ErrOtherNode: somebody else answers at the address.
	ErrOtherNode = errors.New("another node answers at this address")
	// ErrHello: the other side said something that is no greeting.
	ErrHello = errors.New("what answers there is no Tidewire node")
)

// hello is the greeting of both sides, as JSON in a frame.
type hello struct {
	Version int            `json:"version"`
	Oldest  int            `json:"oldest"`
	Node    model.BrokerID `json:"node"`
	Storage string         `json:"storage"`
	Cluster string         `json:"cluster"`
	Binary  string         `json:"binary"`
	// Refusal is why the one who was called hangs up: "cluster", "version", "" for welcome.
	Refusal string `json:"refusal,omitempty"`
}

const (
	refusedCluster = "cluster"
	refusedVersion = "version"
)

// maxHello bounds a greeting, in bytes.
const maxHello = 4096

func greeting(me Identity) hello {
	return hello{Version: Version, Oldest: Oldest, Node: me.Node, Storage: me.Storage, Cluster: me.Cluster, Binary: me.Binary}
}

func (h hello) identity() Identity {
	return Identity{Node: h.Node, Storage: h.Storage, Cluster: h.Cluster, Binary: h.Binary}
}

// judge says why one side does not talk to the other; "" when it does.
func judge(mine, theirs hello) string {
	switch {
	case theirs.Version < mine.Oldest || theirs.Oldest > mine.Version:
		return refusedVersion
	case mine.Cluster != "" && theirs.Cluster != "" && mine.Cluster != theirs.Cluster:
		return refusedCluster
	}
	return ""
}

// refusal is the error of a judgement, as the side sees it that was refused or refuses.
func refusal(why string, mine, theirs hello) error {
	switch why {
	case "":
		return nil
	case refusedVersion:
		return fmt.Errorf("%w: node %d (%s) speaks %d to %d, this one %d to %d", ErrVersion, theirs.Node, theirs.Binary,
			theirs.Oldest, theirs.Version, mine.Oldest, mine.Version)
	case refusedCluster:
		return fmt.Errorf("%w: node %d is of cluster %s, this one of %s", ErrOtherCluster, theirs.Node, theirs.Cluster, mine.Cluster)
	}
	return fmt.Errorf("%w: it refuses with %q", ErrHello, why)
}

// greet is the side that dials: it speaks first.
func greet(c net.Conn, me Identity) (Identity, error) {
	mine := greeting(me)
	if err := writeHello(c, mine); err != nil {
		return Identity{}, err
	}
	theirs, err := readHello(c)
	if err != nil {
		return Identity{}, err
	}
	why := theirs.Refusal
	if why == "" {
		why = judge(mine, theirs)
	}
	return theirs.identity(), refusal(why, mine, theirs)
}

// welcome is the side that was dialled. An error has been told to the other side.
func welcome(c net.Conn, me Identity, storage string) (Identity, error) {
	theirs, err := readHello(c)
	if err != nil {
		return Identity{}, err
	}
	mine := greeting(me)
	mine.Refusal = judge(mine, theirs)
	if err := writeHello(c, mine); err != nil {
		return theirs.identity(), err
	}
	if theirs.Storage != storage {
		return theirs.identity(), fmt.Errorf("%w: its certificate is for %q, it says it is %q", ErrOtherNode, storage, theirs.Storage)
	}
	return theirs.identity(), refusal(mine.Refusal, mine, theirs)
}

func writeHello(w io.Writer, h hello) error {
	body, err := json.Marshal(h)
	if err != nil {
		return err
	}
	_, err = w.Write(append(appendUint32(nil, uint32(len(body))), body...))
	return err
}

func readHello(r io.Reader) (hello, error) {
	var h hello
	body, err := readFrame(r, maxHello)
	if err != nil {
		return h, err
	}
	// Fields that this version does not know are those of a newer one, which may still
	// speak ours.
	if err := json.Unmarshal(body, &h); err != nil {
		return h, fmt.Errorf("%w: %w", ErrHello, err)
	}
	return h, nil
}

// handshakeTime bounds TLS and greeting together.
const handshakeTime = 3 * time.Second

// secureDialled makes TLS with the node of a storage id on a fresh connection, greets and
// gives who it is.
func secureDialled(ctx context.Context, raw net.Conn, cfg *tls.Config, me Identity) (*tls.Conn, Identity, error) {
	c := tls.Client(raw, cfg)
	if err := c.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return nil, Identity{}, err
	}
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, Identity{}, tlsError(err)
	}
	who, err := greet(c, me)
	if err != nil {
		return nil, who, tlsError(err)
	}
	return c, who, c.SetDeadline(time.Time{})
}

// secureAccepted is secureDialled for the side that was dialled.
func secureAccepted(ctx context.Context, raw net.Conn, cfg *tls.Config, me Identity) (*tls.Conn, Identity, error) {
	c := tls.Server(raw, cfg)
	if err := c.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return nil, Identity{}, err
	}
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, Identity{}, tlsError(err)
	}
	who, err := welcome(c, me, c.ConnectionState().PeerCertificates[0].Subject.CommonName)
	if err != nil {
		return nil, who, err
	}
	return c, who, c.SetDeadline(time.Time{})
}

// tlsError names what of a handshake's failures an operator must know.
func tlsError(err error) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%w: %w", ErrKey, err)
	case errors.As(err, &name):
		return fmt.Errorf("%w: %w", ErrOtherNode, err)
	case errors.As(err, &record):
		return fmt.Errorf("%w: %w", ErrHello, err)
	}
	return err
}
