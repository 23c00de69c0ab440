package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-go/tutti/internal/bench"
)

// The levels of a line.
const (
	OK   = "ok"
	Warn = "warn" // works, but is slow or maybe not intended
	Fail = "fail" // does not work
)

// A Line is the state of one area, and what to do about a problem.
type Line struct {
	Level string `json:"level"`
	Area  string `json:"area"`
	What  string `json:"what"`
	Do    string `json:"do,omitempty"`
}

// A list is a list of lines under construction.
type list []Line

func (l *list) ok(area, format string, args ...any) {
	*l = append(*l, Line{OK, area, fmt.Sprintf(format, args...), ""})
}

func (l *list) warn(area, do, format string, args ...any) {
	*l = append(*l, Line{Warn, area, fmt.Sprintf(format, args...), do})
}

func (l *list) fail(area, do, format string, args ...any) {
	*l = append(*l, Line{Fail, area, fmt.Sprintf(format, args...), do})
}

// Diagnose turns facts into lines. If processes or threads cannot be started, it reports only the
// build, the processor and the limits, because Gather checked nothing else.
func Diagnose(f *Facts) []Line {
	var l list
	f.build(&l)
	f.processor(&l)
	if f.cannotStart() {
		f.limits(&l)
		if f.StartError != "" {
			do := "copy it to where programs may be started (not mounted noexec), or, under an emulator, register that (binfmt_misc)"
			if f.Files >= 0 && f.Files < minFiles {
				do = "raise the limit of open files first, see the line above"
			}
			l.fail("processes", do, "%s", f.StartError)
		}
		l.fail("engines", "see the line above", "nothing else was checked, and no engine was tried: no process can be started")
		return l
	}
	f.memory(&l)
	f.limits(&l)
	f.network(&l)
	f.environment(&l)
	f.gpus(&l)
	f.engines(&l)
	return l
}

// Failed reports whether a line has the level Fail.
func Failed(lines []Line) bool {
	return slices.ContainsFunc(lines, func(l Line) bool { return l.Level == Fail })
}

func (f *Facts) build(l *list) {
	text := fmt.Sprintf("tutti %s, %s, %s", f.Version, f.Go, f.System)
	if f.HasGPUs {
		l.ok("build", "%s, with GPUs", text)
	} else {
		l.ok("build", "%s, without GPUs (tag nogpu)", text)
	}
}

// processor diagnoses the CPU: its vector instructions, and whether TUTTI_KERNEL forces a slower path.
func (f *Facts) processor(l *list) {
	has := "no vector instructions"
	if len(f.Features) > 0 {
		has = strings.Join(f.Features, ", ")
	}
	what := fmt.Sprintf("%s kernels (%s with %s)", f.KernelPath, f.Arch, has)
	switch {
	case f.KernelEnv != "" && f.KernelEnv != f.KernelPath:
		l.warn("cpu", "set TUTTI_KERNEL to one of this machine's paths, or unset it", "TUTTI_KERNEL=%s is not possible here; %s", f.KernelEnv, what)
	case f.KernelEnv != "":
		l.warn("cpu", "unset TUTTI_KERNEL to use the fastest", "TUTTI_KERNEL selects %s", what)
	case f.KernelPath == "generic":
		l.warn("cpu", "run on a processor with AVX2 and F16C, or NEON; an emulator or hypervisor may hide them", "%s: reductions are up to ten times slower", what)
	default:
		l.ok("cpu", "%s", what)
	}
	switch {
	case f.Quota > 0 && f.Quota < float64(f.Cores):
		l.warn("cores", "grant whole cores (a cpuset), or start no more ranks than the quota has cores: waiting ranks spin, and are stopped when the quota is used up",
			"%d cores, but the control group grants %.2g", f.Cores, f.Quota)
	case f.Cores < 2:
		l.warn("cores", "give the job a core for each rank", "1 core: ranks on this machine take turns")
	case f.Procs < f.Cores:
		l.warn("cores", "unset GOMAXPROCS, unless the ranks of this machine share the cores", "%d cores, GOMAXPROCS is %d", f.Cores, f.Procs)
	default:
		l.ok("cores", "%d", f.Cores)
	}
}

// memory diagnoses memory and the sharing of memory between processes. Sizes below zero are unknown.
func (f *Facts) memory(l *list) {
	free := f.MemoryFree
	limited := ""
	if f.MemoryLimit >= 0 && (free < 0 || f.MemoryLimit < free) {
		free, limited = f.MemoryLimit, " (the control group's limit)"
	}
	switch {
	case free < 0:
		l.ok("memory", "the free memory is not known on this system")
	case free < 256<<20:
		l.warn("memory", "free memory, or raise the limit: each rank needs its buffers and some MiB", "%s free%s", size(free), limited)
	default:
		l.ok("memory", "%s free%s", size(free), limited)
	}
	m := f.Memory
	const slower = "until then ranks of this host use TCP, which is slower"
	switch {
	case f.MemoryError != "":
		l.fail("sharing", "allow memfd_create and descriptor passing (seccomp, container runtime), or set Config.NoSharedMemory: until then Join kills the process in the same way",
			"the process that tried to share memory failed: %s", f.MemoryError)
	case !m.Supported:
		l.warn("sharing", "use Linux for shared memory between processes", "processes share no memory on this system: ranks of this host use TCP, which is slower")
	case m.Make != "":
		l.warn("sharing", "allow memfd_create (seccomp, container runtime, memory limit); "+slower, "memory files cannot be created: %s", m.Make)
	case m.Pass != "":
		l.warn("sharing", "allow unix sockets and SCM_RIGHTS (seccomp, container runtime); "+slower, "memory files cannot be passed to another process: %s", m.Pass)
	default:
		l.ok("sharing", "memory files can be created and passed to another process")
	}
	if m.Supported && m.Make == "" && m.Read != "" {
		l.warn("sharing", "allow process_vm_readv between processes of one user (seccomp, yama)", "another process's memory cannot be read, so that large AllGather and AllToAll are copied twice: %s", m.Read)
	}
	switch {
	case f.ShmBytes < 0:
	case f.ShmBytes < 64<<20 && len(f.GPUs.Devices) > 0:
		l.warn("/dev/shm", "start the container with --shm-size=1g or --ipc=host", "%s: NCCL may need more; tutti itself does not use it", size(f.ShmBytes))
	default:
		l.ok("/dev/shm", "%s; tutti itself does not use it", size(f.ShmBytes))
	}
}

// minFiles is the number of open files below which nothing can be expected to work.
const minFiles = 128

// limits diagnoses the resource limits. One line says that they suffice, or there is a line for
// each that does not.
func (f *Facts) limits(l *list) {
	what := []string{}
	bad := len(*l)
	if f.Files >= 0 && f.Files < 1024 {
		do := "ulimit -n 4096, or more for many ranks"
		if f.Files < minFiles {
			l.fail("limits", do, "%d open files: connections between ranks need one each", f.Files)
		} else {
			l.warn("limits", do, "%d open files: enough for some %d ranks", f.Files, f.Files/8)
		}
	}
	const more = "ulimit -u 4096; in a container, raise its pids limit"
	switch {
	case f.ThreadError != "" && f.Threads < minThreads:
		l.fail("limits", more, "only some %d threads can be started, and a rank has a dozen: %s", max(f.Threads, 0), f.ThreadError)
	case f.ThreadError != "":
		l.warn("limits", more, "only some %d threads can be started, and a rank has a dozen: %s", f.Threads, f.ThreadError)
	case f.Processes >= 0 && f.Processes < 1024:
		l.warn("limits", more, "%d processes and threads of this user: each rank has a dozen or more threads", f.Processes)
	}
	if need := f.missingAddressSpace(); need > 0 {
		l.fail("limits", "ulimit -v unlimited", "%s of address space: this program alone needs %s for its threads", size(f.Address), size(need))
	} else if f.Address >= 0 && f.Address < 64<<30 {
		l.warn("limits", "ulimit -v unlimited", "%s of address space: Go, mapped memory and CUDA reserve more than they use", size(f.Address))
	}
	if f.Locked >= 0 && f.Locked < 64<<20 && len(f.GPUs.Devices) > 0 {
		l.warn("limits", "ulimit -l unlimited", "%s of locked memory: network cards that reach memory themselves need it", size(f.Locked))
	}
	if len(*l) > bad {
		return
	}
	for _, x := range []struct {
		n    int
		what string
	}{{f.Files, "open files"}, {f.Processes, "processes"}} {
		if x.n >= 0 {
			what = append(what, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	if len(what) == 0 {
		what = []string{"none that matter"}
	}
	l.ok("limits", "%s", strings.Join(what, ", "))
}

// duration formats microseconds.
func duration(us float64) string {
	if us >= 1000 {
		return fmt.Sprintf("%.3g ms", us/1000)
	}
	return fmt.Sprintf("%.3g us", us)
}

func size(n int) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

// network diagnoses the interfaces. Only the loopback is a warning; no usable address is a failure.
func (f *Facts) network(l *list) {
	var names []string
	outside := false
	for _, i := range f.Interfaces {
		if len(i.Addrs) > 0 {
			names = append(names, i.Name)
			outside = outside || !i.Loopback
		}
	}
	switch {
	case f.AddrError != "" && f.IfEnv != "":
		l.fail("network", fmt.Sprintf("set TUTTI_SOCKET_IFNAME to one of %s, or unset it", strings.Join(names, ", ")), "TUTTI_SOCKET_IFNAME=%s: %s", f.IfEnv, f.AddrError)
	case f.AddrError != "" && len(names) == 0:
		l.fail("network", "bring an interface up (ip link set lo up); even ranks of one host rendezvous over the loopback", "no interface is up, not even the loopback")
	case f.AddrError != "":
		l.fail("network", "bring an interface up; even ranks of one host rendezvous over the loopback", "%s", f.AddrError)
	case !outside:
		l.warn("network", "bring a network interface up to run on several hosts", "only the loopback is up: jobs are limited to this host")
	default:
		l.ok("network", "%s are up; other ranks are offered %s", strings.Join(names, ", "), strings.Join(f.Addresses, ", "))
	}
}

// environment diagnoses the launcher's variables, and warns about variables that slow a job down.
func (f *Facts) environment(l *list) {
	if f.LauncherError != "" {
		l.fail("environment", "correct it, or unset it", "%s", f.LauncherError)
	}
	if f.VariableError != "" {
		l.fail("environment", "correct it, or unset it", "%s", f.VariableError)
	}
	if f.Launcher != "" {
		l.ok("environment", "this is a rank of %s", f.Launcher)
	}
	bad := map[string][2]string{
		"GODEBUG=asyncpreemptoff=1": {"a rank that waits can hold up garbage collection for good", "unset it"},
		"NCCL_P2P_DISABLE=1":        {"GPUs do not reach each other's memory", "unset it, unless it works around a fault"},
		"NCCL_SHM_DISABLE=1":        {"NCCL uses the network inside the host", "unset it, unless it works around a fault"},
		"NCCL_IB_DISABLE=1":         {"NCCL does not use InfiniBand", "unset it, unless it works around a fault"},
		"CUDA_LAUNCH_BLOCKING=1":    {"every launch waits for the GPU", "unset it; it is for debugging"},
	}
	var plain []string
	for _, e := range f.Env {
		if b, ok := bad[e]; ok {
			l.warn("environment", b[1], "%s: %s", e, b[0])
		} else {
			plain = append(plain, e)
		}
	}
	if len(plain) > 0 {
		l.ok("environment", "%s", strings.Join(plain, " "))
	} else {
		l.ok("environment", "no other relevant variable is set")
	}
}

// noSharedMemory explains why processes cannot share memory; "" if they can, or if the
// operating system does not support it at all.
func (f *Facts) noSharedMemory() string {
	for _, why := range []string{f.MemoryError, f.Memory.Make, f.Memory.Pass} {
		if why != "" {
			return why
		}
	}
	return ""
}

// engines reports the tries of the engines. An engine that only lacks shared memory is a warning,
// because Join uses TCP instead.
func (f *Facts) engines(l *list) {
	for _, e := range f.Engines {
		area := "engine " + e.Name
		switch {
		case e.Error != "" && (e.Name == bench.Shm || e.Name == bench.Hier) && f.noSharedMemory() != "" && f.MemoryError == "":
			l.warn(area, "see sharing; TCP is used instead", "not available: %s", e.Error)
		case e.Error != "":
			l.fail(area, "see the lines above; tutti bench --engine "+e.Name+" shows more", "a small AllReduce of %d ranks failed: %s", e.Ranks, e.Error)
		case e.Name == bench.Auto:
			l.ok(area, "AllReduce of 1 KiB between %d ranks over %s is right, in %s", e.Ranks, e.Got, duration(e.P50))
		default:
			l.ok(area, "AllReduce of 1 KiB between %d ranks is right, in %s", e.Ranks, duration(e.P50))
		}
	}
}
