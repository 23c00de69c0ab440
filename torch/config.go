package torch

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/launchenv"
	"github.com/tutti-go/tutti/internal/ncclsys"
	"github.com/tutti-go/tutti/nccl"
)

// Config says which rank this process is and of which job. The zero value is right under
// torchrun and `tutti run --torch`.
type Config struct {
	// Rank and Size are this process's rank and the number of ranks. If Size is zero,
	// RANK and WORLD_SIZE say both.
	Rank, Size int
	// Addr is the address of PyTorch's store, "host:port", which rank 0 serves. Empty
	// means MASTER_ADDR and MASTER_PORT. Then torchrun's agent serves the store, if
	// TORCHELASTIC_USE_AGENT_STORE says so.
	Addr string
	// IDKey is the store's key of the communicator's id. Empty means the key of the
	// default group.
	IDKey string

	// Device is this rank's GPU, which the caller closes. Nil means the device LOCAL_RANK,
	// modulo the number of devices; the Group opens and closes it.
	Device *cuda.Device
	// Library is the path of libnccl. Its version must be the other ranks' version.
	// Empty means the library that TUTTI_NCCL_LIBRARY names, else the library in the
	// PyTorch wheel of the python3 on PATH, else the library that nccl.Load finds.
	Library string

	// Timeout bounds every call whose context has no earlier deadline. Zero means five
	// minutes. A negative Timeout means no bound.
	Timeout time.Duration
	// Logger receives warnings. Nil means slog.Default.
	Logger *slog.Logger
}

// A storePlan is where a job's store is, and how its keys begin.
type storePlan struct {
	hosts    bool     // this process serves the store
	prefixes []string // every prefix that the job's keys may have
}

// fill sets the defaults from the environment. The string is the reason why the Config is
// not valid, or "".
func (c *Config) fill() (storePlan, string) {
	s := storePlan{prefixes: []string{""}}
	if c.Timeout == 0 {
		c.Timeout = engine.DefaultTimeout
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
			return s, "the number of ranks is not set (Config.Size or WORLD_SIZE)"
		}
		c.Rank, c.Size = p.Rank, p.Size
	}
	agent := false
	if c.Addr == "" && p != nil {
		c.Addr = p.Addr
		if agent = p.Store != ""; agent {
			c.Addr = p.Store
			// PyTorch up to about 2.5 prefixes the keys with the attempt.
			s.prefixes = append(s.prefixes, "/worker/attempt_"+p.Attempt+"/")
		}
	}
	s.hosts = c.Rank == 0 && !agent
	if c.Size < 1 || c.Rank < 0 || c.Rank >= c.Size {
		return s, fmt.Sprintf("rank %d of %d ranks, which are numbered from 0", c.Rank, c.Size)
	}
	if c.Addr == "" {
		return s, "the address of the job's store is not set (Config.Addr, or MASTER_ADDR and MASTER_PORT)"
	}
	if _, _, err := net.SplitHostPort(c.Addr); err != nil {
		return s, fmt.Sprintf("the address %q is not host:port", c.Addr)
	}
	return s, ""
}

// device returns Config.Device, or opens the device that the environment names. own
// reports whether the caller must close it.
func (c *Config) device() (d *cuda.Device, own bool, err error) {
	if c.Device != nil {
		return c.Device, false, nil
	}
	n, err := cuda.Devices()
	if err != nil {
		return nil, false, err
	}
	local, _ := strconv.Atoi(os.Getenv("LOCAL_RANK")) // 0 if it is not set
	if n > 0 {
		local %= n
	}
	d, err = cuda.Open(local, c.Logger)
	return d, true, err
}

// library loads libnccl. The library of PyTorch's wheel is only a default: if it cannot
// be loaded, another one is.
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
