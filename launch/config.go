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

	"github.com/tutti-go/tutti/internal/launchenv"
)

// Config describes a job. Only Command is required.
type Config struct {
	// Command is the program and its arguments, equal for all ranks.
	Command []string
	// Ranks is the number of ranks on this host. Zero means 1.
	Ranks int
	// Min makes the job elastic. When a rank is lost after all have joined, the job
	// continues as long as Min ranks of the whole job remain. The launcher starts a
	// replacement, which joins (TUTTI_LATE) when the other ranks call Grow. A whole
	// host, except node 0, may be lost, too; another launcher with the same Config then
	// takes its place. Zero means that the loss of a rank ends the job.
	Min int
	// Max is the number of ranks of an elastic job on all its hosts together, which is
	// the sum of their Ranks. Zero, in a job of one host, means Ranks.
	Max int
	// Replacements bounds the replacements that this launcher starts in one attempt.
	// Zero means three times Ranks; negative means none.
	Replacements int

	// Nodes is the number of hosts of the job, and Node the number of this one, from 0.
	// Zero Nodes means 1.
	Nodes, Node int
	// Addr is the address of the store on node 0, "host:port". Empty, in a job of one
	// host, means a free port on the loopback interface.
	Addr string
	// Secret authenticates the hosts of the job: random, and at least 16 bytes. Empty,
	// in a job of one host, means a new random one.
	Secret string
	// JoinTime bounds the wait for the other hosts at the start. Zero means 5 minutes.
	JoinTime time.Duration
	// LostTime is the time without heartbeats after which another host counts as lost.
	// Zero means 15 seconds.
	LostTime time.Duration

	// Torch opens a second store for PyTorch, without authentication, and sets
	// PyTorch's environment variables. TorchAddr is its address on node 0; empty, in a
	// job of one host, means a free port on the loopback interface.
	Torch     bool
	TorchAddr string

	// Visible assigns each rank one device with CUDA_VISIBLE_DEVICES. Otherwise ranks
	// see all devices, and LOCAL_RANK is the index of their own.
	Visible bool
	// Bind assigns each rank its own part of this process's CPUs, if there is at least
	// one CPU per rank.
	Bind bool
	// Env is the environment to which the ranks' variables are added. Nil means the
	// environment of this process.
	Env []string
	// Dir is the ranks' working directory. Empty means that of this process.
	Dir string

	// Stdin is rank 0's standard input. Nil means none. If it is a terminal, rank 0
	// runs in its own session, because the terminal would stop it otherwise.
	Stdin *os.File
	// Stdout and Stderr receive the ranks' output, each line after its rank number. Nil
	// means those of this process. They may be the same Writer, which is then not
	// called concurrently. A Write may hold several lines, or a part of a line that is
	// very long or a prompt. Color colours the rank numbers.
	Stdout, Stderr io.Writer
	Color          bool
	// LogDir is a directory for files with each rank's output, as the rank printed it.
	// A file ends at its first write error; Stderr and Report.Incomplete name it, and
	// the job continues. Empty means none.
	LogDir string
	// FlightDir is a directory for the ranks' flight dumps, written when the job fails
	// or is stopped. Empty means the value in the ranks' environment.
	FlightDir string

	// Restarts is how often all ranks are started again after a failure.
	Restarts int
	// Grace is the time between the request to end, SIGTERM, and SIGKILL. Before
	// SIGTERM, ranks have a tenth of it, but half a second to ten seconds, to report their
	// activity. Zero means 5 seconds.
	Grace time.Duration
	// Signals are forwarded to all ranks. SIGINT, SIGTERM or SIGHUP ends the job; a
	// second one kills it at once. Nil means none.
	Signals <-chan os.Signal
	// Lifeline kills all ranks when it reaches its end; see Guard. Nil means none.
	Lifeline io.Reader
	// Logger logs hosts and ranks that the store refuses. Nil means slog.Default.
	Logger *slog.Logger
}

// fill sets the defaults and checks the rest.
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

// check returns an Error for a Config with which no job can start. It expects that the defaults are
// set.
func (c *Config) check() error {
	invalid := func(format string, args ...any) error {
		return &Error{"cannot start the job", fmt.Errorf(format, args...)}
	}
	switch {
	case len(c.Command) == 0:
		return invalid("no program to run")
	case c.Ranks < 1:
		return invalid("%d ranks; there must be one at least", c.Ranks)
	case c.Min > 0 && c.Nodes > 1 && c.Max == 0:
		return invalid("an elastic job of %d hosts needs the number of ranks of the whole job", c.Nodes)
	case c.Min < 0 || c.Min > c.Max && c.Min > 0:
		return invalid("it must keep %d ranks or more, and has %d", c.Min, c.Max)
	case c.Min > 0 && (c.Ranks > c.Max || c.Nodes == 1 && c.Ranks != c.Max):
		return invalid("this host has %d ranks, and the whole job %d", c.Ranks, c.Max)
	case c.Min > 0 && c.Torch:
		return invalid("PyTorch's process groups cannot lose a rank; restart all ranks instead (--restarts)")
	case c.Nodes < 1 || c.Node < 0 || c.Node >= c.Nodes:
		return invalid("node %d of %d nodes, which are numbered from 0", c.Node, c.Nodes)
	case c.Addr == "":
		return invalid("a job of %d hosts needs the address of node 0, host:port (--addr, Config.Addr)", c.Nodes)
	case launchenv.CheckSecret(c.Secret) != "":
		return invalid("%s (TUTTI_SECRET)", launchenv.CheckSecret(c.Secret))
	case c.Torch && c.TorchAddr == "":
		return invalid("on several hosts the plain store for PyTorch needs an address that they reach, host:port; it has no authentication")
	}
	for _, addr := range []string{c.Addr, c.TorchAddr} {
		if _, _, err := net.SplitHostPort(addr); addr != "" && err != nil {
			return invalid("the address %q is not host:port", addr)
		}
	}
	return nil
}

// elasticOverHosts reports whether the job is elastic and has several hosts.
func (c *Config) elasticOverHosts() bool { return c.Min > 0 && c.Nodes > 1 }

// elastic describes Min and Max, for the comparison between hosts and for people.
func (c *Config) elastic() string {
	if c.Min == 0 {
		return "without --elastic"
	}
	return fmt.Sprintf("with --elastic %d:%d", c.Min, c.Max)
}

// encrypted reports whether the job's connections leave the host.
func (c *Config) encrypted() bool { return !launchenv.OnLoopback(c.Addr) }

// An Error says why a job could not be started or monitored.
type Error struct {
	What  string // the step or part that failed, such as "the store"
	Cause error  // never nil
}

// Error returns the message.
func (e *Error) Error() string { return "launch: " + e.What + ": " + e.Cause.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }
