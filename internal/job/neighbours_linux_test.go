package job

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/segment"
	"github.com/tutti-go/tutti/internal/watch"
)

// A keeper is a listener that keeps the connections that come to it.
type keeper struct {
	net.Listener
	conns chan net.Conn
}

func (k *keeper) Accept() (net.Conn, error) {
	c, err := k.Listener.Accept()
	if err == nil {
		k.conns <- c
	}
	return c, err
}

// TestNeighbours has rank 3 end, and rank 1 because it was told of that. Rank 0 is
// gone: rank 2 hears of both from its neighbours, names the first, and has passed
// it on before its groups hear of it.
func TestNeighbours(t *testing.T) {
	for name, early := range map[string]bool{"before rank 0": true, "after rank 0": false} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			member, up := control(ctx, t)
			j := &Job{cfg: Config{Rank: 2, Size: 4}, member: member}
			n := &j.near
			n.j = j
			link, notes := listener(ctx, t)
			defer link.Close()
			n.meet(map[int]*segment.Link{1: link})

			var first *engine.Failure
			j.member.Watch("g", []int{1, 2, 3}, func(f *engine.Failure) {
				if first != nil {
					return
				}
				first = f
				select {
				case got := <-notes:
					if got != "3" {
						t.Errorf("a neighbour was told of %q first", got)
					}
				case <-ctx.Done():
					t.Error("no neighbour was told")
				}
			})
			hear := func() {
				n.hear(1, []byte("2")) // nonsense
				n.hear(1, []byte("4"))
				n.hear(1, []byte("3"))
				n.end(1)
				n.end(3)
			}
			if early {
				hear()
			}
			up.Close() // as the end of rank 0's process would
			n.await()
			if !early {
				hear()
			}
			if first == nil || !slices.Equal(first.Lost, []int{2}) {
				t.Errorf("the group has ended because of %v", first)
			}
			if lost := j.Lost(); !slices.Equal(lost, []int{0, 1, 3}) {
				t.Errorf("%v are lost", lost)
			}
		})
	}
}

// control is rank 2's end of a control channel of four, and rank 0's end of its
// connection.
func control(ctx context.Context, t *testing.T) (member *watch.Member, up net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hub := &keeper{l, make(chan net.Conn, 10)}
	members := make([]*watch.Member, 4)
	var joining sync.WaitGroup
	for r := range members {
		joining.Go(func() {
			cfg := watch.Config{Rank: r, Size: len(members), Addr: l.Addr().String(), Logger: slog.New(slog.DiscardHandler)}
			if r == 0 {
				cfg.Listener = hub
			}
			var err error
			if members[r], err = watch.Join(ctx, cfg); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
		if r == 0 {
			continue
		}
		if c := <-hub.conns; r == 2 { // one after another, so that this is known
			up = c
		}
	}
	joining.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for _, m := range slices.Backward(members) { // rank 0 waits for the others
			if err := m.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	return members[2], up
}

// listener is a link, and what its other end is told.
func listener(ctx context.Context, t *testing.T) (*segment.Link, <-chan string) {
	t.Helper()
	var doors [2]*segment.Door
	var links [2]map[int]*segment.Link
	for i := range doors {
		var err error
		if doors[i], err = segment.OpenDoor(); err != nil {
			t.Skip("no shared memory:", err)
		}
		defer doors[i].Close()
	}
	notes := make(chan string, 10)
	var meeting sync.WaitGroup
	for i, d := range doors {
		meeting.Go(func() {
			links[i], _ = d.Meet(ctx, i, map[int]segment.Invitation{1 - i: doors[1-i].Invitation()}, segment.News{
				Note: func(_ int, note []byte) { notes <- string(note) }, Gone: func(int) {},
			})
		})
	}
	meeting.Wait()
	if links[0][1] == nil || links[1][0] == nil {
		t.Fatal("they have not met")
	}
	t.Cleanup(func() { links[1][0].Close() })
	return links[0][1], notes
}
