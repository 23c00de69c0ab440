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

// Config says how a server or a client talks. Both sides of a store have the
// same Secret, Cert, Key and Plain.
type Config struct {
	// Secret is known to the members of the job and to nobody else. It is
	// required unless Plain is set. Off the loopback it has 16 bytes or more, at
	// random.
	Secret []byte
	// Cert and Key, in PEM, encrypt the connections; see tutti.NewJobCert. They
	// are required off the loopback unless Plain is set. Nil on the loopback
	// means that nothing is encrypted.
	Cert, Key []byte
	// Plain asks for PyTorch's bare protocol: no secret, no encryption. Every
	// process that reaches the port can read and change everything.
	Plain bool
	// Silence is about how long the other side's host may not answer before a
	// connection ends. Zero means 30 seconds.
	Silence time.Duration
	// Limits bounds what a server takes and what a client sends and accepts.
	Limits Limits
	// Logger is told, by a server, who was refused and why. Nil means
	// slog.Default.
	Logger *slog.Logger
}

// fill puts the defaults in and checks the rest. addr is where the server is.
func (c *Config) fill(addr net.Addr) (*tls.Config, error) {
	c.Limits.fill()
	if c.Silence <= 0 {
		c.Silence = keepalive.DefaultSilence
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
	case c.Cert == nil && !loopback(addr):
		return nil, kindf(ErrInvalid, "no certificate (Config.Cert and Key), but %v is not on the loopback", addr)
	case c.Cert == nil:
		return nil, nil
	}
	t, err := jobtls.Config(c.Cert, c.Key)
	if err != nil {
		return nil, &kindError{ErrInvalid, err.Error(), err}
	}
	return t, nil
}

func loopback(addr net.Addr) bool {
	a, ok := addr.(*net.TCPAddr)
	return !ok || a.IP.IsLoopback()
}
