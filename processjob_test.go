package tutti_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/store"
)

// A processJob is a job whose ranks are processes that a test starts, kills and
// stops. Each process has a fixed number, id.
type processJob struct {
	t      *testing.T
	server *store.Server
	env    []string
	procs  []*proc
}

type proc struct {
	id    int
	cmd   *exec.Cmd
	in    interface{ Write([]byte) (int, error) }
	lines chan string // output, by line; closed at its end

	mu   sync.Mutex
	text strings.Builder // all output; guarded by mu
}

func newProcessJob(t *testing.T, env ...string) *processJob {
	t.Helper()
	s, err := store.Listen(t.Context(), "127.0.0.1:0", store.Config{
		Secret: []byte("a secret"), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	f := &processJob{t: t, server: s}
	f.env = append(os.Environ(), append(env, "TUTTI_TEST_RANK=-1", "TUTTI_TEST_BODY=family", "GORACE=atexit_sleep_ms=0",
		"TUTTI_STORE="+s.Addr().String(), "TUTTI_SECRET=a secret")...)
	return f
}

// start starts one more process. A goroutine reads its output until the process exits, and passes each line
// to p.lines and to p.text, which p.mu guards. It closes p.lines at the end.
func (f *processJob) start(env ...string) *proc {
	f.t.Helper()
	p := &proc{id: len(f.procs), lines: make(chan string, 10_000)}
	p.cmd = exec.CommandContext(f.t.Context(), proctest.Self(f.t))
	p.cmd.Env = append(slices.Clone(f.env), append(env, fmt.Sprint("TUTTI_TEST_ID=", p.id))...)
	in, err := p.cmd.StdinPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	p.in = in
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	p.cmd.Stderr = p.cmd.Stdout
	if err := p.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	go func() {
		scan := bufio.NewScanner(out)
		for scan.Scan() {
			p.mu.Lock()
			fmt.Fprintln(&p.text, scan.Text())
			p.mu.Unlock()
			p.lines <- scan.Text()
		}
		close(p.lines)
	}()
	f.procs = append(f.procs, p)
	return p
}

// ranks starts the first n processes, which join at once.
func (f *processJob) ranks(n int) {
	for r := range n {
		f.start(fmt.Sprint("TUTTI_RANK=", r), fmt.Sprint("TUTTI_SIZE=", n))
	}
}

// expect waits for a line with a prefix, and returns the rest of the line; earlier lines are dropped. It
// fails the test if the process ends first or deadline passes. Only the test's goroutine calls it.
func (f *processJob) expect(p *proc, begin string) string {
	f.t.Helper()
	late := time.After(deadline)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				f.fail("process %d has ended without %q", p.id, begin)
			}
			if rest, found := strings.CutPrefix(line, begin); found {
				return strings.TrimSpace(rest)
			}
		case <-late:
			f.fail("process %d does not say %q", p.id, begin)
		}
	}
}

func (f *processJob) fail(format string, args ...any) {
	f.t.Helper()
	for _, p := range f.procs {
		p.mu.Lock()
		f.t.Logf("process %d:\n%s", p.id, p.text.String())
		p.mu.Unlock()
	}
	f.t.Fatalf(format, args...)
}

func (p *proc) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// kill kills a process, and checks that it was killed.
func (f *processJob) kill(p *proc) {
	f.t.Helper()
	p.signal(f.t, syscall.SIGKILL)
	f.died(p)
}

func (f *processJob) died(p *proc) {
	f.t.Helper()
	for range p.lines { // Wait closes the pipe
	}
	_ = p.cmd.Wait()
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() {
		f.fail("process %d was not killed: %v", p.id, p.cmd.ProcessState)
	}
}

// tell writes a line to a process.
func (f *processJob) tell(p *proc, what string) {
	f.t.Helper()
	if _, err := fmt.Fprintln(p.in, what); err != nil {
		f.fail("process %d cannot be asked: %v", p.id, err)
	}
}

// end tells one process to end the job, and waits for the processes.
func (f *processJob) end(procs []*proc) {
	f.t.Helper()
	f.tell(procs[0], "stop")
	for _, p := range procs {
		f.expect(p, "end")
		for range p.lines {
		}
		if err := p.cmd.Wait(); err != nil {
			f.fail("process %d: %v", p.id, err)
		}
	}
}

// awaitKey waits until a key is in the job's store.
func (f *processJob) awaitKey(key string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), deadline)
	defer cancel()
	if err := store.Prefix(f.server.Store(), jobstore.Ranks("")).Wait(ctx, key); err != nil {
		f.fail("%v", err)
	}
}

// without returns all processes but some.
func (f *processJob) without(some ...*proc) []*proc {
	return slices.DeleteFunc(slices.Clone(f.procs), func(p *proc) bool { return slices.Contains(some, p) })
}

// checkSize checks that the processes are ranks 0, 1 and so on of a Comm.
func (f *processJob) checkSize(procs []*proc) {
	f.t.Helper()
	for r, p := range procs {
		if got, want := f.expect(p, "generation "), fmt.Sprintf("%d of %d", r, len(procs)); got != want {
			f.fail("process %d is rank %s, want %s", p.id, got, want)
		}
	}
}

// processJobBody is the main function of a process: it adds numbers, and after each loss shrinks the group
// and continues. A goroutine passes the lines of standard input to asks; "give up" cancels the running
// operation instead. The process ends when the job is told to stop, when Shrink fails, or with any error that
// is not a loss, abort or timeout.
func processJobBody() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*deadline)
	defer cancel()
	first, giveUp := context.WithCancel(ctx)
	defer giveUp()
	m := &processJobRank{ctx: ctx, sums: first, id: int64(envNumber("TUTTI_TEST_ID")), asks: make(chan string, 100), generations: make(map[int64]int64)}
	go func() {
		scan := bufio.NewScanner(os.Stdin)
		for scan.Scan() {
			if scan.Text() == "give up" { // while the process is in an operation
				giveUp()
				continue
			}
			m.asks <- scan.Text()
		}
	}()
	cfg := tutti.Config{
		NoSharedMemory: os.Getenv("TUTTI_TEST_NETWORK") != "", Timeout: deadline,
	}
	cfg.ShrinkTimeout, _ = time.ParseDuration(os.Getenv("TUTTI_TEST_SHRINK_TIMEOUT"))
	fmt.Println("joining")
	var err error
	if m.c, err = tutti.Join(ctx, cfg); err != nil {
		return err
	}
	m.isNew = m.c.Info().Late
	for {
		err := m.work()
		if err == nil {
			fmt.Println("end", m.step, m.total)
			return m.c.Close()
		}
		if e := (*tutti.Error)(nil); errors.As(err, &e) && errors.Is(err, tutti.ErrRankLost) {
			fmt.Println("lost", e.Lost)
		} else if !tutti.CanShrink(err) && !errors.Is(err, tutti.ErrAborted) {
			return err
		}
		if err := m.shrink(); err != nil {
			fmt.Println("cannot shrink:", err)
			return nil
		}
	}
}

// A processJobRank sums the contributions of all ranks: in each step, each rank
// adds its own number times the step's number.
type processJobRank struct {
	ctx         context.Context
	sums        context.Context // for the steps: on the first Comm a context that can be cancelled
	id          int64
	c           *tutti.Comm
	asks        chan string
	isNew       bool // it does not know the sum
	step, total int64
	ops         uint64 // completed on c
	history     []moment
	generations map[int64]int64 // by first step of a Comm: the sum of its ranks' numbers
}

type moment struct {
	op          uint64
	step, total int64
}

// exchangeState exchanges the ids and the progress of all ranks of a new generation, and returns the sum of
// the ids. New ranks take over the progress of the other ranks. It returns an error if the progress of the
// other ranks differs.
func (m *processJobRank) exchangeState() (ids int64, err error) {
	mine := []int64{m.id + 1, m.step, m.total, 1}
	if m.isNew {
		mine[3] = 0
	}
	everybody := make([]int64, 4*m.c.Size())
	m.ops, m.history = 0, []moment{{0, m.step, m.total}}
	if err := m.c.AllGather(m.ctx, tutti.Of(everybody), tutti.Of(mine)); err != nil {
		return 0, err
	}
	m.ops++
	step, total := int64(-1), int64(-1)
	for r := range m.c.Size() {
		ids += everybody[4*r]
		switch knows := everybody[4*r+3] == 1; {
		case !knows:
		case step < 0:
			step, total = everybody[4*r+1], everybody[4*r+2]
		case step != everybody[4*r+1] || total != everybody[4*r+2]:
			return 0, fmt.Errorf("ranks differ: %v", everybody)
		}
	}
	m.step, m.total, m.isNew = step, total, false
	m.history = []moment{{m.ops, m.step, m.total}}
	m.generations[m.step] = ids
	fmt.Printf("generation %d of %d\n", m.c.Rank(), m.c.Size())
	return ids, nil
}

// work runs steps until a rank was told to end the job, and then returns nil. Each Grow replaces m.c. It
// returns the error of a failed operation, after which processJobBody calls shrink.
func (m *processJobRank) work() error {
	for {
		ids, err := m.exchangeState()
		if err != nil {
			return err
		}
		grow, err := m.steps(ids)
		if err != nil || grow == 0 {
			return err
		}
		next, err := m.c.Grow(m.ctx, max(int(grow), 0))
		if err != nil {
			return err
		}
		m.c, m.sums = next, m.ctx
	}
}

// steps repeats an AllReduce that carries the ranks' numbers and requests, and checks the sum. It returns 0
// when a rank was told to stop, and otherwise the number of processes to grow by; -1 means the processes that
// already wait. It returns the error of a failed operation. The goroutine that reads standard input fills
// m.asks.
func (m *processJobRank) steps(ids int64) (grow int64, err error) {
	for {
		x := []int64{(m.step + 1) * (m.id + 1), 0, 0, 0}
		select {
		case ask := <-m.asks:
			switch verb, n, _ := strings.Cut(ask, " "); verb {
			case "stop":
				x[1] = 1
			case "grow":
				_, _ = fmt.Sscan(n, &x[2])
			case "welcome":
				x[2] = -1
			}
		default:
		}
		if err := m.c.AllReduce(m.sums, tutti.Of(x), tutti.Sum); err != nil {
			return 0, err
		}
		if want := (m.step + 1) * ids; x[0] != want {
			return 0, fmt.Errorf("%d instead of %d", x[0], want)
		}
		m.ops++
		m.step++
		m.total += x[0]
		m.history = append(m.history, moment{m.ops, m.step, m.total})
		if len(m.history) > 8 {
			m.history = slices.Delete(m.history, 0, 4)
		}
		if x[1] != 0 || x[2] != 0 {
			return x[2], m.check()
		}
	}
}

// check computes the sum again, from the ranks that were there in each step, and returns an error if m.total
// differs. A process that joined late checks nothing.
func (m *processJobRank) check() error {
	if os.Getenv("TUTTI_LATE") != "" { // it was not there from the beginning
		return nil
	}
	var want, ids int64
	for s := range m.step {
		if n, ok := m.generations[s]; ok {
			ids = n
		}
		want += (s + 1) * ids
	}
	if m.total != want {
		return fmt.Errorf("the sum is %d, want %d", m.total, want)
	}
	return nil
}

// shrink continues without the lost ranks, from the step that all remaining ranks have completed: it drops
// later steps from m.history. It replaces m.c. An error means that this rank cannot continue.
func (m *processJobRank) shrink() error {
	if os.Getenv("TUTTI_TEST_DIES") == fmt.Sprint(m.id) {
		return m.exitInShrink()
	}
	next, done, err := m.c.Shrink(m.ctx)
	if err != nil {
		return err
	}
	if os.Getenv("TUTTI_TEST_DIES") != "" {
		fmt.Println("formed again")
	}
	for len(m.history) > 1 && m.history[len(m.history)-1].op > done {
		m.history = m.history[:len(m.history)-1]
	}
	last := m.history[len(m.history)-1]
	if last.op > done && last.op > 1 {
		return fmt.Errorf("operation %d was the last, but this rank knows only from %d on", done, last.op)
	}
	m.step, m.total = last.step, last.total
	m.c, m.sums = next, m.ctx
	return nil
}

// exitInShrink takes part in the decision of Shrink and then exits.
func (m *processJobRank) exitInShrink() error {
	c, err := store.Dial(m.ctx, os.Getenv("TUTTI_STORE"), store.Config{Secret: []byte(os.Getenv("TUTTI_SECRET"))})
	if err != nil {
		return err
	}
	s := store.Prefix(c, jobstore.Ranks(""))
	if err := s.Append(m.ctx, jobstore.Announced(jobstore.Generation(jobstore.World, 0)), fmt.Appendf(nil, "%d 1000000\n", m.c.Rank())); err != nil {
		return err
	}
	if err := s.Wait(m.ctx, jobstore.Decision(jobstore.Generation(jobstore.World, 0))); err != nil {
		return err
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}
