package tcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The handshake consists of four messages of fixed size:
//
//	dialer    hello       the ranks, the group and a nonce
//	listener  challenge   a nonce and the listener's proof
//	dialer    proof       the dialer commits to this connection
//	listener  welcome     sent when the listener has made the group
//
// A proof is an HMAC over all earlier messages, keyed with the job's secret.
const (
	protocolVersion = 1
	helloBytes      = 96
	challengeBytes  = 80
	proofBytes      = sha256.Size
	welcomeBytes    = 16
)

var handshakeMagic = [8]byte{'t', 'u', 't', 't', 'i', 't', 'c', 'p'}

// The lanes of a mesh. laneControl is for connections that belong to no mesh.
const (
	laneFrames = iota
	laneMessages
	lanes
	laneControl = lanes
)

// A status is a listener's answer in a challenge or a welcome.
type status uint16

const (
	statusOK        status = iota
	statusVersion          // the dialer has another protocol version
	statusJob              // the dialer belongs to another job
	statusListener         // the hello names another listener
	statusClosed           // the group is closed
	statusCrossed          // both ranks dialed at once, and the listener's own dial is used
	statusConnected        // the rank is connected already
	statusFull             // MaxParked connections wait for their groups
	statusLate             // the group was not made within ParkTimeout
	statusSize             // the group has another number of ranks
)

var statusText = map[status]string{
	statusVersion:   "it uses another version of the protocol",
	statusJob:       "it belongs to another job",
	statusListener:  "another process listens there",
	statusClosed:    "it has closed the group",
	statusCrossed:   "both ranks connected at once",
	statusConnected: "the rank is connected already",
	statusFull:      "too many connections wait for their groups",
	statusLate:      "it did not make the group in time",
	statusSize:      "its group has another number of ranks",
}

// Error says why the listener has refused the connection.
func (s status) Error() string {
	if text, ok := statusText[s]; ok {
		return text
	}
	return fmt.Sprintf("it refused with status %d", uint16(s))
}

var (
	errNotTutti = errors.New("it does not use this protocol")
	errSecret   = errors.New("it does not know the job's secret")
)

// A hello says which rank connects to which.
type hello struct {
	lane     byte
	from, to int
	size     int
	job      [16]byte
	group    Group
	listener [8]byte
	nonce    [32]byte
}

// encode encodes a hello in its fixed layout.
func (h *hello) encode() (b [helloBytes]byte) {
	copy(b[:], handshakeMagic[:])
	binary.LittleEndian.PutUint16(b[8:], protocolVersion)
	b[10] = h.lane
	binary.LittleEndian.PutUint32(b[12:], uint32(h.from))
	binary.LittleEndian.PutUint32(b[16:], uint32(h.to))
	binary.LittleEndian.PutUint32(b[20:], uint32(h.size))
	copy(b[24:], h.job[:])
	copy(b[40:], h.group[:])
	copy(b[56:], h.listener[:])
	copy(b[64:], h.nonce[:])
	return b
}

// decode reads and validates a hello. The error is a status if the dialer should be sent an answer.
func (h *hello) decode(b *[helloBytes]byte) error {
	if [8]byte(b[:8]) != handshakeMagic {
		return errNotTutti
	}
	if binary.LittleEndian.Uint16(b[8:]) != protocolVersion {
		return statusVersion
	}
	h.lane = b[10]
	from, to, size := binary.LittleEndian.Uint32(b[12:]), binary.LittleEndian.Uint32(b[16:]), binary.LittleEndian.Uint32(b[20:])
	if h.lane > laneControl || b[11] != 0 || size > 1<<24 || from >= size || to >= size || from == to {
		return fmt.Errorf("it sent an invalid hello: from rank %d to rank %d of %d on lane %d", from, to, size, h.lane)
	}
	h.from, h.to, h.size = int(from), int(to), int(size)
	copy(h.job[:], b[24:])
	copy(h.group[:], b[40:])
	copy(h.listener[:], b[56:])
	copy(h.nonce[:], b[64:])
	return nil
}

// prove returns the proof of one side. binding ties it to the TLS session; nil without TLS.
func prove(secret []byte, side string, hello *[helloBytes]byte, nonce, binding []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(side))
	mac.Write(hello[:])
	mac.Write(nonce)
	mac.Write(binding)
	return mac.Sum(nil)
}

const (
	sideCaller   = "tutti tcp caller:"
	sideListener = "tutti tcp listener:"
)

// challenge encodes the listener's answer to a hello.
func challenge(s status, nonce, proof []byte) []byte {
	b := make([]byte, challengeBytes)
	copy(b, handshakeMagic[:])
	binary.LittleEndian.PutUint16(b[8:], protocolVersion)
	binary.LittleEndian.PutUint16(b[10:], uint16(s))
	copy(b[16:48], nonce)
	copy(b[48:80], proof)
	return b
}

// welcome encodes the listener's last message.
func welcome(s status) []byte {
	b := make([]byte, welcomeBytes)
	copy(b, handshakeMagic[:])
	binary.LittleEndian.PutUint16(b[8:], uint16(s))
	return b
}

// readAnswer reads a challenge or a welcome whose status is at offset at. It returns the status as
// an error.
func readAnswer(r io.Reader, b []byte, at int) error {
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	if [8]byte(b[:8]) != handshakeMagic {
		return errNotTutti
	}
	if s := status(binary.LittleEndian.Uint16(b[at:])); s != statusOK {
		return s
	}
	return nil
}

// clientHandshake is the dialer's side up to the listener's proof. The dialer sends the returned proof to
// commit to this connection. The caller bounds the time and closes the connection after an error.
func clientHandshake(c io.ReadWriter, h *hello, secret, binding []byte) (proof []byte, err error) {
	_, _ = rand.Read(h.nonce[:]) // never fails
	sent := h.encode()
	if _, err := c.Write(sent[:]); err != nil {
		return nil, err
	}
	var b [challengeBytes]byte
	if err := readAnswer(c, b[:], 10); err != nil {
		return nil, err
	}
	if !hmac.Equal(b[48:80], prove(secret, sideListener, &sent, b[16:48], binding)) {
		// A wrong proof lets the listener log that the secrets differ.
		_, _ = c.Write(make([]byte, proofBytes))
		return nil, errSecret
	}
	return prove(secret, sideCaller, &sent, b[16:48], binding), nil
}

// serverHandshake is the listener's side up to the dialer's proof. accept decides whether a hello is for this
// listener; its error is sent to the dialer if it is a status. The caller bounds the time and closes the
// connection after an error.
func serverHandshake(c io.ReadWriter, h *hello, secret, binding []byte, accept func(*hello) error) error {
	var got [helloBytes]byte
	if n, err := io.ReadFull(c, got[:]); err != nil {
		if n == 0 && disconnected(err) {
			return errCallerLeft
		}
		return err
	}
	err := h.decode(&got)
	if err == nil {
		err = accept(h)
	}
	if err != nil {
		if s, ok := errors.AsType[status](err); ok {
			_, _ = c.Write(challenge(s, nil, nil))
		}
		return err
	}
	var nonce [32]byte
	_, _ = rand.Read(nonce[:]) // never fails
	if _, err := c.Write(challenge(statusOK, nonce[:], prove(secret, sideListener, &got, nonce[:], binding))); err != nil {
		return err
	}
	var proof [proofBytes]byte
	if _, err := io.ReadFull(c, proof[:]); err != nil {
		if disconnected(err) {
			return errCallerLeft
		}
		return err
	}
	if !hmac.Equal(proof[:], prove(secret, sideCaller, &got, nonce[:], binding)) {
		return errSecret
	}
	return nil
}

// errCallerLeft says that a dialer has closed the connection in good order. A rank dials several
// addresses of a peer, and continues with the first that answers or with the peer's own connection.
var errCallerLeft = errors.New("it uses another connection")
