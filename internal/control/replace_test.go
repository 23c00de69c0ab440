package control

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-go/tutti/internal/proctest"
)

// TestReplace ends a rank that has joined and waits for the other ranks. A second process of the
// rank is refused before that, and joins afterwards.
func TestReplace(t *testing.T) {
	const size = 3
	all, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	addr := proctest.FreeAddr(t)
	type outcome struct {
		m   *Member
		err error
	}
	join := func(ctx context.Context, rank int) chan outcome {
		done := make(chan outcome, 1)
		go func() {
			m, err := Join(ctx, Config{
				Rank: rank, Size: size, Addr: addr, Secret: []byte("secret"), Blob: []byte{byte(rank)}, Logger: slog.New(slog.DiscardHandler),
			})
			done <- outcome{m, err}
		}()
		return done
	}
	root := join(all, 0)
	// Of two processes of rank 1 one joins and the other is refused.
	first, leave := context.WithCancel(all)
	defer leave()
	a, b := join(first, 1), join(first, 1)
	var got outcome
	waits := a
	select {
	case got = <-a:
		waits = b
	case got = <-b:
	}
	if got.err == nil || !strings.Contains(got.err.Error(), "rank 1 has joined already, from 127.0.0.1:") || !errors.As(got.err, new(*TakenError)) {
		t.Fatalf("the second process of a rank: %v", got.err)
	}
	leave()
	if got = <-waits; !errors.Is(got.err, context.Canceled) {
		t.Fatal(got.err)
	}
	ends := []chan outcome{root, join(all, 1), join(all, 2)}
	for rank, end := range ends {
		got := <-end
		if got.err != nil {
			t.Errorf("rank %d: %v", rank, got.err)
			continue
		}
		for r, blob := range got.m.Blobs() {
			if len(blob) != 1 || blob[0] != byte(r) {
				t.Errorf("rank %d has %v of rank %d", rank, blob, r)
			}
		}
		defer func() {
			if err := got.m.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}()
	}
	// Members close from the last to the first, because rank 0 waits for the others.
}

// TestGiveUp lets rank 0's Join time out. The ranks that have joined get the reason.
func TestGiveUp(t *testing.T) {
	addr := proctest.FreeAddr(t)
	cfg := Config{Size: 3, Addr: addr, Secret: []byte("secret"), Logger: slog.New(slog.DiscardHandler)}
	waits := make(chan error, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 { // one joins; the refusal of the other shows that
		go func() {
			one := cfg
			one.Rank = 1
			_, err := Join(t.Context(), one)
			waits <- err
			cancel()
		}()
	}
	_, err := Join(ctx, cfg)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "2 of 3 ranks joined; rank 2 missing") {
		t.Errorf("rank 0: %v", err)
	}
	for _, want := range []string{"has joined already", "rank 0 has stopped waiting for ranks to join: 2 of 3 ranks joined; rank 2 missing"} {
		if err := <-waits; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rank 1: %v, want %q", err, want)
		}
	}
}

// TestCompleteAtDeadline ends the context of rank 0 when all ranks have joined. The ranks have
// their welcome, so rank 0's Join must succeed as well.
func TestCompleteAtDeadline(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 64 { // the order of the two events is random
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		m, err := Join(ctx, Config{Size: 1, Addr: l.Addr().String(), Listener: l, Secret: []byte("secret"), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestFailFormingReplaced lets a rank of another version connect while the connection of its
// predecessor is about to end, or does not end.
func TestFailFormingReplaced(t *testing.T) {
	for name, ends := range map[string]bool{"ends": true, "stays": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &joinServer{
					member: &Member{cfg: Config{Size: 3}}, conns: make([]*conn, 3), joinedOnce: make([]bool, 3), joined: 2, formFailure: newFormFailure(3), complete: make(chan struct{}),
				}
				h.member.blobs = make([][]byte, 3)
				a, b := net.Pipe()
				defer b.Close()
				h.conns[1] = newConn(a)
				if ends {
					time.AfterFunc(replaceTime/2, func() { h.removeRank(1) })
				}
				if h.failForming(1, "versions differ") != ends || h.formFailure.reason != map[bool]string{true: "versions differ"}[ends] {
					t.Errorf("the job cannot be formed because of %q", h.formFailure.reason)
				}
			})
		})
	}
}
