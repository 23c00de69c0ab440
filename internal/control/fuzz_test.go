package control

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/overlay"
)

// wireForm encodes a frame.
func wireForm(tb testing.TB, f *frame) []byte {
	tb.Helper()
	body, err := json.Marshal(f)
	if err != nil {
		tb.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// samples returns frames of all kinds.
func samples() []*frame {
	c := &overlay.Cause{Group: "g", Members: []int{0, 1}, From: 1, Report: 3, Kind: "lost", Lost: []int{1}, Above: []int{2}, Facts: engine.Facts{Text: "because"}}
	return []*frame{
		{Kind: challenge, Version: version, Nonce: newNonce()},
		{Kind: hello, Version: version, Rank: 1, Size: 2, Nonce: newNonce(), Proof: newNonce(), Blob: []byte("me")},
		{Kind: refused, Reason: "no"},
		{Kind: welcome, Proof: newNonce(), Blobs: [][]byte{{1}, {2}}},
		{Kind: putBlob, Rank: 1, Key: "k", Members: []int{1, 0}, Blob: []byte("b")},
		{Kind: allBlobs, Key: "k", Members: []int{1, 0}, Blobs: [][]byte{{1}, nil}},
		{Kind: control, Message: &overlay.Message{Kind: overlay.Position, Rank: 1, Number: 1, Group: "g", Members: []int{0, 1}, Where: []byte("here")}},
		{Kind: control, Message: &overlay.Message{Kind: overlay.Report, Cause: c}},
		{Kind: control, Message: &overlay.Message{Kind: overlay.State, Facts: []*overlay.Message{{Kind: overlay.Failed, Cause: c}, {Kind: overlay.Lost, Ranks: []int{1}}}}},
		{Kind: control, Message: &overlay.Message{Kind: overlay.Lost, Ranks: []int{1}, Reason: "gone"}},
		{Kind: control, Message: &overlay.Message{Kind: overlay.Left, Ranks: []int{1}}},
		{Kind: control, Message: &overlay.Message{Kind: overlay.Ask, Number: 7}},
		{Kind: control, Message: &overlay.Message{Kind: overlay.Here, Number: 7}},
		{Kind: control, Message: &overlay.Message{Kind: overlay.Noted}},
		{Kind: control, Message: &overlay.Message{Kind: overlay.Drop}},
		{Kind: heartbeat},
		{Kind: control, Message: &overlay.Message{Kind: overlay.Bye}},
	}
}

// FuzzFrame decodes a stream of frames. An accepted frame encodes to the same bytes, and no frame
// longer than the limit is read.
func FuzzFrame(f *testing.F) {
	var stream []byte
	for _, s := range samples() {
		f.Add(wireForm(f, s))
		stream = append(stream, wireForm(f, s)...)
	}
	f.Add(stream)
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x00\x00\x02{}{}"))
	f.Fuzz(func(t *testing.T, in []byte) {
		const limit = 4096
		c := &conn{in: bufio.NewReader(bytes.NewReader(in))}
		for {
			got, err := c.receive(limit)
			if err != nil {
				return
			}
			again, err := (&conn{in: bufio.NewReader(bytes.NewReader(wireForm(t, got)))}).receive(maxFrame)
			if err != nil || !same(got, again) {
				t.Fatalf("%+v is sent as %+v: %v", got, again, err)
			}
		}
	})
}

// same compares frames. JSON does not distinguish empty from missing members.
func same(a, b *frame) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return reflect.DeepEqual(x, y)
}

// FuzzRank lets an authenticated rank send arbitrary frames. Rank 0 must not fail.
func FuzzRank(f *testing.F) {
	for _, s := range samples() {
		f.Add(wireForm(f, s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		m := newMember(Config{Size: 3})
		m.server = &joinServer{member: m, conns: make([]*conn, 3), gathers: make(map[string]*gatherState)}
		m.Watch("g", []int{0, 1}, ignoreFailure)
		m.HandlePositions("g", func(int, []byte) {})
		near, far := net.Pipe()
		defer far.Close()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		c := newConn(near)
		c.in = bufio.NewReader(bytes.NewReader(in))
		l := m.startNode([]*conn{nil, c})[1]
		f, err := l.receive(maxFrame)
		m.readLink(1, l, f, err)
		m.cancel()
		m.timer.Stop()
		m.wg.Wait()
	})
}

// FuzzControl sends arbitrary bytes to the listener of a running job. The answer is short, and
// the ranks can still call Gather.
func FuzzControl(f *testing.F) {
	members, _ := joinAll(f, 3)
	f.Cleanup(func() { leave(f, members) })
	for _, s := range samples() {
		f.Add(wireForm(f, s))
	}
	f.Add([]byte("GET / HTTP/1.0\r\n\r\n"))
	f.Add([]byte("\xff\xff\xff\xff"))
	turn := 0
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := net.Dial("tcp", members[1].cfg.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(deadline))
		_, _ = c.Write(in)
		_ = c.(*net.TCPConn).CloseWrite()
		// The answer is a challenge and a refusal, which may quote what was sent.
		if said, _ := io.ReadAll(c); len(said) > 4096 {
			t.Fatalf("a stranger was told %d bytes", len(said))
		}
		turn++
		var ranks sync.WaitGroup
		for r, m := range members {
			ranks.Go(func() {
				blobs, err := m.Gather(t.Context(), fmt.Sprint("turn ", turn), []int{0, 1, 2}, []byte{byte(r)})
				if err != nil || !bytes.Equal(bytes.Join(blobs, nil), []byte{0, 1, 2}) {
					t.Errorf("rank %d: %v, %v", r, blobs, err)
				}
			})
		}
		ranks.Wait()
	})
}
