package tcp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/wait"
)

func FuzzHeader(f *testing.F) {
	var b [headerBytes]byte
	(&header{kind: kindData, length: 1 << 30, id: 7, tag: -3}).put(b[:])
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < headerBytes {
			return
		}
		var h header
		if h.parse(in) != nil {
			return
		}
		if h.kind == 0 || h.kind >= kindEnd || h.length < 0 || h.length > maxBody {
			t.Fatalf("accepted %+v", h)
		}
		var out [headerBytes]byte
		h.put(out[:])
		if !bytes.Equal(out[:32], in[:32]) {
			t.Fatalf("%x is read as %+v", in[:32], h)
		}
	})
}

func FuzzHello(f *testing.F) {
	h := hello{lane: laneMessages, from: 3, to: 1, size: 4}
	b := h.encode()
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < helloBytes {
			return
		}
		var h hello
		got := [helloBytes]byte(in)
		if h.decode(&got) != nil {
			return
		}
		if h.from == h.to || h.from < 0 || h.to < 0 || h.from >= h.size || h.to >= h.size || h.lane >= lanes {
			t.Fatalf("accepted %+v", h)
		}
		if h.encode() != got {
			t.Fatalf("%x is read as %+v", got, h)
		}
	})
}

// script is a connection on which the other side says what it was told to.
type script struct {
	io.Reader
	io.Writer
}

// FuzzHandshake feeds both sides of the handshake with a stranger's words.
func FuzzHandshake(f *testing.F) {
	h := hello{from: 0, to: 1, size: 2}
	b := h.encode()
	f.Add(append(b[:], make([]byte, proofBytes)...))
	f.Add(challenge(statusOK, make([]byte, 32), make([]byte, 32)))
	f.Fuzz(func(t *testing.T, in []byte) {
		var h hello
		accept := func(*hello) error { return nil }
		if err := examine(script{bytes.NewReader(in), io.Discard}, &h, testSecret, nil, accept); err == nil {
			t.Fatal("a stranger was believed")
		}
		h = hello{from: 0, to: 1, size: 2}
		if _, err := greet(script{bytes.NewReader(in), io.Discard}, &h, testSecret, nil); err == nil {
			t.Fatal("a strange listener was believed")
		}
	})
}

func FuzzAddr(f *testing.F) {
	f.Add("127.0.0.1:80/0102030405060708")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := parseAddr(s)
		if err != nil {
			return
		}
		if again, err := parseAddr(a.String()); err != nil || again != a {
			t.Fatalf("%q is read as %v and then as %v: %v", s, a, again, err)
		}
	})
}

// FuzzListener throws bytes at a live listener whose job goes on.
func FuzzListener(f *testing.F) {
	opts := testOptions()
	opts.HandshakeTimeout = time.Second
	world := newWorld(f, 2, opts)
	h := hello{from: 1, to: 0, size: 2, job: world.listeners[0].job, group: world.meshes[0].key.group}
	b := h.encode()
	f.Add(b[:])
	f.Add([]byte("GET / HTTP/1.0\r\n\r\n"))
	f.Add(append(b[:], make([]byte, 100)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		c := knockOn(t, world.listeners[0])
		_, _ = c.Write(in)
		_ = c.(*net.TCPConn).CloseWrite()
		said, err := io.ReadAll(c)
		if err != nil && !errors.Is(err, io.EOF) && len(said) > challengeBytes {
			t.Fatalf("it said %d bytes: %v", len(said), err)
		}
		if len(said) > challengeBytes {
			t.Fatalf("a stranger was told %d bytes", len(said))
		}
		world.run(t, func(m *Mesh, w *wait.Waiter) error { return ring(m, w, []int{3}) })
	})
}
