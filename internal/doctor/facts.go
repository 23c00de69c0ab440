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
	"github.com/tutti-go/tutti/internal/envvar"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/launchenv"
	"github.com/tutti-go/tutti/internal/transport/tcp"
)

// Facts describe a machine. A negative number means unknown or unlimited.
type Facts struct {
	Version, Go, System string
	HasGPUs             bool // the program can load the GPU libraries

	Arch       string
	KernelPath string
	KernelEnv  string
	Features   []string

	Cores, Procs int     // CPUs that this process may use; GOMAXPROCS
	Quota        float64 // CPUs that the cgroup grants
	MemoryFree   int
	MemoryLimit  int // of the cgroup, bytes
	ShmBytes     int // size of /dev/shm

	Files, Processes, Locked, Address int // resource limits
	// Threads is how many threads the probe could start, WantThreads if it met no
	// limit. ThreadError is the failure that stopped it. Negative: not probed.
	Threads     int
	ThreadError string
	StartError  string // why no process could be started; "": it could

	Interfaces []Interface
	Addresses  []string // addresses that this rank offers to the others
	AddrError  string
	IfEnv      string

	Launcher, LauncherError string
	VariableError           string // the first variable that cannot be parsed
	Env                     []string
	Memory                  Memory
	MemoryError             string // failure of the probe itself
	GPUs                    GPUs
	GPUError                string // failure of the probe itself
	DeviceFiles             bool
	MPS                     string // pipe directory of the MPS service; "": not found
	Engines                 []Engine
}

// An Interface is a network interface that is up.
type Interface struct {
	Name     string
	Loopback bool
	Addrs    []string
	MTU      int
}

// Memory describes what processes can share. An empty string means that it works.
type Memory struct {
	Supported bool
	Make      string // creating a memory file
	Pass      string // passing it to another process
	Read      string // reading another process's memory
}

// GPUs is the result of probing CUDA and NCCL.
type GPUs struct {
	CUDAError  string
	CUDABroken bool   // a library file exists but cannot be used
	CUDA       string // version that the driver supports
	Library    string
	Devices    []GPU
	NCCLError  string
	NCCLBroken bool // a library file exists but cannot be used
	NCCL       string
	NCCLPath   string
	Missing    []MissingFunction
	Others     []string // further libraries, such as PyTorch's own
}

// Usable returns the number of GPUs, and why they cannot be used with or without NCCL.
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
	Peers                 []int // ordinals of GPUs whose memory it can access
	Error                 string
}

// A MissingFunction is a function that the installed NCCL lacks.
type MissingFunction struct{ Function, Since string }

// An Engine is the result of a small collective on an engine.
type Engine struct {
	Name  string
	Ranks int
	Got   string  // the engine that was used
	P50   float64 // microseconds
	Error string
}

// Probes are checks that run in other processes.
type Probes struct {
	// Threads starts threads until WantThreads run or the process fails, and returns
	// how many ran.
	Threads func(ctx context.Context) (int, error)
	Memory  func(ctx context.Context) (Memory, error)
	GPUs    func(ctx context.Context) (GPUs, error) // nil: built without GPUs
	// Try runs a small collective on an engine.
	Try func(ctx context.Context, engine string, ranks int) Engine
}

// Gather collects the facts about this machine. A probe that fails is a fact, too, and does not end
// it. If processes or threads cannot be started, it returns the facts until then.
func Gather(ctx context.Context, p Probes) *Facts {
	f := &Facts{
		Version: bench.Version(), Go: runtime.Version(), System: bench.System(), HasGPUs: p.GPUs != nil,
		Arch: runtime.GOARCH, KernelPath: kernel.Path(), KernelEnv: os.Getenv(envvar.Kernel), Features: features(),
		Cores: runtime.NumCPU(), Procs: runtime.GOMAXPROCS(0), Quota: -1, MemoryFree: -1, MemoryLimit: -1, ShmBytes: -1,
		Files: -1, Processes: -1, Locked: -1, Address: -1, Threads: -1, IfEnv: os.Getenv("TUTTI_SOCKET_IFNAME"), Env: bench.Environment(os.Environ()),
	}
	f.readLimits()
	if f.probeThreads(ctx, p); f.cannotStart() {
		return f // every further thread might end this program
	}
	f.readSystem()
	f.MPS = findMPS()
	f.readNetwork()
	if here, wrong := launchenv.Find(os.Getenv); wrong != "" {
		f.LauncherError = wrong
	} else if here != nil {
		f.Launcher = here.From
	}
	if err := envvar.Check(os.Getenv); err != nil {
		f.VariableError = err.Error()
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
	f.tryEngines(ctx, p)
	return f
}

// tryEngines tries the engines and returns when all tries have ended. CPU engines run concurrently,
// if enough threads are allowed, because a hanging engine ends only after a timeout. Each goroutine
// writes only its own element of f.Engines.
func (f *Facts) tryEngines(ctx context.Context, p Probes) {
	f.Engines = f.candidates()
	var tries sync.WaitGroup
	for i := range f.Engines {
		e := &f.Engines[i]
		switch {
		case e.Name != bench.Local && f.AddrError != "" && f.IfEnv == "":
			e.Error = "not tried: even ranks of one host need the loopback interface, and no interface is up"
		case e.Name == bench.NCCL || e.Name == bench.Staged || f.Threads < WantThreads:
			tries.Wait()
			*e = p.Try(ctx, e.Name, e.Ranks)
		default:
			tries.Go(func() { *e = p.Try(ctx, e.Name, e.Ranks) })
		}
	}
	tries.Wait()
}

// candidates returns the engines to try on this machine.
func (f *Facts) candidates() []Engine {
	list := []Engine{{Name: bench.Local, Ranks: 2}, {Name: bench.TCP, Ranks: 2}}
	if f.noSharedMemory() != "" {
		// Auto shows which engine Join chooses instead.
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

// readNetwork lists the interfaces, and the addresses that a rank offers to the others. A failure
// is stored in AddrError.
func (f *Facts) readNetwork() {
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
	l, err := tcp.Bind(tcp.Options{Interface: f.IfEnv}) // accepts no connections
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

// findMPS returns the pipe directory of CUDA's Multi-Process Service; "" if it does not
// run.
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
