package launch

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/agree"
	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/store"
)

// An elasticState holds the losses of an elastic job on this host. The replacement of a
// rank has the same rank number, local rank, device and CPUs as the rank's first
// process.
type elasticState struct {
	timer        *time.Timer // fires when the next entry of replacements or excluded is due
	replacements []scheduled // replacements to start
	excluded     []scheduled // ranks to kill, because the other ranks continued without them
	planned      int         // replacements started or scheduled in the attempt
	losses       []*rank     // in the order of their exits
}

// A scheduled is a rank and the time at which to replace or kill it.
type scheduled struct {
	rank *rank
	at   time.Time
}

// The first replacement of a rank starts at once. The delay of the next ones doubles
// from minReplacementDelay to maxReplacementDelay, unless the last process ran for
// stableTime.
const (
	minReplacementDelay = time.Second
	maxReplacementDelay = 30 * time.Second
	stableTime          = time.Minute
)

// replacementDelay returns the delay before replacing a process that was replacement n
// of its rank (0: the first process) and ran for the time lived.
func replacementDelay(n int, lived time.Duration) time.Duration {
	if n == 0 || lived >= stableTime {
		return 0
	}
	return min(minReplacementDelay<<min(n-1, 10), maxReplacementDelay)
}

// handleFailures continues without the failed ranks if enough remain, and else ends the job. It
// ends the replacements when no rank runs any more. Over several hosts the coordinator decides
// instead. Only the goroutine of run calls it.
func (a *attempt) handleFailures(bad []*rank) {
	if a.h.reg != nil {
		a.earlyFailures = append(a.earlyFailures, bad...)
		a.dropEarlyFailures()
		return
	}
	if len(bad) > 0 && !a.hasJoined() {
		// The other ranks wait for it in Join, where no other process can replace it.
		a.fail(*bad[0].exit)
		return
	}
	for _, r := range bad {
		a.dropRank(r)
	}
	switch remaining, running := a.countMembers(); {
	case len(bad) > 0 && remaining < a.cfg.Min:
		a.outs.printf("%d of %d ranks are left, and %d are needed", remaining, a.cfg.Ranks, a.cfg.Min)
		a.fail(*a.firstLoss().exit)
	case running == 0 && a.alive > 0:
		a.terminate(syscall.SIGTERM) // ends replacements that no rank will admit any more
	}
}

// hasJoined reports whether the job's ranks have joined.
func (a *attempt) hasJoined() bool {
	for _, s := range a.h.joinStates(a.number) {
		if s == hadJoined {
			return true
		}
	}
	return false
}

// dropRank records a loss, kills the rest of the process group, and schedules a replacement. It
// does not wait for the store of another host: a goroutine withdraws the ticket there. Only the
// goroutine of run calls it.
func (a *attempt) dropRank(r *rank) {
	r.loss = new(Loss)
	a.elastic.losses = append(a.elastic.losses, r)
	if r.pid > 0 {
		killGroup(r.pid)
	}
	if !a.isMember(r) {
		withdraw := func() { a.h.withdrawTicket(a.number, r.name()) }
		if a.h.reg != nil {
			go withdraw() // the store may be on another host
		} else {
			withdraw()
		}
	}
	next := "it is replaced"
	delay := replacementDelay(r.replacement, time.Since(r.started))
	switch {
	case a.hasSucceeded():
		next = "it is not replaced: other ranks have ended well already"
	case a.elastic.planned >= a.cfg.Replacements:
		next = fmt.Sprintf("it is not replaced: the limit is %d replacements (--replacements)", max(a.cfg.Replacements, 0))
	default:
		if delay > 0 {
			next += fmt.Sprintf(" in %v", delay)
		}
		a.elastic.planned++
		next += fmt.Sprintf(" (%d of %d)", a.elastic.planned, a.cfg.Replacements)
		a.elastic.replacements = append(a.elastic.replacements, scheduled{r, time.Now().Add(delay)})
		a.elastic.setTimer()
	}
	a.outs.printf("%s is lost: %s after %v; %s", r.exit.label(), r.exit.How, r.exit.After.Round(time.Millisecond), next)
}

// setTimer sets the timer to the earliest scheduled time.
func (c *elasticState) setTimer() {
	if all := slices.Concat(c.replacements, c.excluded); len(all) > 0 {
		first := slices.MinFunc(all, func(a, b scheduled) int { return a.at.Compare(b.at) })
		c.timer.Reset(max(time.Until(first.at), 0))
	}
}

// runDue starts the replacements and kills the excluded ranks that are due, and sets the timer for
// the rest. Once the ranks are ending, none is started. Only the goroutine of run calls it, when
// the timer fires.
func (a *attempt) runDue() {
	now, replaced, behind := time.Now(), a.elastic.replacements, a.elastic.excluded
	a.elastic.replacements, a.elastic.excluded = nil, nil
	for _, d := range replaced {
		switch {
		case a.ending || a.hasSucceeded():
		case d.at.After(now):
			a.elastic.replacements = append(a.elastic.replacements, d)
		default:
			a.startReplacement(d.rank)
		}
	}
	for _, d := range behind {
		switch {
		case a.ending || d.rank.exit != nil:
		case d.at.After(now):
			a.elastic.excluded = append(a.elastic.excluded, d)
		default:
			a.outs.printf("%s still runs although the other ranks continued without it; it is killed", d.rank.label())
			_ = syscall.Kill(-d.rank.pid, syscall.SIGKILL)
		}
	}
	a.elastic.setTimer()
}

// applyDecision takes a decision of the ranks: the names of the processes that
// continue. A process that is not among them is excluded. Usually it has exited. If it
// was stopped or slow, it has the grace time to notice.
func (a *attempt) applyDecision(names []string) {
	for _, r := range a.ranks {
		switch was := r.replacement == 0 || r.admitted; {
		case slices.Contains(names, r.name()):
			r.admitted = true
		case was && !r.excluded && r.exit == nil:
			r.excluded = true
			a.elastic.excluded = append(a.elastic.excluded, scheduled{r, time.Now().Add(a.cfg.Grace)})
		}
	}
	a.elastic.setTimer()
}

// startReplacement starts another process for a lost rank.
func (a *attempt) startReplacement(old *rank) {
	r := &rank{number: old.number, local: old.local, replacement: old.replacement + 1, registration: old.registration, started: time.Now()}
	env := lateEnv(a.h.environ(a.number, r.local, a.starter.master), r)
	if err := a.startRank(r, env); err != nil {
		r.exit = a.newExit(r, 1, "it could not be started: "+err.Error())
		a.dropRank(r)
		return
	}
	old.loss.By, old.loss.ByAfter = r.replacement, time.Since(a.begin)
}

// lateEnv returns the environment of a process that joins a running job.
func lateEnv(env []string, r *rank) []string {
	return mergeEnv(env, []string{"TUTTI_NAME=" + r.name(), "TUTTI_LATE=1"})
}

// countMembers counts the processes that are ranks of the job. remaining also counts
// ranks that exited with code 0; running does not.
func (a *attempt) countMembers() (remaining, running int) {
	for _, r := range a.ranks {
		if !a.isMember(r) {
			continue
		}
		switch {
		case r.exit == nil:
			remaining++
			running++
		case r.exit.Code == 0:
			remaining++
		}
	}
	return remaining, running
}

// isMember reports whether a process is a rank, or was one until its exit. A
// replacement is a member once the ranks have admitted it. An excluded process is not a
// member.
func (a *attempt) isMember(r *rank) bool {
	if r.excluded && (r.exit == nil || r.exit.Code == 0) {
		return false
	}
	if a.h != nil && a.h.reg != nil {
		return r.replacement == 0 || r.admitted
	}
	if r.replacement > 0 && r.admittedAs == "" {
		r.admittedAs = a.h.admittedAs(a.number, r.name())
	}
	return r.replacement == 0 || r.admittedAs != ""
}

func (a *attempt) hasSucceeded() bool {
	if a.succeeded {
		return true
	}
	for _, r := range a.ranks {
		if r.exit != nil && r.exit.Code == 0 && a.isMember(r) {
			return true
		}
	}
	return false
}

// firstLoss returns the rank that has been without a running process for the longest
// time.
func (a *attempt) firstLoss() *rank {
	emptied := make(map[int]*rank) // by local rank: its last member
	for _, r := range a.ranks {
		if !a.isMember(r) {
			continue
		}
		if emptied[r.local] = nil; r.loss != nil {
			emptied[r.local] = r
		}
	}
	first := a.elastic.losses[0]
	for _, r := range slices.Backward(a.elastic.losses) {
		if emptied[r.local] == r {
			first = r
		}
	}
	return first
}

// lost returns the losses and their replacements.
func (a *attempt) lost() (list []Loss) {
	for _, r := range a.elastic.losses {
		l := *r.loss
		l.Exit = *r.exit
		for _, k := range a.ranks {
			if k.number == r.number && k.replacement == l.By && l.By > 0 && a.isMember(k) {
				l.LetIn = k.admittedAs
			}
		}
		list = append(list, l)
	}
	return list
}

// watchDecisions sends the process names of each decision of an attempt's ranks, in order. Its
// goroutine owns names and ends with ctx.
func (h *host) watchDecisions(ctx context.Context, attempt int) <-chan []string {
	news := make(chan []string)
	names := make([]string, h.size)
	for r := range names {
		names[r] = strconv.Itoa(r)
	}
	go func() {
		for n := 0; ; n++ {
			d, err := h.awaitDecision(ctx, attempt, n)
			if err != nil {
				return
			}
			names = nextNames(ctx, h.rankStore(attempt), names, d)
			select {
			case news <- names:
			case <-ctx.Done():
				return
			}
		}
	}()
	return news
}

// awaitDecision waits for decision n of the ranks, and returns an error only when ctx ends. Each
// store call has a timeout: a call on a connection that was cut without notice would never return.
func (h *host) awaitDecision(ctx context.Context, attempt, n int) (*agree.Decision, error) {
	for {
		try, cancel := context.WithTimeout(ctx, max(h.cfg.LostTime, time.Second))
		d, err := agree.Learn(try, agree.On(h.rankStore(attempt)), jobstore.Generation(jobstore.World, n))
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

// nextNames returns the process names of a decision, in rank order. names are those of
// the decision before.
func nextNames(ctx context.Context, ranks store.Store, names []string, d *agree.Decision) (next []string) {
	for _, m := range d.Members {
		if m >= 0 && m < len(names) {
			next = append(next, names[m])
		}
	}
	for _, ticket := range d.Late {
		holder, _ := ranks.Get(ctx, jobstore.Ticket(ticket)) // "" is a process without a name
		next = append(next, jobstore.HolderName(string(holder)))
	}
	return next
}

// admittedAs returns the rank that a replacement got; "" if it got none.
func (h *host) admittedAs(attempt int, name string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return readAdmittedAs(ctx, h.rankStore(attempt), name)
}

// readAdmittedAs reads the rank that a process got; "" if it got none.
func readAdmittedAs(ctx context.Context, s store.Store, name string) string {
	key := jobstore.Admitted(name)
	if there, err := s.Check(ctx, key); err != nil || !there {
		return ""
	}
	text, err := s.Get(ctx, key)
	if err != nil {
		return ""
	}
	return string(text)
}

// withdrawTicket withdraws the admission ticket of a replacement that has exited, so that no rank
// waits for it. It gives up after a second, or when the store fails. It may be called by any
// goroutine.
func (h *host) withdrawTicket(attempt int, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s := h.rankStore(attempt)
	for ticket := int64(1); ; ticket++ {
		key := jobstore.Ticket(ticket)
		if there, err := s.Check(ctx, key); err != nil || !there {
			return
		}
		who, err := s.Get(ctx, key)
		if err != nil {
			return
		}
		if jobstore.HolderName(string(who)) == name {
			_, _ = s.CompareAndSet(ctx, key, who, []byte(jobstore.Withdrawn))
			return
		}
	}
}
