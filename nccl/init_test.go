package nccl_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/internal/race"
	"github.com/tutti-go/tutti/nccl"
)

// TestInitGivesUp has a rank that never comes. A goroutine cancels the context once the call is in NCCL. Init
// then returns ErrStarted, and nothing is left once NCCL can be ended.
func TestInitGivesUp(t *testing.T) {
	c := fake(t)
	w := newWorld(t, 2, nccl.Config{})
	before := c.AllLive()
	for _, cfg := range []nccl.Config{{NonBlocking: true}, {}} {
		id, err := w.lib.NewID()
		ok(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		calls := c.Calls("ncclCommInitRankConfig")
		go func() { // cancels after the call is in NCCL
			for c.Calls("ncclCommInitRankConfig") == calls {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		_, err = w.lib.Init(ctx, w.devices[0], id, 0, 2, cfg)
		if !errors.Is(err, nccl.ErrStarted) || !errors.Is(err, context.Canceled) {
			t.Errorf("a rank that waits alone: %v", err)
		}
		if !cfg.NonBlocking {
			// The call is blocked in NCCL: it ends when the other rank comes.
			other, err := w.lib.Init(t.Context(), w.devices[1], id, 1, 2, cfg)
			ok(t, err, other.Abort(t.Context()))
		}
		gone(t, func() bool { return !c.Left(before) })
	}
	w.works(t, w.comms)
}

// TestInitFails makes one of several communicators fail. The others end too, and the error is the first
// cause.
func TestInitFails(t *testing.T) {
	c := fake(t)
	w := newWorld(t, 3, nccl.Config{})
	before := c.AllLive()
	for _, cfg := range []nccl.Config{{NonBlocking: true}} {
		fired := c.Fired()
		c.Fail("ncclCommInitRankConfig", 2, 2)
		_, err := w.lib.InitAll(t.Context(), w.devices, cfg)
		var e *nccl.Error
		if !errors.As(err, &e) || e.Code != 2 || c.Fired() != fired+1 {
			t.Errorf("one of three failed: %v", err)
		}
		gone(t, func() bool { return !c.Left(before) })
	}
	// NCCL refuses two ranks on one device of one host.
	_, err := w.lib.InitAll(t.Context(), []*cuda.Device{w.devices[0], w.devices[0]}, nccl.Config{})
	var e *nccl.Error
	if !errors.As(err, &e) || e.Code != 5 || !strings.Contains(err.Error(), "Duplicate GPU") {
		t.Errorf("one device twice: %v", err)
	}
	gone(t, func() bool { return !c.Left(before) })
	w.works(t, w.comms)
}

// TestShrinkAndGrow loses a rank, continues without it, and adds another one.
func TestShrinkAndGrow(t *testing.T) {
	fake(t)
	clean(t)
	for _, cfg := range []nccl.Config{{}, {NonBlocking: true}} {
		for _, revoke := range []bool{false, true} {
			shrinkAndGrow(t, cfg, revoke)
		}
	}
}

// shrinkAndGrow has two of three ranks shrink a communicator whose third rank never calls, after Revoke if
// revoke is set, and then grow it again by the third. Each rank's call runs in a goroutine; rank 0 passes the
// id to the new rank through ids. All must succeed, and the old communicators are aborted.
func shrinkAndGrow(t *testing.T, cfg nccl.Config, revoke bool) {
	w := newWorld(t, 3, cfg)
	ids := make(chan nccl.UniqueID, 1)
	each := func(n int, f func(i int) error) {
		t.Helper()
		errs := make(chan error, n)
		for i := range n {
			go func() { errs <- f(i) }()
		}
		for range n {
			ok(t, <-errs)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	small, large := make([]*nccl.Comm, 2), make([]*nccl.Comm, 3)
	each(2, func(i int) (err error) {
		if err := w.reduce(i); err != nil { // the third rank never comes
			return err
		}
		if revoke {
			if err := w.comms[i].Revoke(ctx); err != nil {
				return err
			}
		}
		small[i], err = w.comms[i].Shrink(ctx, []int{2}, !revoke, cfg)
		if err == nil && !errors.Is(w.reduce(i), nccl.ErrRevoked) {
			t.Error("the old communicator is not revoked")
		}
		return errors.Join(err, w.streams[i].Wait(ctx))
	})
	w.works(t, small)
	each(3, func(i int) (err error) {
		if i == 2 {
			large[2], err = w.lib.Join(ctx, w.devices[2], <-ids, 2, 3, cfg)
			return err
		}
		var id *nccl.UniqueID
		if i == 0 {
			made, err := small[0].GrowID()
			if err != nil {
				return err
			}
			ids <- made
			id = &made
		}
		large[i], err = small[i].Grow(ctx, 3, id, cfg)
		return err
	})
	w.works(t, large)
	ok(t, nccl.AbortAll(ctx, append(small, large...)...), nccl.AbortAll(ctx, w.comms...))
}

// TestSuspend suspends and resumes a communicator and reads its memory statistics from the fake GPU. An
// inconsistent Config is refused, which shows that the Config reaches NCCL.
func TestSuspend(t *testing.T) {
	fake(t) // the usage of real communicators depends on the machine
	clean(t)
	w := newWorld(t, 1, nccl.Config{CommName: "a name", MinCTAs: nccl.Set(1), MaxCTAs: nccl.Set(4), RMAContexts: nccl.Set(1)})
	c := w.comms[0]
	ok(t, c.Suspend(t.Context()), c.Resume(t.Context()))
	m, err := c.MemoryStats()
	ok(t, err)
	if m.Total != 1003 || m.Suspendable != 1000 || m.Persistent != 1002 {
		t.Errorf("%+v", m)
	}
	if _, err := w.lib.InitAll(t.Context(), w.devices, nccl.Config{MinCTAs: nccl.Set(4), MaxCTAs: nccl.Set(1)}); err == nil {
		t.Error("the config did not arrive")
	}
}

func TestScalable(t *testing.T) {
	clean(t)
	lib := load(t)
	d, err := cuda.Open(0, nil)
	ok(t, err)
	defer d.Close()
	id, err := lib.NewID()
	ok(t, err)
	c, err := lib.InitScalable(t.Context(), d, []nccl.UniqueID{id}, 0, 1, nccl.Config{})
	ok(t, err, c.Close())
}

// TestCallsDoNotAllocate calls every collective and message.
func TestCallsDoNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("under the race detector pools drop what they are given")
	}
	w := newWorld(t, 1, nccl.Config{})
	c, s, b := w.comms[0], w.streams[0], nccl.Of(w.slices[0])
	o, err := cuda.Alloc[float32](w.devices[0], 100)
	ok(t, err)
	defer free(o)
	to := nccl.Of(o)
	group := func() error { return first(c.Send(b, 0, s), c.Recv(to, 0, s)) }
	for name, f := range map[string]func() error{
		"AllReduce":     func() error { return c.AllReduce(b, b, nccl.Sum, s) },
		"Reduce":        func() error { return c.Reduce(b, to, nccl.Sum, 0, s) },
		"Broadcast":     func() error { return c.Broadcast(b, to, 0, s) },
		"AllGather":     func() error { return c.AllGather(b, to, s) },
		"ReduceScatter": func() error { return c.ReduceScatter(b, to, nccl.Sum, s) },
		"AllToAll":      func() error { return c.AllToAll(b, to, s) },
		"Gather":        func() error { return c.Gather(b, to, 0, s) },
		"Scatter":       func() error { return c.Scatter(b, to, 0, s) },
		"AsyncError":    c.AsyncError,
	} {
		if n := testing.AllocsPerRun(100, func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		ok(t, s.Wait(t.Context()))
	}
	// A group allocates the list of its communicators; the calls in it allocate nothing.
	small := testing.AllocsPerRun(100, func() { ok(t, w.lib.Group(group)) })
	large := testing.AllocsPerRun(100, func() {
		ok(t, w.lib.Group(func() error { return first(group(), group(), group(), group()) }))
	})
	ok(t, s.Wait(t.Context()))
	if large > small+1 { // one for the closure
		t.Errorf("a group of 2 allocates %v times, of 8 %v times", small, large)
	}
}

// TestCycles makes and frees communicators many times, some of which are cancelled during Init. No
// descriptors and no memory are left.
func TestCycles(t *testing.T) {
	c := fake(t)
	w := newWorld(t, 2, nccl.Config{})
	live := c.AllLive()
	ids := 0
	cycle := func(i int) {
		cfg := nccl.Config{NonBlocking: i%2 == 1}
		if i%5 == 4 {
			cfg.NonBlocking = true // a blocking one would wait for the missing rank
			fired := c.Fired()
			c.Fail("ncclCommInitRankConfig", 1+i%2, 1)
			if _, err := w.lib.InitAll(t.Context(), w.devices, cfg); err == nil || c.Fired() != fired+1 {
				t.Fatal("the fault did not happen", err)
			}
			ids++
			return
		}
		comms, err := w.lib.InitAll(t.Context(), w.devices, cfg)
		ok(t, err)
		w.works(t, comms)
		if i%3 == 0 {
			ok(t, nccl.AbortAll(t.Context(), comms...))
			return
		}
		var all sync.WaitGroup
		for _, comm := range comms {
			all.Go(func() { ok(t, comm.Close()) })
		}
		all.Wait()
	}
	for i := range 10 {
		cycle(i)
	}
	// Cancelled communicators are aborted in the background.
	gone(t, func() bool { return !c.Left(live) })
	files := proctest.OpenFiles()
	for i := range 50 {
		cycle(i)
	}
	for end := time.Now().Add(deadline); ; time.Sleep(time.Millisecond) {
		// As in NCCL, an id that not all ranks used keeps its rendezvous for a while, and so does the
		// connection of a rank that came. That includes ids of the first cycles.
		extra := 2 * ids
		if !c.Left(live) && proctest.OpenFiles() <= files+extra {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v and %d descriptors, before: %v and %d", c.AllLive(), proctest.OpenFiles(), live, files)
		}
	}
}
