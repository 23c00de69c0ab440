package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// hostLossRank blocks in an operation of some kind when hosts become unreachable, and prints the error, which
// must be ErrRankLost. It then waits for a line of input, because its exit could be taken for a loss too.
func hostLossRank(ctx context.Context, e engine.Engine) error {
	how := os.Getenv("TUTTI_TEST_HOW")
	x := make([]float32, 100_000)
	m := engine.Mem{Ptr: unsafe.Pointer(&x[0]), N: len(x), Type: kernel.Float32}
	reduce := func(seq uint64) error {
		return e.Run(ctx, seq, []engine.Call{{Verb: engine.AllReduce, ReduceOp: engine.Sum, Dst: m, Src: m}})
	}
	if how != "unconnected" {
		if err := reduce(1); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	if how == "unconnected" {
		if _, err := fmt.Scanln(new(string)); err != nil {
			return err
		}
	}
	var err error
	switch {
	case how == "message" && e.Rank() != 0:
		msg := engine.Message{Peer: 0, Tag: 1, Mem: m}
		e.Post(&msg)
		err = e.Finish(ctx, &msg)
	case how == "absent" && e.Rank() == e.Size()-1, how == "message":
		// The other ranks wait for this rank, which calls nothing until it is notified.
		select {
		case <-e.Failed():
			err = e.Failure()
		case <-ctx.Done():
			err = ctx.Err()
		}
	default:
		for seq := uint64(2); err == nil; seq++ {
			err = reduce(seq)
		}
	}
	f := (*engine.Failure)(nil)
	if !errors.As(err, &f) || !errors.Is(f, engine.ErrRankLost) {
		return fmt.Errorf("it ended with %w", err)
	}
	fmt.Printf("lost %v, because %s\n", f.Lost, f.Reason())
	// If this rank left now, its neighbours could report it as lost before they notice the other
	// host.
	_, err = fmt.Scanln(new(string))
	return err
}

// TestHostLoss unplugs hosts, or separates two of them, without notice. Every blocked rank must be
// notified which ranks are lost, long before operations or the kernel time out.
func TestHostLoss(t *testing.T) {
	var all sync.WaitGroup // of the cases, which mostly wait
	for _, c := range []struct {
		name  string
		how   string
		hosts []int // by rank
		// cut are the hosts that are unplugged. apart are hosts that cannot reach each other any
		// more.
		cut, apart []int
		// gone returns the ranks that the ranks of a host may report as lost.
		gone func(host int) []int
		tls  bool
		long bool
	}{
		{name: "busy", how: "busy", hosts: []int{0, 0, 1, 1}, cut: []int{1}, gone: other(2, 2)},
		{name: "busy, the host of rank 0", how: "busy", hosts: []int{0, 1, 0, 1, 1}, cut: []int{0}, gone: zeroOr(1, 3, 4), long: true},
		{name: "busy, TLS", how: "busy", hosts: []int{0, 0, 1, 1}, cut: []int{1}, gone: other(2, 2), tls: true, long: true},
		{name: "waiting", how: "absent", hosts: []int{0, 0, 1, 1}, cut: []int{1}, gone: other(2, 2)},
		{name: "waiting, no two on a host", how: "absent", hosts: []int{0, 1, 2}, cut: []int{2}, gone: func(h int) []int {
			if h == 2 {
				return []int{0, 1}
			}
			return []int{2}
		}, long: true},
		{name: "message", how: "message", hosts: []int{0, 1}, cut: []int{1}, gone: other(1, 1)},
		{name: "before the first operation", how: "unconnected", hosts: []int{0, 0, 1, 1}, cut: []int{1}, gone: other(2, 2)},
		{name: "two hosts apart", how: "busy", hosts: []int{0, 1, 2, 1, 2}, apart: []int{1, 2}, gone: func(int) []int {
			return []int{1, 2, 3, 4}
		}},
	} {
		all.Go(func() {
			t.Run(c.name, func(t *testing.T) {
				if c.long && testing.Short() {
					t.Skip("not under -short")
				}
				n := newNetwork(t, slices.Max(c.hosts)+1, false)
				env := []string{"TUTTI_TEST_HOW=" + c.how, "TUTTI_TEST_SILENCE=3s"}
				if c.tls {
					env = append(env, encrypted(t)...)
				}
				w := n.start(c.hosts, "vanish", env...)
				for _, out := range w.out {
					out.Await(t, "ready", 1)
				}
				for r, out := range w.out {
					if strings.Contains(out.String(), "lost") {
						t.Errorf("rank %d has lost somebody before anything happened: %s", r, out)
					}
				}
				for _, h := range c.cut {
					if err := n.Disconnect(h); err != nil {
						t.Fatal(err)
					}
				}
				if err := n.Isolate(c.apart...); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				if c.how == "unconnected" {
					w.say(t, "go")
				}
				for _, out := range w.out {
					out.Await(t, "because", 1)
				}
				t.Logf("all had heard of it after %v", time.Since(begin).Round(time.Millisecond))
				w.say(t, "leave")
				w.wait(t)
				for r, out := range w.out {
					text := out.String()
					var lost int
					_, after, found := strings.Cut(text, "lost [")
					if _, err := fmt.Sscan(strings.TrimRight(strings.SplitN(after, "]", 2)[0], " "), &lost); !found || err != nil {
						t.Errorf("rank %d did not say who is lost: %s", r, text)
						continue
					}
					if want := c.gone(c.hosts[r]); !slices.Contains(want, lost) {
						t.Errorf("rank %d believes that rank %d is lost, want one of %v: %s", r, lost, want, text)
					}
					t.Logf("rank %d: %s", r, after)
				}
			})
		})
	}
	all.Wait()
}

// other is the gone function for two hosts: each loses the other's ranks. The ranks below first are
// on the first host.
func other(first, second int) func(int) []int {
	return func(host int) (list []int) {
		from, to := 0, first
		if host == 0 {
			from, to = first, first+second
		}
		for r := from; r < to; r++ {
			list = append(list, r)
		}
		return list
	}
}

// zeroOr is the gone function for a host with rank 0. The other hosts lose one of its ranks, and
// its ranks lose the given ones.
func zeroOr(others ...int) func(int) []int {
	return func(host int) []int {
		if host == 0 {
			return others
		}
		return []int{0, 2}
	}
}
