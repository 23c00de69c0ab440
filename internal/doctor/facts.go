package doctor

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/tutti-go/tutti/internal/bench"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/place"
	"github.com/tutti-go/tutti/internal/transport/tcp"
)

// Facts are what a machine is like. Negative numbers are not known, or without
// bound.
type Facts struct {
	Version, Go, System string
	HasGPUs             bool // the program can load the libraries of GPUs

	Arch       string
	KernelPath string
	KernelEnv  string
	Features   []string

	Cores, Procs int     // that this process may use; GOMAXPROCS
	Quota        float64 // cores that the control group grants
	MemoryFree   int
	MemoryLimit  int // of the control group
	ShmBytes     int // of /dev/shm

	Files, Processes, Locked, Address int // limits
	// Threads is how many the probe for them could start, wantThreads if it was not
	// stopped; ThreadError is what stopped it. Negative: nobody tried.
	Threads     int
	ThreadError string
	StartError  string // no process could be started

	Interfaces []Interface
	Addresses  []string // that other ranks are offered
	AddrError  string
	IfEnv      string

	Place, PlaceError string
	Env               []string
	Memory            Memory
	MemoryError       string // the probe has failed
	GPUs              GPUs
	GPUError          string // the probe has failed
	DeviceFiles       bool
	MPS               string // how its service was seen; "": it was not
	Engines           []Engine
}

// An Interface is a network interface that is up.
type Interface struct {
	Name     string
	Loopback bool
	Addrs    []string
	MTU      int
}

// Memory is what processes can share; an empty text means that it works.
type Memory struct {
	Supported bool
	Make      string // a memory file
	Pass      string // passing it to another process
	Read      string // reading another process's memory
}

// GPUs is what a look at CUDA and NCCL has found.
type GPUs struct {
	CUDAError  string
	CUDABroken bool   // a file is there, but it cannot be used
	CUDA       string // the version that the driver supports
	Library    string
	Devices    []GPU
	NCCLError  string
	NCCLBroken bool // a file is there, but it cannot be used
	NCCL       string
	NCCLPath   string
	Missing    []Lack
	Others     []string // further libraries, such as PyTorch's own
}

// Usable returns how many GPUs there are, and why they cannot be used, with NCCL or
// without it.
func (g *GPUs) Usable(withNCCL bool) (int, error) {
	switch {
	case g.CUDAError != "":
		return 0, errors.New(g.CUDAError)
	case withNCCL && g.NCCLError != "":
		return len(g.Devices), errors.New(g.NCCLError)
	}
	return len(g.Devices), nil
}

// A GPU is one device.
type GPU struct {
	Name, PCI, Capability string
	Free, Total           uint64
	Peers                 []int // whose memory it can reach
	Error                 string
}

// A Lack is a function that NCCL does not have.
type Lack struct{ Function, Since string }

// An Engine is how a tiny collective on it went.
type Engine struct {
	Name  string
	Ranks int
	Got   string  // the engine that it was
	P50   float64 // us
	Error string
}

// Probes are other processes that look.
type Probes struct {
	// Threads starts threads until there are enough, or it dies of it, and returns
	// how many there were.
	Threads func(ctx context.Context) (int, error)
	Memory  func(ctx context.Context) (Memory, error)
	GPUs    func(ctx context.Context) (GPUs, error) // nil: the program cannot
	// Try runs a tiny collective on an engine.
	Try func(ctx context.Context, engine string, ranks int) Engine
}

// Look looks at this machine.
func Look(ctx context.Context, p Probes) *Facts {
	f := &Facts{
		Version: bench.Version(), Go: runtime.Version(), System: bench.System(), HasGPUs: p.GPUs != nil,
		Arch: runtime.GOARCH, KernelPath: kernel.Path(), KernelEnv: os.Getenv("TUTTI_KERNEL"), Features: features(),
		Cores: runtime.NumCPU(), Procs: runtime.GOMAXPROCS(0), Quota: -1, MemoryFree: -1, MemoryLimit: -1, ShmBytes: -1,
		Files: -1, Processes: -1, Locked: -1, Address: -1, Threads: -1, IfEnv: os.Getenv("TUTTI_SOCKET_IFNAME"), Env: bench.Environment(os.Environ()),
	}
	f.lookAtLimits()
	if f.lookForRoom(ctx, p); f.cramped() {
		return f // every further thread might end this program
	}
	f.lookAtSystem()
	f.MPS = findMPS()
	f.lookAtNetwork()
	if here, wrong := place.Find(os.Getenv); wrong != "" {
		f.PlaceError = wrong
	} else if here != nil {
		f.Place = here.From
	}
	for _, pattern := range []string{"/dev/nvidiactl", "/dev/nvidia[0-9]*", "/dev/dxg", "/dev/nvhost-ctrl"} {
		found, _ := filepath.Glob(pattern)
		f.DeviceFiles = f.DeviceFiles || len(found) > 0
	}
	var err error
	if f.Memory, err = p.Memory(ctx); err != nil {
		f.MemoryError = err.Error()
	}
	if p.GPUs != nil {
		if f.GPUs, err = p.GPUs(ctx); err != nil {
			f.GPUError = err.Error()
		}
	}
	f.try(ctx, p)
	return f
}

// try tries the engines: those of the CPU at once, if there is room for that, because
// one that hangs is given up only after a while.
func (f *Facts) try(ctx context.Context, p Probes) {
	f.Engines = f.engines()
	var tries sync.WaitGroup
	for i := range f.Engines {
		e := &f.Engines[i]
		switch {
		case e.Name != bench.Local && f.AddrError != "" && f.IfEnv == "":
			e.Error = "not tried: ranks meet over the loopback at least, and no interface is up"
		case e.Name == bench.NCCL || e.Name == bench.Staged || f.Threads < WantThreads:
			tries.Wait()
			*e = p.Try(ctx, e.Name, e.Ranks)
		default:
			tries.Go(func() { *e = p.Try(ctx, e.Name, e.Ranks) })
		}
	}
	tries.Wait()
}

// engines are those that are worth a try here.
func (f *Facts) engines() []Engine {
	list := []Engine{{Name: bench.Local, Ranks: 2}, {Name: bench.TCP, Ranks: 2}}
	if f.shareless() != "" {
		// What Join makes of it.
		list = append(list, Engine{Name: bench.Auto, Ranks: 2})
	}
	if f.Memory.Supported || f.MemoryError != "" {
		list = append(list, Engine{Name: bench.Shm, Ranks: 2}, Engine{Name: bench.Hier, Ranks: 3})
	}
	if len(f.GPUs.Devices) > 0 {
		list = append(list, Engine{Name: bench.Staged, Ranks: 2})
	}
	if len(f.GPUs.Devices) > 0 && f.GPUs.NCCLError == "" {
		list = append(list, Engine{Name: bench.NCCL, Ranks: max(2, len(f.GPUs.Devices))})
	}
	return list
}

// lookAtNetwork finds the interfaces, and the addresses that a rank would offer.
func (f *Facts) lookAtNetwork() {
	list, err := net.Interfaces()
	if err != nil {
		f.AddrError = err.Error()
		return
	}
	for _, i := range list {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, _ := i.Addrs()
		in := Interface{Name: i.Name, Loopback: i.Flags&net.FlagLoopback != 0, MTU: i.MTU}
		for _, a := range addrs {
			in.Addrs = append(in.Addrs, a.String())
		}
		f.Interfaces = append(f.Interfaces, in)
	}
	l, err := tcp.Bind(tcp.Options{Interface: f.IfEnv}) // nobody is accepted
	if err != nil {
		f.AddrError = err.Error()
		return
	}
	defer l.Close()
	for _, a := range l.Addrs() {
		hostPort, _, _ := strings.Cut(a, "/")
		host, _, _ := net.SplitHostPort(hostPort)
		f.Addresses = append(f.Addresses, host)
	}
}

// findMPS looks for the service that lets processes share a GPU well.
func findMPS() string {
	dir := os.Getenv("CUDA_MPS_PIPE_DIRECTORY")
	if dir == "" {
		dir = "/tmp/nvidia-mps"
	}
	if _, err := os.Stat(filepath.Join(dir, "control")); err == nil {
		return dir
	}
	return ""
}
