package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/affinity"
	"github.com/tutti-go/tutti/internal/jobstore"
)

// An attempt is one start of this host's ranks. One goroutine, run, owns it.
type attempt struct {
	h       *host
	cfg     *Config
	number  int              // of the attempt, from 0
	begin   time.Time        // when run was called
	ranks   []*rank          // all processes started in the attempt
	alive   int              // ranks whose exit is not recorded
	exits   chan []childExit // from reap; nil: reap does not run
	outs    *outputs
	streams []*stream      // of ranks
	copying sync.WaitGroup // counts running stream copies

	firstFailure     *Exit           // first failure on any host; nil: none
	stopSignal       syscall.Signal  // the signal that ends the job; 0: none
	ending           bool            // the ranks were asked, or are about to be asked, to end
	activityReported <-chan struct{} // closed when ranks have reported their activity; nil: not awaited
	endSignal        syscall.Signal  // sent to the ranks after that
	endTimer         *time.Timer     // next step of ending the ranks
	joinCheck        *time.Timer     // fires when checkJoin is due
	lifelineEnded    bool            // the lifeline was closed: another launcher process was killed

	undecided  []*rank     // failed ranks, while the original failure is not known
	deciding   bool        // blameTimer runs
	blameTimer *time.Timer // that ends it

	starter   starter
	reapAgain bool         // a rank was started after the last call of reap
	elastic   elasticState // used in an elastic job

	// Used in an elastic job over several hosts.
	joined        bool        // the ranks of all hosts have joined
	earlyFailures []*rank     // failed ranks, held until joined is set
	succeeded     bool        // a rank on any host exited with code 0
	leaving       bool        // this host's ranks are being ended and the job continues
	done          bool        // all launchers have ended the attempt
	restart       bool        // the coordinator starts all ranks again
	lostHosts     []*HostLoss // in this attempt
}

// A rank is one process of this host. The goroutine of attempt.run owns it, except tail, which the
// goroutines of the rank's streams fill.
type rank struct {
	number       int // rank in the job
	local        int // rank on this host
	replacement  int // 0: the rank's first process; n: its n-th replacement
	pid          int // also its process group; 0: not started
	started      time.Time
	tail         tail   // its last lines
	exit         *Exit  // nil: the process runs
	loss         *Loss  // set if the job continued without the process
	admittedAs   string // rank that a replacement got, such as "rank 2 of 3"; "": none
	admitted     bool   // the ranks have decided to include the process
	excluded     bool   // the ranks have later decided to continue without it
	registration int64  // of a launcher that joined a running job; 0: it started with the job
	activity     string // when the first failure occurred; "": not known
	stopped      bool   // it was stopped by a signal then
}

// label names the process for people.
func (r *rank) label() string { return (&Exit{Rank: r.number, Replacement: r.replacement}).label() }

// name returns the unique name of the process in the job.
func (r *rank) name() string {
	return processName(r.number, r.replacement, r.registration)
}

// newExit returns an exit of r at the current time.
func (a *attempt) newExit(r *rank, code int, how string) *Exit {
	return &Exit{Rank: r.number, Replacement: r.replacement, Node: a.cfg.Node, Code: code, How: how, After: time.Since(a.begin)}
}

// A starter holds what an attempt needs to start processes.
type starter struct {
	thread *thread
	path   string
	master string // host:port for PyTorch's MASTER_ADDR and MASTER_PORT
}

// A childExit is the wait status of a child process.
type childExit struct {
	pid    int
	status syscall.WaitStatus
}

// run starts the ranks, and handles all events of the attempt in the caller's goroutine. It returns
// when the ranks, and all processes that they started, have exited. The error is non-nil if not all
// ranks could be started. When ctx ends, run ends the ranks as after a failure; when the lifeline
// is closed, it kills them.
func (a *attempt) run(ctx context.Context, lifeline <-chan struct{}) error {
	a.begin = time.Now()
	for _, t := range []**time.Timer{&a.endTimer, &a.joinCheck, &a.blameTimer, &a.elastic.timer} {
		*t = idleTimer()
		defer (*t).Stop()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	release, err := a.start(ctx)
	if err != nil {
		a.cannotStart(err)
	}
	defer close(release)
	a.reap()
	var remoteFailure <-chan Exit
	var events <-chan event
	var declaredLost <-chan string
	if a.h.reg == nil {
		remoteFailure = a.h.watchFailure(ctx, a.number)
	} else {
		events, declaredLost = a.h.reg.events(ctx, a.number), a.h.reg.declaredLost
		a.reportProcesses()
	}
	done := ctx.Done()
	var decisions <-chan []string
	if a.cfg.Min > 0 {
		decisions = a.h.watchDecisions(ctx, a.number)
	}
	for a.alive > 0 || a.pending() {
		select {
		case list, ok := <-a.exits:
			switch {
			case ok:
				a.handleExits(list)
			case a.reapAgain:
				a.reap()
			case a.alive == 0:
				a.exits = nil // until a replacement is started
			default:
				a.handleLostExits()
			}
		case sig := <-a.cfg.Signals:
			a.handleSignal(sig)
		case e := <-remoteFailure:
			a.fail(e)
		case e := <-events:
			a.applyEvent(e)
		case why := <-declaredLost:
			a.handleDeclaredLost(why)
		case e := <-a.h.lost:
			a.handleLostHost(e)
		case <-done:
			done = nil
			a.fail(a.stopped(ctx))
		case <-lifeline:
			lifeline, a.lifelineEnded = nil, true
			a.h.reportLauncherFailure(a.launcherKilled()) // before the ranks' exits are reported
			a.kill()
		case <-a.activityReported:
			a.activityReported = nil
			a.terminateNow()
		case <-a.endTimer.C:
			a.kill()
		case <-a.joinCheck.C:
			a.checkJoin()
		case <-a.blameTimer.C:
			a.decideFailure(true)
		case <-a.elastic.timer.C:
			a.runDue()
		case names := <-decisions:
			a.applyDecision(names)
		}
		if a.h.reg != nil {
			a.reportProcesses()
		}
	}
	a.decideFailure(true)
	a.finish()
	if a.h.reg != nil {
		a.awaitLaunchers(ctx, events, lifeline)
	} else {
		a.awaitHosts(ctx, remoteFailure, lifeline)
	}
	for _, r := range a.ranks {
		if r.exit != nil {
			r.exit.Lines = r.tail.last()
			if a.firstFailure != nil && a.firstFailure.matches(r) && a.firstFailure.Lines == nil {
				a.firstFailure.Lines = r.exit.Lines
			}
		}
	}
	return err
}

// idleTimer returns a timer that does not fire until it is reset.
func idleTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// cannotStart ends an attempt in which not all ranks could be started.
func (a *attempt) cannotStart(err error) {
	e := Exit{Rank: -1, Node: a.cfg.Node, Code: 1, How: err.Error()}
	if a.h.reg != nil {
		a.leave(e, syscall.SIGKILL)
	} else {
		first := a.h.publishFailure(a.number, e)
		a.firstFailure = &first
	}
	a.kill()
}

// handleLostHost ends the job because another host is lost.
func (a *attempt) handleLostHost(e Exit) {
	if a.h.reg != nil {
		a.handleLostStore(e)
		return
	}
	a.h.peerLost = true
	a.fail(e)
}

// reap starts collecting the exits of all children.
func (a *attempt) reap() {
	a.exits, a.reapAgain = make(chan []childExit, len(a.ranks)+1), false
	go reap(a.exits)
}

// launcherKilled returns the failure for a launcher that lost another of its processes.
func (a *attempt) launcherKilled() Exit {
	return Exit{Rank: -1, Node: a.cfg.Node, Code: 1, How: "a launcher process was killed"}
}

func (a *attempt) stopped(ctx context.Context) Exit {
	return Exit{Rank: -1, Node: a.cfg.Node, Code: 1, How: "stopped: " + context.Cause(ctx).Error()}
}

// awaitHosts waits until all hosts have ended the attempt, and sets firstFailure to the first
// failure on any of them. Without a failure there is no timeout: ranks on other hosts may run for
// any time. Only the goroutine of run calls it; a goroutine of its own waits in the store's barrier
// until awaitHosts returns.
func (a *attempt) awaitHosts(ctx context.Context, remoteFailure <-chan Exit, lifeline <-chan struct{}) {
	if a.cfg.Nodes == 1 || a.lifelineEnded {
		return
	}
	all := make(chan error, 1)
	waiting, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { all <- a.h.own.Barrier(waiting, jobstore.Ended(a.number), a.cfg.Nodes) }()
	done := ctx.Done()
	for {
		var timeout <-chan time.Time
		if a.firstFailure != nil {
			timeout = time.After(a.cfg.Grace + a.h.closeTimeout())
		}
		select {
		case err := <-all:
			if err == nil {
				a.firstFailure = a.h.firstFailure(a.number)
			} else if a.firstFailure == nil {
				a.firstFailure = &Exit{Rank: -1, Code: 1, How: "the store of node 0 is lost: " + err.Error()}
			}
			return
		case e := <-remoteFailure:
			a.fail(e)
		case e := <-a.h.lost:
			a.handleLostHost(e)
		case sig := <-a.cfg.Signals:
			a.handleSignal(sig)
		case <-done:
			done = nil
			a.fail(a.stopped(ctx))
		case <-lifeline:
			a.lifelineEnded = true
			return
		case <-timeout:
			return
		}
	}
}

// start starts all ranks from one thread, which lives until release is closed. Linux ties Pdeathsig
// to the thread that started the process, so that the thread must outlive the ranks. After an error
// the ranks started so far still run, and the caller must kill them; release is never nil.
func (a *attempt) start(ctx context.Context) (release chan struct{}, err error) {
	release = make(chan struct{})
	if err := a.h.openAttempt(ctx, a.number); err != nil {
		return release, &Error{"the store", err}
	}
	master, err := a.h.masterAddr(ctx, a.number)
	if err != nil {
		return release, &Error{"the address for PyTorch", err}
	}
	path, err := lookPath(a.cfg)
	if err != nil {
		return release, &Error{"the program", err}
	}
	a.starter = starter{newThread(release), path, master}
	for local := range a.cfg.Ranks {
		r, env := &rank{number: a.h.base + local, local: local}, a.h.environ(a.number, local, master)
		if a.h.firstReplacements != nil {
			r.replacement, r.registration = a.h.firstReplacements[local], a.h.reg.number
			env = lateEnv(env, r)
		}
		if err := a.startRank(r, env); err != nil {
			return release, &Error{fmt.Sprintf("rank %d", r.number), startError(err)}
		}
	}
	return release, nil
}

// startError explains the error of a program that exists and cannot be started.
func startError(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok && e.Op == "fork/exec" && errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w; the program is there, but the interpreter that its first line names, or its dynamic loader, is not", err)
	}
	return err
}

// startRank starts a process and adds r to the ranks. Two goroutines, counted in copying, forward
// its output. After an error all files are closed, or are closed by these goroutines, and r is not
// added. Only the goroutine of run calls it.
func (a *attempt) startRank(r *rank, env []string) (err error) {
	files := []*os.File{nil, nil, nil}
	var opened []io.Closer
	defer func() {
		for _, c := range opened {
			c.Close()
		}
	}()
	interactive := a.cfg.Stdin != nil && r.number == 0 && r.replacement == 0
	if files[0] = a.cfg.Stdin; !interactive {
		if files[0], err = os.Open(os.DevNull); err != nil {
			return err
		}
		opened = append(opened, files[0])
	}
	var streams []*stream
	copied := false
	defer func() {
		for _, s := range streams {
			if !copied { // otherwise s.copy closes both
				s.r.Close()
				s.file.Close() // does nothing if file is nil
			}
		}
	}()
	for i, name := range []string{"out", "err"} {
		read, write, err := os.Pipe()
		if err != nil {
			return err
		}
		files[1+i] = write
		opened = append(opened, write)
		s := &stream{
			r: read, w: a.outs.writers[i], sink: a.outs.sinks[i], prefix: linePrefix(r.number, a.h.size, a.cfg.Color),
			prompt: interactive, tail: &r.tail, logFailed: a.logFailed,
		}
		streams = append(streams, s)
		dir := a.cfg.LogDir
		if dir != "" && a.cfg.Restarts > 0 {
			dir = filepath.Join(dir, "attempt-"+strconv.Itoa(a.number))
		}
		if s.file, err = openLog(dir, fmt.Sprintf("rank-%s.%s", r.name(), name)); err != nil {
			return err
		}
	}
	copied = true
	// If the process does not start, the streams end when the pipes' write ends are
	// closed.
	for _, s := range streams {
		a.copying.Go(s.copy)
	}
	a.streams = append(a.streams, streams...)
	// A terminal stops background processes of its own session that read from it.
	// Processes of other sessions may read.
	session := interactive && isTerminal(a.cfg.Stdin)
	attr := &os.ProcAttr{Dir: a.cfg.Dir, Env: env, Files: files, Sys: childAttr(session)}
	if r.pid, err = a.starter.thread.start(a.starter.path, a.cfg.Command, attr, a.cpuShare(r.local)); err != nil {
		return err
	}
	r.started = time.Now()
	a.ranks = append(a.ranks, r)
	a.alive++
	a.reapAgain = true
	if a.exits == nil && a.alive == 1 && len(a.ranks) > 1 {
		a.reap()
	}
	return nil
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// cpuShare returns the CPUs for a rank; nil means all CPUs of this process.
func (a *attempt) cpuShare(local int) []int {
	if !a.cfg.Bind {
		return nil
	}
	return affinity.Share(affinity.Allowed(), a.cfg.Ranks, local)
}

// fail ends all ranks because of a failure on this or another host. Only the first call
// has an effect.
func (a *attempt) fail(e Exit) {
	if a.firstFailure != nil {
		return
	}
	if a.h.reg != nil {
		a.leave(e, syscall.SIGTERM)
		return
	}
	a.recordActivity(e)
	first := a.h.publishFailure(a.number, e)
	a.firstFailure = &first
	a.terminate(syscall.SIGTERM)
}

// terminate asks all ranks to report their activity and then to end. It does not wait: run sends
// sig when activityReported is closed, and SIGKILL after the grace time. A later call sends sig at
// once. Only the goroutine of run calls it.
func (a *attempt) terminate(sig syscall.Signal) {
	if a.ending {
		a.signalAll(sig)
		return
	}
	a.ending, a.endSignal = true, sig
	// All ranks of the job receive the request, so it may be sent only when the whole
	// job ends.
	if !a.leaving {
		a.activityReported = a.requestActivity()
	}
	if a.activityReported == nil {
		a.terminateNow()
	}
}

func (a *attempt) terminateNow() {
	a.signalAll(a.endSignal)
	a.endTimer.Reset(a.cfg.Grace)
}

// signalAll sends a signal to the process groups of all running ranks.
func (a *attempt) signalAll(sig syscall.Signal) {
	for _, r := range a.ranks {
		if r.exit == nil {
			_ = syscall.Kill(-r.pid, sig)
		}
	}
}

// handleSignal handles a signal that the launcher received. The first signal that ends the job
// terminates the ranks, the second one kills them; other signals are forwarded. Only the goroutine
// of run calls it.
func (a *attempt) handleSignal(s os.Signal) {
	sig, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	switch {
	case !endsJob(sig):
		a.signalAll(sig)
		return
	case a.stopSignal != 0:
		a.kill()
		return
	case a.h.reg != nil:
		a.leaveBySignal(sig)
		return
	}
	a.stopSignal = sig
	if a.firstFailure == nil {
		e := Exit{Rank: -1, Node: a.cfg.Node, Code: 128 + int(sig), How: "stopped by " + signalName(sig), After: time.Since(a.begin)}
		a.recordActivity(e)
		first := a.h.publishFailure(a.number, e)
		a.firstFailure = &first
	}
	a.terminate(sig)
}

// kill sends SIGKILL to all ranks and their descendants. The timer repeats it until all
// have exited, because new processes may have been started meanwhile.
func (a *attempt) kill() {
	a.ending, a.activityReported = true, nil
	a.signalAll(syscall.SIGKILL)
	a.killAll()
	a.endTimer.Reset(20 * time.Millisecond)
}

func (a *attempt) killAll() {
	groups := make([]int, len(a.ranks))
	for i, r := range a.ranks {
		groups[i] = r.pid
	}
	killDescendants(groups)
}

const (
	// killTimeout bounds how long processes may take to exit after SIGKILL, or a leader after its
	// lifeline is closed. Only a process that hangs in the kernel takes longer.
	killTimeout = 10 * time.Second
	// outputTimeout bounds the wait for the ranks' last output.
	outputTimeout = 30 * time.Second
)

// finish kills the processes that ranks left behind and waits for the last output. After
// outputTimeout it drops the rest of the output. The goroutines that copy may then still run when
// it returns.
func (a *attempt) finish() {
	timeout := outputTimeout
	if a.exits == nil {
		a.reap()
	}
	if !a.killLeftovers() {
		a.cfg.Logger.Warn("tutti: processes that ranks left behind cannot be killed")
		timeout = time.Second
	}
	done := make(chan struct{})
	go func() {
		a.copying.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(timeout):
		a.cfg.Logger.Warn("tutti: the output of ranks does not end; the rest of it is dropped")
		for _, s := range a.streams {
			s.drop()
		}
	}
}

// logFailed is called by a stream that cannot write its log file. It reports the
// failure from another goroutine, because the stream may hold the turn that printing
// needs.
func (a *attempt) logFailed(name string, err error) {
	a.copying.Go(func() { a.outs.logFailed(name, err) })
}

// killLeftovers kills the processes that ranks left behind. It reports whether none remains, at the
// latest after killTimeout. The end of exits says that this process has no children.
func (a *attempt) killLeftovers() bool {
	deadline := time.After(killTimeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		for more := true; more; {
			select {
			case _, alive := <-a.exits:
				if !alive {
					return true
				}
			default:
				more = false
			}
		}
		a.killAll()
		select {
		case _, alive := <-a.exits:
			if !alive {
				return true
			}
		case <-time.After(pause):
		case <-deadline:
			return false
		}
	}
}
