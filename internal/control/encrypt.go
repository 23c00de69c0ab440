package control

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/tutti-go/tutti/internal/jobtls"
)

// If the job has a certificate, TLS begins after rank 0's challenge. The challenge says whether
// rank 0 encrypts, so a difference is detected at once. The proofs are sent inside TLS and are
// bound to the TLS session.

// tlsHint says what to do if only one side encrypts.
const tlsHint = "set on all ranks the same Addr, Cert and NoEncryption (Config; TUTTI_ADDR, TUTTI_CERT, TUTTI_NO_ENCRYPTION)"

// certHint says what to do if both sides encrypt with different certificates.
const certHint = "all ranks must have the same certificate (Config.Cert, TUTTI_CERT), one that has not expired, or the same secret " +
	"from which it is derived (Config.Secret, TUTTI_SECRET)"

// encrypt performs the TLS handshake on the connection, under its deadline.
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

// Close closes the connection without a TLS close_notify. The channel has its own goodbye, and
// close_notify would block on a peer that does not read.
func (c *conn) Close() error { return c.raw.Close() }

// encrypt starts TLS with rank 0. It fails if only one of the two ranks encrypts.
func (m *Member) encrypt(rootEncrypts bool) error {
	cfg := &m.cfg
	encrypts := cfg.TLS != nil
	switch {
	case rootEncrypts != encrypts:
		// The hello lets rank 0 log why this rank leaves.
		_ = m.rootConn.send(&frame{Kind: hello, Version: version, Rank: cfg.Rank, Size: cfg.Size, TLS: encrypts})
		if encrypts {
			return mismatchError(fmt.Sprintf("rank %d encrypts its connections, and rank 0 at %s does not; %s", cfg.Rank, cfg.Addr, tlsHint))
		}
		return mismatchError(fmt.Sprintf("rank 0 at %s encrypts its connections, and rank %d does not; %s", cfg.Addr, cfg.Rank, tlsHint))
	case !encrypts:
		return nil
	}
	err := m.rootConn.encrypt(tls.Client(m.rootConn.raw, cfg.TLS))
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("the process at %s does not have this rank's certificate; %s: %w", cfg.Addr, certHint, err)
	}
	if err != nil {
		return fmt.Errorf("no encrypted connection with rank 0 at %s: %w", cfg.Addr, err)
	}
	return nil
}

// tlsFailure describes why the TLS handshake with a peer failed, and reports whether the peer seems
// to be a rank.
func tlsFailure(err error) (reason string, rank bool) {
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		if plain.RecordHeader[0] == 0 { // a frame without TLS begins with a zero byte of its length
			return "it does not encrypt, and this job does; " + tlsHint, true
		}
		return "it does not speak TLS, and this job does", false
	}
	if errors.Is(err, net.ErrClosed) {
		return errEvicted.Error(), false
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return fmt.Sprintf("it does not accept this job's certificate; %s: %v", certHint, err), true
	}
	return fmt.Sprintf("no encrypted connection: %v", err), false
}
