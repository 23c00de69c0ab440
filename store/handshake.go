package store

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"net"

	"github.com/tutti-go/tutti/internal/jobtls"
)

// A secured connection begins with a handshake, before the protocol:
//
//	client  hello      the mark and a nonce
//	server  challenge  the mark, a status, the server's nonce, and its proof
//	client  proof
//	server  welcome    the mark and a status
//
// A proof is an HMAC, keyed with the job's secret, of both nonces and of the TLS
// session's binding, if there is one. A recorded or relayed proof is therefore
// worthless on any other connection. The first byte of the mark is not VALIDATE, so
// each side of a secured and a plain store recognises the other.
const (
	mark           = "tuttikv1"
	nonceBytes     = 32
	proofBytes     = sha256.Size
	helloBytes     = len(mark) + nonceBytes
	statusBytes    = len(mark) + 1
	challengeBytes = statusBytes + nonceBytes + proofBytes
)

// A status is the server's verdict on a connection, one byte on the wire.
type status byte

const (
	statusOK status = iota
	statusNeedSecret
	statusPlain
	statusSecret
	statusFull
	statusOld
	statusGarbage
	statusCount
)

var statusText = [statusCount]string{
	statusOK:         "ok",
	statusNeedSecret: "the store wants the job's secret first; pass it in Config.Secret (TUTTI_SECRET), or start the store with Config.Plain",
	statusPlain:      "the store is a plain one and knows no secret; connect with Config.Plain",
	statusSecret:     "the secrets differ; use the same on both sides (Config.Secret, TUTTI_SECRET)",
	statusFull:       "it has too many connections",
	statusOld:        "this is not the protocol of PyTorch 2.x; PyTorch 1.x is not supported",
	statusGarbage:    "this is not the store's protocol",
}

func (s status) Error() string {
	if s < statusCount {
		return statusText[s]
	}
	return "it does not say why"
}

func answer(s status) []byte { return append([]byte(mark), byte(s)) }

// binding returns bytes that identify the connection's TLS session, the same on both
// sides. It is nil without TLS.
func binding(c net.Conn) ([]byte, error) {
	t, ok := c.(*tls.Conn)
	if !ok {
		return nil, nil
	}
	return jobtls.Binding(t, "store")
}

// prove computes the proof of one side, "client" or "server".
func prove(secret []byte, side string, client, server, binding []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("tutti store 1 " + side + ":"))
	h.Write(client)
	h.Write(server)
	h.Write(binding)
	return h.Sum(nil)
}

// clientHandshake performs the client's side of the handshake. If the server refuses, or
// its proof is wrong, the error is a status.
func clientHandshake(c net.Conn, secret []byte) error {
	bind, err := binding(c)
	if err != nil {
		return err
	}
	first := append([]byte(mark), make([]byte, nonceBytes)...)
	ours := first[len(mark):]
	_, _ = rand.Read(ours) // never fails
	if _, err := c.Write(first); err != nil {
		return err
	}
	var b [challengeBytes]byte
	if err := readStatus(c, b[:statusBytes]); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, b[statusBytes:]); err != nil {
		return err
	}
	theirs, proof := b[statusBytes:statusBytes+nonceBytes], b[statusBytes+nonceBytes:]
	if !hmac.Equal(proof, prove(secret, "server", ours, theirs, bind)) {
		// A wrong proof makes the server log the reason.
		_, _ = c.Write(make([]byte, proofBytes))
		return statusSecret
	}
	if _, err := c.Write(prove(secret, "client", ours, theirs, bind)); err != nil {
		return err
	}
	return readStatus(c, b[:statusBytes])
}

// readStatus reads a mark and a status into b. A status other than statusOK is
// returned as the error.
func readStatus(r io.Reader, b []byte) error {
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	if string(b[:len(mark)]) != mark {
		return statusGarbage
	}
	if s := status(b[len(mark)]); s != statusOK {
		return s
	}
	return nil
}

// errNoProof is the reason for a client that ended the connection before its proof: its context ended, it has
// exited, or it only checks that the server listens. A client with another secret sends a wrong proof.
var errNoProof = errors.New("the client ended the connection before it authenticated")

// serverHandshake performs the server's side of the handshake. The error is a status if the
// client must be answered.
func serverHandshake(c net.Conn, r io.Reader, secret []byte) error {
	bind, err := binding(c)
	if err != nil {
		return err
	}
	var first [helloBytes]byte
	if _, err := io.ReadFull(r, first[:1]); err != nil {
		return err
	}
	switch {
	case first[0] == byte(idValidate):
		return statusNeedSecret
	case first[0] != mark[0]:
		return unknownStart(first[0])
	}
	if _, err := io.ReadFull(r, first[1:]); err != nil {
		return err
	}
	if !bytes.HasPrefix(first[:], []byte(mark)) {
		return statusGarbage
	}
	theirs := first[len(mark):]
	ours := make([]byte, nonceBytes)
	_, _ = rand.Read(ours) // never fails
	challenge := append(answer(statusOK), ours...)
	if _, err := c.Write(append(challenge, prove(secret, "server", theirs, ours, bind)...)); err != nil {
		return err
	}
	var proof [proofBytes]byte
	if _, err := io.ReadFull(r, proof[:]); err != nil {
		return err
	}
	if !hmac.Equal(proof[:], prove(secret, "client", theirs, ours, bind)) {
		return statusSecret
	}
	_, err = c.Write(answer(statusOK))
	return err
}

// unknownStart classifies a connection by its first byte, which is neither VALIDATE nor
// the mark's.
func unknownStart(b byte) error {
	const tlsHandshake = 0x16
	switch {
	case b == tlsHandshake:
		return errors.New("the client speaks TLS, and this store has no certificate")
	case id(b) <= idDelete:
		// PyTorch 1.x begins with a request, most often ADD of "init/".
		return statusOld
	}
	return statusGarbage
}
