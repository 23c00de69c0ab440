package control

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/proctest"
)

// deadline is much longer than any test takes.
const deadline = 3 * time.Minute

// joinAll joins n ranks on the loopback.
func joinAll(t testing.TB, n int) ([]*Member, *proctest.Output) {
	t.Helper()
	return joinAllTLS(t, n, nil)
}

// joinAllTLS joins n ranks, with TLS if encrypt is not nil. It returns the members and their log,
// and fails the test if a rank cannot join.
func joinAllTLS(t testing.TB, n int, encrypt *tls.Config) ([]*Member, *proctest.Output) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := new(proctest.Output)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	members := make([]*Member, n)
	errs := make([]error, n)
	var ranks sync.WaitGroup
	for r := range n {
		cfg := Config{
			Rank: r, Size: n, Addr: l.Addr().String(), Secret: []byte("secret"), Blob: fmt.Append(nil, "rank ", r),
			TLS: encrypt, Logger: slog.New(slog.NewTextHandler(log, nil)),
		}
		if r == 0 {
			cfg.Listener = l
		}
		ranks.Go(func() { members[r], errs[r] = Join(ctx, cfg) })
	}
	ranks.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return members, log
}

// TestProbe connects to rank 0 and sends nothing, as a rank does whose context ends. The line in the
// log is for debugging only.
func TestProbe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := new(proctest.Output)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Join(ctx, Config{
			Size: 2, Addr: l.Addr().String(), Listener: l, Secret: []byte("secret"),
			Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		ended <- err
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	log.Await(t, "has ended before its hello", 1)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if text := log.String(); strings.Contains(text, "WARN") {
		t.Errorf("the log:\n%s", text)
	}
}

// leave closes all members concurrently. An error, or a Close that exceeds deadline, fails the
// test.
func leave(t testing.TB, members []*Member) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	var ranks sync.WaitGroup
	for r, m := range members {
		ranks.Go(func() {
			if err := m.Close(ctx); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	ranks.Wait()
	if ctx.Err() != nil {
		t.Error("not all have left")
	}
}

// TestJoinAndGather joins five ranks. All know the blobs of all, and three of them exchange
// further blobs by Gather.
func TestJoinAndGather(t *testing.T) {
	members, _ := joinAll(t, 5)
	defer leave(t, members)
	for r, m := range members {
		for s, blob := range m.Blobs() {
			if string(blob) != fmt.Sprint("rank ", s) {
				t.Errorf("rank %d knows %q of rank %d", r, blob, s)
			}
		}
	}
	some := []int{3, 0, 4}
	var ranks sync.WaitGroup
	for _, r := range some {
		ranks.Go(func() {
			blobs, err := members[r].Gather(t.Context(), "a", some, fmt.Append(nil, r))
			if err != nil || fmt.Sprintf("%s", blobs) != "[3 0 4]" {
				t.Errorf("rank %d: %s, %v", r, blobs, err)
			}
		})
	}
	ranks.Wait()
}

// TestGatherLoss ends a rank's connection during a Gather. The Gathers of the other members fail
// and name that rank, and so does a later one.
func TestGatherLoss(t *testing.T) {
	members, _ := joinAll(t, 4)
	some := []int{0, 1, 2}
	errs := make(chan error)
	for _, r := range some[:2] {
		go func() {
			_, err := members[r].Gather(t.Context(), "a", some, nil)
			errs <- err
		}()
	}
	members[2].rootConn.Close()
	for range 2 {
		if err := <-errs; err == nil || !strings.Contains(err.Error(), "rank 2 of the job is lost") {
			t.Error(err)
		}
	}
	for _, r := range []int{0, 1} {
		if lost := members[r].Lost(); !slices.Equal(lost, []int{2}) {
			t.Errorf("rank %d knows that %v are lost", r, lost)
		}
		// The departure is known by now.
		if _, err := members[r].Gather(t.Context(), "b", some, nil); err == nil {
			t.Error("an exchange with a lost rank has ended well")
		}
	}
	leave(t, []*Member{members[0], members[1], members[3]})
}

// TestFirstCause lets all ranks report a cause at once. All are notified of the same one.
func TestFirstCause(t *testing.T) {
	members, _ := joinAll(t, 4)
	defer leave(t, members)
	got := make([]chan *engine.Failure, 4)
	for r, m := range members {
		got[r] = make(chan *engine.Failure, 10)
		m.reportTimeout = deadline
		m.Watch("g", []int{0, 1, 2, 3}, func(f *engine.Failure) { got[r] <- f })
	}
	var ranks sync.WaitGroup
	for r, m := range members {
		ranks.Go(func() {
			f := &engine.Failure{Kind: engine.ErrTimeout, Rank: r, Facts: engine.Facts{Text: fmt.Sprint("because of ", r)}, Err: context.DeadlineExceeded}
			v := m.Report("g", f)
			if (v.Rank == r) != (v == f) {
				t.Errorf("rank %d: its own cause came back as another", r)
			}
			got[r] <- v
		})
	}
	ranks.Wait()
	first := (<-got[0]).Reason()
	for r := range got {
		for len(got[r]) > 0 {
			if f := <-got[r]; f.Reason() != first || !errors.Is(f, engine.ErrTimeout) {
				t.Errorf("rank %d: %v, but rank 0 heard %q", r, f, first)
			}
		}
	}
	// A group that this rank forms later is notified at once.
	late := make(chan *engine.Failure, 1)
	members[2].Watch("late", []int{2}, func(f *engine.Failure) { late <- f })
	members[1].Watch("late", []int{1, 2}, func(*engine.Failure) {})
	if f := members[1].Report("late", &engine.Failure{Kind: engine.ErrAborted, Facts: engine.Facts{Text: "no"}}); f.Reason() != "no" {
		t.Error(f)
	}
	if f := <-late; f.Reason() != "no" {
		t.Error(f)
	}
}

// TestLoss kills a rank. On the other ranks only the group with that rank is notified.
func TestLoss(t *testing.T) {
	for _, who := range []int{0, 2} {
		members, _ := joinAll(t, 3)
		told := make(chan *engine.Failure, 3)
		for r, m := range members {
			if r != who {
				m.Watch("g", []int{2, 1, 0}, func(f *engine.Failure) { told <- f })
				m.Watch("others", []int{1}, func(f *engine.Failure) { t.Error(f) })
			}
		}
		kill(members[who])
		for range 2 {
			if f := <-told; !errors.Is(f, engine.ErrRankLost) || len(f.Lost) != 1 || f.Lost[0] != 2-who {
				t.Errorf("rank %d is lost: %v", who, f)
			}
		}
		leave(t, slices.DeleteFunc(members, func(m *Member) bool { return m.cfg.Rank == who }))
	}
}

// kill ends a rank without a goodbye.
func kill(m *Member) {
	m.nodeMu.Lock()
	defer m.nodeMu.Unlock()
	m.cancel() // it performs no more actions
	m.timer.Stop()
	for _, links := range m.links {
		for _, l := range links {
			l.Close()
		}
	}
	if m.server != nil {
		m.server.listener.Close()
	}
}

// TestMissing starts a job without one of its ranks. When ctx ends, Join fails and names the
// missing ranks.
func TestMissing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := Join(ctx, Config{Rank: 0, Size: 3, Addr: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 of 3 ranks joined; ranks 1 and 2 missing") {
		t.Error(err)
	}
	absent := new(engine.AbsentError)
	if !errors.As(err, &absent) || !slices.Equal(absent.Ranks, []int{1, 2}) {
		t.Errorf("%v are known to be missing", absent.Ranks)
	}
	// Nothing listens at rank 0's address.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, err = Join(ctx, Config{Rank: 1, Size: 3, Addr: l.Addr().String(), Logger: slog.New(slog.DiscardHandler)})
	absent = new(engine.AbsentError)
	if !errors.As(err, &absent) || !slices.Equal(absent.Ranks, []int{0}) {
		t.Errorf("%v are known to be missing: %v", absent.Ranks, err)
	}
}

// TestDidNotWait lets rank 1 give up a little before rank 0. Rank 2 does not connect. Only rank 2
// is reported as missing.
func TestDidNotWait(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{}, 10)
	cfg := Config{Size: 3, Addr: l.Addr().String(), Logger: slog.New(slog.DiscardHandler)}
	root := cfg
	root.Listener = closeListener{l, closed}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hosted := make(chan error, 1)
	go func() {
		_, err := Join(ctx, root)
		hosted <- err
	}()
	cfg.Rank = 1
	short, giveUp := context.WithCancel(ctx)
	defer giveUp()
	failed := make(chan error, 2)
	for range 2 { // one joins; the refusal of the other shows that
		go func() {
			_, err := Join(short, cfg)
			failed <- err
		}()
	}
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "has joined already") {
		t.Errorf("a second process of rank 1: %v", err)
	}
	<-closed
	giveUp()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("rank 1 has given up: %v", err)
	}
	<-closed // rank 0 has noticed
	cancel()
	err = <-hosted
	absent := new(engine.AbsentError)
	if !errors.As(err, &absent) || !slices.Equal(absent.Ranks, []int{2}) {
		t.Errorf("%v are known to be missing: %v", absent.Ranks, err)
	}
	if want := "2 of 3 ranks joined; rank 2 missing; rank 1 left before that"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// A closeListener reports when a connection that it has accepted is closed.
type closeListener struct {
	net.Listener
	closed chan<- struct{}
}

func (l closeListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &closeConn{Conn: c, closed: l.closed}, nil
}

type closeConn struct {
	net.Conn
	once   sync.Once
	closed chan<- struct{}
}

func (c *closeConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.closed <- struct{}{} })
	return err
}

// TestRefusals connects peers that must not join to a formed job. Each of them leaves one line in
// the log, except one that sends nothing.
func TestRefusals(t *testing.T) {
	members, log := joinAll(t, 2)
	defer leave(t, members)
	addr := members[1].cfg.Addr
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	join := func(change func(*Config)) error {
		cfg := members[1].cfg
		change(&cfg)
		_, err := Join(ctx, cfg)
		return err
	}
	for name, err := range map[string]error{
		"does not know the job's secret":                    join(func(c *Config) { c.Secret = []byte("wrong") }),
		"was started for 3 ranks":                           join(func(c *Config) { c.Size = 3 }),
		"rank 1 has joined already":                         join(func(*Config) {}),
		"rank 7 is out of range: this job has ranks 1 to 1": join(func(c *Config) { c.Rank = 7 }),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
	for _, garbage := range []string{"GET / HTTP/1.1\r\n\r\n", "\x00\x00\x00\x02{}", "\xff\xff\xff\xff", ""} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, garbage); err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Logf("%q: %v", garbage, err)
		}
		c.Close()
	}
	for len(log.Lines()) < 7 {
		if ctx.Err() != nil {
			t.Fatalf("not one line for each: %q", log.Lines())
		}
		time.Sleep(time.Millisecond)
	}
	if n := len(log.Lines()); n != 7 {
		t.Errorf("%d lines for 7 strangers that have sent something", n)
	}
}
