package launch

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/cores"
)

// A world is this host's ranks in one attempt.
type world struct {
	h       *host
	cfg     *Config
	epoch   int
	begin   time.Time
	ranks   []*rank
	alive   int
	exits   chan []ended
	outs    *outputs
	streams []*stream
	copying sync.WaitGroup // of the streams

	first     *Exit // what failed first, on whatever host
	stop      syscall.Signal
	ending    bool            // ranks have been, or are about to be, asked to end
	asked     <-chan struct{} // is closed when they have said what they were doing; nil: that is over
	by        syscall.Signal  // how they are then asked to end
	timer     *time.Timer     // for the next step of ending
	look      *time.Timer     // for a look at who waits in vain; nil: nobody can
	abandoned bool            // the lifeline has ended

	held    []*rank     // that have ended badly, while it is not known because of whom
	holding bool        // for a while
	blame   *time.Timer // that ends it

	how      starter
	unreaped bool // a rank was started after the one who takes their ends
	crew     crew // of an elastic job

	// Of an elastic job over several hosts.
	formedYet bool        // the ranks have joined
	early     []*rank     // have ended badly; formedYet is awaited
	over      bool        // a rank has ended well, on whatever host
	quitting  bool        // this host's ranks are ended, and the job goes on
	done      bool        // all launchers have ended the attempt
	again     bool        // all ranks are started again
	lostHosts []*HostLoss // of the attempt
}

// A rank is one process.
type rank struct {
	number      int
	local       int
	replacement int // which one of that rank's it is; 0: the first process
	pid         int
	began       time.Time
	tail        tail
	exit        *Exit  // nil: it runs
	loss        *Loss  // the job went on without it
	letIn       string // a replacement's rank, when it was let in
	in          bool   // the ranks have decided that it is one of them,
	behind      bool   // and later to go on without it
	host        int64  // registration of a launcher that came later; 0: it was there from the start
	doing       string
}

// who names the process, for people.
func (r *rank) who() string { return (&Exit{Rank: r.number, Replacement: r.replacement}).who() }

// name is what the launcher calls the process.
func (r *rank) name() string {
	return processName(r.number, r.replacement, r.host)
}

// endOf is an end of a rank, now.
func (w *world) endOf(r *rank, code int, how string) *Exit {
	return &Exit{Rank: r.number, Replacement: r.replacement, Node: w.cfg.Node, Code: code, How: how, After: time.Since(w.begin)}
}

// A starter is what it takes to start ranks, in an attempt.
type starter struct {
	thread *thread
	path   string
	master string // where PyTorch programs meet
}

// ended is a child's end.
type ended struct {
	pid    int
	status syscall.WaitStatus
}

// run starts the ranks and returns when all have ended, and all that they have
// started.
func (w *world) run(ctx context.Context, lost <-chan struct{}) error {
	w.begin = time.Now()
	for _, t := range []**time.Timer{&w.timer, &w.look, &w.blame, &w.crew.timer} {
		*t = idleTimer()
		defer (*t).Stop()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	release, err := w.start(ctx)
	if err != nil {
		w.cannotStart(err)
	}
	defer close(release)
	w.reap()
	var news <-chan Exit
	var events <-chan event
	var givenUp <-chan string
	if w.h.reg == nil {
		news = w.h.watch(ctx, w.epoch)
	} else {
		events, givenUp = w.h.reg.events(ctx, w.epoch), w.h.reg.gone
		w.tell()
	}
	done := ctx.Done()
	var decided <-chan []string
	if w.cfg.Min > 0 {
		decided = w.h.follow(ctx, w.epoch)
	}
	for w.alive > 0 || w.pending() {
		select {
		case list, ok := <-w.exits:
			switch {
			case ok:
				w.exited(list)
			case w.unreaped:
				w.reap()
			case w.alive == 0:
				w.exits = nil // until a replacement is started
			default:
				w.unseen()
			}
		case sig := <-w.cfg.Signals:
			w.signal(sig)
		case e := <-news:
			w.fail(e)
		case e := <-events:
			w.heed(e)
		case why := <-givenUp:
			w.givenUp(why)
		case e := <-w.h.gone:
			w.lostHost(e)
		case <-done:
			done = nil
			w.fail(w.stopped(ctx))
		case <-lost:
			lost, w.abandoned = nil, true
			w.h.abandon(w.abandonment()) // before the ends of ranks are reported
			w.kill()
		case <-w.asked:
			w.asked = nil
			w.endNow()
		case <-w.timer.C:
			w.kill()
		case <-w.look.C:
			w.lookAround()
		case <-w.blame.C:
			w.judge(true)
		case <-w.crew.timer.C:
			w.ripe()
		case names := <-decided:
			w.decided(names)
		}
		if w.h.reg != nil {
			w.tell()
		}
	}
	w.judge(true)
	w.finish()
	if w.h.reg != nil {
		w.settleHosts(ctx, events, lost)
	} else {
		w.settle(ctx, news, lost)
	}
	for _, r := range w.ranks {
		if r.exit != nil {
			r.exit.Lines = r.tail.last()
			if w.first != nil && w.first.of(r) && w.first.Lines == nil {
				w.first.Lines = r.exit.Lines
			}
		}
	}
	return err
}

// idleTimer is a timer that does not fire until it is reset, however long the job runs.
func idleTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// cannotStart ends an attempt whose ranks could not all be started.
func (w *world) cannotStart(err error) {
	e := Exit{Rank: -1, Node: w.cfg.Node, Code: 1, How: err.Error()}
	if w.h.reg != nil {
		w.quit(e, syscall.SIGKILL)
	} else {
		first := w.h.announce(w.epoch, e)
		w.first = &first
	}
	w.kill()
}

// lostHost ends the job because another host is lost.
func (w *world) lostHost(e Exit) {
	if w.h.reg != nil {
		w.lostStore(e)
		return
	}
	w.h.alone = true
	w.fail(e)
}

// reap begins to take the ends of all children.
func (w *world) reap() {
	w.exits, w.unreaped = make(chan []ended, len(w.ranks)+1), false
	go reap(w.exits)
}

// abandonment is the failure of a launcher of which a process was killed.
func (w *world) abandonment() Exit {
	return Exit{Rank: -1, Node: w.cfg.Node, Code: 1, How: "a launcher process was killed"}
}

func (w *world) stopped(ctx context.Context) Exit {
	return Exit{Rank: -1, Node: w.cfg.Node, Code: 1, How: "stopped: " + context.Cause(ctx).Error()}
}

// settle waits until all hosts have ended the attempt. Those where it goes well
// may take as long as they like.
func (w *world) settle(ctx context.Context, news <-chan Exit, lost <-chan struct{}) {
	if w.cfg.Nodes == 1 || w.abandoned {
		return
	}
	all := make(chan error, 1)
	waiting, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { all <- w.h.own.Barrier(waiting, fmt.Sprintf("%d/ended", w.epoch), w.cfg.Nodes) }()
	done := ctx.Done()
	for {
		var patience <-chan time.Time
		if w.first != nil {
			patience = time.After(w.cfg.Grace + w.h.patience())
		}
		select {
		case err := <-all:
			if err == nil {
				w.first = w.h.verdict(w.epoch)
			} else if w.first == nil {
				w.first = &Exit{Rank: -1, Code: 1, How: "the store of node 0 is gone: " + err.Error()}
			}
			return
		case e := <-news:
			w.fail(e)
		case e := <-w.h.gone:
			w.lostHost(e)
		case sig := <-w.cfg.Signals:
			w.signal(sig)
		case <-done:
			done = nil
			w.fail(w.stopped(ctx))
		case <-lost:
			w.abandoned = true
			return
		case <-patience:
			return
		}
	}
}

// start starts all ranks from one thread, which stays until release is closed:
// they are killed by the system when it ends.
func (w *world) start(ctx context.Context) (release chan struct{}, err error) {
	release = make(chan struct{})
	if err := w.h.admit(ctx, w.epoch); err != nil {
		return release, &Error{"the store", err}
	}
	master, err := w.h.master(ctx, w.epoch)
	if err != nil {
		return release, &Error{"the address for PyTorch", err}
	}
	path, err := lookPath(w.cfg)
	if err != nil {
		return release, &Error{"the program", err}
	}
	w.how = starter{newThread(release), path, master}
	for local := range w.cfg.Ranks {
		r, env := &rank{number: w.h.base + local, local: local}, w.h.environ(w.epoch, local, master)
		if w.h.firsts != nil {
			r.replacement, r.host = w.h.firsts[local], w.h.reg.number
			env = late(env, r)
		}
		if err := w.startRank(r, env); err != nil {
			return release, &Error{fmt.Sprintf("rank %d", r.number), err}
		}
	}
	return release, nil
}

// startRank starts a process, and has it among the ranks.
func (w *world) startRank(r *rank, env []string) (err error) {
	files := []*os.File{nil, nil, nil}
	var opened []io.Closer
	defer func() {
		for _, c := range opened {
			c.Close()
		}
	}()
	interactive := w.cfg.Stdin != nil && r.number == 0 && r.replacement == 0
	if files[0] = w.cfg.Stdin; !interactive {
		if files[0], err = os.Open(os.DevNull); err != nil {
			return err
		}
		opened = append(opened, files[0])
	}
	var streams []*stream
	copied := false
	defer func() {
		for _, s := range streams {
			if !copied { // else s.copy closes both
				s.r.Close()
				s.file.Close() // does nothing if there is no file
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
			r: read, w: w.outs.writers[i], to: w.outs.sinks[i], prefix: prefix(r.number, w.h.size, w.cfg.Color),
			prompt: interactive, tail: &r.tail, logFailed: w.logFailed,
		}
		streams = append(streams, s)
		dir := w.cfg.LogDir
		if dir != "" && w.cfg.Restarts > 0 {
			dir = filepath.Join(dir, "attempt-"+strconv.Itoa(w.epoch))
		}
		if s.file, err = openLog(dir, fmt.Sprintf("rank-%s.%s", r.name(), name)); err != nil {
			return err
		}
	}
	copied = true
	// Should it not start, the streams end when the pipes' other ends are closed.
	for _, s := range streams {
		w.copying.Go(s.copy)
	}
	w.streams = append(w.streams, streams...)
	// A terminal stops a process of its session that reads it in the background. A
	// process of another session it lets read.
	session := interactive && isTerminal(w.cfg.Stdin)
	attr := &os.ProcAttr{Dir: w.cfg.Dir, Env: env, Files: files, Sys: childAttr(session)}
	if r.pid, err = w.how.thread.start(w.how.path, w.cfg.Command, attr, w.part(r.local)); err != nil {
		return err
	}
	r.began = time.Now()
	w.ranks = append(w.ranks, r)
	w.alive++
	w.unreaped = true
	if w.exits == nil && w.alive == 1 && len(w.ranks) > 1 {
		w.reap()
	}
	return nil
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// part returns which of this process's processors are a rank's; nil means all.
func (w *world) part(local int) []int {
	if !w.cfg.Bind {
		return nil
	}
	return cores.Share(cores.Allowed(), w.cfg.Ranks, local)
}

// fail ends all ranks because of a failure here or elsewhere. Only the first
// counts.
func (w *world) fail(e Exit) {
	if w.first != nil {
		return
	}
	if w.h.reg != nil {
		w.quit(e, syscall.SIGTERM)
		return
	}
	w.lookAt(e)
	first := w.h.announce(w.epoch, e)
	w.first = &first
	w.end(syscall.SIGTERM)
}

// end asks all ranks to end, after they have said what they were doing.
func (w *world) end(sig syscall.Signal) {
	if w.ending {
		w.pass(sig)
		return
	}
	w.ending, w.by = true, sig
	// All ranks of the job hear the question, so only the end of the job may ask it.
	if !w.quitting {
		w.asked = w.ask()
	}
	if w.asked == nil {
		w.endNow()
	}
}

func (w *world) endNow() {
	w.pass(w.by)
	w.timer.Reset(w.cfg.Grace)
}

// pass sends a signal to all ranks, and to what they have started in their
// process group.
func (w *world) pass(sig syscall.Signal) {
	for _, r := range w.ranks {
		if r.exit == nil {
			_ = syscall.Kill(-r.pid, sig)
		}
	}
}

// signal passes on what the launcher was sent.
func (w *world) signal(s os.Signal) {
	sig, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	switch {
	case !ends(sig):
		w.pass(sig)
		return
	case w.stop != 0:
		w.kill()
		return
	case w.h.reg != nil:
		w.quitBySignal(sig)
		return
	}
	w.stop = sig
	if w.first == nil {
		e := Exit{Rank: -1, Node: w.cfg.Node, Code: 128 + int(sig), How: "stopped by " + signalName(sig), After: time.Since(w.begin)}
		w.lookAt(e)
		first := w.h.announce(w.epoch, e)
		w.first = &first
	}
	w.end(sig)
}

// kill ends all ranks, and all that they have started, at once. It is called
// again while that has not happened: new ones may have been started meanwhile.
func (w *world) kill() {
	w.ending, w.asked = true, nil
	w.pass(syscall.SIGKILL)
	w.killAll()
	w.timer.Reset(20 * time.Millisecond)
}

func (w *world) killAll() {
	groups := make([]int, len(w.ranks))
	for i, r := range w.ranks {
		groups[i] = r.pid
	}
	killDescendants(groups)
}

const (
	// sweepTime is how long what is left is killed again and again. Only a
	// process that hangs in the system itself takes longer.
	sweepTime = 10 * time.Second
	// outputTime is how long the last output may take to be passed on.
	outputTime = 30 * time.Second
)

// finish ends what ranks have left behind, and passes on the last output.
func (w *world) finish() {
	patience := outputTime
	if w.exits == nil {
		w.reap()
	}
	if !w.sweep() {
		w.cfg.Logger.Warn("tutti: what ranks have left behind cannot be killed")
		patience = time.Second
	}
	done := make(chan struct{})
	go func() {
		w.copying.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
		w.cfg.Logger.Warn("tutti: the output of ranks does not end; the rest of it is dropped")
		for _, s := range w.streams {
			s.drop()
		}
	}
}

// logFailed is called by a stream whose log file cannot be written. The stream may
// have the turn that the message waits for.
func (w *world) logFailed(name string, err error) {
	w.copying.Go(func() { w.outs.logFailed(name, err) })
}

// sweep ends what ranks have left behind, and reports whether nothing is left.
func (w *world) sweep() bool {
	deadline := time.After(sweepTime)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		for more := true; more; {
			select {
			case _, alive := <-w.exits:
				if !alive {
					return true
				}
			default:
				more = false
			}
		}
		w.killAll()
		select {
		case _, alive := <-w.exits:
			if !alive {
				return true
			}
		case <-time.After(pause):
		case <-deadline:
			return false
		}
	}
}
