package launch

import (
	"fmt"
	"slices"
	"time"
)

// exited notes children's ends.
func (w *world) exited(list []ended) {
	for more := true; more; {
		for _, e := range list {
			if r := w.note(e); r != nil {
				w.held = append(w.held, r)
			}
		}
		select {
		case list, more = <-w.exits:
		default:
			more = false
		}
	}
	w.judge(false)
}

// blameTime is how long after the end of a rank that has failed because of
// another that one's own end is waited for: a process closes its connections
// before its end is seen.
const blameTime = time.Second

// judge decides whose end it was that counts, of those that are held. At last it
// must be one of them.
func (w *world) judge(atLast bool) {
	if w.ending {
		w.held = nil
		return
	}
	weight := make(map[*rank]int)
	for _, r := range w.held {
		switch {
		case r.exit.Code > 128: // it was killed
		case w.h.reg != nil: // the coordinator finds out
			weight[r] = 1
		case !suffered(w.h.told(w.epoch, r.name())):
			weight[r] = 1
		default:
			weight[r] = 2
		}
	}
	slices.SortStableFunc(w.held, func(a, b *rank) int { return weight[a] - weight[b] })
	if len(w.held) > 0 && weight[w.held[0]] == 2 && !atLast {
		if !w.holding {
			w.holding = true
			w.blame.Reset(blameTime)
		}
		return
	}
	bad := w.held
	w.held, w.holding = nil, false
	switch {
	case w.cfg.Min > 0:
		w.lose(bad)
	case len(bad) > 0:
		w.fail(*bad[0].exit)
	}
}

// unseen is when somebody else has taken the ends of this process's children.
func (w *world) unseen() {
	for _, r := range w.ranks {
		if r.exit == nil {
			w.alive--
			r.exit = w.endOf(r, 1, "its end was not seen")
			w.fail(*r.exit)
		}
	}
}

// note notes a rank's end, and returns it if that was a bad one.
func (w *world) note(e ended) *rank {
	for _, r := range w.ranks {
		if r.pid != e.pid || r.exit != nil {
			continue
		}
		w.alive--
		code, how := exitOf(e.status)
		r.exit = w.endOf(r, code, how)
		switch {
		case w.ending && code != 0:
			r.exit.How = "ended by tutti: " + how
		case w.h.reg != nil: // the coordinator looks at who waits in vain
		case code == 0 && w.h.joined(w.epoch)[r.number] == "":
			w.look.Reset(lookEvery)
		}
		if code != 0 {
			return r
		}
	}
	return nil
}

// lookEvery is how often a rank that has ended without joining makes the
// launcher look whether others wait for it.
const lookEvery = 100 * time.Millisecond

// lookAround ends the job if ranks wait in Join for one that has ended.
func (w *world) lookAround() {
	state := w.h.joined(w.epoch)
	waits := -1
	for r, s := range state {
		gone := slices.ContainsFunc(w.ranks, func(k *rank) bool { return k.number == r && k.exit != nil })
		if s == inJoin && !gone {
			waits = r
		}
	}
	for _, r := range w.ranks {
		if waits >= 0 && r.exit != nil && r.exit.Code == 0 && state[r.number] == "" && !w.ending {
			r.exit.Code, r.exit.How = 1, fmt.Sprintf("ended without calling Join, and rank %d waits for it", waits)
			w.fail(*r.exit)
			return
		}
	}
	w.look.Reset(lookEvery)
}
