package control

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/tutti-go/tutti/internal/jobtls"
)

// With a certificate, TLS begins after rank 0's challenge, which says so: each
// side finds out at once that the other does not do as it does. What follows,
// the proofs first, is encrypted, and the proofs are worth nothing in another
// session.

// whatDiffers is what to do where one side encrypts and the other does not.
const tlsHint = "give all ranks the same Addr, Cert and Plain (Config; TUTTI_ADDR, TUTTI_CERT, TUTTI_PLAIN)"

// otherCert is what to do where both do, and do not believe each other.
const certHint = "all ranks must have the same certificate (Config.Cert, TUTTI_CERT), one that has not expired, or the same secret " +
	"that it is made of (Config.Secret, TUTTI_SECRET)"

// encrypt goes on with TLS. The deadline is the connection's.
func (c *conn) encrypt(t *tls.Conn) error {
	if err := t.Handshake(); err != nil {
		return err
	}
	binding, err := jobtls.Binding(t, "control")
	if err != nil {
		return err
	}
	c.Conn, c.in, c.binding = t, bufio.NewReader(t), binding
	return nil
}

// Close closes the connection without a word: the channel has its own goodbye,
// and TLS would wait for one who does not read.
func (c *conn) Close() error { return c.raw.Close() }

// encrypt does as rank 0 does, if this rank is to.
func (m *Member) encrypt(rootDoes bool) error {
	cfg := &m.cfg
	does := cfg.TLS != nil
	switch {
	case rootDoes != does:
		// Rank 0 deserves to know why this rank leaves.
		_ = m.rootConn.send(&frame{Kind: hello, Version: version, Rank: cfg.Rank, Size: cfg.Size, TLS: does})
		if does {
			return mismatchError(fmt.Sprintf("rank %d encrypts its connections, and rank 0 at %s does not; %s", cfg.Rank, cfg.Addr, tlsHint))
		}
		return mismatchError(fmt.Sprintf("rank 0 at %s encrypts its connections, and rank %d does not; %s", cfg.Addr, cfg.Rank, tlsHint))
	case !does:
		return nil
	}
	err := m.rootConn.encrypt(tls.Client(m.rootConn.raw, cfg.TLS))
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("what listens at %s does not have this rank's certificate; %s: %w", cfg.Addr, certHint, err)
	}
	if err != nil {
		return fmt.Errorf("no encrypted connection with rank 0 at %s: %w", cfg.Addr, err)
	}
	return nil
}

// unencrypted says why there is no TLS with one who has connected, and whether
// it is a rank, as far as can be seen.
func tlsFailure(err error) (reason string, rank bool) {
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		if plain.RecordHeader[0] == 0 { // the length of a frame begins so
			return "it does not encrypt, and this job does; " + tlsHint, true
		}
		return "it does not speak TLS, and this job does", false
	}
	if errors.Is(err, net.ErrClosed) {
		return errEvicted.Error(), false
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return fmt.Sprintf("it does not take this job's certificate; %s: %v", certHint, err), true
	}
	return fmt.Sprintf("no encrypted connection: %v", err), false
}
