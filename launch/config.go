package launch

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/tutti-go/tutti/internal/place"
)

// Config says what to run. Only Command is required.
type Config struct {
	// Command is the program and its arguments, the same for each rank.
	Command []string
	// Ranks is how many ranks this host has. Zero means one.
	Ranks int
	// Min makes the job elastic: when it loses a rank after all have joined, it goes
	// on as long as so many are left, of the whole job, and another process is
	// started in the place of the lost one, which joins late (TUTTI_LATE) when the
	// others call Grow. A whole host, except node 0, may be lost, too; then another
	// launcher of the same Config takes its place. Zero means that the loss of a rank
	// ends the job.
	Min int
	// Max is how many ranks an elastic job has on all its hosts together, which is the
	// sum of their Ranks. Zero, on a job of one host, means Ranks.
	Max int
	// Replacements is how many processes this launcher starts in the places of
	// others, in one attempt. Zero means three times Ranks; negative, none.
	Replacements int

	// Nodes is how many hosts the job has, and Node which of them this is.
	// Zero Nodes means one.
	Nodes, Node int
	// Addr is where node 0 hosts the store, "host:port". Empty, on a job of one
	// host, means a port of the loopback.
	Addr string
	// Secret is known to the hosts of the job and to nobody else: random, and
	// at least 16 bytes. Empty, on a job of one host, means a new one.
	Secret string
	// JoinTime is how long the other hosts may take to come. Zero: 5 minutes.
	JoinTime time.Duration
	// LostTime is how long nothing may be heard of another host before it
	// counts as lost. Zero: 15 s.
	LostTime time.Duration

	// Torch opens a second store, a plain one, and tells PyTorch to use it. It
	// has no authentication. TorchAddr is where, on node 0; empty, on a job of
	// one host, means a port of the loopback.
	Torch     bool
	TorchAddr string

	// Visible gives each rank one device by CUDA_VISIBLE_DEVICES. Without it
	// ranks see all devices, and LOCAL_RANK says which one is theirs.
	Visible bool
	// Bind gives each rank its own part of this process's processors, if there
	// is at least one for each.
	Bind bool
	// Env is the environment to which the ranks' own is added. Nil means that
	// of this process.
	Env []string
	// Dir is where ranks start. Empty means here.
	Dir string

	// Stdin is rank 0's input. Nil means none. If it is a terminal, rank 0 is in a
	// session of its own: the terminal would stop it otherwise.
	Stdin *os.File
	// Stdout and Stderr take what ranks print, each line after its rank. Nil
	// means that of this process. They may be the same Writer, and are then not
	// called at the same time. A Write may have several lines, or a part of one that
	// is very long or a prompt. Color colours the ranks.
	Stdout, Stderr io.Writer
	Color          bool
	// LogDir is a folder for files with each rank's output, as the rank printed it.
	// A file that cannot be written ends there; Stderr and Report.Incomplete name it,
	// and the job goes on. Empty means none.
	LogDir string
	// FlightDir is a folder in which ranks leave their flight recorders' dumps when
	// the job fails or is stopped. Empty means what the ranks' environment says.
	FlightDir string

	// Restarts is how often all ranks are started again after a failure.
	Restarts int
	// Grace is how long ranks have to end when they are asked to, before they
	// are killed. Before that they have a tenth of it, but half a second at least,
	// to say what they are doing. Zero: 5 s.
	Grace time.Duration
	// Signals are passed on to all ranks. An interrupt, termination or hangup
	// ends the job, a second one at once. Nil means none.
	Signals <-chan os.Signal
	// Lifeline ends everything at once when it ends; see Guard. Nil means none.
	Lifeline io.Reader
	// Logger is told who was refused by the store. Nil means slog.Default.
	Logger *slog.Logger
}

// fill puts the defaults in and says what is wrong with the rest.
func (c *Config) fill() error {
	if c.Ranks == 0 {
		c.Ranks = 1
	}
	if c.Replacements == 0 {
		c.Replacements = 3 * c.Ranks
	}
	if c.Nodes == 0 {
		c.Nodes = 1
	}
	if c.JoinTime == 0 {
		c.JoinTime = 5 * time.Minute
	}
	if c.LostTime == 0 {
		c.LostTime = 15 * time.Second
	}
	if c.Grace == 0 {
		c.Grace = 5 * time.Second
	}
	if c.Env == nil {
		c.Env = os.Environ()
	}
	if c.Stdout == nil {
		c.Stdout = os.Stdout
	}
	if c.Stderr == nil {
		c.Stderr = os.Stderr
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Nodes == 1 {
		if c.Max == 0 {
			c.Max = c.Ranks
		}
		if c.Addr == "" {
			c.Addr = "127.0.0.1:0"
		}
		if c.TorchAddr == "" {
			c.TorchAddr = "127.0.0.1:0"
		}
		if c.Secret == "" {
			b := make([]byte, 32)
			_, _ = rand.Read(b) // never fails
			c.Secret = hex.EncodeToString(b)
		}
	}
	return c.check()
}

func (c *Config) check() error {
	wrong := func(format string, args ...any) error { return &Error{"it cannot start", fmt.Errorf(format, args...)} }
	switch {
	case len(c.Command) == 0:
		return wrong("no program to run")
	case c.Ranks < 1:
		return wrong("%d ranks; there must be one at least", c.Ranks)
	case c.Min > 0 && c.Nodes > 1 && c.Max == 0:
		return wrong("an elastic job of %d hosts needs to know how many ranks it has in all", c.Nodes)
	case c.Min < 0 || c.Min > c.Max && c.Min > 0:
		return wrong("it is to go on with %d ranks or more, and has %d", c.Min, c.Max)
	case c.Min > 0 && (c.Ranks > c.Max || c.Nodes == 1 && c.Ranks != c.Max):
		return wrong("this host has %d ranks, and the whole job %d", c.Ranks, c.Max)
	case c.Min > 0 && c.Torch:
		return wrong("PyTorch's groups cannot go on without a rank; have all started again instead")
	case c.Nodes < 1 || c.Node < 0 || c.Node >= c.Nodes:
		return wrong("node %d of %d nodes, which are numbered from 0", c.Node, c.Nodes)
	case c.Addr == "":
		return wrong("a job of %d hosts needs the address of node 0, host:port", c.Nodes)
	case place.CheckSecret(c.Secret) != "":
		return wrong("%s (TUTTI_SECRET)", place.CheckSecret(c.Secret))
	case c.Torch && c.TorchAddr == "":
		return wrong("on several hosts the plain store for PyTorch needs an address that they reach, host:port; it has no authentication")
	}
	for _, addr := range []string{c.Addr, c.TorchAddr} {
		if _, _, err := net.SplitHostPort(addr); addr != "" && err != nil {
			return wrong("the address %q is not host:port", addr)
		}
	}
	return nil
}

// overHosts reports whether the job is elastic over several hosts.
func (c *Config) overHosts() bool { return c.Min > 0 && c.Nodes > 1 }

// elastic is what hosts compare of Min and Max, for people.
func (c *Config) elastic() string {
	if c.Min == 0 {
		return "without --elastic"
	}
	return fmt.Sprintf("with --elastic %d:%d", c.Min, c.Max)
}

// encrypted reports whether the job's connections leave the host.
func (c *Config) encrypted() bool { return !place.OnLoopback(c.Addr) }

// An Error is why a job could not be started or watched.
type Error struct {
	What  string
	Cause error
}

// Error is one sentence.
func (e *Error) Error() string { return "launch: " + e.What + ": " + e.Cause.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }
