package launch

import (
	"fmt"
	"slices"
	"time"
)

// handleExits records exits of child processes, together with all that are already queued, and then
// decides about the failed ones. Only the goroutine of run calls it.
func (a *attempt) handleExits(list []childExit) {
	for more := true; more; {
		for _, e := range list {
			if r := a.recordExit(e); r != nil {
				a.undecided = append(a.undecided, r)
			}
		}
		select {
		case list, more = <-a.exits:
		default:
			more = false
		}
	}
	a.decideFailure(false)
}

// blameTime is how long the launcher waits for the exit of the rank that another failed
// rank blames. A process closes its connections before its parent sees its exit, so the
// blaming rank can exit first.
const blameTime = time.Second

// decideFailure picks the exit that counts as the failure from the undecided ones. A rank that
// blames another rank comes last: unless final is set, decideFailure then returns without a
// decision, and blameTimer calls it again with final. Only the goroutine of run calls it.
func (a *attempt) decideFailure(final bool) {
	if a.ending {
		a.undecided = nil
		return
	}
	weight := make(map[*rank]int)
	for _, r := range a.undecided {
		switch {
		case r.exit.Code > 128: // killed by a signal
		case a.h.reg != nil: // the coordinator decides
			weight[r] = 1
		case !failedByPeer(a.h.activityDumps(a.number, r.name())):
			weight[r] = 1
		default:
			weight[r] = 2
		}
	}
	slices.SortStableFunc(a.undecided, func(a, b *rank) int { return weight[a] - weight[b] })
	if len(a.undecided) > 0 && weight[a.undecided[0]] == 2 && !final {
		if !a.deciding {
			a.deciding = true
			a.blameTimer.Reset(blameTime)
		}
		return
	}
	bad := a.undecided
	a.undecided, a.deciding = nil, false
	switch {
	case a.cfg.Min > 0:
		a.handleFailures(bad)
	case len(bad) > 0:
		a.describeEarlyExits(bad[0])
		a.fail(*bad[0].exit)
	}
}

// describeEarlyExits corrects the description of ranks that exited with code 0 while r, the first rank that
// failed, still needed them.
func (a *attempt) describeEarlyExits(r *rank) {
	lost := lostRanks(a.h.activityDumps(a.number, r.name()))
	for _, o := range a.ranks {
		if o.exit != nil && o.exit.Code == 0 && slices.Contains(lost, o.number) {
			o.exit.How = "exited with code 0 while other ranks waited for it"
		}
	}
}

// handleLostExits fails the ranks whose exit status other code in this process has
// collected with wait.
func (a *attempt) handleLostExits() {
	for _, r := range a.ranks {
		if r.exit == nil {
			a.alive--
			r.exit = a.newExit(r, 1, "its exit status is lost: another part of the program has waited for it")
			a.fail(*r.exit)
		}
	}
}

// recordExit records the exit of a rank. It returns the rank if its exit code is not 0; nil for
// other processes, such as orphans of ranks. Only the goroutine of run calls it.
func (a *attempt) recordExit(e childExit) *rank {
	for _, r := range a.ranks {
		if r.pid != e.pid || r.exit != nil {
			continue
		}
		a.alive--
		code, how := decodeStatus(e.status)
		r.exit = a.newExit(r, code, how)
		switch {
		case a.ending && code != 0:
			r.exit.How = "ended by tutti: " + how
		case a.h.reg != nil: // the coordinator checks who waits in Join
		case code == 0 && a.h.joinStates(a.number)[r.number] == "":
			a.joinCheck.Reset(joinCheckInterval)
		}
		if code != 0 {
			return r
		}
	}
	return nil
}

// joinCheckInterval is the time between checks whether ranks wait in Join for a rank
// that exited without calling it.
const joinCheckInterval = 100 * time.Millisecond

// checkJoin fails the job if a rank waits in Join for a rank that exited without calling it.
// Otherwise joinCheck fires again after joinCheckInterval. Only the goroutine of run calls it.
func (a *attempt) checkJoin() {
	state := a.h.joinStates(a.number)
	waits := -1
	for r, s := range state {
		gone := slices.ContainsFunc(a.ranks, func(k *rank) bool { return k.number == r && k.exit != nil })
		if s == inJoin && !gone {
			waits = r
		}
	}
	for _, r := range a.ranks {
		if waits >= 0 && r.exit != nil && r.exit.Code == 0 && state[r.number] == "" && !a.ending {
			r.exit.Code, r.exit.How = 1, fmt.Sprintf("exited without calling Join, and rank %d waits for it", waits)
			a.fail(*r.exit)
			return
		}
	}
	a.joinCheck.Reset(joinCheckInterval)
}
