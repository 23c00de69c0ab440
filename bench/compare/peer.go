package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/tutti-go/tutti/bench/peers"
)

// A peer is another library with its compiled driver.
type peer interface {
	name() string
	// lacks returns why the peer cannot take part, or "" if it can.
	lacks(o options, transport string) string
	run(ctx context.Context, o options, transport string) ([]sample, error)
}

// findPeers compiles the drivers of the peers in o.peers and logs what it found. A peer whose
// compiler, library or launcher is missing is logged and left out, which is not an error. If ctx is
// cancelled, findPeers returns nil.
func findPeers(ctx context.Context, o options, dir string, log io.Writer) []peer {
	var found []peer
	for _, name := range o.peers {
		driver := filepath.Join(dir, name)
		var p peer
		var err error
		switch name {
		case "gloo":
			p = gloo{driver: driver, dir: dir}
			err = build(ctx, driver, ".cc", peers.Gloo, "g++", "-std=c++17", "-lgloo", "-lpthread")
		default:
			p, err = buildMPI(ctx, name, driver, peers.MPI)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			fmt.Fprintf(log, "%s: missing, %v\n", name, err)
			continue
		}
		found = append(found, p)
		if m, ok := p.(mpi); ok {
			fmt.Fprintf(log, "%s: %s\n", name, m.about(ctx, o))
		}
	}
	return found
}

// build compiles a driver's source text.
func build(ctx context.Context, driver, ext, text, compiler string, flags ...string) error {
	if _, err := exec.LookPath(compiler); err != nil {
		return err
	}
	source := driver + ext
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		return err
	}
	args := append([]string{"-O3", "-march=native", "-o", driver, source}, flags...)
	if out, err := child(ctx, nil, compiler, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", compiler, err, tail(string(out)))
	}
	return nil
}

// driverArgs are the arguments of all drivers.
func driverArgs(o options) []string {
	sizes := make([]string, len(o.sizes))
	for i, n := range o.sizes {
		sizes[i] = strconv.Itoa(n)
	}
	return []string{o.op, strings.Join(sizes, ","), strconv.FormatInt(o.budget.Microseconds(), 10), strconv.Itoa(o.iters)}
}

// oversubscribed reports whether ranks have to share cores.
func oversubscribed(o options) bool { return o.ranks > runtime.NumCPU() }

// An mpi is Open MPI or MPICH.
type mpi struct{ flavour, launcher, driver string }

// buildMPI compiles a program for Open MPI or MPICH by the tools that Debian names mpicc.openmpi and
// mpirun.openmpi (mpich). Without them it takes mpicc and mpirun, if they are of that library.
func buildMPI(ctx context.Context, flavour, driver, text string) (mpi, error) {
	m := mpi{flavour: flavour, launcher: "mpirun." + flavour, driver: driver}
	compiler := "mpicc." + flavour
	_, err := exec.LookPath(m.launcher)
	if _, missing := exec.LookPath(compiler); err != nil || missing != nil {
		m.launcher, compiler = "mpirun", "mpicc"
		version, err := child(ctx, nil, m.launcher, "--version").CombinedOutput()
		if err != nil {
			return m, fmt.Errorf("neither mpicc.%s nor mpicc with mpirun: %w", flavour, err)
		}
		if !strings.Contains(string(version), versionMarks[flavour]) {
			return m, fmt.Errorf("no mpicc.%s, and mpirun is of another library", flavour)
		}
	}
	return m, build(ctx, driver, ".c", text, compiler)
}

// versionMarks are texts that only this library's mpirun --version prints.
var versionMarks = map[string]string{"openmpi": "open-mpi.org", "mpich": "HYDRA"}

func (m mpi) name() string { return m.flavour }

func (m mpi) lacks(options, string) string { return "" }

// command returns the launcher's command. It makes the library use only one
// transport, and yield the core during waits if ranks share cores. MPICH's setting
// for that has no effect in builds on UCX, such as Debian 12's, which never yield.
// Binding is left to the launchers: Open MPI gives two ranks a core each and does
// not bind if there are more ranks than cores. MPICH does not bind.
func (m mpi) command(ctx context.Context, o options, transport string) *exec.Cmd {
	var env []string
	args := []string{"-n", strconv.Itoa(o.ranks)}
	switch m.flavour + " " + transport {
	case "openmpi shm":
		args = append(args, "--mca", "pml", "ob1", "--mca", "btl", "self,vader")
	case "openmpi tcp":
		args = append(args, "--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo")
	case "mpich shm": // its own shared memory has priority; UCX may not offer any other transport
		env = append(env, "UCX_TLS=sm,self")
	case "mpich tcp": // treat ranks of one host as remote, in UCX and libfabric
		env = append(env, "MPIR_CVAR_NOLOCAL=1", "UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo", "FI_PROVIDER=tcp", "FI_TCP_IFACE=lo")
	}
	switch {
	case m.flavour == "openmpi":
		if os.Geteuid() == 0 {
			args = append(args, "--allow-run-as-root")
		}
		if oversubscribed(o) {
			args = append(args, "--oversubscribe", "--mca", "mpi_yield_when_idle", "1")
		}
	case oversubscribed(o):
		env = append(env, "MPIR_CVAR_POLLS_BEFORE_YIELD=1")
	}
	args = append(args, m.driver)
	return child(ctx, env, m.launcher, append(args, driverArgs(o)...)...)
}

// run runs the driver once and returns the samples that its rank 0 printed. If ctx is cancelled,
// the launcher gets SIGTERM, and run returns an error.
func (m mpi) run(ctx context.Context, o options, transport string) ([]sample, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	texts, err := runAll(stop, []*exec.Cmd{m.command(ctx, o, transport)})
	all, _ := samples(texts[0])
	return all, err
}

// about returns the library's version, and how it copies between processes.
func (m mpi) about(ctx context.Context, o options) string {
	o.op, o.sizes, o.iters, o.ranks = "barrier", []int{0}, 1, 2
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	out, err := m.command(ctx, o, "shm").Output()
	if err != nil {
		return err.Error()
	}
	_, about := samples(string(out))
	return strings.Join(about, ", ")
}

// gloo has no launcher: its ranks rendezvous through files.
type gloo struct{ driver, dir string }

func (gloo) name() string { return "gloo" }

func (gloo) lacks(o options, transport string) string {
	switch {
	case transport != "tcp":
		return "it has no " + transport
	case o.op != "allreduce":
		return "its driver has allreduce only"
	}
	return ""
}

// run runs one job of Gloo. Its ranks find each other through files in a new folder. If a rank
// fails or ctx is cancelled, the other ranks get SIGTERM, and run returns the first error.
func (g gloo) run(ctx context.Context, o options, _ string) ([]sample, error) {
	rendezvous, err := os.MkdirTemp(g.dir, "rendezvous-")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var ranks []*exec.Cmd
	for r := range o.ranks {
		args := append(driverArgs(o), strconv.Itoa(r), strconv.Itoa(o.ranks), rendezvous)
		ranks = append(ranks, child(ctx, nil, g.driver, args...))
	}
	texts, err := runAll(stop, ranks)
	all, _ := samples(texts[0])
	return all, err
}
