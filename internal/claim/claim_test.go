package claim

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/store"
)

const deadline = time.Minute

// stores runs a test with a store in memory, and with one over PyTorch's protocol.
func stores(t *testing.T, test func(t *testing.T, ctx context.Context, s store.Store)) {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	t.Run("memory", func(t *testing.T) { test(t, ctx, store.NewMemory(store.Limits{})) })
	t.Run("plain", func(t *testing.T) {
		server, err := store.Listen(ctx, "127.0.0.1:0", store.Config{Plain: true})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		c, err := store.Dial(ctx, server.Addr().String(), store.Config{Plain: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		test(t, ctx, store.Prefix(c, "tutti/0"))
	})
}

// elsewhere returns a process of another host.
func elsewhere(id int) *process { return &process{Host: "another boot", ID: id, Start: "1"} }

// TestBeats checks that a holder on another host keeps its claim while it sends heartbeats.
// After it stops sending them, another process can take the claim, and Keep of the first
// holder returns a *LostError.
func TestBeats(t *testing.T) {
	stores(t, func(t *testing.T, ctx context.Context, s store.Store) {
		first, err := Take(ctx, s, "rank/1", Options{})
		if err != nil {
			t.Fatal(err)
		}
		first.beat = 5 * time.Millisecond
		beating, stop := context.WithCancel(ctx)
		kept := make(chan error, 1)
		go func() { kept <- first.Keep(beating) }()
		_, err = Take(ctx, s, "rank/1", Options{self: elsewhere(7)})
		if taken := (*TakenError)(nil); !errors.As(err, &taken) || taken.Holder != Name() {
			t.Errorf("%v, want a living holder", err)
		}
		stop()
		if err := <-kept; err != nil {
			t.Error(err)
		}
		second, err := Take(ctx, s, "rank/1", Options{self: elsewhere(7), lost: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		var lost *LostError
		if err := first.Keep(ctx); !errors.As(err, &lost) {
			t.Errorf("%v, want a lost claim", err)
		}
		first.Release(ctx) // must not release the claim of second
		if there, err := s.Check(ctx, "rank/1"); err != nil || !there {
			t.Errorf("%v, %v: a claim was released by another", there, err)
		}
		second.Release(ctx)
		if value, err := s.Get(ctx, "rank/1"); err != nil || len(value) > 0 {
			t.Errorf("%s, %v: the claim was not released", value, err)
		}
		if _, err := Take(ctx, s, "rank/1", Options{}); err != nil {
			t.Error(err)
		}
	})
}

// TestUsing has a holder that sends no heartbeats, but for which Options.Using is true.
func TestUsing(t *testing.T) {
	stores(t, func(t *testing.T, ctx context.Context, s store.Store) {
		first, err := Take(ctx, s, "key", Options{self: elsewhere(7)})
		if err != nil {
			t.Fatal(err)
		}
		using := func(_ context.Context, token string) bool { return token == first.Token() }
		var taken *TakenError
		if _, err := Take(ctx, s, "key", Options{Using: using, lost: time.Millisecond}); !errors.As(err, &taken) {
			t.Error(err)
		}
		// The context ends before Take knows whether the holder runs.
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		if _, err := Take(short, s, "key", Options{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// TestUsingLater has a holder that stops its heartbeats, and for which Options.Using becomes
// true, while Take waits for a heartbeat.
func TestUsingLater(t *testing.T) {
	stores(t, func(t *testing.T, ctx context.Context, s store.Store) {
		first, err := Take(ctx, s, "key", Options{self: elsewhere(7)})
		if err != nil {
			t.Fatal(err)
		}
		questions := 0
		using := func(context.Context, string) bool {
			questions++
			return questions > 1
		}
		var taken *TakenError
		if _, err := Take(ctx, s, "key", Options{Using: using, lost: 10 * time.Millisecond}); !errors.As(err, &taken) || questions != 2 {
			t.Errorf("%v after %d questions, want a living holder", err, questions)
		}
		if err := first.Confirm(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestConfirm has a holder begin to use its claim just before or after the last call of
// Options.Using. Exactly one of the two processes must have the claim.
func TestConfirm(t *testing.T) {
	for name, before := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			stores(t, func(t *testing.T, ctx context.Context, s store.Store) {
				first, err := Take(ctx, s, "key", Options{self: elsewhere(7)})
				if err != nil {
					t.Fatal(err)
				}
				// A heartbeat whose answer is lost.
				old := *first
				if _, err := old.renew(ctx); err != nil {
					t.Fatal(err)
				}
				used, questions := false, 0
				using := func(context.Context, string) bool {
					is := used
					if questions++; questions == 2 {
						used = true
						if before {
							if err := first.Confirm(ctx); err != nil {
								t.Error(err)
							}
						}
					}
					return is
				}
				_, err = Take(ctx, s, "key", Options{Using: using, lost: 10 * time.Millisecond})
				taken, lost := (*TakenError)(nil), (*LostError)(nil)
				if errors.As(err, &taken) != before || !before && err != nil {
					t.Error(err)
				}
				if err := first.Confirm(ctx); errors.As(err, &lost) == before || before && err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestReleased checks that the key is free after Release and Leave, and that a second call
// does not free the claim of the next holder.
func TestReleased(t *testing.T) {
	stores(t, func(t *testing.T, ctx context.Context, s store.Store) {
		for name, free := range map[string]func(*Claim, context.Context){"released": (*Claim).Release, "left": (*Claim).Leave} {
			first, err := Take(ctx, s, name, Options{self: elsewhere(7)})
			if err != nil {
				t.Fatal(err)
			}
			renewed := *first // first does not see the answer to this heartbeat
			if _, err := renewed.renew(ctx); err != nil {
				t.Fatal(err)
			}
			free(first, ctx)
			value, err := s.Get(ctx, name)
			if left, ok := decode(value); err != nil || ok != (name == "left") || ok && !left.Left {
				t.Errorf("%s: %s, %v", name, value, err)
			}
			second, err := Take(ctx, s, name, Options{self: elsewhere(8), lost: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			free(first, ctx)
			if err := second.Confirm(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := first.Confirm(ctx); !errors.As(err, new(*LostError)) {
				t.Errorf("%s: %v, want a lost claim", name, err)
			}
			second.Release(ctx)
			if err := second.Confirm(ctx); !errors.As(err, new(*LostError)) {
				t.Errorf("%s: %v, want a lost claim", name, err)
			}
		}
	})
}

// noDelete is a store that fails the test if a key is deleted.
type noDelete struct {
	store.Store
	t *testing.T
}

func (s noDelete) Delete(ctx context.Context, key string) (bool, error) {
	s.t.Errorf("%s is deleted; another process may have claimed it", key)
	return s.Store.Delete(ctx, key)
}

// TestNoDelete checks that Release does not delete the key.
func TestNoDelete(t *testing.T) {
	stores(t, func(t *testing.T, ctx context.Context, s store.Store) {
		c, err := Take(ctx, noDelete{s, t}, "key", Options{})
		if err != nil {
			t.Fatal(err)
		}
		c.Release(ctx)
	})
}

// TestRace has many processes claim and release a key whose holder has exited. No two of them
// may hold it at the same time.
func TestRace(t *testing.T) {
	stores(t, func(t *testing.T, ctx context.Context, s store.Store) {
		if err := s.Set(ctx, "key", (&holder{Name: "old", Process: *elsewhere(1), Token: "old"}).encode()); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		holders, most, total := 0, 0, 0
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			holders += n
			most = max(most, holders)
			total += max(n, 0)
		}
		for i := range 8 {
			all.Go(func() {
				for range 20 {
					c, err := Take(ctx, s, "key", Options{self: elsewhere(10 + i), lost: 10 * time.Second, Using: func(_ context.Context, token string) bool { return token != "old" }})
					if err == nil {
						count(1)
						count(-1)
						c.Release(ctx)
						continue
					}
					if taken := (*TakenError)(nil); !errors.As(err, &taken) {
						t.Error(err)
					}
				}
			})
		}
		// The old claim disappears while the processes wait for its heartbeats.
		time.AfterFunc(20*time.Millisecond, func() { _, _ = s.Delete(ctx, "key") })
		all.Wait()
		if most > 1 || total == 0 {
			t.Errorf("%d held it at once, %d in all", most, total)
		}
	})
}
