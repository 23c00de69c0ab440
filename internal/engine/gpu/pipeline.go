package gpu

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/fifo"
	"github.com/tutti-go/tutti/internal/wait"
)

const (
	// maxInflight is the largest number of operations that are launched and incomplete.
	maxInflight = 256
	// refill is how many operations fewer than maxInflight are in flight when a full
	// pipeline launches again. The launching goroutine is not woken for each completion.
	refill = 64
	// lookahead is how many operations after the first one the ranks compare at once.
	lookahead = 255
	// coalesceTime and maxCoalesced bound the operations that share one completion event: by
	// their estimated duration together, and by their number. Recording an event and polling it
	// costs as much as a part of a small operation. maxCoalesced is far below maxInflight
	// because only completions make room for further operations.
	coalesceTime = 400 * time.Microsecond
	maxCoalesced = refill / 2
)

// A pipeline launches submitted operations on the device in order and completes them in order.
// Operations on host memory complete one by one, but a device has a queue of its own and must not
// idle while the host notices a completion.
//
// Two goroutines do the work. Both exist only while there are operations. The launching goroutine
// compares the next operations with the other ranks and enqueues them on the device. The
// completion goroutine polls the device and calls Done. A caller of Submit may take the place of
// the launching goroutine; see engine.DeviceOp.OnCaller.
type pipeline struct {
	e *Engine

	// Used without mu, by the goroutine that launches.
	batch    []submission
	requests []request
	next     []uint64 // signatures of the operations after the first one of batch

	completed []submission // used by the completion goroutine only

	mu         sync.Mutex // guards all fields below; wakeup needs no lock
	queue      fifo.Queue[submission]
	inflight   fifo.Queue[submission] // launched and incomplete
	launching  bool                   // a goroutine launches a batch, without mu
	launcher   bool                   // the launching goroutine exists
	completer  bool                   // the completion goroutine exists
	coalesced  int                    // number of operations at the end of inflight that share the next event
	resumeAt   int                    // the launching goroutine waits until inflight has this length or less
	lastDone   <-chan struct{}        // the Done channel of the context of the last submitted operation
	costs      [16]costEstimate       // indexed by signature modulo the length
	awaited    []uint64               // numbers of operations with waiting callers, one entry per caller
	wakeup     wait.Wakeup            // ends the pause of the completion goroutine
	progress   sync.Cond              // the launching goroutine waits here for room, or for a submission
	launched   sync.Cond              // the completion goroutine waits here for a launch
	launchLoop func()                 // p.launchAll, bound once so that starting a goroutine does not allocate
	pollLoop   func()                 // p.completeAll, bound once
}

// A submission is an operation in a pipeline.
type submission struct {
	op        *engine.DeviceOp
	signature uint64      // zero if the operation cannot be compared ahead of its turn
	unwatch   func() bool // ends the watch over op.Ctx; nil if there is none
	event     *pending    // set at the launch; nil if the operation shares the event of a later one
}

func (p *pipeline) init(e *Engine) {
	p.e = e
	p.progress.L, p.launched.L = &p.mu, &p.mu
	p.launchLoop, p.pollLoop = p.launchAll, p.completeAll
}

// Submit appends op to the queue and wakes or starts the launching goroutine. If op.OnCaller allows it,
// Submit launches op itself and returns after that. Errors reach op.Done only. See engine.DeviceEngine.
func (e *Engine) Submit(op *engine.DeviceOp) {
	p := &e.pipeline
	s := submission{op: op, signature: e.signature(op.Calls)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if op.OnCaller && op.Stream != nil && p.mayLaunch(s.signature) {
		p.lastDone = op.Ctx.Done()
		p.launchBatch(s)
		return
	}
	p.watch(&s)
	p.queue.Push(s)
	if p.launcher {
		p.progress.Signal()
		return
	}
	p.launcher = true
	go p.launchLoop()
}

// mayLaunch reports whether the caller of Submit may launch an operation with this signature
// itself. p.mu is held.
func (p *pipeline) mayLaunch(signature uint64) bool {
	return p.queue.Empty() && !p.launching && p.inflight.Len() < maxInflight && signature != 0 && p.e.known[signature]
}

// watch fails the group when the context of s ends before s is the first operation in flight. If
// the operation before it has the same context, that operation is watched. p.mu is held.
func (p *pipeline) watch(s *submission) {
	done := s.op.Ctx.Done()
	behind := p.launching || !p.queue.Empty() || !p.inflight.Empty()
	if behind && done != nil && done != p.lastDone {
		e, ctx, seq, name := p.e, s.op.Ctx, s.op.Seq, callName(s.op.Calls)
		s.unwatch = context.AfterFunc(ctx, func() { e.Fail(engine.ExpiredInQueue(ctx, name, seq, e.rank)) })
	}
	p.lastDone = done
}

// launchAll is the launching goroutine. It launches the operations in the queue in order, and returns when
// none is queued or in flight: waking a goroutine costs less than starting one. An operation that cannot be
// launched stays in flight with its error.
func (p *pipeline) launchAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.launching: // a caller of Submit launches its operation
			p.progress.Wait()
		case p.queue.Empty() && p.inflight.Empty():
			p.launcher = false
			return
		case p.queue.Empty():
			p.resumeAt = 0
			p.progress.Wait()
		case p.inflight.Len() >= maxInflight:
			p.resumeAt = maxInflight - refill
			p.progress.Wait()
		default:
			s, _ := p.queue.Pop()
			p.launchBatch(s)
		}
	}
}

// launchBatch launches s together with the operations behind it in the queue that can share one completion
// event, which is recorded after the last of them. It takes no more operations than the ranks have already
// compared, and one if they have compared none: launch compares that one. The caller holds p.mu; launchBatch
// releases it while it launches, because that can wait for other ranks. An operation that cannot be launched
// gets a request.pending that is complete and has the error.
func (p *pipeline) launchBatch(s submission) {
	e := p.e
	p.launching = true
	agreed := e.agreedAhead()
	p.next = p.next[:0]
	if agreed == 0 {
		for _, w := range p.queue.All() {
			if w.signature == 0 || len(p.next) == lookahead {
				break
			}
			p.next = append(p.next, w.signature)
		}
	}
	p.batch, p.requests = p.batch[:0], p.requests[:0]
	for coalesce := true; coalesce; {
		var next *submission
		if list := p.queue.All(); len(list) > 0 {
			next = &list[0]
		}
		coalesce = p.coalesces(&s, next, p.coalesced+len(p.batch))
		p.batch = append(p.batch, s)
		p.requests = append(p.requests, request{
			ctx: s.op.Ctx, seq: s.op.Seq, calls: s.op.Calls, stream: s.op.Stream, coalesce: coalesce,
		})
		if len(p.batch) >= agreed {
			break
		}
		if coalesce {
			s, _ = p.queue.Pop()
		}
	}
	p.mu.Unlock()
	s.op.Begun()
	e.launch(p.requests, p.next)
	p.mu.Lock()
	p.launching = false
	if s.op.Stream != nil {
		s.op.Launched() // before inflight has s: then Done cannot be called yet
	}
	for i, s := range p.batch {
		s.event = p.requests[i].pending
		p.inflight.Push(s)
		if p.coalesced++; s.event != nil {
			p.coalesced = 0
		}
	}
	clear(p.batch)
	clear(p.requests)
	// The goroutine in pollLoop must learn of the batch. If it sleeps between two polls, it is woken
	// only for an operation that a caller waits for, or that no other operation follows and
	// that has no stream.
	switch {
	case !p.completer:
		p.completer = true
		go p.pollLoop()
	case p.queue.Empty() && s.op.Stream == nil || slices.Contains(p.awaited, s.op.Seq):
		p.wakeup.Signal()
		fallthrough
	default:
		p.launched.Signal()
	}
}

// coalesces reports whether s needs no completion event of its own, because next follows and its
// event completes both: they look alike, no caller waits for s, and one context ends both. next is
// nil if no operation follows. The event already covers n operations before s. p.mu is held.
func (p *pipeline) coalesces(s, next *submission, n int) bool {
	if next == nil || s.signature == 0 || next.signature != s.signature || s.op.Stream != nil || next.op.Stream != nil ||
		s.op.Ctx.Done() != next.op.Ctx.Done() || slices.Contains(p.awaited, s.op.Seq) {
		return false
	}
	each, together := p.cost(s.signature), n+2
	return each > 0 && together <= maxCoalesced && time.Duration(together)*each <= coalesceTime
}

// Await notes that delta more callers wait for an operation; a delta of zero only wakes the completion
// goroutine. pipeline.mu guards the list. See engine.DeviceEngine.
func (e *Engine) Await(seq uint64, delta int) {
	p := &e.pipeline
	if delta == 0 {
		p.wakeup.Signal()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; delta > 0; delta-- {
		p.awaited = append(p.awaited, seq)
		p.wakeup.Signal()
	}
	for ; delta < 0; delta++ {
		if at := slices.Index(p.awaited, seq); at >= 0 {
			p.awaited = slices.Delete(p.awaited, at, at+1)
		}
	}
}

// completeAll is the completion goroutine. It completes operations in order, failed ones too, until none is
// in flight or being launched. It releases p.mu while it polls, pauses and calls Done.
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

// completeFirst polls the event that the first n operations in flight share, and passes checkDue to
// the poll. If it is complete, successfully or not, completeFirst removes the operations, calls
// Done of the last one, which reports all of them, and returns true. Only the completion goroutine
// calls it. p.mu is held, but not during the poll and the call.
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
	p.completed[n-1].op.Done(err)
	clear(p.completed)
	p.mu.Lock()
	return true
}

// maxKnown bounds the number of remembered signatures. A program with more kinds of operations
// pays for a goroutine in each operation of a further kind.
const maxKnown = 1024

// noteKnown remembers that an operation with a signature has succeeded. The caller launches
// operations, or holds e.pipeline.mu while another goroutine may.
func (e *Engine) noteKnown(signature uint64) {
	if signature != 0 && len(e.known) < maxKnown && !e.known[signature] {
		e.known[signature] = true
	}
}
