package tcp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// testMessage is a message and the number from which its body is made.
type testMessage struct {
	transport.Message
	step int
}

func newSend(from, to, tag, step, size int) *testMessage {
	m := &testMessage{step: step}
	m.Send, m.Peer, m.Tag, m.Body = true, to, tag, make([]byte, size)
	m.Kind = uint8(step)
	fill(m.Body, from, to, step)
	return m
}

func newReceive(from, tag, step, size int) *testMessage {
	m := &testMessage{step: step}
	m.Peer, m.Tag, m.Body = from, tag, make([]byte, size)
	return m
}

func (m *testMessage) check(me int) error {
	if m.Send {
		return nil
	}
	if m.Kind != uint8(m.step) || m.Len != len(m.Body) || m.Peer != transport.AnyRank && m.From != m.Peer {
		return fmt.Errorf("the message with tag %d from %d has kind %d, not %d, and length %d, not %d, from %d",
			m.Tag, m.Peer, m.Kind, uint8(m.step), m.Len, len(m.Body), m.From)
	}
	return checkBody(m.Body, m.From, me, m.step)
}

// finishAll finishes messages in a random order, each in a goroutine of its own if spread is true. A
// single goroutine finishes the receives first, because only Finish of a receive clears the sender.
func finishAll(m *Mesh, w *wait.Waiter, list []*testMessage, spread bool) error {
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	slices.SortStableFunc(list, func(x, y *testMessage) int {
		switch {
		case x.Send == y.Send:
			return 0
		case x.Send:
			return 1
		}
		return -1
	})
	var wg sync.WaitGroup
	errs := make([]error, len(list))
	for i, x := range list {
		if spread {
			wg.Go(func() {
				if errs[i] = m.Finish(newWaiter(), &x.Message); errs[i] == nil {
					errs[i] = x.check(m.Rank())
				}
			})
			continue
		}
		if errs[i] = m.Finish(w, &x.Message); errs[i] == nil {
			errs[i] = x.check(m.Rank())
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

func TestMessages(t *testing.T) {
	sizes := []int{0, 1, 100, smallBody + 1, 70_000, maxPieceBytes - 1, maxPieceBytes, maxPieceBytes + 1, 2*maxPieceBytes + 7}
	type way struct {
		ranks  int
		spread bool
		opts   Options
	}
	ways := make(map[string]way)
	for _, spread := range []bool{false, true} {
		for n := 1; n <= 4; n++ {
			ways[fmt.Sprintf("%d ranks, many goroutines: %v", n, spread)] = way{n, spread, testOptions()}
		}
		for name, opts := range kinds(t) {
			ways[fmt.Sprintf("%s, many goroutines: %v", name, spread)] = way{2, spread, opts}
		}
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			n := way.ranks
			world := newWorld(t, n, way.opts)
			world.run(t, func(m *Mesh, w *wait.Waiter) error {
				me := m.Rank()
				for range 1 + way.ranks%2 {
					var list []*testMessage
					// Every rank posts to and from every rank including itself, with interleaved
					// tags, each tag in order.
					for peer := range n {
						for step, size := range sizes {
							for tag := range 2 {
								list = append(list, newSend(me, peer, tag, 10*step+tag, size), newReceive(peer, tag, 10*step+tag, size))
							}
						}
					}
					for _, x := range list {
						m.Post(&x.Message)
					}
					// A single goroutine may finish the receives in any order without a deadlock: all
					// messages are posted, and the driver moves all of them.
					if err := finishAll(m, w, list, way.spread); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

func TestManyMessages(t *testing.T) {
	const count = 5000
	world := newWorld(t, 2, testOptions())
	world.run(t, func(m *Mesh, w *wait.Waiter) error {
		var list []*testMessage
		for i := range count {
			if m.Rank() == 0 {
				list = append(list, newSend(0, 1, i%7, i, i%50))
			} else {
				// The receives are posted in another order of tags, each tag in order.
				j := (i%(count/7))*7 + i/(count/7)
				if i < count/7*7 {
					list = append(list, newReceive(0, j%7, j, j%50))
				} else {
					list = append(list, newReceive(0, i%7, i, i%50))
				}
			}
		}
		for _, x := range list {
			m.Post(&x.Message)
		}
		return finishAll(m, w, list, false)
	})
}
