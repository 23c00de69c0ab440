package tcp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// FuzzHeader checks that a header that parse accepts is valid and encodes to the same bytes.
func FuzzHeader(f *testing.F) {
	var b [headerBytes]byte
	(&header{kind: kindData, elem: 9, length: 1 << 30, id: 7, tag: -3}).put(b[:])
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

// FuzzHello checks that a hello that decode accepts is valid and encodes to the same bytes.
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
		if h.from == h.to || h.from < 0 || h.to < 0 || h.from >= h.size || h.to >= h.size || h.lane > laneControl {
			t.Fatalf("accepted %+v", h)
		}
		if h.encode() != got {
			t.Fatalf("%x is read as %+v", got, h)
		}
	})
}

// script is a connection whose peer sends a fixed sequence of bytes.
type script struct {
	io.Reader
	io.Writer
}

// FuzzHandshake runs both sides of the handshake against arbitrary bytes. Neither side may accept them.
func FuzzHandshake(f *testing.F) {
	h := hello{from: 0, to: 1, size: 2}
	b := h.encode()
	f.Add(append(b[:], make([]byte, proofBytes)...))
	f.Add(challenge(statusOK, make([]byte, 32), make([]byte, 32)))
	f.Fuzz(func(t *testing.T, in []byte) {
		var h hello
		accept := func(*hello) error { return nil }
		if err := serverHandshake(script{bytes.NewReader(in), io.Discard}, &h, testSecret, nil, accept); err == nil {
			t.Fatal("a stranger was believed")
		}
		h = hello{from: 0, to: 1, size: 2}
		if _, err := clientHandshake(script{bytes.NewReader(in), io.Discard}, &h, testSecret, nil); err == nil {
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

// FuzzListener sends arbitrary bytes to a listener of a running job. It must send no more than a challenge,
// and the job continues.
func FuzzListener(f *testing.F) {
	world := newWorld(f, 2, testOptions())
	h := hello{from: 1, to: 0, size: 2, job: world.listeners[0].job, group: world.meshes[0].key.group}
	b := h.encode()
	f.Add(b[:])
	f.Add([]byte("GET / HTTP/1.0\r\n\r\n"))
	f.Add(append(b[:], make([]byte, 100)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		c := dialListener(t, world.listeners[0])
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

// fuzzStream makes a stream of headers, some with bodies, from the fuzzer's input.
func fuzzStream(in []byte) (out []byte) {
	lengths := []int{0, 1, 9, 10, 11, 100, 1 << 20, maxBody, -1}
	for ; len(in) >= 4; in = in[4:] {
		h := header{
			kind: in[0] % (kindEnd + 1), length: lengths[int(in[1])%len(lengths)], id: uint64(in[2] % 5), tag: int(in[3] % 3),
		}
		var b [headerBytes]byte
		h.put(b[:])
		out = append(out, b[:]...)
		if h.kind == kindFrame || h.kind == kindData {
			out = append(out, make([]byte, min(max(h.length, 0), 200))...)
		}
	}
	return append(out, in...)
}

// FuzzPeer lets an authenticated peer, a goroutine, send arbitrary data on either lane and close. Every
// blocked call must end, with or without an error.
func FuzzPeer(f *testing.F) {
	l, err := Listen(testOptions())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = l.Close() })
	f.Add(byte(laneFrames), false, []byte{kindFrame, 3, 1, 0, kindFrame, 3, 2, 0, kindBye, 0, 0, 0})
	f.Add(byte(laneMessages), false, []byte{kindReady, 3, 1, 0, kindData, 3, 1, 0, kindReady, 3, 2, 1, kindWithdrawn, 0, 2, 0})
	f.Add(byte(laneMessages), false, []byte{kindReady, 3, 1, 0, kindReady, 3, 1, 1, kindData, 2, 1, 0, kindClear, 0, 1, 0})
	f.Add(byte(laneMessages), false, []byte{kindReady, 3, 1, 0, kindNote, 0, 0, 0, kindReady, 1, 2, 1, kindWithdrawn, 0, 1, 0})
	f.Add(byte(laneMessages), true, []byte("what?"))
	f.Fuzz(func(t *testing.T, lane byte, raw bool, in []byte) {
		lane %= lanes
		group := newGroup()
		m, err := l.Mesh(MeshOptions{Group: group, Rank: 1, Peers: [][]string{{"127.0.0.1:1"}, l.Addrs()}})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		m.Handle(new(testHandler))
		c, err := dialAsRank(t, l, hello{lane: lane, from: 0, to: 1, size: 2, job: l.job, group: group}, testSecret)
		if err != nil {
			t.Fatal(err)
		}
		if !raw {
			in = fuzzStream(in)
		}
		go func() {
			_, _ = c.Write(in)
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c)
		}()
		w := newWaiter()
		if lane == laneFrames {
			// A receiver that has its data receives more.
			for err == nil {
				err = m.Exchange(w, nil, &transport.Frame{Peer: 0, Body: make([]byte, 10)})
			}
		} else {
			mails := []*testMessage{newReceive(0, 0, 1, 10), newReceive(0, 1, 1, 10), newReceive(0, 1, 2, 10), newReceive(transport.AnyRank, 1, 3, 10), newSend(1, 0, 2, 1, 10)}
			for _, x := range mails {
				m.Post(&x.Message)
			}
			for _, x := range mails {
				err = errors.Join(err, m.Finish(w, &x.Message))
			}
		}
		if errors.Is(err, wait.ErrTimeout) {
			t.Fatalf("it hung: %v", err)
		}
	})
}
