package store

import (
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/tutti-go/tutti/internal/jobtls"
	"github.com/tutti-go/tutti/internal/keepalive"
	"github.com/tutti-go/tutti/internal/launchenv"
)

// Config configures a server or a client. Both sides of a store need the same
// Secret, Cert, Key and Plain.
type Config struct {
	// Secret authenticates the members of the job to each other. It is required
	// unless Plain is set. Except on the loopback it needs at least 16 random bytes.
	Secret []byte
	// Cert and Key, in PEM, encrypt the connections; see tutti.NewJobCert. Nil means
	// the certificate that tutti.Join and tutti run derive from Secret, or on the
	// loopback no encryption.
	Cert, Key []byte
	// Plain selects PyTorch's protocol as it is: no authentication and no
	// encryption. Every process that reaches the port can read and change everything.
	Plain bool
	// HostTimeout is how long the peer's host may be unreachable before the connection
	// ends, approximately. Zero means 30 seconds.
	HostTimeout time.Duration
	// Limits bounds what a server accepts, and what a client sends and accepts.
	Limits Limits
	// Logger receives one line for each connection that a server refuses. Nil means
	// slog.Default.
	Logger *slog.Logger
}

// fill sets the defaults and checks the rest. addr is the server's address. It
// returns nil and no error if connections are not encrypted.
func (c *Config) fill(addr net.Addr) (*tls.Config, error) {
	c.Limits.fill()
	if c.HostTimeout <= 0 {
		c.HostTimeout = keepalive.DefaultHostTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	switch {
	case c.Plain && (c.Secret != nil || c.Cert != nil || c.Key != nil):
		return nil, kindf(ErrInvalid, "a plain store has neither secret nor certificate")
	case c.Plain:
		return nil, nil
	case len(c.Secret) == 0:
		return nil, kindf(ErrInvalid, "no secret (Config.Secret); a store without one must be asked for (Config.Plain)")
	case !loopback(addr) && launchenv.CheckSecret(string(c.Secret)) != "":
		return nil, kindf(ErrInvalid, "%v is not on the loopback, and %s (Config.Secret)", addr, launchenv.CheckSecret(string(c.Secret)))
	case (c.Cert == nil) != (c.Key == nil):
		return nil, kindf(ErrInvalid, "a certificate without a key, or the reverse")
	case c.Cert == nil && loopback(addr):
		return nil, nil
	}
	cert, key := c.Cert, c.Key
	if cert == nil {
		var err error
		if cert, key, err = jobtls.DeriveCertificate(string(c.Secret)); err != nil {
			return nil, &kindError{ErrInvalid, err.Error(), err}
		}
	}
	t, err := jobtls.Config(cert, key)
	if err != nil {
		return nil, &kindError{ErrInvalid, err.Error(), err}
	}
	return t, nil
}

func loopback(addr net.Addr) bool {
	a, ok := addr.(*net.TCPAddr)
	return !ok || a.IP.IsLoopback()
}
