package tutti

import (
	"log/slog"
	"os"
	"time"

	"github.com/tutti-go/tutti/internal/abi"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/envvar"
	"github.com/tutti-go/tutti/internal/jobtls"
	"github.com/tutti-go/tutti/internal/membership"
	"github.com/tutti-go/tutti/internal/report"
)

// Config holds the options of a Comm. Its zero value is right for most programs.
// Join compares the options that all ranks must have in common; a difference is
// ErrMismatch.
type Config struct {
	// Timeout bounds every operation whose context has no earlier deadline: an
	// operation that has waited so long for other ranks fails with ErrTimeout.
	// Zero means five minutes; negative means no bound. It does not bound Join.
	Timeout time.Duration

	// HostTimeout is about how long another rank's host may not answer before the
	// rank is lost. The kernel of a host answers also when its ranks are stopped
	// or busy. So HostTimeout detects failed hosts and networks, and never slow ranks.
	// A process that exits is noticed at once. Zero means 30 seconds. The maximum
	// is 24 days, a limit of the kernel.
	HostTimeout time.Duration

	// ShrinkTimeout is how long Shrink waits for ranks that do not call it and are not
	// known to be lost, and how long Shrink and Grow wait for the ranks of the new
	// Comm to connect. They continue without the ranks that are missing then. Zero
	// means ten seconds.
	ShrinkTimeout time.Duration

	// Device is this rank's GPU, for operations on its memory; see package gpu.
	// Nil means host memory only. All ranks set it, or none.
	Device Device
	// HostStaging copies device memory through host memory, in pieces, and runs
	// operations on the CPU instead of NCCL, which is not loaded then. It is for
	// GPUs without NCCL, and for GPUs that several ranks share. It is slower: the
	// Logger gets one message, and Stats.Staged counts the operations. The
	// environment variable TUTTI_HOST_STAGING=1 sets it, too. All ranks set it, or
	// none.
	HostStaging bool

	// Verify enables corruption checks. Data on the network gets a checksum
	// (CRC-32C). After every 16th AllReduce, Broadcast and AllGather of host memory
	// the ranks compare their results, which must be equal; a Batch that also has
	// device memory is not compared. Corrupt data is ErrCorrupt, which names the
	// sender, the receiver and the address, or the rank whose result differs. If
	// Verify is false, only TCP's weak checksum and the encryption of Cert check the
	// data. All ranks set it, or none.
	Verify bool

	// FlightDir is a directory. When the Comm is poisoned, each rank writes the
	// content of its flight recorder there, as a file of JSON for tutti inspect; see
	// Comm.Dump. Empty means TUTTI_FLIGHT_DIR. If that is empty, too, no file is
	// written.
	FlightDir string

	// Rank and Size are this process's number and the number of processes. If Size
	// is zero, both come from the environment; see Join. These and the following
	// fields are for Join.
	Rank, Size int
	// Late makes Join wait until the ranks of a running job call Grow. Rank and Size
	// are ignored. The environment variable TUTTI_LATE=1 sets it, too.
	Late bool
	// Addr is the address at which rank 0 listens, "host:port". Empty means that the
	// ranks find each other through the job's store (TUTTI_STORE), or, if Size is zero,
	// at the address in the environment. If Addr or the job's store is on
	// the loopback, the ranks listen on the loopback alone, for data, too; then all
	// ranks must be on one host.
	Addr string
	// Secret is a random text of 16 bytes or more that only the ranks of the job
	// know (openssl rand -hex 32). Empty means TUTTI_SECRET. It may be missing, or
	// shorter, only if Addr is on the loopback. Every user of the host can join a
	// job without a secret, and then read and change its data.
	Secret string
	// Interface names the network interfaces to use, separated by commas, or, with
	// a leading ^, the interfaces not to use. Empty means TUTTI_SOCKET_IFNAME. If
	// that is empty, too, all interfaces that reach the other ranks are used. Jobs
	// on the loopback ignore it.
	Interface string
	// Cert and Key, in PEM, encrypt and authenticate all connections between ranks,
	// for data and for the control channel. All ranks have the same; see NewJobCert.
	// Nil means TUTTI_CERT and TUTTI_KEY. Without these, they are derived from
	// Secret. If Addr or the job's store is on the loopback, they are not derived,
	// and nothing is encrypted.
	Cert, Key []byte
	// NoEncryption disables the encryption between ranks, for networks to which
	// nobody else has access. Ranks that connect still prove that they know Secret.
	// The connection to the job's store stays encrypted. The environment variable
	// TUTTI_NO_ENCRYPTION=1 sets it, too. All ranks set it, or none.
	NoEncryption bool
	// NoSharedMemory makes ranks of one host use the network.
	NoSharedMemory bool
	// Host distinguishes hosts that tutti takes for one: only ranks with the same
	// Host share memory. It is usually empty on all ranks.
	Host string
	// Reproducible makes the bits of a result independent of the algorithm and of the
	// placement of ranks: they are those of a reduction in rank order. It is slower
	// on the network. All ranks get the same bits in any case. All ranks set it, or
	// none.
	Reproducible bool
	// Logger receives messages for people, such as refused connections. Nil means
	// slog.Default.
	Logger *slog.Logger
}

const defaultShrinkTimeout = 10 * time.Second

// fill sets the defaults of a copy of the user's Config. membership.Config.Locate sets the defaults that
// only Join needs, such as the rank. The error is that of an environment variable that cannot be parsed.
func (c *Config) fill() error {
	if c.Timeout == 0 {
		c.Timeout = engine.DefaultTimeout
	}
	if c.ShrinkTimeout <= 0 {
		c.ShrinkTimeout = defaultShrinkTimeout
	}
	staging, err := envvar.Bool(os.Getenv, envvar.HostStaging)
	c.HostStaging = c.HostStaging || staging
	if c.FlightDir == "" {
		c.FlightDir = os.Getenv("TUTTI_FLIGHT_DIR")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if err == nil {
		err = envvar.CheckKernel(os.Getenv)
	}
	return err
}

// membership returns the options of a filled Config that concern the membership.
func (c *Config) membership() *membership.Config {
	return &membership.Config{
		Rank: c.Rank, Size: c.Size, Late: c.Late, Addr: c.Addr, Secret: c.Secret, Interface: c.Interface, Host: c.Host,
		Cert: c.Cert, Key: c.Key, NoEncryption: c.NoEncryption, NoSharedMemory: c.NoSharedMemory, Reproducible: c.Reproducible, Verify: c.Verify,
		Timeout: c.Timeout, HostTimeout: c.HostTimeout, ShrinkTimeout: c.ShrinkTimeout, ABI: c.abi(), Alike: c.alike(), Attach: c.attach, Logger: c.Logger,
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

// NewJobCert makes a certificate and a key for one job, valid for the given time.
// Pass them to all ranks of the job and to nobody else.
func NewJobCert(valid time.Duration) (cert, key []byte, err error) {
	return jobtls.NewCertificate(valid)
}
