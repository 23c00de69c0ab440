package launch

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/agree"
	"github.com/tutti-go/tutti/internal/place"
	"github.com/tutti-go/tutti/store"
)

// A crew is what an elastic job knows of its losses. A place is what a rank's
// first process and its replacements have in common: number, device, processors.
type crew struct {
	timer   *time.Timer // for what is due next
	due     []due       // replacements
	behind  []due       // ends of ranks without which the others have gone on
	planned int         // replacements, in the attempt
	losses  []*rank     // in the order of their ends
}

// due is when something is to happen to a rank, or to its place.
type due struct {
	r  *rank
	at time.Time
}

// The first replacement of a place is started at once, the next ones later and
// later, unless the process before has lived for a while.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
	longLife   = time.Minute
)

// pause is how long a place stays empty after a process that was its n-th
// replacement, or its first process, and lived so long.
func pause(n int, lived time.Duration) time.Duration {
	if n == 0 || lived >= longLife {
		return 0
	}
	return min(firstPause<<min(n-1, 10), lastPause)
}

// lose goes on without ranks that have ended badly, if enough are left, and
// notices when the others have ended.
func (w *world) lose(bad []*rank) {
	if w.h.reg != nil {
		w.early = append(w.early, bad...)
		w.dropEarly()
		return
	}
	if len(bad) > 0 && !w.formed() {
		// The others wait for it in Join, and nobody else can be that rank.
		w.fail(*bad[0].exit)
		return
	}
	for _, r := range bad {
		w.drop(r)
	}
	switch whole, running := w.members(); {
	case len(bad) > 0 && whole < w.cfg.Min:
		w.outs.say("%d of %d ranks are left, and %d are needed", whole, w.cfg.Ranks, w.cfg.Min)
		w.fail(*w.firstLoss().exit)
	case running == 0 && w.alive > 0:
		w.end(syscall.SIGTERM) // of replacements that nobody will let in any more
	}
}

// formed reports whether the job's ranks have found each other.
func (w *world) formed() bool {
	for _, s := range w.h.joined(w.epoch) {
		if s == hadJoined {
			return true
		}
	}
	return false
}

// drop notes a loss, ends what the process has left in its group, and sees to a
// replacement.
func (w *world) drop(r *rank) {
	r.loss = new(Loss)
	w.crew.losses = append(w.crew.losses, r)
	if r.pid > 0 {
		killGroup(r.pid)
	}
	if !w.isMember(r) {
		withdraw := func() { w.h.withdraw(w.epoch, r.name()) }
		if w.h.reg != nil {
			go withdraw() // the store may be far away
		} else {
			withdraw()
		}
	}
	next := "it is replaced"
	pause := pause(r.replacement, time.Since(r.began))
	switch {
	case w.endedWell():
		next = "it is not replaced: others have ended well"
	case w.crew.planned >= w.cfg.Replacements:
		next = fmt.Sprintf("it is not replaced: %d replacements were all", max(w.cfg.Replacements, 0))
	default:
		if pause > 0 {
			next += fmt.Sprintf(" in %v", pause)
		}
		w.crew.planned++
		next += fmt.Sprintf(" (%d of %d)", w.crew.planned, w.cfg.Replacements)
		w.crew.due = append(w.crew.due, due{r, time.Now().Add(pause)})
		w.crew.wind()
	}
	w.outs.say("%s is lost: %s after %v; %s", r.exit.who(), r.exit.How, r.exit.After.Round(time.Millisecond), next)
}

// wind sets the timer to what is due first.
func (c *crew) wind() {
	if all := slices.Concat(c.due, c.behind); len(all) > 0 {
		first := slices.MinFunc(all, func(a, b due) int { return a.at.Compare(b.at) })
		c.timer.Reset(max(time.Until(first.at), 0))
	}
}

// ripe does what is due.
func (w *world) ripe() {
	now, replaced, behind := time.Now(), w.crew.due, w.crew.behind
	w.crew.due, w.crew.behind = nil, nil
	for _, d := range replaced {
		switch {
		case w.ending || w.endedWell():
		case d.at.After(now):
			w.crew.due = append(w.crew.due, d)
		default:
			w.startReplacement(d.r)
		}
	}
	for _, d := range behind {
		switch {
		case w.ending || d.r.exit != nil:
		case d.at.After(now):
			w.crew.behind = append(w.crew.behind, d)
		default:
			w.outs.say("%s does not end, and the others have gone on without it; it is killed", d.r.who())
			_ = syscall.Kill(-d.r.pid, syscall.SIGKILL)
		}
	}
	w.crew.wind()
}

// decided takes what the ranks have decided: the names of those who go on. A rank
// that is not among them is fenced out. Usually it is dead; if it was stopped, or
// slow, it has some time to find out.
func (w *world) decided(names []string) {
	for _, r := range w.ranks {
		switch was := r.replacement == 0 || r.in; {
		case slices.Contains(names, r.name()):
			r.in = true
		case was && !r.behind && r.exit == nil:
			r.behind = true
			w.crew.behind = append(w.crew.behind, due{r, time.Now().Add(w.cfg.Grace)})
		}
	}
	w.crew.wind()
}

// startReplacement starts another process in the place of one that was lost.
func (w *world) startReplacement(old *rank) {
	r := &rank{number: old.number, local: old.local, replacement: old.replacement + 1, host: old.host, began: time.Now()}
	env := late(w.h.environ(w.epoch, r.local, w.how.master), r)
	if err := w.startRank(r, env); err != nil {
		r.exit = w.endOf(r, 1, "it could not be started: "+err.Error())
		w.drop(r)
		return
	}
	old.loss.By, old.loss.ByAfter = r.replacement, time.Since(w.begin)
}

// late is the environment of a process that joins a running job.
func late(env []string, r *rank) []string {
	return merge(env, []string{"TUTTI_NAME=" + r.name(), "TUTTI_LATE=1"})
}

// members counts the processes that are ranks of the job, or have ended well as
// such, and those of them that run.
func (w *world) members() (whole, running int) {
	for _, r := range w.ranks {
		if !w.isMember(r) {
			continue
		}
		switch {
		case r.exit == nil:
			whole++
			running++
		case r.exit.Code == 0:
			whole++
		}
	}
	return whole, running
}

// isMember reports whether a process is a rank, or was until its end: a
// replacement is one when the others have let it in, and nobody without whom they
// have gone on.
func (w *world) isMember(r *rank) bool {
	if r.behind && (r.exit == nil || r.exit.Code == 0) {
		return false
	}
	if w.h != nil && w.h.reg != nil {
		return r.replacement == 0 || r.in
	}
	if r.replacement > 0 && r.letIn == "" {
		r.letIn = w.h.letIn(w.epoch, r.name())
	}
	return r.replacement == 0 || r.letIn != ""
}

func (w *world) endedWell() bool {
	if w.over {
		return true
	}
	for _, r := range w.ranks {
		if r.exit != nil && r.exit.Code == 0 && w.isMember(r) {
			return true
		}
	}
	return false
}

// firstLoss is the rank whose place has been empty for longest.
func (w *world) firstLoss() *rank {
	emptied := make(map[int]*rank) // by place: its last rank
	for _, r := range w.ranks {
		if !w.isMember(r) {
			continue
		}
		if emptied[r.local] = nil; r.loss != nil {
			emptied[r.local] = r
		}
	}
	first := w.crew.losses[0]
	for _, r := range slices.Backward(w.crew.losses) {
		if emptied[r.local] == r {
			first = r
		}
	}
	return first
}

// lost is what became of those that were lost.
func (w *world) lost() (list []Loss) {
	for _, r := range w.crew.losses {
		l := *r.loss
		l.Exit = *r.exit
		for _, k := range w.ranks {
			if k.number == r.number && k.replacement == l.By && l.By > 0 && w.isMember(k) {
				l.LetIn = k.letIn
			}
		}
		list = append(list, l)
	}
	return list
}

// follow returns what the ranks of an attempt decide, again and again: the names
// of those who go on.
func (h *host) follow(ctx context.Context, epoch int) <-chan []string {
	news := make(chan []string)
	names := make([]string, h.size)
	for r := range names {
		names[r] = strconv.Itoa(r)
	}
	go func() {
		for n := 0; ; n++ {
			d, err := h.learn(ctx, epoch, n)
			if err != nil {
				return
			}
			names = nextNames(ctx, h.ranks(epoch), names, d)
			select {
			case news <- names:
			case <-ctx.Done():
				return
			}
		}
	}()
	return news
}

// learn waits for the n-th decision of the ranks. Each call of the store is bounded: a
// connection that was cut off without notice would keep one waiting for ever.
func (h *host) learn(ctx context.Context, epoch, n int) (*agree.Decision, error) {
	for {
		try, cancel := context.WithTimeout(ctx, max(h.cfg.LostTime, time.Second))
		d, err := agree.Learn(try, agree.On(h.ranks(epoch)), place.WorldKey(n))
		cancel()
		if err == nil {
			return d, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// nextNames returns the process names of a decision, in rank order, from those of the
// one before.
func nextNames(ctx context.Context, ranks store.Store, names []string, d *agree.Decision) (next []string) {
	for _, m := range d.Members {
		if m >= 0 && m < len(names) {
			next = append(next, names[m])
		}
	}
	for _, ticket := range d.Late {
		holder, _ := ranks.Get(ctx, place.LateKey(ticket)) // "" stands for a process without a name
		next = append(next, place.HolderName(string(holder)))
	}
	return next
}

// letIn returns as what a replacement was let in; "" if it was not.
func (h *host) letIn(epoch int, name string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return letIn(ctx, h.ranks(epoch), name)
}

// letIn reads as what a process was let in; "" if it was not.
func letIn(ctx context.Context, s store.Store, name string) string {
	key := place.LetInKey(name)
	if there, err := s.Check(ctx, key); err != nil || !there {
		return ""
	}
	text, err := s.Get(ctx, key)
	if err != nil {
		return ""
	}
	return string(text)
}

// withdraw takes back the ticket of a replacement that is no more, so that
// nobody waits for it.
func (h *host) withdraw(epoch int, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s := h.ranks(epoch)
	for ticket := int64(1); ; ticket++ {
		key := place.LateKey(ticket)
		if there, err := s.Check(ctx, key); err != nil || !there {
			return
		}
		who, err := s.Get(ctx, key)
		if err != nil {
			return
		}
		if place.HolderName(string(who)) == name {
			_, _ = s.CompareAndSet(ctx, key, who, []byte(place.Withdrawn))
			return
		}
	}
}
