package gpu

import (
	"time"

	"github.com/tutti-go/tutti/internal/wait"
)

// completeAll completes operations in order until none is in flight or being launched.
func (p *pipeline) completeAll() {
	m := costMeter{spinAllowed: p.e.spinAllowed}
	fresh := wait.Poller{Wakeup: &p.wakeup, SpinAllowed: m.spinAllowed}
	poller, checkDue := fresh, false
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.inflight.Empty() || p.launching {
		n := p.untilEvent()
		switch {
		case n == 0 && checkDue:
			// Waking for the next launch takes longer than polling, so the goroutine
			// waits here only after some time.
			m.start(time.Time{})
			p.launched.Wait()
			poller, checkDue = fresh, false
			continue
		case n == 0:
			m.start(time.Time{})
		default:
			if p.completeFirst(n, checkDue, &m) {
				poller, checkDue = fresh, false
				continue
			}
			m.polled = true
			if m.since.IsZero() {
				m.start(time.Now())
				poller = fresh
			}
		}
		delay := p.pollDelay(&m)
		if delay == 0 && poller.MinPause > 0 {
			poller = fresh // from now on the polls follow each other without pauses
		}
		poller.MinPause, poller.Seen = delay, p.wakeup.Count()
		p.mu.Unlock()
		checkDue = poller.Pause()
		p.mu.Lock()
	}
	p.completer = false
}

// untilEvent returns the number of operations in flight up to the first completion event. It
// returns zero if that event is not recorded yet. p.mu is held.
func (p *pipeline) untilEvent() int {
	for i, s := range p.inflight.All() {
		if s.event != nil {
			return i + 1
		}
	}
	return 0
}

// completeFirst polls the event that the first n operations in flight share. If it is complete,
// completeFirst removes them and calls their Done. p.mu is held, but not during the poll and the
// calls.
func (p *pipeline) completeFirst(n int, checkDue bool, m *costMeter) bool {
	e, first := p.e, p.inflight.All()
	event := first[n-1].event
	for i := range n {
		// From now on the poll watches the context.
		if first[i].unwatch != nil {
			first[i].unwatch()
			first[i].unwatch = nil
		}
	}
	p.completed = append(p.completed[:0], first[:n]...)
	p.mu.Unlock()
	complete := event.poll(checkDue)
	var err error
	if complete {
		err = event.settle()
	}
	p.mu.Lock()
	if !complete {
		return false
	}
	signature := p.completed[0].signature
	p.keepCost(signature, m.count(n, signature, time.Now()))
	p.inflight.Drop(n)
	if err == nil {
		for i := range p.completed {
			e.noteKnown(p.completed[i].signature)
		}
	}
	if p.inflight.Len() <= p.resumeAt {
		p.progress.Broadcast()
	}
	p.mu.Unlock()
	for i := range p.completed {
		p.completed[i].op.Done(err)
	}
	clear(p.completed)
	p.mu.Lock()
	return true
}
