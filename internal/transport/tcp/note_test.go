package tcp

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

func newNote(text string) *transport.Note {
	n := new(transport.Note)
	copy(n[:], text)
	return n
}

// TestNotes sends notes to a rank that waits for a third rank, also while messages of the third rank
// arrive all the time.
func TestNotes(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprint("busy: ", busy), func(t *testing.T) {
			world := newWorld(t, 3, testOptions())
			world.connect(t)
			heard := make(chan struct{})
			world.run(t, func(m *Mesh, w *wait.Waiter) error {
				switch m.Rank() {
				case 0:
					m.Notify(1, newNote("a"))
					m.Notify(1, newNote("b"))
					m.Notify(1, newNote("b"))
				case 1:
					var notes []string
					for i := 0; ; i++ {
						x := newReceive(2, 1, 0, 10)
						m.Post(&x.Message)
						if err := m.Finish(w, &x.Message); err != nil {
							return err
						}
						notes = append(notes, m.messages.handler.(*testHandler).heard()...)
						if len(notes) > 0 && notes[len(notes)-1] == "0: b" {
							break
						}
					}
					close(heard)
					// The second b is dropped if the first one was still queued.
					if notes = slices.Compact(notes); !slices.Equal(notes, []string{"0: a", "0: b"}) {
						return fmt.Errorf("heard %q", notes)
					}
					last := newReceive(2, 2, 0, 10)
					m.Post(&last.Message)
					for {
						x := newReceive(2, 1, 0, 10)
						m.Post(&x.Message)
						poll(t, m, func(*messenger) bool { return x.Matched.Load() || last.Matched.Load() })
						if !x.Matched.Load() {
							_ = m.Finish(newEnded(), &x.Message)
							return m.Finish(w, &last.Message)
						}
						if err := m.Finish(w, &x.Message); err != nil {
							return err
						}
					}
				case 2:
					for {
						tag := 1
						select {
						case <-heard:
							tag = 2
						default:
							if !busy {
								time.Sleep(maxSleep)
							}
						}
						x := newSend(2, 1, tag, 0, 10)
						m.Post(&x.Message)
						if err := m.Finish(w, &x.Message); err != nil || tag == 2 {
							return err
						}
					}
				}
				return nil
			})
		})
	}
}

// TestNoteDropped drops notes without a connection, to a rank that has closed its mesh, and to this rank
// itself.
func TestNoteDropped(t *testing.T) {
	world := newWorld(t, 2, testOptions())
	m := world.meshes[0]
	m.Notify(1, newNote("a"))
	m.Notify(0, newNote("a"))
	world.connect(t)
	if err := world.meshes[1].Close(); err != nil {
		t.Error(err)
	}
	x := newReceive(1, 1, 0, 0)
	m.Post(&x.Message)
	if err := m.Finish(newWaiter(), &x.Message); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("got %v", err)
	}
	m.Notify(1, newNote("a"))
	if p := m.messages.peers[1]; len(p.notes) != 0 || p.out.len() != 0 {
		t.Error("a note to a closed rank is queued")
	}
}

// TestManyNotes sends notes that the peer does not read. The number of queued notes is bounded, and
// messages arrive afterwards.
func TestManyNotes(t *testing.T) {
	world := newWorld(t, 2, testOptions())
	world.connect(t)
	m := world.meshes[0]
	p := m.messages.peers[1]
	for i, full := 0, 0; full < 10; i++ {
		m.Notify(1, newNote(fmt.Sprint(i)))
		if len(p.notes) > maxNotes || p.out.len() > maxNotes {
			t.Fatalf("%d notes and %d headers are queued", len(p.notes), p.out.len())
		}
		if len(p.notes) == maxNotes {
			full++
		}
	}
	x, y := newSend(0, 1, 1, 1, 10), newReceive(0, 1, 1, 10)
	m.Post(&x.Message)
	world.meshes[1].Post(&y.Message)
	sent := finishEach(m, x)
	if err := together(finishEach(world.meshes[1], y), sent); err != nil {
		t.Error(err)
	}
}
