package torch

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/launchenv"
	"github.com/tutti-go/tutti/internal/ncclsys"
	"github.com/tutti-go/tutti/nccl"
)

// Config says which rank this process is, and of which job. Its zero value is
// right under torchrun and `tutti run --torch`.
type Config struct {
	// Rank and Size are this process's number and how many there are. A Size of
	// zero means RANK and WORLD_SIZE.
	Rank, Size int
	// Addr is where PyTorch's store is, "host:port". Rank 0 hosts it. Empty means
	// MASTER_ADDR and MASTER_PORT; then torchrun's agent hosts it instead, if
	// TORCHELASTIC_USE_AGENT_STORE says so.
	Addr string
	// IDKey is the store's key for the communicator's id. Empty means that of the
	// default group.
	IDKey string

	// Device is this rank's GPU, and stays the caller's. Nil means the one with
	// the number LOCAL_RANK, counted around if there are fewer, which the Group
	// opens and closes.
	Device *cuda.Device
	// Library is the path of libnccl, which must have the version of the other
	// ranks'. Empty means the library that TUTTI_NCCL_LIBRARY names, or else that
	// of PyTorch's wheel, as the python3 on PATH finds it, or else what nccl.Load
	// finds.
	Library string

	// Timeout bounds every call whose context has no earlier deadline. Zero means
	// five minutes; negative, no bound.
	Timeout time.Duration
	// Logger is told what a person should know. Nil means slog.Default.
	Logger *slog.Logger
}

const defaultTimeout = 5 * time.Minute

// A site is where a job meets.
type site struct {
	hosts    bool     // this process hosts the store
	prefixes []string // what may stand before all keys
}

// fill puts the defaults and the environment in, and says what is wrong.
func (c *Config) fill() (site, string) {
	s := site{prefixes: []string{""}}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	p, wrong := launchenv.FindTorch(os.Getenv)
	if c.Size == 0 {
		switch {
		case wrong != "":
			return s, wrong
		case p == nil:
			return s, "neither Config.Size nor WORLD_SIZE says how many ranks there are"
		}
		c.Rank, c.Size = p.Rank, p.Size
	}
	agent := false
	if c.Addr == "" && p != nil {
		c.Addr = p.Addr
		if agent = p.Store != ""; agent {
			c.Addr = p.Store
			// PyTorch up to about 2.5 keeps the attempts apart.
			s.prefixes = append(s.prefixes, "/worker/attempt_"+p.Attempt+"/")
		}
	}
	s.hosts = c.Rank == 0 && !agent
	if c.Size < 1 || c.Rank < 0 || c.Rank >= c.Size {
		return s, fmt.Sprintf("rank %d of %d ranks, which are numbered from 0", c.Rank, c.Size)
	}
	if c.Addr == "" {
		return s, "nobody says where the job's store is (Config.Addr, or MASTER_ADDR and MASTER_PORT)"
	}
	if _, _, err := net.SplitHostPort(c.Addr); err != nil {
		return s, fmt.Sprintf("the address %q is not host:port", c.Addr)
	}
	return s, ""
}

// device opens the device that the environment says, unless there is one.
func (c *Config) device() (d *cuda.Device, own bool, err error) {
	if c.Device != nil {
		return c.Device, false, nil
	}
	n, err := cuda.Devices()
	if err != nil {
		return nil, false, err
	}
	local, _ := strconv.Atoi(os.Getenv("LOCAL_RANK")) // 0 if nobody says
	if n > 0 {
		local %= n
	}
	d, err = cuda.Open(local, c.Logger)
	return d, true, err
}

// library loads libnccl.
func (c *Config) library() (*nccl.Library, error) {
	wheel := ""
	if c.Library == "" && os.Getenv(ncclsys.LibraryEnv) == "" {
		wheel = ncclsys.Wheel()
	}
	if wheel == "" {
		return nccl.Load(c.Library)
	}
	lib, err := nccl.Load(wheel)
	if err == nil {
		return lib, nil
	}
	c.Logger.Warn("tutti: the NCCL of PyTorch's wheel cannot be loaded; another one is searched for", "path", wheel, "error", err)
	return nccl.Load("")
}
