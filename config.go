package tutti

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/tutti-go/tutti/internal/jobtls"
	"github.com/tutti-go/tutti/internal/keepalive"
	"github.com/tutti-go/tutti/internal/launchenv"
)

// Config says how a Comm is made. Its zero value is right for most programs.
// Where all ranks must have the same, Join compares: a difference is ErrMismatch.
type Config struct {
	// Timeout bounds every operation whose context has no earlier deadline:
	// when it has waited that long for other ranks, it fails with ErrTimeout.
	// Zero means five minutes; negative, no bound.
	Timeout time.Duration

	// Silence is about how long another rank's host may not answer before the
	// rank is lost. A host answers also when its ranks are stopped or busy: so
	// this tells of hosts and networks that are gone, and never of slow ranks. A
	// process that ends is noticed at once. Zero means 30 seconds; more than 24
	// days, which is the most that a kernel can be asked for, means 24 days.
	Silence time.Duration

	// Patience is how long Shrink waits for ranks of which nothing is known, and
	// Shrink and Grow for a new Comm to be made, before they go on without those
	// who do not come. Zero means ten seconds.
	Patience time.Duration

	// Device is this rank's GPU, for operations on its memory; see package gpu.
	// Nil means none: host memory only. All ranks have one, or none has.
	Device Device
	// HostStaging makes operations on the device's memory go through host memory
	// and the CPU's engine, in pieces, instead of NCCL, which is not loaded then:
	// for GPUs that have none, or that several ranks share. It is slower; the
	// Logger is told once, and StagedCalls counts. False means what
	// TUTTI_HOST_STAGING says, if that is 1. All ranks have it, or none has.
	HostStaging bool

	// Verify has data that was damaged found. What goes over the network has a
	// checksum (CRC-32C), and after every 16th AllReduce, Broadcast and AllGather
	// of host memory the ranks compare their results, which must be equal, except
	// in a Batch that has device memory, too. Damage is ErrCorrupt, which says who
	// sent it to whom and from which address, or whose result differs. False means
	// that nothing is checked, except by what is below: TCP's own weak checksum, or
	// Cert's encryption. All ranks have it, or none has.
	Verify bool

	// FlightDir is a folder in which each rank leaves, when the Comm is poisoned,
	// what its flight recorder holds: a file of JSON for tutti inspect. Empty
	// means TUTTI_FLIGHT_DIR; without that no file is written, see Comm.Dump.
	FlightDir string

	// Rank and Size are this process's number and how many there are. A Size
	// of zero means what the environment says; see Join. These and what follows
	// are for Join.
	Rank, Size int
	// Late has Join wait until the job, which is running, calls Grow, and join
	// it then. Rank and Size mean nothing. False means what TUTTI_LATE says.
	Late bool
	// Addr is where rank 0 listens and the others find it, "host:port". Empty
	// means what the environment says, if Size is zero. If it is on the loopback, or
	// the store where ranks meet is, the ranks listen on the loopback alone, for
	// data, too; then they must all be on one host.
	Addr string
	// Secret is known to the ranks of the job and to nobody else: 16 bytes or more,
	// made at random (openssl rand -hex 32). Empty means TUTTI_SECRET. It may be
	// missing, or shorter, only if Addr is on the loopback. A job without a secret
	// can be joined by every user of the host, who can then read and change its data.
	Secret string
	// Interface names the network interfaces to use, separated by commas; with
	// a leading ^, those not to use. Empty means what TUTTI_SOCKET_IFNAME says,
	// or else whatever reaches the other ranks. It does not concern jobs on the
	// loopback.
	Interface string
	// Cert and Key, in PEM, encrypt and authenticate all that goes over the
	// network, data and the control channel; all ranks have the same. See
	// NewJobCert. Nil means TUTTI_CERT and TUTTI_KEY; without those they are made of
	// Secret, except where Addr, or the store where the ranks meet, is on the
	// loopback: nothing is encrypted there.
	Cert, Key []byte
	// Plain has nothing encrypted that the ranks send each other, for networks to
	// which nobody else has access. They still prove to each other that they know
	// Secret when they connect. It does not concern the store of tutti run. False
	// means what TUTTI_PLAIN says, if that is 1. All ranks have it, or none has.
	Plain bool
	// NoSharedMemory makes ranks of one host use the network.
	NoSharedMemory bool
	// Host tells hosts apart that look alike: only ranks that give the same share
	// one. Empty is what all give, usually.
	Host string
	// Reproducible makes the bits of a result independent of the algorithm and
	// of where ranks are: those of a reduction in rank order. It costs some
	// speed on the network. The bits are the same on all ranks in any case. All
	// ranks have it, or none has.
	Reproducible bool
	// Logger is told what a person should know, such as who was refused. Nil
	// means slog.Default.
	Logger *slog.Logger
}

const (
	defaultTimeout  = 5 * time.Minute
	defaultPatience = 10 * time.Second

	maxRanks = 1 << 16 // of a group
)

// place finds out which rank this is, and where the ranks meet. It is nil where
// Config says it all, or nobody says anything.
func (c *Config) place() (p *launchenv.Place, wrong string) {
	if c.Secret == "" {
		c.Secret = os.Getenv("TUTTI_SECRET")
	}
	if cert, key := os.Getenv("TUTTI_CERT"), os.Getenv("TUTTI_KEY"); c.Cert == nil && c.Key == nil && cert != "" && key != "" {
		c.Cert, c.Key = []byte(cert), []byte(key)
	}
	if late, _ := strconv.ParseBool(os.Getenv("TUTTI_LATE")); late {
		c.Late = true
	}
	if c.Late {
		p := launchenv.Late(os.Getenv)
		if p == nil {
			return nil, "nobody says where the store of the running job is (TUTTI_STORE)"
		}
		return p, ""
	}
	if c.Size != 0 {
		return nil, ""
	}
	p, wrong = launchenv.Find(os.Getenv)
	if p == nil {
		return nil, wrong
	}
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
	return p, ""
}

// fill puts the defaults in.
func (c *Config) fill() {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Patience <= 0 {
		c.Patience = defaultPatience
	}
	if c.Size == 0 {
		c.Size = 1
	}
	if os.Getenv("TUTTI_HOST_STAGING") == "1" {
		c.HostStaging = true
	}
	if os.Getenv("TUTTI_PLAIN") == "1" {
		c.Plain = true
	}
	if c.Interface == "" {
		c.Interface = os.Getenv("TUTTI_SOCKET_IFNAME")
	}
	if c.FlightDir == "" {
		c.FlightDir = os.Getenv("TUTTI_FLIGHT_DIR")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

// meetingPoint is where the ranks find each other, the same on all; "": nowhere.
func (c *Config) meetingPoint(p *launchenv.Place) string {
	if p != nil && p.Store != "" {
		return p.Near()
	}
	return c.Addr
}

// certify makes the job's certificate where it needs one and was given none. It
// says what is wrong.
func (c *Config) certify(p *launchenv.Place) string {
	addr := c.meetingPoint(p)
	if c.Cert != nil || c.Key != nil || c.Secret == "" || addr == "" || launchenv.OnLoopback(addr) {
		return ""
	}
	var err error
	if c.Cert, c.Key, err = jobtls.DeriveCertificate(c.Secret); err != nil {
		return fmt.Sprintf("no certificate can be made of Config.Secret (NewJobCert makes another): %v", err)
	}
	return ""
}

// validate says what is wrong with a filled Config, for Join.
func (c *Config) validate(p *launchenv.Place) string {
	addr := c.meetingPoint(p)
	switch {
	case c.Size < 1:
		return fmt.Sprintf("%d ranks (Config.Size); there must be one at least", c.Size)
	case c.Size > maxRanks:
		return fmt.Sprintf("%d ranks (Config.Size); there can be %d at most", c.Size, maxRanks)
	case c.Rank < 0 || c.Rank >= c.Size:
		said := "Config.Rank and Config.Size say"
		if p != nil {
			said = p.From + " says"
		}
		return fmt.Sprintf("%s that this is rank %d of %d ranks, which are numbered from 0 to %d", said, c.Rank, c.Size, c.Size-1)
	case c.Silence < 0:
		return fmt.Sprintf("a Config.Silence of %v; it must be positive, or zero for %v", c.Silence, keepalive.DefaultSilence)
	case c.Size == 1 && !c.Late:
		return ""
	case addr == "" && p != nil:
		return fmt.Sprintf("%s says which rank this is, but not where rank 0 listens (Config.Addr or TUTTI_ADDR, host:port)", p.From)
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
		return fmt.Sprintf("Config.Cert and Config.Key cannot be used (NewJobCert makes both): %v", err)
	}
	return ""
}

// tls returns the ranks' way to encrypt; nil if they have none.
func (c *Config) tls() (*tls.Config, error) {
	if c.Cert == nil || c.Plain {
		return nil, nil
	}
	return jobtls.Config(c.Cert, c.Key)
}

// NewJobCert makes a certificate and a key for one job, valid for so long, to
// be given to all its ranks and to nobody else.
func NewJobCert(valid time.Duration) (cert, key []byte, err error) {
	return jobtls.NewCertificate(valid)
}
