package shmem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// lengths are body lengths at the limits of tiny and of the default sizes.
var lengths = []int{
	0, 1, 16, 40, 41, 103, 104, 105, 159, 160, 161, 255, 256, 257, 487, 488, 489, 511, 512, 513, 1023, 1024, 1025, 2047, 2048, 2049,
	5000, 16383, 16384, 16385, 1<<16 - 1, 1 << 16, 1<<16 + 1, 1 << 18, 1<<20 + 3,
}

// TestModes exchanges messages of every length between all ranks in every way.
func TestModes(t *testing.T) {
	region := make([]byte, 4<<20)
	for name, change := range map[string][]func(*world, *Options){
		"stream":  nil,
		"refused": {refuseRead(syscall.EPERM)},
		"fault":   {refuseRead(syscall.EFAULT)},
		"read":    {readSelf(t)},
		"region":  {inRegion(region)},
	} {
		for _, s := range []*sizes{nil, &tiny} {
			for _, n := range []int{1, 2, 3} {
				t.Run(fmt.Sprintf("%s/tiny=%v/%d", name, s != nil, n), func(t *testing.T) {
					w := newWorld(t, n, s, change...)
					w.each(func(r *rank) {
						exchangeAll(t, r, n, region[len(region)/4*r.opt.Rank:len(region)/4*(r.opt.Rank+1)], name == "region")
					})
					if reads := w.reads.Load(); n > 1 && (name == "read" || name == "refused" || name == "fault") == (reads == 0) {
						t.Errorf("%d calls of ReadProcess", reads)
					}
				})
			}
		}
	}
}

func exchangeAll(t *testing.T, r *rank, n int, mine []byte, inRegion bool) {
	for _, length := range lengths {
		if inRegion && length > len(mine) {
			continue
		}
		for to := range n {
			// All ranks send to rank to, which receives from all.
			from := make([]*transport.Message, n)
			if r.opt.Rank == to {
				for i := range n {
					from[i] = r.postReceive(i, length+1, make([]byte, length+i%2))
				}
			}
			body := pattern(length, r.opt.Rank)
			if inRegion {
				body = mine[:length]
				copy(body, pattern(length, r.opt.Rank))
			}
			send := r.postSend(to, length+1, body)
			if r.opt.Rank == to {
				for i, m := range from {
					if !r.finish(t, m) {
						return
					}
					if m.From != i || m.Len != length || m.Kind != uint8(length+1) || !bytes.Equal(m.Body[:length], pattern(length, i)) {
						t.Errorf("%d bytes from rank %d: from %d, %d bytes, kind %d", length, i, m.From, m.Len, m.Kind)
					}
				}
			}
			if !r.finish(t, send) {
				return
			}
		}
	}
}

// TestOutstanding keeps 1,000 messages of several tags and sizes in flight each way, posts them on
// both sides before any is finished, and finishes them in reverse.
func TestOutstanding(t *testing.T) {
	const count, numTags = 1000, 5
	for _, s := range []*sizes{nil, &tiny} {
		for _, reverse := range []bool{false, true} {
			t.Run(fmt.Sprintf("tiny=%v/reverse=%v", s != nil, reverse), func(t *testing.T) {
				w := newWorld(t, 2, s, readSelf(t))
				w.each(func(r *rank) {
					peer := 1 - r.opt.Rank
					var sends, receives []*transport.Message
					for i := range count {
						sends = append(sends, r.postSend(peer, i%numTags, pattern(lengths[i%20], i)))
						receives = append(receives, r.postReceive(peer, i%numTags, make([]byte, 2048)))
					}
					first, second := slices.Clone(receives), sends
					if reverse {
						slices.Reverse(first)
						slices.Reverse(second)
					}
					for _, m := range slices.Concat(first, second) {
						if !r.finish(t, m) {
							return
						}
					}
					for i, m := range receives {
						if !bytes.Equal(m.Body[:m.Len], pattern(lengths[i%20], i)) {
							t.Fatalf("message %d differs", i)
						}
					}
				})
			})
		}
	}
}

// TestTakenInReverse announces many messages before the receiver posts receives, which take them in
// reverse.
func TestTakenInReverse(t *testing.T) {
	const count = 1000
	for _, s := range []*sizes{nil, &tiny} {
		w := newWorld(t, 2, s, readSelf(t))
		w.each(func(r *rank) {
			if r.opt.Rank == 0 {
				var sends []*transport.Message
				for i := range count {
					sends = append(sends, r.postSend(1, i, pattern(lengths[i%20], i)))
				}
				for _, m := range sends {
					if !r.finish(t, m) {
						return
					}
				}
				return
			}
			for i := count - 1; i >= 0; i-- {
				m := r.postReceive(0, i, make([]byte, 2048))
				if !r.finish(t, m) {
					return
				}
				if !bytes.Equal(m.Body[:m.Len], pattern(lengths[i%20], i)) {
					t.Fatalf("message %d differs", i)
				}
			}
		})
		for _, r := range w.ranks {
			if p := r.others[0]; p.first != nil || p.announced != 0 || len(p.reports) != 0 || p.open != 0 {
				t.Errorf("rank %d: %d messages announced, %d reports, %d open", r.opt.Rank, p.announced, len(p.reports), p.open)
			}
			checkSlab(t, r)
		}
	}
}

// TestOldSend sends many messages while an older one is not received. The memory for the messages
// does not grow, and the older one is delivered in the end.
func TestOldSend(t *testing.T) {
	const count = 3000
	w := newWorld(t, 2, nil)
	w.each(func(r *rank) {
		if r.opt.Rank == 0 {
			old := r.postSend(1, 7, pattern(8, 7))
			p := r.others[0]
			for i := range count {
				if i > 0 && (p.numSends != 1 || p.send(1) == nil) {
					t.Errorf("%d messages are announced", p.numSends)
				}
				if !r.finish(t, r.postSend(1, 1, pattern(8, i))) {
					return
				}
			}
			if len(p.sends) > 1000 {
				t.Errorf("memory for %d messages", len(p.sends))
			}
			r.finish(t, old)
			return
		}
		for i := range count {
			m := r.postReceive(0, 1, make([]byte, 8))
			if !r.finish(t, m) || !bytes.Equal(m.Body, pattern(8, i)) {
				t.Errorf("message %d differs", i)
				return
			}
		}
		if m := r.postReceive(0, 7, make([]byte, 8)); r.finish(t, m) && !bytes.Equal(m.Body, pattern(8, 7)) {
			t.Error("the old message differs")
		}
	})
	if p := w.ranks[0].others[0]; p.numSends != 0 || len(p.oldSends) != 0 || p.seen.completed != p.lastID {
		t.Errorf("%d messages announced, %d old ones", p.numSends, len(p.oldSends))
	}
}

// TestSleepAfterReport checks that a driver that waits only for sends does not sleep while a record
// says that one of them is taken.
func TestSleepAfterReport(t *testing.T) {
	w := newWorld(t, 2, nil)
	a, b := w.ranks[0], w.ranks[1]
	first, second := a.postSend(1, 1, pattern(8, 1)), a.postSend(1, 2, pattern(8, 2))
	b.finish(t, b.postReceive(0, 2, make([]byte, 8)))
	a.mu.Lock()
	a.driver = second.State.(*state)
	a.cond.update()
	a.mu.Unlock()
	began := time.Now()
	a.cond.Sleep(deadline)
	if d := time.Since(began); d > deadline/2 {
		t.Errorf("slept for %v", d)
	}
	a.driver = nil
	a.finish(t, second)
	b.finish(t, b.postReceive(0, 1, make([]byte, 8)))
	a.finish(t, first)
}

// checkSlab checks that all memory of the slab is free.
func checkSlab(t *testing.T, r *rank) {
	t.Helper()
	for i, b := range r.layout.blocks {
		if n := len(r.slab.free[i]); n != b.count {
			t.Errorf("rank %d: %d of %d blocks of %d bytes are free", r.opt.Rank, n, b.count, b.bytes)
		}
	}
	if n := len(r.slab.streams); n != r.layout.streams {
		t.Errorf("rank %d: %d of %d streams are free", r.opt.Rank, n, r.layout.streams)
	}
}

// TestAnyRank receives from any rank: each sender's messages arrive in order, and no sender is
// preferred while others wait.
func TestAnyRank(t *testing.T) {
	const n, count = 5, 400
	for _, s := range []*sizes{nil, &tiny} {
		w := newWorld(t, n, s)
		ready := make(chan bool)
		w.each(func(r *rank) {
			if r.opt.Rank > 0 {
				for i := range count {
					m := r.postSend(0, 3, []byte{byte(i), byte(i >> 8)})
					if i == 0 {
						ready <- true
					}
					if !r.finish(t, m) {
						return
					}
				}
				return
			}
			for range n - 1 {
				<-ready
			}
			var got [n]int
			seen := make(map[int]bool)
			for i := range count * (n - 1) {
				m := r.postReceive(transport.AnyRank, 3, make([]byte, 10))
				if !r.finish(t, m) {
					return
				}
				if at := int(m.Body[0]) | int(m.Body[1])<<8; at != got[m.From] {
					t.Fatalf("message %d of rank %d arrived after %d", at, m.From, got[m.From])
				}
				got[m.From]++
				if seen[m.From] = true; i == n-2 && len(seen) != n-1 {
					t.Errorf("the first %d messages came from %v", n-1, seen)
				}
			}
		})
	}
}

// TestRefuse refuses a message twice. The next receives must get it, before a later message.
func TestRefuse(t *testing.T) {
	for _, length := range []int{0, 16, 300, 5000} {
		w := newWorld(t, 2, &tiny, readSelf(t))
		no := errors.New("no")
		w.each(func(r *rank) {
			if r.opt.Rank == 0 {
				a, b := r.postSend(1, 5, pattern(length, 1)), r.postSend(1, 5, pattern(length, 2))
				r.finish(t, a)
				r.finish(t, b)
				return
			}
			refusals := 0
			r.accept = func(*transport.Message) error {
				if refusals++; refusals <= 2 {
					return no
				}
				return nil
			}
			for i := range 4 {
				m := r.postReceive(i%2-1, 5, make([]byte, length))
				if i%2 == 1 {
					r.Post(&transport.Message{Peer: 0, Tag: 6})
				}
				wtr := r.waiter(t.Context(), deadline)
				err := r.Finish(wtr, m)
				switch {
				case i < 2 && (err != no || !m.Untaken || m.Matched.Load()):
					t.Errorf("%v, untaken %v", err, m.Untaken)
				case i >= 2 && (err != nil || !bytes.Equal(m.Body, pattern(length, i-1))):
					t.Errorf("message %d: %v", i-2, err)
				}
			}
		})
	}
}

// TestRefuseOther refuses a message that another posted receive then gets.
func TestRefuseOther(t *testing.T) {
	w := newWorld(t, 2, nil)
	a, b := w.ranks[0], w.ranks[1]
	no := errors.New("no")
	first := b.postReceive(0, 1, make([]byte, 8))
	second := b.postReceive(transport.AnyRank, 1, make([]byte, 8))
	b.accept = func(m *transport.Message) error {
		if m == first {
			return no
		}
		return nil
	}
	sent := a.postSend(1, 1, pattern(8, 1))
	if err := b.Finish(b.waiter(t.Context(), deadline), first); err != no || !first.Untaken {
		t.Fatal(err)
	}
	if !second.Done() || second.From != 0 {
		t.Error("the second receive does not get the message")
	}
	b.finish(t, second)
	a.finish(t, sent)
	if !bytes.Equal(second.Body, pattern(8, 1)) {
		t.Error("the message differs")
	}
}

// TestShortBuffer checks that a message is not written into a body that is too short.
func TestShortBuffer(t *testing.T) {
	w := newWorld(t, 2, nil)
	a, b := w.ranks[0], w.ranks[1]
	sent := a.postSend(1, 1, pattern(8, 1))
	m := b.postReceive(0, 1, make([]byte, 7))
	var tooLong *transport.LengthError
	if err := b.Finish(b.waiter(t.Context(), deadline), m); !errors.As(err, &tooLong) || tooLong.Sent != 8 || !m.Untaken {
		t.Fatal(err)
	}
	b.finish(t, b.postReceive(0, 1, make([]byte, 8)))
	a.finish(t, sent)
}

// TestNotes sends notes to a rank that waits for a message of another one. Notes without room are
// dropped, and the lane goes on.
func TestNotes(t *testing.T) {
	const notes = 100
	w := newWorld(t, 3, &tiny)
	got := 0
	done := make(chan bool)
	w.ranks[0].note = func(from int, n *transport.Note) {
		if from != 1 || n[0] != 1 || n[transport.NoteBytes-1] != 2 {
			t.Errorf("note from %d: %v", from, n)
		}
		if got++; got == tiny.entries {
			close(done)
		}
	}
	n := transport.Note{0: 1, transport.NoteBytes - 1: 2}
	for range notes {
		w.ranks[1].Notify(0, &n)
	}
	w.ranks[1].Notify(1, &n)
	w.ranks[1].Notify(9, &n)
	w.each(func(r *rank) {
		switch r.opt.Rank {
		case 0:
			r.finish(t, r.postReceive(2, 1, make([]byte, 4)))
		case 2:
			select {
			case <-done:
			case <-time.After(deadline):
				t.Error("the notes have not arrived")
			}
			r.finish(t, r.postSend(0, 1, []byte("done")))
		}
	})
	if got != tiny.entries {
		t.Errorf("%d notes", got)
	}
}

// TestLeft checks the errors of messages with ranks that have left, and that what they have sent is
// still received.
func TestLeft(t *testing.T) {
	w := newWorld(t, 3, nil)
	r := w.ranks[0]
	check := func(m *transport.Message, peer int, untaken bool, want error) {
		t.Helper()
		var lost *transport.LostError
		err := r.Finish(r.waiter(t.Context(), deadline), m)
		if !errors.As(err, &lost) || lost.Peer != peer || lost.Err != want || m.Untaken != untaken {
			t.Fatalf("%v, untaken %v", err, m.Untaken)
		}
	}
	w.ranks[1].postSend(0, 1, []byte("last"))
	gone := errors.New("gone")
	any1 := r.postReceive(transport.AnyRank, 2, nil)
	w.left[1].Store(&gone)
	check(r.postReceive(1, 2, nil), 1, true, gone)
	check(r.postSend(1, 2, nil), 1, false, gone)
	last := r.postReceive(transport.AnyRank, 1, make([]byte, 4))
	if !r.finish(t, last) || string(last.Body) != "last" {
		t.Error("the last message is lost")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	m := r.postReceive(transport.AnyRank, 3, nil)
	if err := r.Finish(r.waiter(ctx, 0), m); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	w.left[2].Store(&gone)
	check(any1, 2, true, gone)
}

// TestStop stops a group whose ranks wait in every way.
func TestStop(t *testing.T) {
	for name, post := range map[string]func(r *rank) *transport.Message{
		"receive":      func(r *rank) *transport.Message { return r.postReceive(1, 1, nil) },
		"receive any":  func(r *rank) *transport.Message { return r.postReceive(transport.AnyRank, 1, nil) },
		"receive self": func(r *rank) *transport.Message { return r.postReceive(0, 1, nil) },
		"send":         func(r *rank) *transport.Message { return r.postSend(1, 1, nil) },
		"send self":    func(r *rank) *transport.Message { return r.postSend(0, 1, nil) },
		"send large":   func(r *rank) *transport.Message { return r.postSend(1, 1, make([]byte, 1<<20)) },
	} {
		for _, closes := range []bool{false, true} {
			for _, waiters := range []int{1, 3} {
				w := newWorld(t, 2, nil)
				r := w.ranks[0]
				ended := make(chan error)
				for range waiters {
					m := post(r)
					go func() { ended <- r.Finish(r.waiter(context.Background(), 0), m) }()
				}
				time.Sleep(time.Millisecond)
				if closes {
					r.Close()
				} else {
					r.lot.Stop()
				}
				for range waiters {
					var lost *transport.LostError
					if err := <-ended; closes && !errors.As(err, &lost) || !closes && err != wait.ErrStopped {
						t.Errorf("%s, close %v: %v", name, closes, err)
					}
				}
				if r.inside != 0 || r.standing != 0 || r.driver != nil || r.others[0].open != 0 {
					t.Errorf("%s: %d in Finish, %d stand by, %d open", name, r.inside, r.standing, r.others[0].open)
				}
			}
		}
	}
}

// TestWithdrawn checks that no data of a rank whose group has failed is delivered from its memory. The
// receive waits until its own group fails or its context ends.
func TestWithdrawn(t *testing.T) {
	region := make([]byte, 1<<16)
	for name, change := range map[string]func(*world, *Options){
		"stream": func(*world, *Options) {}, "read": readSelf(t), "region": inRegion(region),
	} {
		for _, length := range []int{200, 5000} {
			sending, endSend := context.WithCancel(t.Context())
			receiving, endReceive := context.WithCancel(t.Context())
			w := newWorld(t, 2, &tiny, change, func(_ *world, opt *Options) {
				opt.Withdrawn = func(rank int) bool {
					endReceive() // the data is read
					return rank == 0
				}
			})
			sent := w.ranks[0].postSend(1, 1, region[:length])
			serving := make(chan bool)
			go func() {
				_ = w.ranks[0].Finish(w.ranks[0].waiter(sending, 0), sent)
				close(serving)
			}()
			r := w.ranks[1]
			m := r.postReceive(0, 1, make([]byte, length))
			if err := r.Finish(r.waiter(receiving, deadline), m); !errors.Is(err, context.Canceled) || !m.Untaken {
				t.Errorf("%s, %d bytes: %v, untaken %v", name, length, err, m.Untaken)
			}
			endSend()
			<-serving
		}
	}
}

// TestNotPosted finishes messages that were not posted.
func TestNotPosted(t *testing.T) {
	r := newWorld(t, 2, nil).ranks[0]
	for _, m := range []*transport.Message{{}, {Send: true, Peer: transport.AnyRank}, {Peer: 2}, {Peer: -2}} {
		if m.Peer != 0 {
			r.Post(m)
		}
		if err := r.Finish(r.waiter(t.Context(), deadline), m); err != errNotPosted {
			t.Error(err)
		}
	}
}

// TestGoroutines sends and receives in several goroutines of each rank, each with a tag of its own.
func TestGoroutines(t *testing.T) {
	const n, goroutines, count = 3, 4, 200
	for _, s := range []*sizes{nil, &tiny} {
		w := newWorld(t, n, s, readSelf(t))
		w.each(func(r *rank) {
			done := make(chan bool)
			for g := range goroutines {
				go func() {
					defer func() { done <- true }()
					for i := range count {
						for d := range n {
							to, from := (r.opt.Rank+d)%n, (r.opt.Rank+n-d)%n
							length := lengths[(i+g)%20]
							if i%50 == 49 {
								length = 5000
							}
							in := r.postReceive(from, g, make([]byte, length))
							out := r.postSend(to, g, pattern(length, g))
							if !r.finish(t, in) || !r.finish(t, out) {
								return
							}
							if !bytes.Equal(in.Body, pattern(length, g)) {
								t.Error("a message differs")
							}
						}
					}
				}()
			}
			for range goroutines {
				<-done
			}
		})
		for _, r := range w.ranks {
			checkSlab(t, r)
		}
	}
}

// TestSleep lets both ranks sleep, and wakes them by each kind of event.
func TestSleep(t *testing.T) {
	for _, length := range []int{8, 200, 5000} {
		w := newWorld(t, 2, &tiny)
		w.each(func(r *rank) {
			peer := 1 - r.opt.Rank
			for i := range 20 {
				if i%2 == r.opt.Rank {
					for sleeping(w.ranks[peer].part).Load() == 0 {
						runtime.Gosched()
					}
					if !r.finish(t, r.postSend(peer, 1, pattern(length, i))) {
						return
					}
				} else if !r.finish(t, r.postReceive(peer, 1, make([]byte, length))) {
					return
				}
			}
		})
	}
}

// TestReuse checks that messages need no allocation when they are posted again.
func TestReuse(t *testing.T) {
	for _, length := range []int{16, 1000, 100_000} {
		w := newWorld(t, 2, nil, readSelf(t))
		a, b := w.ranks[0], w.ranks[1]
		done := make(chan bool)
		const rounds = 100
		go func() {
			defer close(done)
			m := &transport.Message{Peer: 0, Tag: 1, Body: make([]byte, length)}
			wtr := b.waiter(context.Background(), deadline)
			for range rounds + 1 {
				b.Post(m)
				if err := b.Finish(wtr, m); err != nil {
					t.Error(err)
				}
			}
		}()
		m := &transport.Message{Send: true, Peer: 1, Tag: 1, Body: make([]byte, length)}
		wtr := a.waiter(context.Background(), deadline)
		allocs := testing.AllocsPerRun(rounds, func() {
			a.Post(m)
			if err := a.Finish(wtr, m); err != nil {
				t.Error(err)
			}
		})
		<-done
		if allocs > 0 {
			t.Errorf("%d bytes: %v allocations", length, allocs)
		}
	}
}

// BenchmarkPingPong measures half a round trip between two goroutines.
func BenchmarkPingPong(b *testing.B) {
	for _, length := range []int{16, 1 << 10, 16 << 10, 256 << 10} {
		b.Run(fmt.Sprint(length), func(b *testing.B) {
			w := newWorld(b, 2, nil, readSelf(b))
			b.ReportAllocs()
			w.each(func(r *rank) { pingPong(b, r, length, b.N/2) })
		})
	}
}

func pingPong(b *testing.B, r *rank, length, rounds int) {
	peer := 1 - r.opt.Rank
	in := &transport.Message{Peer: peer, Tag: 1, Body: make([]byte, length)}
	out := &transport.Message{Send: true, Peer: peer, Tag: 1, Body: make([]byte, length)}
	w := r.waiter(context.Background(), 0)
	for range rounds {
		for i := range 2 {
			m := in
			if i == r.opt.Rank {
				m = out
			}
			r.Post(m)
			if err := r.Finish(w, m); err != nil {
				b.Error(err)
				return
			}
		}
	}
}

// BenchmarkOverhead measures a message whose sides take turns in one goroutine, so that nothing waits.
func BenchmarkOverhead(b *testing.B) {
	w := newWorld(b, 2, nil)
	x, y := w.ranks[0], w.ranks[1]
	out := &transport.Message{Send: true, Peer: 1, Tag: 1, Body: make([]byte, 16)}
	in := &transport.Message{Peer: 0, Tag: 1, Body: make([]byte, 16)}
	xw, yw := x.waiter(context.Background(), 0), y.waiter(context.Background(), 0)
	b.ReportAllocs()
	for b.Loop() {
		x.Post(out)
		y.Post(in)
		if y.Finish(yw, in) != nil || x.Finish(xw, out) != nil {
			b.Fatal("error")
		}
	}
}
