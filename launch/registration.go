package launch

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/tutti-go/tutti/internal/claim"
	"github.com/tutti-go/tutti/internal/jobstore"
)

// A registration connects a launcher with the coordinator of an elastic job over
// several hosts. Store calls run in the registration's own goroutines, so that the
// launcher's main loop never waits for the network.
type registration struct {
	h            *host
	number       int64
	interval     time.Duration // between heartbeats
	declaredLost chan string   // receives the reason when the coordinator declares this launcher lost

	changed chan struct{} // holds a token if state is newer than the last heartbeat
	sending sync.Mutex    // held during sendHeartbeat
	mu      sync.Mutex
	state   heartbeat // guarded by mu
}

// register applies for this node's place. It waits until the job begins or this host may join the
// running job. A refusal, or the end of ctx, is an error. On success two goroutines run until
// host.stop: one sends heartbeats, the other waits for the coordinator's declaration that this
// launcher is lost.
func (h *host) register(ctx context.Context) error {
	a := application{Token: rand.Text(), Node: h.cfg.Node, Ranks: h.cfg.Ranks, Who: claim.Name()}
	text, err := json.Marshal(message{Apply: &a})
	if err == nil {
		err = h.own.Push(ctx, jobstore.Coordination, text)
	}
	if err != nil {
		return &Error{"the store", err}
	}
	var answer reply
	if err := h.read(ctx, jobstore.Reply(a.Token), &answer); err != nil {
		return &Error{fmt.Sprintf("the place of node %d has not become free: its launcher still runs, or its ranks are still in the job", h.cfg.Node), err}
	}
	if answer.Refused != "" {
		return h.reportRefusal(ctx, answer.Refused)
	}
	h.reg = &registration{
		h: h, number: answer.Registration, interval: max(min(time.Second, answer.LostTime/4), time.Millisecond),
		declaredLost: make(chan string, 1), changed: make(chan struct{}, 1),
		state: heartbeat{Node: h.cfg.Node, Registration: answer.Registration},
	}
	alive, cancel := context.WithCancel(context.Background())
	previous := h.stop
	h.stop = func() { cancel(); previous() }
	go h.reg.sendHeartbeats(alive)
	go h.reg.awaitDeclaredLost(alive)
	if err = h.awaitBegin(ctx); err != nil {
		h.leaveHosts()
	}
	return err
}

// awaitBegin waits until this launcher may start its processes in the next attempt. If ctx ends on
// node 0, the start is cancelled on all hosts.
func (h *host) awaitBegin(ctx context.Context) error {
	var b startMessage
	err := h.read(ctx, jobstore.Start(h.reg.number, h.starts), &b)
	h.starts++
	switch {
	case err != nil && h.coord != nil:
		why := "the job has not begun"
		if list := h.coord.nodesWithoutLauncher(); len(list) > 0 {
			why = fmt.Sprintf("node %d of %d has not connected", list[0], h.cfg.Nodes)
		}
		stopReason := why
		if errors.Is(err, context.Canceled) {
			stopReason = "the launcher of node 0 was stopped"
		}
		h.coord.abort <- stopReason
		return &Error{why, err}
	case err != nil:
		return &Error{"the job has not begun: not all hosts have connected", err}
	case b.Stop != "":
		return &Error{"cannot start the job", errors.New(b.Stop)}
	case b.Size < 1 || b.Size > maxRanks || b.Base < 0 || b.FirstReplacements != nil && len(b.FirstReplacements) != h.cfg.Ranks:
		return &Error{"the store", fmt.Errorf("node 0 sent an invalid start message: %+v; run the same version of tutti on all hosts", b)}
	}
	h.attempt, h.base, h.size, h.firstReplacements, h.pastEvents = b.Attempt, b.Base, b.Size, b.FirstReplacements, b.PastEvents
	return nil
}

// nodesWithoutLauncher returns the nodes that have no launcher.
func (c *coordinator) nodesWithoutLauncher() []int {
	ask := make(chan []int, 1)
	select {
	case c.missing <- ask:
		return <-ask
	case <-time.After(time.Second):
		return nil
	}
}

// read waits for a key and decodes it. Each store call has a timeout: a call on a
// connection that was cut without notice would never return. A store that refuses
// connections for LostTime is an error.
func (h *host) read(ctx context.Context, key string, value any) error {
	var refused time.Time // start of the refusals; zero: the last call timed out
	for {
		try, cancel := context.WithTimeout(ctx, max(h.cfg.LostTime, time.Second))
		text, err := h.own.Get(try, key)
		cancel()
		if err == nil {
			if err := json.Unmarshal(text, value); err != nil {
				return fmt.Errorf("node 0 sent an invalid message (%s): %w; run the same version of tutti on all hosts", key, err)
			}
			return nil
		}
		switch waited := errors.Is(err, context.DeadlineExceeded); {
		case waited:
			refused = time.Time{}
		case refused.IsZero():
			refused = time.Now()
		case time.Since(refused) > h.cfg.LostTime:
			return fmt.Errorf("node 0 is lost: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-h.lost:
			h.lost <- e
			return errors.New(e.How)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// update changes the state that the next heartbeat carries. If the state differs, the
// heartbeat is sent now. update does not wait.
func (r *registration) update(change func(*heartbeat)) {
	r.mu.Lock()
	before := r.state
	change(&r.state)
	same := reflect.DeepEqual(before, r.state)
	r.mu.Unlock()
	if !same {
		select {
		case r.changed <- struct{}{}:
		default:
		}
	}
}

// sendHeartbeat sends one heartbeat.
func (r *registration) sendHeartbeat(ctx context.Context) error {
	r.sending.Lock()
	defer r.sending.Unlock()
	r.mu.Lock()
	r.state.Seq++
	text, err := json.Marshal(message{Beat: &r.state})
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return r.h.own.Push(ctx, jobstore.Coordination, text)
}

// sendHeartbeats sends heartbeats until ctx ends, or node 0 has been unreachable for LostTime,
// which it reports through h.lost. It runs in a goroutine of its own.
func (r *registration) sendHeartbeats(ctx context.Context) {
	var failing time.Duration // since the last successful heartbeat
	for {
		lostTime := r.h.cfg.LostTime
		began := time.Now()
		try, cancel := context.WithTimeout(ctx, lostTime/2)
		err := r.sendHeartbeat(try)
		cancel()
		pause := r.interval
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failing = 0
		default:
			pause = min(pause, lostTime/10)
			// Time in which this process was stopped (SIGSTOP) does not count against
			// node 0.
			if failing += min(time.Since(began), lostTime/2) + pause; failing >= lostTime {
				r.h.lost <- Exit{Rank: -1, Code: 1, How: "node 0 is lost: " + err.Error()}
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
		case <-time.After(pause):
		}
	}
}

// sendLast sends the last heartbeat. leaving is the reason if the launcher leaves
// before the job ends.
func (r *registration) sendLast(leaving string) {
	r.update(func(b *heartbeat) {
		b.Left = true
		if b.Leaving == "" {
			b.Leaving = leaving
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.sendHeartbeat(ctx) // on failure the coordinator declares this launcher lost
}

// awaitDeclaredLost waits until the coordinator declares this launcher lost.
func (r *registration) awaitDeclaredLost(ctx context.Context) {
	var why string
	if err := r.h.read(ctx, jobstore.DeclaredLost(r.number), &why); err == nil {
		r.declaredLost <- why
	}
}

// events returns the coordinator's events of an attempt, in order, on a channel that is never
// closed. Its goroutine ends with ctx, or when node 0 is lost.
func (r *registration) events(ctx context.Context, attempt int) <-chan event {
	events, before := make(chan event), r.h.pastEvents
	go func() {
		for n := 1; ; n++ {
			var e event
			if err := r.h.read(ctx, jobstore.Event(attempt, n), &e); err != nil {
				return // sendHeartbeats reports a lost node 0
			}
			if n <= before {
				e.Why = ""
			}
			if e.Exit != nil && e.Exit.check() != nil {
				e.Exit = &Exit{Rank: -1, Code: 1, How: "another host failed"}
			}
			select {
			case events <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return events
}
