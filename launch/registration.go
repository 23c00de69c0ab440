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
)

// A registration is a launcher's part in an elastic job over several hosts: what it
// tells the coordinator, and what that tells it. All calls of the store are in
// goroutines of its own, so that the launcher's main loop never waits for one.
type registration struct {
	h      *host
	number int64
	every  time.Duration // between heartbeats
	gone   chan string   // the coordinator has given this launcher up, and why

	changed chan struct{} // holds a token if state is newer than the last heartbeat
	pushing sync.Mutex    // held during a call of push
	mu      sync.Mutex
	state   heartbeat // guarded by mu
}

// register applies for this node's place, and waits until the job begins or this host
// may join the running one.
func (h *host) register(ctx context.Context) error {
	a := application{Token: rand.Text(), Node: h.cfg.Node, Ranks: h.cfg.Ranks, Who: claim.Name()}
	text, err := json.Marshal(message{Apply: &a})
	if err == nil {
		err = h.own.Push(ctx, deskKey, text)
	}
	if err != nil {
		return &Error{"the store", err}
	}
	var answer reply
	if err := h.read(ctx, replyKey(a.Token), &answer); err != nil {
		return &Error{fmt.Sprintf("the place of node %d has not become free: its launcher still runs, or its ranks are still in the job", h.cfg.Node), err}
	}
	if answer.Refused != "" {
		return h.turnedAway(ctx, answer.Refused)
	}
	h.reg = &registration{
		h: h, number: answer.Registration, every: max(min(time.Second, answer.LostTime/4), time.Millisecond),
		gone: make(chan string, 1), changed: make(chan struct{}, 1),
		state: heartbeat{Node: h.cfg.Node, Registration: answer.Registration},
	}
	alive, cancel := context.WithCancel(context.Background())
	quiet := h.quiet
	h.quiet = func() { cancel(); quiet() }
	go h.reg.beat(alive)
	go h.reg.awaitGone(alive)
	if err = h.awaitBegin(ctx); err != nil {
		h.leaveHosts()
	}
	return err
}

// awaitBegin waits until this launcher may start its processes in the next attempt.
func (h *host) awaitBegin(ctx context.Context) error {
	var b beginning
	err := h.read(ctx, beginKey(h.reg.number, h.begins), &b)
	h.begins++
	switch {
	case err != nil && h.coord != nil:
		why := "the job has not begun"
		if list := h.coord.absent(); len(list) > 0 {
			why = fmt.Sprintf("node %d of %d has not come", list[0], h.cfg.Nodes)
		}
		told := why
		if errors.Is(err, context.Canceled) {
			told = "the launcher of node 0 was stopped"
		}
		h.coord.abort <- told
		return &Error{why, err}
	case err != nil:
		return &Error{"the job has not begun: not all hosts have come", err}
	case b.Stop != "":
		return &Error{"it cannot start", errors.New(b.Stop)}
	case b.Size < 1 || b.Size > maxRanks || b.Base < 0 || b.Firsts != nil && len(b.Firsts) != h.cfg.Ranks:
		return &Error{"the store", fmt.Errorf("node 0 says something that cannot be: %+v", b)}
	}
	h.epoch, h.base, h.size, h.firsts, h.eventsBefore = b.Epoch, b.Base, b.Size, b.Firsts, b.Events
	return nil
}

// absent returns the nodes that have no launcher.
func (c *coordinator) absent() []int {
	ask := make(chan []int, 1)
	select {
	case c.missing <- ask:
		return <-ask
	case <-time.After(time.Second):
		return nil
	}
}

// read waits for a key and decodes it. Each call of the store is bounded: a connection
// that was cut off without notice would keep one waiting for ever. A store that refuses
// connections for LostTime is an error.
func (h *host) read(ctx context.Context, key string, value any) error {
	var refused time.Time // since when; zero: the last call waited
	for {
		try, cancel := context.WithTimeout(ctx, max(h.cfg.LostTime, time.Second))
		text, err := h.own.Get(try, key)
		cancel()
		if err == nil {
			if err := json.Unmarshal(text, value); err != nil {
				return fmt.Errorf("the key %q holds something else: %w", key, err)
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
		case e := <-h.gone:
			h.gone <- e
			return errors.New(e.How)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// update changes what the next heartbeat says, and has it sent now if that is new. It
// does not wait.
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

// push sends a heartbeat.
func (r *registration) push(ctx context.Context) error {
	r.pushing.Lock()
	defer r.pushing.Unlock()
	r.mu.Lock()
	r.state.Seq++
	text, err := json.Marshal(message{Beat: &r.state})
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return r.h.own.Push(ctx, deskKey, text)
}

// beat sends heartbeats until ctx ends, or node 0 has not been reached for LostTime.
func (r *registration) beat(ctx context.Context) {
	var failing time.Duration // since the last heartbeat that was taken
	for {
		lostTime := r.h.cfg.LostTime
		began := time.Now()
		try, cancel := context.WithTimeout(ctx, lostTime/2)
		err := r.push(try)
		cancel()
		pause := r.every
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failing = 0
		default:
			pause = min(pause, lostTime/10)
			// If this process was stopped, that time says nothing about node 0.
			if failing += min(time.Since(began), lostTime/2) + pause; failing >= lostTime {
				r.h.gone <- Exit{Rank: -1, Code: 1, How: "node 0 is lost: " + err.Error()}
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

// last sends the last heartbeat. A launcher that leaves before the job has ended says
// why.
func (r *registration) last(leaving string) {
	r.update(func(b *heartbeat) {
		b.Left = true
		if b.Leaving == "" {
			b.Leaving = leaving
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.push(ctx) // if it is not taken, this launcher is given up
}

// awaitGone waits until the coordinator gives this launcher up.
func (r *registration) awaitGone(ctx context.Context) {
	var why string
	if err := r.h.read(ctx, goneKey(r.number), &why); err == nil {
		r.gone <- why
	}
}

// events returns what becomes of an attempt.
func (r *registration) events(ctx context.Context, epoch int) <-chan event {
	events, before := make(chan event), r.h.eventsBefore
	go func() {
		for n := 1; ; n++ {
			var e event
			if err := r.h.read(ctx, eventKey(epoch, n), &e); err != nil {
				return // of a lost node 0, beat informs the launcher
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
