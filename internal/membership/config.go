package membership

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/envvar"
	"github.com/tutti-go/tutti/internal/jobtls"
	"github.com/tutti-go/tutti/internal/keepalive"
	"github.com/tutti-go/tutti/internal/launchenv"
)

// MaxRanks is the largest number of ranks of a group.
const MaxRanks = 1 << 16

// A Config holds the options of a membership. Fields that tutti.Config has, too, are
// documented there.
type Config struct {
	Rank, Size     int
	Late           bool
	Addr           string
	Secret         string
	Interface      string
	Host           string
	Cert, Key      []byte
	NoEncryption   bool
	NoSharedMemory bool
	Reproducible   bool
	Verify         bool
	Timeout        time.Duration // zero or less: no bound
	HostTimeout    time.Duration // zero: keepalive.DefaultHostTimeout
	ShrinkTimeout  time.Duration // positive

	// ABI describes the constants of callers that all ranks must have in common; see
	// package abi.
	ABI string
	// Alike are options that all ranks must have, or none: their values by their names,
	// both for people.
	Alike map[string]string
	// Attach adds the rank's device to an engine, and returns the engine to use. before is
	// the rank's engine of the generation before, nil if there is none. Attach closes the
	// engine if it fails.
	Attach func(e, before engine.Engine) (engine.Engine, error)
	// Logger must not be nil.
	Logger *slog.Logger

	place  *launchenv.Place // set by Locate; nil: the launcher describes none
	remind time.Duration    // replaces control.RemindInterval in tests; zero: it does not
}

// Locate completes the Config from the environment: the rank, the size, and the address of
// the rendezvous. wrong describes a mistake; "" if there is none.
func (c *Config) Locate(getenv func(string) string) (wrong string) {
	if c.Secret == "" {
		c.Secret = getenv("TUTTI_SECRET")
	}
	late, badLate := envvar.Bool(getenv, envvar.Late)
	plain, badPlain := envvar.Bool(getenv, envvar.NoEncryption)
	c.Late, c.NoEncryption = c.Late || late, c.NoEncryption || plain
	if c.Interface == "" {
		c.Interface = getenv("TUTTI_SOCKET_IFNAME")
	}
	wrong = c.locateRank(getenv)
	if c.Size == 0 {
		c.Size = 1
	}
	if err := cmp.Or(badLate, badPlain, c.locateCertificate(getenv)); err != nil {
		return err.Error()
	}
	return wrong
}

// locateCertificate sets the certificate and the key from the environment, if the Config has neither.
func (c *Config) locateCertificate(getenv func(string) string) error {
	cert, key := getenv("TUTTI_CERT"), getenv("TUTTI_KEY")
	switch {
	case c.Cert != nil || c.Key != nil || cert == "" && key == "":
	case key == "":
		return errors.New("TUTTI_CERT is set but TUTTI_KEY is not; NewJobCert makes both")
	case cert == "":
		return errors.New("TUTTI_KEY is set but TUTTI_CERT is not; NewJobCert makes both")
	default:
		c.Cert, c.Key = []byte(cert), []byte(key)
	}
	return nil
}

// locateRank sets the place, and the rank, the size and the address according to it.
func (c *Config) locateRank(getenv func(string) string) (wrong string) {
	if c.Late {
		c.place, wrong = launchenv.Late(getenv)
		return wrong
	}
	if c.Size != 0 {
		if c.Addr == "" {
			c.place, wrong = launchenv.Store(getenv)
		}
		return wrong
	}
	p, wrong := launchenv.Find(getenv)
	if p == nil {
		return wrong
	}
	c.place = p
	c.Rank, c.Size = p.Rank, p.Size
	if c.Secret == "" {
		p.StayLocal()
	} else {
		p.Local = false // the ranks may use any address, because they encrypt
	}
	if c.Addr != "" {
		p.Store = ""
	} else {
		c.Addr = p.Addr
	}
	return wrong
}

// Validate checks a located Config, and derives the certificate from the secret where the
// job needs one and has none. wrong describes a mistake; "" if there is none.
func (c *Config) Validate() (wrong string) {
	if wrong := c.validateRank(); wrong != "" {
		return wrong
	}
	if c.Size > 1 || c.Late {
		if wrong := c.validateNetwork(); wrong != "" {
			return wrong
		}
	}
	return c.deriveCertificate()
}

// validateRank describes a mistake in the rank, the size or the HostTimeout; "" if there is
// none.
func (c *Config) validateRank() string {
	switch {
	case c.Size < 1:
		return fmt.Sprintf("%d ranks (Config.Size); the minimum is 1", c.Size)
	case c.Size > MaxRanks:
		return fmt.Sprintf("%d ranks (Config.Size); the maximum is %d", c.Size, MaxRanks)
	case c.Rank < 0 || c.Rank >= c.Size:
		source := "Config.Rank and Config.Size say"
		if c.place != nil {
			source = c.place.From + " says"
		}
		return fmt.Sprintf("%s that this is rank %d of %d ranks, which are numbered from 0 to %d", source, c.Rank, c.Size, c.Size-1)
	case c.HostTimeout < 0:
		return fmt.Sprintf("a Config.HostTimeout of %v; it must be positive, or zero for %v", c.HostTimeout, keepalive.DefaultHostTimeout)
	}
	return ""
}

// validateNetwork describes a mistake in the address, the secret or the certificate; "" if
// there is none.
func (c *Config) validateNetwork() string {
	addr := c.rendezvousAddr()
	switch {
	case addr == "" && c.place != nil:
		return fmt.Sprintf("%s says which rank this is, but not where rank 0 listens (Config.Addr or TUTTI_ADDR, host:port)", c.place.From)
	case addr == "":
		return "no address at which rank 0 listens (Config.Addr, host:port, the same on all ranks)"
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Sprintf("the address %q is not host:port", addr)
	}
	if !launchenv.OnLoopback(addr) {
		if wrong := launchenv.CheckSecret(c.Secret); wrong != "" {
			return fmt.Sprintf("%s is not on the loopback, and %s (Config.Secret or TUTTI_SECRET)", addr, wrong)
		}
	}
	if (c.Cert == nil) != (c.Key == nil) {
		return "a certificate without a key, or the reverse (Config.Cert and Config.Key; NewJobCert makes both)"
	}
	if _, err := c.tls(); err != nil {
		return fmt.Sprintf("Config.Cert and Config.Key (TUTTI_CERT, TUTTI_KEY) cannot be used; NewJobCert makes both: %v", err)
	}
	return ""
}

// deriveCertificate makes the certificate of the secret. A rendezvous on the loopback needs
// none.
func (c *Config) deriveCertificate() string {
	addr := c.rendezvousAddr()
	if c.Cert != nil || c.Key != nil || c.Secret == "" || addr == "" || launchenv.OnLoopback(addr) {
		return ""
	}
	var err error
	if c.Cert, c.Key, err = jobtls.DeriveCertificate(c.Secret); err != nil {
		return fmt.Sprintf("no certificate can be made of Config.Secret (NewJobCert makes another): %v", err)
	}
	return ""
}

// rendezvousAddr returns the address of the rendezvous, the same on all ranks; "" if there
// is none.
func (c *Config) rendezvousAddr() string {
	if c.place != nil && c.place.Store != "" {
		return c.place.Near()
	}
	return c.Addr
}

// tls returns the configuration of the ranks' encrypted connections; nil if they are not
// encrypted.
func (c *Config) tls() (*tls.Config, error) {
	if c.Cert == nil || c.NoEncryption {
		return nil, nil
	}
	return jobtls.Config(c.Cert, c.Key)
}
