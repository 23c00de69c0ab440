package overlay

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	seeds = flag.Int("seeds", 2000, "how many seeds TestSeeds runs")
	from  = flag.Uint64("from", 0, "the first seed of TestSeeds")
)

// A scenario is one random run of a job in which ranks are killed, stopped, cut off or leave, while
// other ranks abort groups and are notified of losses.
type scenario struct {
	*network
	log      []string
	silent   map[int]bool        // ranks whose host becomes silent
	cuts     map[int]bool        // ranks with a connection that was cut
	stoppers bool                // some ranks are stopped
	reported map[string][]notice // by group: ranks that reported a cause
	begun    time.Time
	faults   []time.Time // times of faults
}

// since is the time between the last fault and a notice. Each fault may remove the rank that was
// about to notify others.
func (d *scenario) since(from, at time.Time) time.Duration {
	for _, t := range d.faults {
		if t.After(from) && !t.After(at) {
			from = t
		}
	}
	return at.Sub(from)
}

func (d *scenario) note(format string, args ...any) {
	d.faults = append(d.faults, d.now)
	d.log = append(d.log, fmt.Sprintf("%8.3f ", d.now.Sub(d.begun).Seconds())+fmt.Sprintf(format, args...))
}

// newScenario draws a scenario.
func newScenario(seed uint64, b bugs) *scenario {
	pick := newNetwork(seed, 1, []int{0}).rnd
	size := 2 + pick.IntN(9)
	if pick.IntN(10) == 0 {
		size = 12 + pick.IntN(30)
	}
	hosts := make([]int, size)
	per := size
	if pick.IntN(2) == 0 {
		per = 1 + pick.IntN(size)
	}
	for r := range hosts {
		hosts[r] = r / per * per
	}
	d := &scenario{
		network: newNetwork(seed+1, size, hosts), silent: make(map[int]bool),
		reported: make(map[string][]notice), cuts: make(map[int]bool),
	}
	d.bugs, d.begun, d.data = b, d.now, true
	if pick.IntN(4) == 0 {
		d.jitter = 20 * time.Millisecond
	}
	d.plan(pick.IntN, per)
	return d
}

// plan schedules faults and reports as events of the network.
func (d *scenario) plan(draw func(int) int, per int) {
	size := len(d.procs)
	// during the time of Join's links, or after it
	start := d.begun.Add(time.Duration(draw(2000)) * time.Millisecond)
	span := 1 + draw(800) // milliseconds
	when := func() time.Time { return start.Add(time.Duration(draw(span)) * time.Millisecond) }
	for _, p := range d.procs {
		p.exitsOnFailure = draw(3) == 0
	}
	victims := draw(size)
	order := make([]int, size)
	for i := range order {
		order[i] = i
	}
	if draw(2) == 0 { // not the lowest ranks
		for i := range order {
			j := i + draw(size-i)
			order[i], order[j] = order[j], order[i]
		}
	}
	for _, r := range order[:victims] {
		p := d.procs[r]
		switch draw(6) {
		case 0, 1:
			d.at(when(), func() { d.die(p, d.kill, "is killed") })
		case 2:
			d.stoppers = true
			d.at(when(), func() { d.note("rank %d is stopped", p.rank); d.stop(p) })
			switch draw(3) {
			case 0:
				d.at(when().Add(time.Duration(draw(3000))*time.Millisecond), func() { d.note("rank %d goes on", p.rank); d.resume(p) })
			case 1:
				d.at(when().Add(time.Duration(draw(3000))*time.Millisecond), func() { d.die(p, d.kill, "is killed") })
			}
		case 3:
			d.at(when(), func() { d.note("rank %d leaves", p.rank); d.network.leave(p) })
		case 4:
			if per < size {
				t := when()
				for q := r / per * per; q < min(r/per*per+per, size); q++ {
					d.at(t, func() { d.silent[q] = true; d.die(d.procs[q], d.silence, "vanishes") })
				}
			}
		case 5:
			q := d.procs[draw(size)]
			if q != p {
				d.at(when(), func() {
					if d.cut(p, q) {
						d.cuts[p.rank], d.cuts[q.rank] = true, true
						d.note("a connection of ranks %d and %d is cut", p.rank, q.rank)
					}
				})
			}
		}
	}
	if draw(4) == 0 { // a rank is killed while the others make links in place of those with rank 0
		t, p := when(), d.procs[draw(size)]
		d.at(t, func() { d.note("rank 0 leaves"); d.network.leave(d.procs[0]) })
		d.at(t.Add(time.Duration(draw(20))*time.Millisecond), func() { d.die(p, d.kill, "is killed") })
	}
	for i := range 1 + draw(3) {
		group := fmt.Sprintf("group %d", i)
		t := when().Add(time.Duration(draw(500)) * time.Millisecond)
		for range 1 + draw(2) {
			p := d.procs[draw(size)]
			d.at(t.Add(time.Duration(draw(3))*time.Millisecond), func() {
				if !p.dead && !p.stopped && !p.leaving {
					d.reported[group] = append(d.reported[group], notice{rank: p.rank, at: d.now})
					d.note("rank %d reports %s", p.rank, group)
					d.report(p, group, fmt.Sprint("rank ", p.rank))
				}
			})
		}
	}
	last := d.procs[draw(size)]
	d.at(when().Add(700*time.Millisecond), func() { d.die(last, d.kill, "is killed at last") })
}

func (d *scenario) die(p *process, how func(*process), what string) {
	if p.dead {
		return
	}
	d.note("rank %d %s", p.rank, what)
	how(p)
}

// run runs a scenario and checks the notifications of all ranks. Then the remaining ranks leave,
// and must exit in time. It returns the first violation.
func (d *scenario) run() error {
	d.network.run(d.begun.Add(9 * time.Second))
	if err := d.check(); err != nil {
		return err
	}
	// The remaining ranks leave.
	for _, p := range d.procs {
		d.resume(p)
	}
	before := d.now
	for _, p := range d.procs {
		if !p.dead && !p.leaving {
			d.after(time.Duration(d.rnd.Int64N(int64(300*time.Millisecond))), func() { d.note("rank %d leaves", p.rank); d.network.leave(p) })
		}
	}
	d.network.run(before.Add(4 * time.Second))
	for _, p := range d.procs {
		if !p.dead {
			return fmt.Errorf("rank %d has not left", p.rank)
		}
		if err := d.checkTrue(p); err != nil {
			return err
		}
	}
	return nil
}

// check checks the notifications of the running ranks.
func (d *scenario) check() error {
	for _, p := range d.procs {
		if err := d.checkTrue(p); err != nil {
			return err
		}
		if p.dead || p.stopped || p.leaving {
			continue
		}
		if err := errors.Join(d.checkNotified(p), d.checkCause(p), d.checkFirst(p)); err != nil {
			return err
		}
	}
	return d.checkSameCause()
}

// checkTrue checks that a rank was notified only of true facts.
func (d *scenario) checkTrue(p *process) error {
	for _, l := range p.lost {
		// A goodbye may have been lost with a connection that was cut.
		if died := d.procs[l.rank].died; !l.unknowable && !(d.cuts[l.rank] && d.procs[l.rank].leaving) && (died.IsZero() || l.at.Before(died)) {
			return fmt.Errorf("rank %d takes rank %d for lost (%s)", p.rank, l.rank, l.reason)
		}
		// A rank that exited because of a loss must not be reported before that loss, if it could
		// forward it.
		if q := d.procs[l.rank]; q.exitsOnFailure && len(q.lost) > 0 && !d.cuts[l.rank] && l.reason != notListening {
			first := q.lost[0].rank
			if first != p.rank && !slices.ContainsFunc(p.lost, func(n notice) bool { return n.rank == first && n.batch <= l.batch }) {
				return fmt.Errorf("rank %d was notified of rank %d, which exited because of rank %d, but not of that before", p.rank, l.rank, first)
			}
		}
	}
	return nil
}

// checkFirst checks that a rank does not take the exit of a rank because of a failure for the first
// failure of the group of all ranks. A connection that was cut may have carried the earlier failure.
func (d *scenario) checkFirst(p *process) error {
	if p.first == nil {
		return nil
	}
	for _, r := range p.first.ranks {
		if b := d.procs[r].because; b != nil && !d.cuts[r] {
			return fmt.Errorf("rank %d takes the exit of rank %d for the first failure (%q), which exited because of %v (%q)", p.rank, r, p.first.reason, b.ranks, b.reason)
		}
	}
	return nil
}

// checkCause checks that a rank that exited because of a group's failure is not reported before
// that failure.
func (d *scenario) checkCause(p *process) error {
	for _, l := range p.lost {
		group := d.procs[l.rank].exited
		if group == "" || d.cuts[l.rank] || d.wasStopped(p) {
			continue
		}
		if n, ok := p.failed[group]; !ok || n.at.After(l.at) {
			return fmt.Errorf("rank %d was notified of rank %d (%s), which exited because of %s, but not of that before", p.rank, l.rank, l.reason, group)
		}
	}
	return nil
}

// checkNotified checks that a running rank was notified of everything in time.
func (d *scenario) checkNotified(p *process) error {
	limit := time.Second
	if len(d.silent) > 0 {
		// The rank that noticed the silence may exit because of another loss. The next rank then
		// begins to wait.
		limit += 2 * (testHostTimeout + testHostTimeout/8)
	}
	for r, q := range d.procs {
		if q.died.IsZero() || q.leaving {
			continue
		}
		i := slices.IndexFunc(p.lost, func(n notice) bool { return n.rank == r })
		limit := limit
		if d.stoppers && (i < 0 || p.lost[i].reason == notListening) {
			limit += testHostTimeout // a stopped rank may know that the rank has left
		}
		switch {
		case i < 0 && d.now.Sub(q.died) > limit:
			return fmt.Errorf("rank %d was not notified of the loss of rank %d", p.rank, r)
		case i >= 0 && d.since(q.died, p.lost[i].at) > limit && !d.wasStopped(p):
			return fmt.Errorf("rank %d was notified of the loss of rank %d after %v", p.rank, r, p.lost[i].at.Sub(q.died))
		}
	}
	for group, reports := range d.reported {
		for _, by := range reports {
			// A rank that ends at once may have notified no rank, or only a stopped one.
			if q := d.procs[by.rank]; q.dead || q.leaving || d.wasStopped(q) {
				continue
			}
			if n, ok := p.failed[group]; !ok {
				return fmt.Errorf("rank %d was not notified of %s", p.rank, group)
			} else if d.since(by.at, n.at) > limit && !d.wasStopped(p) {
				return fmt.Errorf("rank %d was notified of %s after %v", p.rank, group, n.at.Sub(by.at))
			}
		}
	}
	return nil
}

// wasStopped reports whether a rank was stopped for a while.
func (d *scenario) wasStopped(p *process) bool {
	return strings.Contains(strings.Join(d.log, "\n")+"\n", fmt.Sprintf("rank %d is stopped\n", p.rank))
}

// checkSameCause checks that all ranks were notified of the same cause if the coordinator decided.
func (d *scenario) checkSameCause() error {
	if d.procs[0].dead || d.procs[0].leaving || d.stoppers || len(d.silent) > 0 || d.jitter > 5*time.Millisecond {
		return nil
	}
	for group := range d.reported {
		reason := ""
		for _, p := range d.procs {
			if n, ok := p.failed[group]; ok && !p.dead {
				if reason == "" {
					reason = n.cause.Text
				}
				if n.cause.Text != reason {
					return fmt.Errorf("%s has two first causes: %s and %s", group, reason, n.cause.Text)
				}
			}
		}
	}
	return nil
}

func runSeed(seed uint64, b bugs) (d *scenario, err error) {
	d = newScenario(seed, b)
	return d, d.run()
}

// TestSeeds runs scenarios: go test ./internal/overlay -run TestSeeds -seeds 50000
func TestSeeds(t *testing.T) {
	t.Parallel()
	for seed := *from; seed < *from+uint64(*seeds); seed++ {
		if d, err := runSeed(seed, bugs{}); err != nil {
			t.Fatalf("seed %d: %d ranks, hosts %v: %v\n%s", seed, len(d.procs), d.hosts, err, strings.Join(d.log, "\n"))
		}
	}
}

// TestBugs breaks one rule at a time and checks that TestSeeds would detect it.
func TestBugs(t *testing.T) {
	for name, b := range map[string]bugs{
		"act before forward": {actFirst: true}, "no exchange on a new link": {noState: true}, "no suspicion": {noSuspect: true},
		"no redial": {noRedial: true}, "the coordinator alone decides": {noStand: true}, "no acknowledged goodbye": {leaveFast: true},
		"decide on losses in any order": {unordered: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20000) {
				if _, err := runSeed(seed, b); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("not noticed")
		})
	}
}
