package shmem

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// TestCancelUnmatched cancels receives that match nothing. Later receives get the messages.
func TestCancelUnmatched(t *testing.T) {
	w := newWorld(t, 2, nil)
	a, b := w.ranks[0], w.ranks[1]
	for _, from := range []int{0, 1, transport.AnyRank} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		m := b.postReceive(from, 1, make([]byte, 8))
		if err := b.Finish(b.waiter(ctx, 0), m); !errors.Is(err, context.DeadlineExceeded) || !m.Untaken || m.Matched.Load() {
			t.Errorf("%v, untaken %v", err, m.Untaken)
		}
		cancel()
	}
	if b.anyOpen != 0 || b.others[0].open != 0 {
		t.Errorf("%d receives from any rank, %d from rank 0 are open", b.anyOpen, b.others[0].open)
	}
	sent := a.postSend(1, 1, pattern(8, 1))
	m := b.postReceive(0, 1, make([]byte, 8))
	b.finish(t, m)
	a.finish(t, sent)
	if !bytes.Equal(m.Body, pattern(8, 1)) {
		t.Error("the message differs")
	}
}

// TestCancelStream cancels a receive whose stream has begun or waits for another one. The message
// waits for the next receive.
func TestCancelStream(t *testing.T) {
	for _, patient := range []bool{false, true} {
		w := newWorld(t, 2, &tiny)
		a, b := w.ranks[0], w.ranks[1]
		first, second := a.postSend(1, 1, pattern(5000, 1)), a.postSend(1, 1, pattern(5000, 2))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if patient {
			m := b.postReceive(0, 1, make([]byte, 5000))
			m.Patient = true
			ended := make(chan error)
			go func() { ended <- b.Finish(b.waiter(ctx, 0), m) }()
			for a.others[0].in.request.Load() == 0 {
				runtime.Gosched()
			}
			a.finish(t, first)
			if err := <-ended; err != nil || !bytes.Equal(m.Body, pattern(5000, 1)) {
				t.Errorf("patient: %v", err)
			}
			w.each(func(r *rank) {
				if r == a {
					r.finish(t, second)
				} else {
					r.finish(t, r.postReceive(0, 1, make([]byte, 5000)))
				}
			})
			continue
		}
		for range 3 {
			m := b.postReceive(0, 1, make([]byte, 5000))
			if err := b.Finish(b.waiter(ctx, 0), m); !errors.Is(err, context.Canceled) || !m.Untaken {
				t.Fatalf("%v, untaken %v", err, m.Untaken)
			}
			if a.others[0].in.want.Load() != 1 {
				t.Error("no stream was requested")
			}
		}
		w.each(func(r *rank) {
			if r == a {
				r.finish(t, first)
				r.finish(t, second)
				return
			}
			for i := range 2 {
				m := r.postReceive(0, 1, make([]byte, 5000))
				if r.finish(t, m) && !bytes.Equal(m.Body, pattern(5000, i+1)) {
					t.Errorf("message %d differs", i)
				}
			}
		})
		checkSlab(t, a)
	}
}

// TestPatience checks that a patient receive whose sender stops sending ends with the error of its
// context, and that its message waits for another receive.
func TestPatience(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for transport.PatientFor")
	}
	t.Parallel()
	w := newWorld(t, 2, &tiny)
	a, b := w.ranks[0], w.ranks[1]
	sent := a.postSend(1, 1, pattern(5000, 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := b.postReceive(0, 1, make([]byte, 5000))
	m.Patient = true
	began := time.Now()
	if err := b.Finish(b.waiter(ctx, 0), m); !errors.Is(err, context.Canceled) || !m.Untaken {
		t.Errorf("%v, untaken %v", err, m.Untaken)
	}
	if d := time.Since(began); d < transport.PatientFor {
		t.Errorf("the receive has waited for %v", d)
	}
	w.each(func(r *rank) {
		if r == a {
			r.finish(t, sent)
		} else {
			r.finish(t, r.postReceive(0, 1, make([]byte, 5000)))
		}
	})
}

// TestCancelRace cancels receives while their messages arrive. No message may be lost, and all must
// arrive in order.
func TestCancelRace(t *testing.T) {
	const messages, tries = 3000, 10_000
	for name, change := range map[string]func(*world, *Options){
		"read": readSelf(t), "stream": refuseRead(syscall.EPERM),
	} {
		w := newWorld(t, 3, &tiny, change)
		canceled := 0
		w.each(func(r *rank) {
			if r.opt.Rank > 0 {
				for i := range messages / 2 {
					if !r.finish(t, r.postSend(0, 1, pattern(lengths[i%20], i))) {
						return
					}
				}
				return
			}
			var got [3]int
			random := rand.New(rand.NewPCG(1, 2))
			for try := 0; got[1]+got[2] < messages; try++ {
				ctx, cancel := context.WithCancel(context.Background())
				from := random.IntN(4) - 1
				if from <= 0 || got[from] == messages/2 {
					from = transport.AnyRank
				}
				m := r.postReceive(from, 1, make([]byte, 2048))
				wtr := r.waiter(ctx, deadline)
				var stop *time.Timer
				if canceled < tries {
					if d := random.IntN(20); d == 0 {
						cancel()
					} else {
						stop = time.AfterFunc(time.Duration(d)*time.Microsecond, cancel)
					}
				}
				err := r.Finish(wtr, m)
				if stop != nil {
					stop.Stop()
				}
				cancel()
				switch {
				case err == nil:
					i := got[m.From]
					if got[m.From]++; !bytes.Equal(m.Body[:m.Len], pattern(lengths[i%20], i)) {
						t.Errorf("%s: message %d of rank %d differs", name, i, m.From)
						r.lot.Stop()
						return
					}
				case errors.Is(err, context.Canceled) && m.Untaken:
					canceled++
				default:
					t.Errorf("%s: %v, untaken %v", name, err, m.Untaken)
					return
				}
			}
		})
		if canceled == 0 {
			t.Errorf("%s: no receive was canceled", name)
		}
		checkSlab(t, w.ranks[1])
	}
}

// TestCancelSend withdraws sends to this rank, before and after a receive has matched them.
func TestCancelSend(t *testing.T) {
	r := newWorld(t, 1, nil).ranks[0]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, from := range []int{0, transport.AnyRank} {
		m := r.postSend(0, 1, []byte("no"))
		if err := r.Finish(r.waiter(ctx, 0), m); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		in := r.postReceive(from, 1, make([]byte, 3))
		m = r.postSend(0, 1, []byte("no"))
		if !in.Matched.Load() {
			t.Error("the receive is not matched")
		}
		if err := r.Finish(r.waiter(ctx, 0), m); !errors.Is(err, context.Canceled) || in.Matched.Load() {
			t.Errorf("%v, matched %v", err, in.Matched.Load())
		}
		m = r.postSend(0, 1, []byte("yes"))
		r.finish(t, in)
		r.finish(t, m)
		if string(in.Body) != "yes" {
			t.Errorf("%q", in.Body)
		}
	}
}

// TestDamage writes invalid values into the memory of a rank. The other rank must report the rank.
func TestDamage(t *testing.T) {
	for name, damage := range map[string]func(p *peer){
		"completed": func(p *peer) { p.out.completed.Store(9) },
		"consumed":  func(p *peer) { p.out.consumed.Store(9) },
		"kind":      func(p *peer) { p.put(p.nextOut(), meta(99, 0, 0), 0) },
		"inline":    func(p *peer) { p.put(p.nextOut(), meta(kindInline, 0, 1<<31), 0) },
		"taken":     func(p *peer) { r := p.nextOut(); *(*uint64)(r.data()) = 9; p.put(r, meta(kindTaken, 0, 8), 0) },
		"slab before": func(p *peer) {
			r := p.nextOut()
			*(*place)(r.data()) = place{bytes: 8, offset: 8}
			p.put(r, meta(kindSlab, 0, placeBytes), 1)
		},
		"slab after": func(p *peer) {
			r := p.nextOut()
			*(*place)(r.data()) = place{bytes: 1 << 62, offset: int64(p.lane.layout.slabAt)}
			p.put(r, meta(kindSlab, 0, placeBytes), 1)
		},
		"length": func(p *peer) {
			r := p.nextOut()
			*(*place)(r.data()) = place{bytes: -1}
			p.put(r, meta(kindBuffer, 0, placeBytes), 1)
		},
		"chunks": func(p *peer) {
			r := p.nextOut()
			*(*place)(r.data()) = place{bytes: 600}
			p.put(r, meta(kindBuffer, 0, placeBytes), 1)
			p.out.filled.Store(chunkCount(1, 9))
		},
		"chunk offset": func(p *peer) {
			r := p.nextOut()
			*(*place)(r.data()) = place{bytes: 600}
			p.put(r, meta(kindBuffer, 0, placeBytes), 1)
			p.out.at.Store(1 << 63)
			p.out.filled.Store(chunkCount(1, 1))
		},
	} {
		w := newWorld(t, 2, &tiny)
		r := w.ranks[1]
		damage(w.ranks[0].others[0])
		var lost *transport.LostError
		err := r.Finish(r.waiter(t.Context(), deadline), r.postReceive(0, 1, make([]byte, 600)))
		if !errors.As(err, &lost) || lost.Peer != 0 || errors.Is(err, wait.ErrStopped) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
