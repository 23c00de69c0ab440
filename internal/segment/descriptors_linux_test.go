package segment

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/internal/proctest"
	"golang.org/x/sys/unix"
)

// TestDescriptors passes descriptors that nobody takes, in every way in which that can
// happen. None may stay open.
func TestDescriptors(t *testing.T) {
	const name = "tutti-descriptors"
	s, err := New(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := countDescriptors(t, name)
	ended, cancel := context.WithCancel(t.Context())
	cancel()

	pass := func(t *testing.T, l *Link, scope, key string) {
		t.Helper()
		if err := l.Pass(scope, key, s); err != nil {
			t.Fatal(err)
		}
	}
	// raw sends a message that Pass would not, with so many descriptors.
	raw := func(t *testing.T, l *Link, text string, fds int) {
		t.Helper()
		var list []int
		for range fds {
			list = append(list, s.FD())
		}
		if _, _, err := l.c.WriteMsgUnix([]byte(text), unix.UnixRights(list...), nil); err != nil {
			t.Fatal(err)
		}
	}
	// arrived waits until the near side has received all that was sent before.
	arrived := func(t *testing.T, near, far *Link) {
		t.Helper()
		pass(t, far, Root, "last")
		last, err := near.Take(t.Context(), Root, "last")
		if err != nil {
			t.Fatal(err)
		}
		if err := last.Close(); err != nil {
			t.Fatal(err)
		}
	}
	giveUp := func(t *testing.T, near *Link, scope, key string) {
		t.Helper()
		if _, err := near.Take(ended, scope, key); !errors.Is(err, context.Canceled) {
			t.Fatalf("Take with a context that has ended: %v", err)
		}
	}
	for _, c := range []struct {
		name string
		open int // descriptors that the link still holds
		do   func(t *testing.T, near, far *Link)
	}{
		{"taken", 0, func(*testing.T, *Link, *Link) {}},
		{"not taken yet", 1, func(t *testing.T, _, far *Link) { pass(t, far, Root, "key") }},
		{"in a scope that is not open", 0, func(t *testing.T, _, far *Link) { pass(t, far, "group", "key") }},
		{"in a scope that is closed afterwards", 0, func(t *testing.T, near, far *Link) {
			near.Open("group")
			pass(t, far, "group", "key")
			arrived(t, near, far)
			if got := countDescriptors(t, name) - before; got != 1 {
				t.Errorf("%d descriptors are open while the scope is", got)
			}
			near.Drop("group")
		}},
		{"in a scope that was closed before", 0, func(t *testing.T, near, far *Link) {
			near.Open("group")
			near.Drop("group")
			pass(t, far, "group", "key")
			if _, err := near.Take(t.Context(), "group", "key"); err == nil {
				t.Error("a segment was taken in a scope that is closed")
			}
		}},
		{"after it was given up", 0, func(t *testing.T, near, far *Link) {
			giveUp(t, near, Root, "key")
			pass(t, far, Root, "key")
		}},
		{"before it was given up", 0, func(t *testing.T, near, far *Link) {
			near.Open("group")
			pass(t, far, "group", "key")
			arrived(t, near, far)
			// Take may choose the descriptor, although its context has ended.
			if s, err := near.Take(ended, "group", "key"); err == nil {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"given up in a scope that is closed", 0, func(t *testing.T, near, far *Link) {
			near.Open("group")
			giveUp(t, near, "group", "key")
			near.Drop("group")
			pass(t, far, "group", "key")
		}},
		{"twice", 1, func(t *testing.T, _, far *Link) {
			pass(t, far, Root, "key")
			pass(t, far, Root, "key")
		}},
		{"with a note", 0, func(t *testing.T, _, far *Link) { raw(t, far, "\x00note", 1) }},
		{"with a goodbye", 0, func(t *testing.T, _, far *Link) { raw(t, far, "\x00", 1) }},
		{"without a key", 0, func(t *testing.T, _, far *Link) { raw(t, far, Root, 1) }},
		{"with a key that is too long", 0, func(t *testing.T, _, far *Link) {
			raw(t, far, Root+separator+strings.Repeat("k", 5000), 1)
		}},
		{"two at once", 0, func(t *testing.T, _, far *Link) { raw(t, far, Root+separator+"key", 2) }},
		{"more than there is room for", 0, func(t *testing.T, _, far *Link) {
			if proctest.Emulated() {
				t.Skip("the emulator keeps descriptors for which the program has no room")
			}
			raw(t, far, Root+separator+"key", 9)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			near, far := pair(t)
			close(far.gone) // nobody listens on this side
			go near.listen(7, News{Note: func(int, []byte) {}, Gone: func(int) {}})
			c.do(t, near, far)
			arrived(t, near, far)
			if got := countDescriptors(t, name) - before; got != c.open {
				t.Errorf("%d descriptors stay open, want %d", got, c.open)
			}
			if err := near.Close(); err != nil {
				t.Fatal(err)
			}
			if got := countDescriptors(t, name) - before; got != 0 {
				t.Errorf("%d descriptors stay open after Close", got)
			}
			near.Drop("group") // may come after Close
			if err := far.c.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// countDescriptors is how many descriptors of memory files of a name this process has.
func countDescriptors(t *testing.T, name string) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "/memfd:"+name) {
			n++
		}
	}
	return n
}
