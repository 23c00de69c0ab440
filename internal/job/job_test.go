package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/jobtls"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/proctest"
)

// A body is the function of a rank, which is a process of its own, in a test.
type body func(ctx context.Context, e engine.Engine) error

var bodies = map[string]body{
	"hello": hello,
	"suite": suite,
	"stay":  stay,
	"alloc": alloc,
	"form":  form,

	"settle": settleLast, "settle different": settleDifferent, "settle late": settleLate,
}

const deadline = 3 * time.Minute

func TestMain(m *testing.M) {
	if name := os.Getenv("TUTTI_TEST_BODY"); name != "" {
		maps.Copy(bodies, linuxBodies)
		if err := child(bodies[name]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child runs the body of a process that a test has started, with the group of all ranks, and closes the
// group. deadline bounds both. The environment holds the configuration.
func child(f body) error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	number := func(name string) int {
		n, _ := strconv.Atoi(os.Getenv(name))
		return n
	}
	cfg := Config{
		Rank: number("TUTTI_TEST_RANK"), Size: number("TUTTI_TEST_SIZE"), Addr: os.Getenv("TUTTI_TEST_ADDR"),
		Secret: []byte("test"), Timeout: time.Minute, NoEncryption: true, Network: os.Getenv("TUTTI_TEST_NETWORK") != "",
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if cert := os.Getenv("TUTTI_TEST_CERT"); cert != "" {
		var err error
		if cfg.TLS, err = jobtls.Config([]byte(cert), []byte(os.Getenv("TUTTI_TEST_KEY"))); err != nil {
			return err
		}
	}
	cfg.StuckInterval = 2 * time.Millisecond
	cfg.HostTimeout, _ = time.ParseDuration(os.Getenv("TUTTI_TEST_HOST_TIMEOUT"))
	if hosts := strings.Fields(os.Getenv("TUTTI_TEST_HOSTS")); len(hosts) > 0 {
		cfg.Host = hosts[cfg.Rank]
	}
	if cfg.Rank == 0 && os.Getenv("TUTTI_TEST_INHERIT") != "" {
		l, err := net.FileListener(os.NewFile(3, "listener"))
		if err != nil {
			return err
		}
		cfg.Listener = l
	}
	if os.Getenv("TUTTI_TEST_DROP") != "" {
		if err := dropPrivileges(); err != nil {
			return err
		}
	}
	e, err := enterWorld(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(f(ctx, e), e.Close())
}

// enterWorld joins the job and returns this rank's side of the group of all ranks.
func enterWorld(ctx context.Context, cfg Config) (engine.Engine, error) {
	j, err := Enter(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return j.world, nil
}

// world is the processes of a job.
type world struct {
	cmds []*exec.Cmd
	in   []io.WriteCloser
	out  []*proctest.Output
}

// start starts n processes that run a body, without waiting for them. Rank 0 inherits the listener at which
// the ranks join. The end of the test's context kills them.
func start(t *testing.T, n int, name string, env ...string) *world {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	w := new(world)
	env = append(env, "TUTTI_TEST_INHERIT=1")
	for r := range n {
		cmd := exec.CommandContext(t.Context(), proctest.Self(t), "-test.run=^$")
		if r == 0 {
			cmd.ExtraFiles = []*os.File{file}
		}
		w.add(t, cmd, n, name, l.Addr().String(), env)
	}
	if err := errors.Join(file.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	return w
}

// add starts one more process as the next rank of n, with pipes for its input and output. The caller waits
// for it.
func (w *world) add(t *testing.T, cmd *exec.Cmd, n int, name, addr string, env []string) {
	t.Helper()
	cmd.Env = append(append(os.Environ(), env...), "TUTTI_TEST_BODY="+name, "TUTTI_TEST_ADDR="+addr,
		fmt.Sprint("TUTTI_TEST_RANK=", len(w.cmds)), fmt.Sprint("TUTTI_TEST_SIZE=", n))
	out := new(proctest.Output)
	cmd.Stdout, cmd.Stderr = out, out
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.cmds, w.in, w.out = append(w.cmds, cmd), append(w.in, in), append(w.out, out)
}

// say writes a line to all ranks.
func (w *world) say(t *testing.T, line string) {
	t.Helper()
	for _, in := range w.in {
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
}

// wait waits until all ranks have exited successfully.
func (w *world) wait(t *testing.T) {
	t.Helper()
	for r, cmd := range w.cmds {
		if err := cmd.Wait(); err != nil {
			t.Errorf("rank %d: %v\n%s", r, err, w.out[r])
		}
	}
}

// hello runs AllReduces of several sizes, so that every path is used, and returns the first error or wrong
// element.
func hello(ctx context.Context, e engine.Engine) error {
	for i, n := range []int{1, 1000, 100_000, 1_000_000} {
		x := make([]float32, n)
		for j := range x {
			x[j] = float32(e.Rank() + j%100)
		}
		m := engine.Mem{Ptr: unsafe.Pointer(&x[0]), N: n, Type: kernel.Float32}
		if err := e.Run(ctx, uint64(i+1), []engine.Call{{Verb: engine.AllReduce, ReduceOp: engine.Sum, Dst: m, Src: m}}); err != nil {
			return err
		}
		size := e.Size()
		for j, got := range x {
			if want := float32(size*(size-1)/2 + size*(j%100)); got != want {
				return fmt.Errorf("element %d of %d: %v, want %v", j, n, got, want)
			}
		}
	}
	return nil
}

func TestHello(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		for _, network := range []string{"", "1"} {
			t.Run(fmt.Sprintf("ranks=%d network=%s", n, network), func(t *testing.T) {
				start(t, n, "hello", "TUTTI_TEST_NETWORK="+network).wait(t)
			})
		}
	}
}

// stay blocks in an operation in which the last rank does not take part, and prints the error.
func stay(ctx context.Context, e engine.Engine) error {
	err := e.Run(ctx, 1, []engine.Call{{Verb: engine.Barrier}}) // all ranks have joined
	if e.Rank() == e.Size()-1 {
		fmt.Println("ready")
		<-ctx.Done()
		return err
	}
	if err == nil {
		err = e.Run(ctx, 2, []engine.Call{{Verb: engine.Barrier}})
	}
	fmt.Println("ended:", err)
	return nil
}

// TestKill kills the rank for which all others wait. The others must exit with an error that names the lost
// rank.
func TestKill(t *testing.T) {
	const n = 4
	for _, network := range []string{"", "1"} {
		t.Run("network="+network, func(t *testing.T) {
			w := start(t, n, "stay", "TUTTI_TEST_NETWORK="+network)
			last := w.cmds[n-1]
			w.out[n-1].Await(t, "ready", 1)
			if err := last.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = last.Wait() // killed
			for r := range n - 1 {
				if err := w.cmds[r].Wait(); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
				if text := w.out[r].String(); !strings.Contains(text, "a rank was lost") || !strings.Contains(text, "rank 3") {
					t.Errorf("rank %d: %s", r, text)
				}
			}
		})
	}
}

// form makes a group of some ranks, in which the last rank takes part or not, and prints the error of the
// first operation in it. A rank without an error waits until the test kills it.
func form(ctx context.Context, e engine.Engine) error {
	how, last := os.Getenv("TUTTI_TEST_HOW"), e.Rank() == e.Size()-1
	if err := e.Run(ctx, 1, []engine.Call{{Verb: engine.Dup}}); err != nil {
		return err
	}
	fmt.Println("about to")
	var members []int
	for r := range e.Size() {
		if r > 0 || how != "rank 0 first" {
			members = append(members, r)
		}
	}
	err := error(nil)
	if slices.Contains(members, e.Rank()) && (!last || how != "before") {
		var sub engine.Engine
		if sub, err = e.Sub(ctx, 1, members); err == nil {
			defer sub.Close()
		}
		if err == nil && !last {
			fmt.Println("ready")
			err = sub.Run(ctx, 1, []engine.Call{{Verb: engine.Barrier}})
		}
	}
	if err == nil { // waits to be killed
		fmt.Println("ready")
		<-ctx.Done()
	}
	fmt.Println("ended:", err)
	if how == "rank 0 first" && os.Getenv("TUTTI_TEST_NETWORK") == "" {
		os.Exit(0) // without a goodbye: it must not be taken for the rank that was killed
	}
	return nil
}

// TestKillForming kills a rank before it takes part in a new group, when it does, and when no rank is left
// through which the others would learn of it. The other members end with an error that names the last member
// as lost.
func TestKillForming(t *testing.T) {
	const n = 4
	for _, network := range []string{"", "1"} {
		for _, how := range []string{"before", "after", "rank 0 first"} {
			t.Run(how+" network="+network, func(t *testing.T) {
				w := start(t, n, "form", "TUTTI_TEST_NETWORK="+network, "TUTTI_TEST_HOW="+how)
				kill := []int{n - 1}
				if how == "rank 0 first" {
					kill = []int{0, n - 1}
				}
				for r := range n {
					// A rank that has not come so far would lose the killed rank in the group of
					// all ranks.
					w.out[r].Await(t, "about to", 1)
					if r == n-1 || how != "before" {
						w.out[r].Await(t, "ready", 1)
					}
				}
				for _, r := range kill {
					if err := w.cmds[r].Process.Kill(); err != nil {
						t.Fatal(err)
					}
					_ = w.cmds[r].Wait() // killed
				}
				for r := len(kill) - 1; r < n-1; r++ {
					if err := w.cmds[r].Wait(); err != nil {
						t.Errorf("rank %d: %v", r, err)
					}
					text := w.out[r].String()
					if !strings.Contains(text, "ended: ") || !strings.Contains(text, "a rank was lost") || !strings.Contains(text, fmt.Sprint("rank ", n-len(kill))) {
						t.Errorf("rank %d: %s", r, text)
					}
				}
			})
		}
	}
}

// alloc runs the same operations on memory of Alloc and on private memory. The results must be equal. All
// ranks run it.
func alloc(ctx context.Context, e engine.Engine) error {
	const elems = 60_000
	n := e.Size()
	seq := uint64(0)
	run := func(call engine.Call) error {
		seq++
		if err := call.Check(e.Rank(), n); err != nil {
			return err
		}
		return e.Run(ctx, seq, []engine.Call{call})
	}
	var shared, plain [2]engine.Mem
	var views [4][]float32
	for i := range 2 {
		if err := run(engine.Call{Verb: engine.Alloc, Src: engine.Mem{N: n * elems, Type: kernel.Float32}}); err != nil {
			return err
		}
		r, err := e.Alloc(ctx, seq, 4*n*elems)
		if err != nil {
			return err
		}
		defer func() { _ = r.Free() }()
		views[i] = unsafe.Slice((*float32)(r.Ptr), n*elems)
		views[2+i] = make([]float32, n*elems)
		shared[i] = engine.Mem{Ptr: r.Ptr, N: n * elems, Type: kernel.Float32}
		plain[i] = engine.Mem{Ptr: unsafe.Pointer(&views[2+i][0]), N: n * elems, Type: kernel.Float32}
	}
	for verb := engine.AllReduce; verb < engine.Barrier; verb++ {
		for _, red := range []engine.ReduceOp{engine.Sum, engine.Avg} {
			if !verb.Accepts(red) {
				continue
			}
			for _, inPlace := range []bool{false, true} {
				for i, m := range [2][2]engine.Mem{shared, plain} {
					for j := range views[2*i] {
						views[2*i][j], views[2*i+1][j] = float32(e.Rank()*j%977)/7, 0
					}
					if err := run(allocCall(verb, red, m[1], m[0], inPlace, e.Rank(), n)); err != nil {
						return fmt.Errorf("%v %v: %w", verb, red, err)
					}
				}
				for i := range 2 {
					for j, got := range views[i] {
						if want := views[2+i][j]; got != want {
							return fmt.Errorf("%v %v in place %v: buffer %d, element %d: %v, want %v", verb, red, inPlace, i, j, got, want)
						}
					}
				}
			}
		}
	}
	return run(engine.Call{Verb: engine.Barrier})
}

// allocCall returns a call whose buffers have n equal parts. In place means that the destination is the
// source.
func allocCall(verb engine.Verb, red engine.ReduceOp, dst, src engine.Mem, inPlace bool, rank, n int) engine.Call {
	c := engine.Call{Verb: verb, ReduceOp: red, Root: 1 % n, Dst: dst, Src: src}
	part := func(m engine.Mem) engine.Mem { return m.Slice(rank*(m.N/n), m.N/n) }
	if inPlace {
		c.Dst = src
	}
	switch verb {
	case engine.Broadcast:
		c.Dst = c.Src
	case engine.AllGather, engine.Gather:
		c.Src = part(src)
	case engine.ReduceScatter, engine.Scatter:
		c.Dst = part(c.Dst)
	}
	return c
}

func TestAlloc(t *testing.T) {
	for _, n := range []int{2, 3} {
		start(t, n, "alloc").wait(t)
	}
}
