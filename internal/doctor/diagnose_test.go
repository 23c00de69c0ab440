package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// healthy returns the facts of a machine without problems.
func healthy() *Facts {
	return &Facts{
		Version: "v1", Go: "go1", System: "linux/amd64", HasGPUs: true, Arch: "amd64", KernelPath: "avx2", Features: []string{"avx2"},
		Cores: 8, Procs: 8, Quota: -1, MemoryFree: 8 << 30, MemoryLimit: -1, ShmBytes: 1 << 30,
		Files: 4096, Processes: 4096, Locked: -1, Address: -1, Threads: WantThreads,
		Interfaces: []Interface{{Name: "lo", Loopback: true, Addrs: []string{"127.0.0.1/8"}}, {Name: "eth0", Addrs: []string{"10.0.0.1/24"}}},
		Addresses:  []string{"10.0.0.1"}, Memory: Memory{Supported: true},
		GPUs:    GPUs{CUDA: "12.8", Devices: []GPU{{Name: "G", Free: 9, Total: 10, Peers: []int{1}}, {Name: "G", Free: 9, Total: 10, Peers: []int{0}}}, NCCL: "2.29.7"},
		Engines: []Engine{{Name: "local", Ranks: 2, P50: 1}, {Name: "shm", Ranks: 2, P50: 1}},
	}
}

// TestDiagnose changes one fact at a time: one area must report it, with a suggested
// fix, and no other.
func TestDiagnose(t *testing.T) {
	for name, c := range map[string]struct {
		change             func(f *Facts)
		area, level, words string
	}{
		"nothing":           {func(*Facts) {}, "", "", ""},
		"no vectors":        {func(f *Facts) { f.KernelPath, f.Features = "generic", nil }, "cpu", Warn, "AVX2"},
		"kernel chosen":     {func(f *Facts) { f.KernelEnv = "avx2" }, "cpu", Warn, "unset TUTTI_KERNEL"},
		"kernel impossible": {func(f *Facts) { f.KernelEnv = "neon" }, "cpu", Warn, "not possible here"},
		"quota":             {func(f *Facts) { f.Quota = 1.5 }, "cores", Warn, "grants 1.5"},
		"one core":          {func(f *Facts) { f.Cores, f.Procs = 1, 1 }, "cores", Warn, "take turns"},
		"GOMAXPROCS":        {func(f *Facts) { f.Procs = 2 }, "cores", Warn, "unset GOMAXPROCS"},
		"memory":            {func(f *Facts) { f.MemoryFree = 100 << 20 }, "memory", Warn, "100 MiB free"},
		"group's memory":    {func(f *Facts) { f.MemoryLimit = 64 << 20 }, "memory", Warn, "64 MiB free (the control group's limit)"},
		"no sharing":        {func(f *Facts) { f.Memory.Supported = false }, "sharing", Warn, "use TCP"},
		"no memory files":   {func(f *Facts) { f.Memory.Make = "no" }, "sharing", Warn, "allow memfd_create"},
		"no passing":        {func(f *Facts) { f.Memory.Pass = "no" }, "sharing", Warn, "SCM_RIGHTS"},
		"killed":            {func(f *Facts) { f.MemoryError = "killed" }, "sharing", Fail, "NoSharedMemory"},
		"no reading":        {func(f *Facts) { f.Memory.Read = "no" }, "sharing", Warn, "process_vm_readv"},
		"small /dev/shm":    {func(f *Facts) { f.ShmBytes = 1 << 20 }, "/dev/shm", Warn, "--shm-size"},
		"few files":         {func(f *Facts) { f.Files = 64 }, "limits", Fail, "ulimit -n 4096"},
		"some files":        {func(f *Facts) { f.Files = 512 }, "limits", Warn, "some 64 ranks"},
		"few processes":     {func(f *Facts) { f.Processes = 500 }, "limits", Warn, "ulimit -u 4096"},
		"some threads":      {func(f *Facts) { f.Threads, f.ThreadError = 96, "died" }, "limits", Warn, "some 96 threads"},
		"address":           {func(f *Facts) { f.Address = 8 << 30 }, "limits", Warn, "ulimit -v unlimited"},
		"locked":            {func(f *Facts) { f.Locked = 64 << 10 }, "limits", Warn, "ulimit -l unlimited"},
		"loopback":          {func(f *Facts) { f.Interfaces = f.Interfaces[:1] }, "network", Warn, "only the loopback"},
		"no interface":      {func(f *Facts) { f.Interfaces, f.AddrError = nil, "none" }, "network", Fail, "bring an interface up"},
		"other interface":   {func(f *Facts) { f.IfEnv, f.AddrError = "ib0", "none" }, "network", Fail, "one of lo, eth0"},
		"place":             {func(f *Facts) { f.LauncherError = "RANK is not set" }, "environment", Fail, "RANK"},
		"variable":          {func(f *Facts) { f.VariableError = "TUTTI_LATE is no" }, "environment", Fail, "TUTTI_LATE"},
		"environment":       {func(f *Facts) { f.Env = []string{"CUDA_LAUNCH_BLOCKING=1"} }, "environment", Warn, "for debugging"},
		"probe died":        {func(f *Facts) { f.GPUError = "died" }, "cuda", Fail, "LD_LIBRARY_PATH"},
		"no driver":         {func(f *Facts) { f.GPUs, f.DeviceFiles = GPUs{CUDAError: "no", NCCLError: "no"}, true }, "cuda", Fail, "--gpus all"},
		"driver, no GPU":    {func(f *Facts) { f.GPUs = GPUs{CUDAError: "no", Library: "libcuda", NCCLError: "no"} }, "cuda", Warn, "container"},
		"bad device":        {func(f *Facts) { f.GPUs.Devices[1].Error = "lost" }, "gpu 1", Fail, "nvidia-smi"},
		"full device":       {func(f *Facts) { f.GPUs.Devices[0].Free = 0 }, "gpu 0", Warn, "nearly full"},
		"no peers":          {func(f *Facts) { f.GPUs.Devices[1].Peers = nil }, "gpu 1", Warn, "topo -m"},
		"no NCCL":           {func(f *Facts) { f.GPUs.NCCLError = "no" }, "nccl", Fail, "install NCCL"},
		"broken NCCL":       {func(f *Facts) { f.GPUs.NCCLError, f.GPUs.NCCLBroken = "no", true }, "nccl", Fail, "replace the library"},
		"NCCL nowhere": {func(f *Facts) {
			f.GPUs, f.Env = GPUs{CUDAError: "no", NCCLError: "no"}, []string{"TUTTI_NCCL_LIBRARY=/nowhere"}
		}, "nccl", Warn, "there is no /nowhere"},
		"NCCL nowhere for GPUs": {func(f *Facts) { f.GPUs.NCCLError, f.Env = "no", []string{"TUTTI_NCCL_LIBRARY=/nowhere"} }, "nccl", Fail, "unset TUTTI_NCCL_LIBRARY"},
		"broken driver":         {func(f *Facts) { f.GPUs = GPUs{CUDAError: "no", CUDABroken: true, NCCLError: "no"} }, "cuda", Warn, "take it off LD_LIBRARY_PATH"},
		"old NCCL":              {func(f *Facts) { f.GPUs.Missing = []MissingFunction{{"ncclCommSplit", "2.18"}} }, "nccl", Warn, "from scratch (needs 2.18)"},
		"engine":                {func(f *Facts) { f.Engines[1].Error = "boom" }, "engine shm", Fail, "boom"},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy()
			c.change(f)
			found := false
			for _, l := range Diagnose(f) {
				if (l.Level == OK) != (l.Do == "") {
					t.Errorf("%+v", l)
				}
				if l.Level == OK {
					continue
				}
				if l.Area != c.area || l.Level != c.level || !strings.Contains(l.What+" "+l.Do, c.words) {
					t.Errorf("%+v", l)
				}
				found = true
			}
			if found != (c.area != "") {
				t.Errorf("nobody complains")
			}
			if Failed(Diagnose(f)) != (c.level == Fail) {
				t.Error("the verdict is another one")
			}
		})
	}
}

// TestCannotStart checks that nothing is tried where no process can be started.
func TestCannotStart(t *testing.T) {
	untried := Probes{
		Threads: func(context.Context) (int, error) { return 32, errors.New("no more threads") },
		Memory: func(context.Context) (Memory, error) {
			t.Error("memory was tried")
			return Memory{}, nil
		},
		GPUs: func(context.Context) (GPUs, error) {
			t.Error("GPUs were looked for")
			return GPUs{}, nil
		},
		Try: func(context.Context, string, int) Engine {
			t.Error("an engine was tried")
			return Engine{}
		},
	}
	lines := Diagnose(Gather(t.Context(), untried))
	if text := Text(lines, false); !Failed(lines) || !strings.Contains(text, "32 threads") || !strings.Contains(text, "ulimit -u 4096") {
		t.Error(text)
	}
	untried.Threads = func(context.Context) (int, error) { return 0, fmt.Errorf("%w: exec format error", ErrNotStarted) }
	lines = Diagnose(Gather(t.Context(), untried))
	if text := Text(lines, false); !Failed(lines) || !strings.Contains(text, "exec format error") || !strings.Contains(text, "binfmt_misc") || strings.Contains(text, "threads") {
		t.Error(text)
	}
	f := healthy()
	f.Files, f.StartError = 12, "too many open files"
	if text := Text(Diagnose(f), false); !strings.Contains(text, "ulimit -n 4096") || strings.Contains(text, "noexec") {
		t.Error(text)
	}
	f = healthy()
	f.Address = 1 << 31
	if text := Text(Diagnose(f), false); !strings.Contains(text, "ulimit -v unlimited") || !strings.Contains(text, "2 fail") {
		t.Error(text)
	}
	f.HasGPUs = false // needs less address space
	if Failed(Diagnose(f)) {
		t.Error(Text(Diagnose(f), false))
	}
}

// TestEnginesWithoutSharing checks that engines that need shared memory do not fail
// where it is missing: Join works without them.
func TestEnginesWithoutSharing(t *testing.T) {
	f := healthy()
	f.Memory.Make = "memfd_create: operation not permitted"
	f.Engines = f.candidates()
	for i := range f.Engines {
		switch e := &f.Engines[i]; e.Name {
		case "shm", "hier":
			e.Error = "it is tcp"
		case "auto":
			e.Got = "tcp"
		}
	}
	lines := Diagnose(f)
	if text := Text(lines, false); Failed(lines) || !strings.Contains(text, "over tcp is right") || strings.Count(text, "not available") != 2 {
		t.Error(text)
	}
}

// TestText checks the width of the lines, the summary and the colours.
func TestText(t *testing.T) {
	lines := []Line{{OK, "a", "well", ""}, {Warn, "longer", strings.Repeat("many words ", 40), strings.Repeat("do this ", 30)}, {Fail, "b", "ill", "heal"}}
	text := Text(lines, false)
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > width {
			t.Errorf("too wide: %q", line)
		}
	}
	if !strings.HasSuffix(text, "\n1 ok, 1 warn, 1 fail\n") || strings.Contains(text, "\x1b") {
		t.Error(text)
	}
	if !strings.Contains(Text(lines, true), "\x1b[31mfail") {
		t.Error("it has no colours")
	}
}
