package store_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/jobtls"
	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/store"
)

// deadline is much longer than any call in these tests takes.
const deadline = 3 * time.Minute

// TestMain fails if goroutines or descriptors are left.
func TestMain(m *testing.M) {
	before := proctest.OpenFiles()
	code := m.Run()
	if code == 0 {
		if left := leftovers(before); left != "" {
			os.Stderr.WriteString("left behind: " + left + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

// leftovers waits for goroutines and descriptors that are ending, and describes the rest.
func leftovers(before int) string {
	var left string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		buf := make([]byte, 1<<20)
		left = ""
		for i, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if i > 0 && strings.Contains(g, "tutti/store.") {
				left += g + "\n\n"
			}
		}
		if left == "" && proctest.OpenFiles() <= before {
			return ""
		}
	}
	if left == "" {
		left = "descriptors"
	}
	return left
}

// A journal collects the log of a server.
type journal struct{ proctest.Output }

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// await waits for a line that contains text.
func (j *journal) await(t *testing.T, text string) {
	t.Helper()
	j.Await(t, text, 1)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}

func listen(t *testing.T, config store.Config) *store.Server {
	t.Helper()
	s, err := store.Listen(within(t), "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func dial(t *testing.T, s *store.Server, config store.Config) *store.Client {
	t.Helper()
	c, err := store.Dial(within(t), s.Addr().String(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func secured() store.Config { return store.Config{Secret: []byte("the job's secret")} }

func encrypted(t *testing.T) store.Config {
	t.Helper()
	cert, key, err := tutti.NewJobCert(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c := secured()
	c.Cert, c.Key = cert, key
	return c
}

// stores lists the ways to reach a store. Each function returns a new store twice, over two
// connections if it has connections.
func stores(t *testing.T) map[string]func(t *testing.T) (a, b store.Store) {
	network := func(config store.Config) func(t *testing.T) (a, b store.Store) {
		return func(t *testing.T) (a, b store.Store) {
			s := listen(t, config)
			return dial(t, s, config), dial(t, s, config)
		}
	}
	return map[string]func(t *testing.T) (a, b store.Store){
		"memory": func(*testing.T) (a, b store.Store) {
			m := store.NewMemory(store.Limits{})
			return m, m
		},
		"plain":     network(store.Config{Plain: true}),
		"secured":   network(secured()),
		"encrypted": network(encrypted(t)),
		"server's own": func(t *testing.T) (a, b store.Store) {
			s := listen(t, secured())
			return dial(t, s, secured()), s.Store()
		},
		"prefix": func(t *testing.T) (a, b store.Store) {
			m := store.NewMemory(store.Limits{})
			_ = m.Set(t.Context(), "other", nil)
			return store.Prefix(m, "a/b"), store.Prefix(store.Prefix(m, "a"), "b")
		},
	}
}

// TestStore calls every method of every kind of store. a and b in the functions below reach
// the same store. The first difference ends a function's test.
func TestStore(t *testing.T) {
	for name, open := range stores(t) {
		t.Run(name, func(t *testing.T) {
			a, b := open(t)
			for name, f := range map[string]func(t *testing.T, ctx context.Context, a, b store.Store){
				"values": testValues, "numbers": testNumbers, "compare": testCompare, "waiting": testWaiting,
				"giving up": testGivingUp, "several": testSeveral, "queues": testQueues, "barrier": testBarrier, "limits": testLimits,
			} {
				t.Run(name, func(t *testing.T) { f(t, within(t), a, b) })
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t *testing.T, got []byte, err error, want string) {
	t.Helper()
	if err != nil || string(got) != want {
		t.Fatalf("%q, %v; want %q", got, err, want)
	}
}

// testValues checks Set, Get, Append, List, Delete and NumKeys, also with an empty key and
// a large value.
func testValues(t *testing.T, ctx context.Context, a, b store.Store) {
	must(t, a.Set(ctx, "v", []byte("one")))
	got, err := b.Get(ctx, "v")
	wants(t, got, err, "one")
	must(t, a.Append(ctx, "v", []byte(" two")))
	must(t, a.Append(ctx, "v2", []byte("new")))
	must(t, a.Set(ctx, "", nil))
	got, err = a.Get(ctx, "v2")
	wants(t, got, err, "new")
	got, err = a.Get(ctx, "v")
	wants(t, got, err, "one two")
	got, err = a.Get(ctx, "")
	wants(t, got, err, "")
	large := bytes.Repeat([]byte("x"), 8<<20)
	must(t, a.Set(ctx, "large", large))
	if got, err = a.Get(ctx, "large"); err != nil || !bytes.Equal(got, large) {
		t.Fatal(len(got), err)
	}
	keys, err := a.List(ctx)
	must(t, err)
	for _, k := range []string{"v", "v2", "", "large"} {
		if !slices.Contains(keys, k) {
			t.Errorf("%q is not among %q", k, keys)
		}
	}
	if slices.Contains(keys, "other") {
		t.Error("a prefix shows what is not its own")
	}
	for i, want := range []bool{true, false} {
		if gone, err := b.Delete(ctx, "large"); err != nil || gone != want {
			t.Errorf("Delete %d: %v, %v", i, gone, err)
		}
	}
	before, err := a.NumKeys(ctx)
	must(t, err)
	must(t, a.Set(ctx, "one more", nil))
	if n, err := b.NumKeys(ctx); err != nil || n != before+1 {
		t.Errorf("%d keys, %v; %d before", n, err, before)
	}
}

// testNumbers checks Add, and that the client can be used after an Add that the store
// refuses.
func testNumbers(t *testing.T, ctx context.Context, a, b store.Store) {
	for _, step := range [][2]int64{{5, 5}, {-7, -2}, {0, -2}, {1 << 40, 1<<40 - 2}} {
		if n, err := a.Add(ctx, "n", step[0]); err != nil || n != step[1] {
			t.Fatalf("%d, %v; want %d", n, err, step[1])
		}
	}
	got, err := b.Get(ctx, "n")
	wants(t, got, err, "1099511627774")
	must(t, a.Set(ctx, "not", []byte("three")))
	if _, err := b.Add(ctx, "not", 1); err == nil {
		t.Fatal("something was added to a word")
	}
	// A server ends the connection after this error. The next call opens another one.
	must(t, b.Set(ctx, "not", []byte("3")))
	if n, err := b.Add(ctx, "not", 1); err != nil || n != 4 {
		t.Fatal(n, err)
	}
}

func testCompare(t *testing.T, ctx context.Context, a, b store.Store) {
	for _, step := range [][3]string{
		{"x", "y", "x"}, // the key is missing; the result is expected
		{"", "one", "one"},
		{"", "two", "one"},
		{"one", "two", "two"},
	} {
		got, err := a.CompareAndSet(ctx, "cas", []byte(step[0]), []byte(step[1]))
		wants(t, got, err, step[2])
	}
	got, err := b.Get(ctx, "cas")
	wants(t, got, err, "two")
}

// testWaiting checks that Wait and Get, in goroutines of their own, return when all of
// their keys exist, and not before.
func testWaiting(t *testing.T, ctx context.Context, a, b store.Store) {
	if there, err := a.Check(ctx, "w1", "w2"); err != nil || there {
		t.Fatal(there, err)
	}
	got := make(chan error)
	go func() { got <- a.Wait(ctx, "w1", "w2", "w2") }()
	value := make(chan []byte)
	go func() {
		v, _ := a.Get(ctx, "w2")
		value <- v
	}()
	must(t, b.Set(ctx, "w1", nil))
	select {
	case err := <-got:
		t.Fatal("it waited for one of two keys only", err)
	default:
	}
	must(t, b.Set(ctx, "w2", []byte("late")))
	must(t, <-got)
	wants(t, <-value, nil, "late")
	if there, err := a.Check(ctx, "w1", "w2"); err != nil || !there {
		t.Fatal(there, err)
	}
	must(t, a.Wait(ctx))
}

// testGivingUp ends calls by their contexts. The errors match the context's, and the client
// can be used afterwards.
func testGivingUp(t *testing.T, ctx context.Context, a, b store.Store) {
	for range 20 {
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		err := a.Wait(short, "never")
		cancel()
		var e *store.Error
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) || e.Op != "Wait" {
			t.Fatal(err)
		}
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := a.Set(gone, "x", nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	must(t, b.Set(ctx, "after", nil))
	must(t, a.Wait(ctx, "after"))
}

func testSeveral(t *testing.T, ctx context.Context, a, b store.Store) {
	must(t, a.MultiSet(ctx, store.Pair{Key: "m1", Value: []byte("1")}, store.Pair{Key: "m2", Value: []byte("22")}))
	values, err := b.MultiGet(ctx, "m2", "m1", "m2")
	if err != nil || len(values) != 3 || string(values[0]) != "22" || string(values[1]) != "1" || string(values[2]) != "22" {
		t.Fatalf("%q, %v", values, err)
	}
	must(t, a.MultiSet(ctx))
	if values, err = a.MultiGet(ctx); err != nil || len(values) != 0 {
		t.Fatal(values, err)
	}
}

// testQueues checks that each pushed value goes to one of several goroutines in Pop, and
// that a key and a queue may have the same name.
func testQueues(t *testing.T, ctx context.Context, a, b store.Store) {
	if _, err := a.TryPop(ctx, "q"); !errors.Is(err, store.ErrEmpty) {
		t.Fatal(err)
	}
	var all sync.Map
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			v, err := a.Pop(ctx, "q")
			if err != nil {
				t.Error(err)
			}
			all.Store(string(v), true)
		})
	}
	for _, v := range []string{"1", "2", "3", "4"} {
		must(t, b.Push(ctx, "q", []byte(v)))
	}
	wg.Wait()
	for _, v := range []string{"1", "2", "3", "4"} {
		if _, ok := all.Load(v); !ok {
			t.Errorf("%s is lost", v)
		}
	}
	must(t, b.Push(ctx, "q", []byte("5")))
	must(t, b.Push(ctx, "q", []byte("6")))
	if n, err := a.QueueLen(ctx, "q"); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	must(t, a.Wait(ctx, "q"))
	got, err := a.TryPop(ctx, "q")
	wants(t, got, err, "5")
	got, err = a.Pop(ctx, "q")
	wants(t, got, err, "6")
	if keys, _ := a.List(ctx); slices.Contains(keys, "q") {
		t.Error("a queue is listed as a key")
	}
	// With a key of the queue's name, Wait returns at once, and Pop still waits.
	must(t, a.Set(ctx, "q", nil))
	go func() { _ = b.Push(ctx, "q", []byte("7")) }()
	got, err = a.Pop(ctx, "q")
	wants(t, got, err, "7")
}

// testBarrier checks that Barrier returns when enough goroutines have called it. A call
// that was cancelled still counts.
func testBarrier(t *testing.T, ctx context.Context, a, b store.Store) {
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			if err := []store.Store{a, b}[i%2].Barrier(ctx, "barrier", 6); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	must(t, a.Barrier(ctx, "barrier", 6))
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	gave := make(chan error)
	go func() { gave <- a.Barrier(waiting, "barrier 2", 2) }()
	eventually(t, "the first", func() bool {
		there, err := b.Check(ctx, "barrier 2")
		return there && err == nil
	})
	cancel()
	if err := <-gave; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	must(t, b.Barrier(ctx, "barrier 2", 2)) // the cancelled call is counted
}

func testLimits(t *testing.T, ctx context.Context, a, _ store.Store) {
	long := strings.Repeat("k", 9<<10)
	if err := a.Set(ctx, long, nil); !errors.Is(err, store.ErrLimit) || len(err.Error()) > 300 {
		t.Error(err)
	}
	if err := a.Set(ctx, "k", make([]byte, 8<<20+1)); !errors.Is(err, store.ErrLimit) {
		t.Error(err)
	}
	if err := a.Wait(ctx, make([]string, 128<<10+1)...); !errors.Is(err, store.ErrLimit) {
		t.Error(err)
	}
}

func TestMembers(t *testing.T) {
	s := listen(t, secured())
	for i := range 3 {
		if n, err := dial(t, s, secured()).CountIn(within(t)); err != nil || n != int64(i+1) {
			t.Fatal(n, err)
		}
	}
	if n := s.Store().Members(); n != 3 {
		t.Error(n)
	}
	must(t, dial(t, s, secured()).Ping(within(t)))
}

// TestClose checks that Close ends waiting calls, on either side. The error is ErrLost for
// a client whose server is closed, and ErrClosed otherwise.
func TestClose(t *testing.T) {
	for _, side := range []string{"client", "server", "memory"} {
		t.Run(side, func(t *testing.T) {
			s := listen(t, secured())
			c := dial(t, s, secured())
			var who store.Store = c
			if side == "memory" {
				who = s.Store()
			}
			got := make(chan error)
			go func() { got <- who.Wait(within(t), "never") }()
			must(t, s.Store().Set(within(t), "x", nil))
			if side == "client" {
				must(t, c.Close())
			} else {
				must(t, s.Close())
			}
			err := <-got
			if errors.Is(err, store.ErrClosed) == (side == "server") || errors.Is(err, store.ErrLost) != (side == "server") {
				t.Error(err)
			}
			must(t, errors.Join(c.Close(), c.Close(), s.Close(), s.Close()))
			if err := who.Set(within(t), "x", nil); !errors.Is(err, store.ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// TestMany connects 1,024 clients to one server at the same time.
func TestMany(t *testing.T) {
	const n = 1024
	config := secured()
	s := listen(t, config)
	ctx := within(t)
	begin := time.Now()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			c, err := store.Dial(ctx, s.Addr().String(), config)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if _, err := c.CountIn(ctx); err != nil {
				t.Error(err)
			}
			if err := c.Barrier(ctx, "all", n); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := s.Store().Members(); got != n {
		t.Errorf("%d members", got)
	}
	t.Logf("%d clients joined in %v", n, time.Since(begin))
}

// TestLate dials before the server listens. Dial succeeds once the server does, and fails
// when its context ends.
func TestLate(t *testing.T) {
	var s *store.Server
	for got := make(chan error); s == nil; {
		addr := proctest.FreeAddr(t)
		ctx, cancel := context.WithCancel(within(t))
		go func() {
			c, err := store.Dial(ctx, addr, secured())
			if err == nil {
				err = c.Close()
			}
			got <- err
		}()
		time.Sleep(5 * time.Millisecond) // long enough for a failed attempt
		var err error
		if s, err = store.Listen(t.Context(), addr, secured()); errors.Is(err, syscall.EADDRINUSE) {
			s = nil // another process has taken the port meanwhile
			cancel()
			<-got
			continue
		}
		must(t, err)
		defer s.Close()
		must(t, <-got)
		cancel()
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	must(t, s.Close())
	if _, err := store.Dial(short, s.Addr().String(), secured()); !errors.Is(err, store.ErrLost) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestDerivedCertificate serves a store at an address that is not on the loopback, with a secret alone: both
// sides derive the certificate, so that the connection is encrypted. Another secret is refused.
func TestDerivedCertificate(t *testing.T) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(addrs, func(a net.Addr) bool {
		ip, ok := a.(*net.IPNet)
		return ok && !ip.IP.IsLoopback() && ip.IP.To4() != nil
	})
	if i < 0 {
		t.Skip("this host has only the loopback interface")
	}
	s, err := store.Listen(t.Context(), net.JoinHostPort(addrs[i].(*net.IPNet).IP.String(), "0"), secured())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := store.Dial(within(t), s.Addr().String(), secured())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Set(within(t), "k", []byte("v")); err != nil {
		t.Error(err)
	}
	cert, key, err := jobtls.DeriveCertificate(string(secured().Secret))
	if err != nil {
		t.Fatal(err)
	}
	same := secured()
	same.Cert, same.Key = cert, key // as a rank has them from tutti run
	if c, err := store.Dial(within(t), s.Addr().String(), same); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	if _, err := store.Dial(within(t), s.Addr().String(), store.Config{Secret: []byte("another job's secret")}); !errors.Is(err, store.ErrRefused) {
		t.Errorf("another secret: %v", err)
	}
}
