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

// The handshake, all of fixed size:
//
//	caller    hello       who calls whom, and a random number
//	listener  challenge   its own random number, and its proof
//	caller    proof       the caller commits to this connection
//	listener  welcome     when the group is there
//
// A proof is an HMAC, keyed with the job's secret, of everything said so far.
const (
	protocolVersion = 1
	helloBytes      = 96
	challengeBytes  = 80
	proofBytes      = sha256.Size
	welcomeBytes    = 16
)

var handshakeMagic = [8]byte{'t', 'u', 't', 't', 'i', 't', 'c', 'p'}

// The lanes of a mesh, and the one of connections that belong to no mesh.
const (
	laneFrames = iota
	laneMessages
	lanes
	laneControl = lanes
)

// A status is a listener's answer.
type status uint16

const (
	statusOK        status = iota
	statusVersion          // it speaks another version
	statusJob              // it belongs to another job
	statusListener         // it is not the listener the caller looks for
	statusClosed           // the group is closed already
	statusCrossed          // both called at once, and its own call counts
	statusConnected        // the rank is connected already
	statusFull             // too many wait for their groups
	statusLate             // the group was not made in time
	statusSize             // the group has another number of ranks
)

var statusText = map[status]string{
	statusVersion:   "it speaks another version of the protocol",
	statusJob:       "it belongs to another job",
	statusListener:  "another process listens there",
	statusClosed:    "it has closed the group",
	statusCrossed:   "both ranks called at once",
	statusConnected: "the rank is connected already",
	statusFull:      "too many connections wait for their groups",
	statusLate:      "it did not make the group in time",
	statusSize:      "its group has another number of ranks",
}

// Error says why the listener refused.
func (s status) Error() string {
	if text, ok := statusText[s]; ok {
		return text
	}
	return fmt.Sprintf("it refused with status %d", uint16(s))
}

var (
	errNotTutti = errors.New("it does not speak this protocol")
	errSecret   = errors.New("it does not know the job's secret")
)

// A hello says who calls whom.
type hello struct {
	lane     byte
	from, to int
	size     int
	job      [16]byte
	group    Group
	listener [8]byte
	nonce    [32]byte
}

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

// decode reads a hello and checks that it makes sense. The error is a status
// where the caller deserves an answer.
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
		return fmt.Errorf("it says that rank %d calls rank %d of %d on lane %d", from, to, size, h.lane)
	}
	h.from, h.to, h.size = int(from), int(to), int(size)
	copy(h.job[:], b[24:])
	copy(h.group[:], b[40:])
	copy(h.listener[:], b[56:])
	copy(h.nonce[:], b[64:])
	return nil
}

// prove returns the proof of one side. The binding ties it to the TLS session,
// if there is one.
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

// welcome encodes the listener's last word.
func welcome(s status) []byte {
	b := make([]byte, welcomeBytes)
	copy(b, handshakeMagic[:])
	binary.LittleEndian.PutUint16(b[8:], uint16(s))
	return b
}

// readAnswer reads a challenge or a welcome, whose status is at the given
// place.
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

// greet is the caller's side up to the point where it knows that it has the
// right listener. commit sends what is returned.
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
		// The listener deserves to know why the caller leaves.
		_, _ = c.Write(make([]byte, proofBytes))
		return nil, errSecret
	}
	return prove(secret, sideCaller, &sent, b[16:48], binding), nil
}

// examine is the listener's side up to the point where it knows the caller.
// accept decides whether a hello is for this listener.
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

// errElsewhere is why a caller left who had done nothing wrong: ranks call all
// addresses of a peer, and go on with the first that answers, or with the
// peer's own call.
var errCallerLeft = errors.New("it went on with another connection")
