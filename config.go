package tutti

import (
	"log/slog"
	"os"
	"time"

	"github.com/tutti-go/tutti/internal/abi"
	"github.com/tutti-go/tutti/internal/jobtls"
	"github.com/tutti-go/tutti/internal/membership"
	"github.com/tutti-go/tutti/internal/report"
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
)

// fill sets the defaults. membership.Config.Locate sets those of Join.
func (c *Config) fill() {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Patience <= 0 {
		c.Patience = defaultPatience
	}
	if os.Getenv("TUTTI_HOST_STAGING") == "1" {
		c.HostStaging = true
	}
	if c.FlightDir == "" {
		c.FlightDir = os.Getenv("TUTTI_FLIGHT_DIR")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

// membership returns the options of a filled Config that concern the membership.
func (c *Config) membership() *membership.Config {
	return &membership.Config{
		Rank: c.Rank, Size: c.Size, Late: c.Late, Addr: c.Addr, Secret: c.Secret, Interface: c.Interface, Host: c.Host,
		Cert: c.Cert, Key: c.Key, Plain: c.Plain, NoSharedMemory: c.NoSharedMemory, Reproducible: c.Reproducible, Verify: c.Verify,
		Timeout: c.Timeout, Silence: c.Silence, Patience: c.Patience, ABI: c.abi(), Alike: c.alike(), Attach: c.attach, Logger: c.Logger,
	}
}

// reporter returns the Reporter of the Comms that start with a membership; nil if nothing is
// to be reported.
func (c *Config) reporter(m *membership.Membership) *report.Reporter {
	name, open := m.Process()
	return report.New(report.Config{Name: name, Open: open, FlightDir: c.FlightDir, Logger: c.Logger})
}

// abi describes the constants of this package, and of the device's, that all ranks must
// have in common.
func (c *Config) abi() string {
	text := abi.Text("tutti", "verifyEvery", verifyEvery)
	if d, ok := c.Device.(interface{ ABI() string }); ok {
		text += d.ABI()
	}
	return text
}

// alike returns the options that all ranks must set, or none, by their names. Names and
// values are for people.
func (c *Config) alike() map[string]string {
	all := make(map[string]string)
	for name, on := range map[string]bool{
		"Config.Device": c.Device != nil, "Config.HostStaging": c.Device != nil && c.HostStaging,
		"Config.Verify": c.Verify, "Config.Reproducible": c.Reproducible,
	} {
		if on {
			all[name] = "set"
		}
	}
	return all
}

// NewJobCert makes a certificate and a key for one job, valid for so long, to
// be given to all its ranks and to nobody else.
func NewJobCert(valid time.Duration) (cert, key []byte, err error) {
	return jobtls.NewCertificate(valid)
}
