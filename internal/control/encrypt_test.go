package control

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/jobtls"
	"github.com/tutti-go/tutti/internal/proctest"
)

// newTLS makes a job certificate and its TLS configuration.
func newTLS(t testing.TB) *tls.Config {
	t.Helper()
	cert, key, err := jobtls.NewCertificate(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	config, err := jobtls.Config(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// TestEncrypted runs Gather, Report, a loss and Close over TLS.
func TestEncrypted(t *testing.T) {
	members, log := joinAllTLS(t, 4, newTLS(t))
	all := []int{0, 1, 2, 3}
	told := make(chan *engine.Failure, 8)
	var ranks sync.WaitGroup
	for r, m := range members {
		ranks.Go(func() {
			// The blob exceeds a TLS record and a socket buffer.
			blob := bytes.Repeat([]byte{byte(r)}, 1<<20)
			blobs, err := m.Gather(t.Context(), "a", all, blob)
			if err != nil || len(blobs) != 4 || !bytes.Equal(blobs[r], blob) {
				t.Errorf("rank %d: %v", r, err)
			}
		})
		m.Watch("g", all, func(f *engine.Failure) { told <- f })
	}
	ranks.Wait()
	if f := members[2].Report("g", &engine.Failure{Kind: engine.ErrAborted, Facts: engine.Facts{Text: "no"}}); f.Reason() != "no" {
		t.Error(f)
	}
	for range 3 { // the other ranks
		if f := <-told; f.Reason() != "no" {
			t.Error(f)
		}
	}
	for _, m := range members[:3] {
		m.Watch("h", all, func(f *engine.Failure) { told <- f })
	}
	members[3].rootConn.Close()
	for range 3 {
		if f := <-told; !errors.Is(f, engine.ErrRankLost) || len(f.Lost) != 1 || f.Lost[0] != 3 {
			t.Error(f)
		}
	}
	leave(t, members[:3])
	if lines := log.Lines(); len(lines) != 0 {
		t.Errorf("%q", lines)
	}
}

// TestEncryptedRefusals connects peers that must not join to a job with TLS. Each leaves one line
// in the log, and the job continues.
func TestEncryptedRefusals(t *testing.T) {
	encrypt := newTLS(t)
	members, log := joinAllTLS(t, 2, encrypt)
	defer leave(t, members)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	lines := 0
	// refused waits for one more line in the log.
	refused := func(says string) {
		t.Helper()
		lines++
		for len(log.Lines()) < lines {
			if ctx.Err() != nil {
				t.Fatalf("not a line for %q: %q", says, log.Lines())
			}
			time.Sleep(time.Millisecond)
		}
		if got := log.Lines(); len(got) != lines || !strings.Contains(got[lines-1], says) {
			t.Errorf("%d lines, the last %q, want %d and %q", len(got), got[len(got)-1], lines, says)
		}
	}
	join := func(says string, change func(*Config)) {
		t.Helper()
		cfg := members[1].cfg
		change(&cfg)
		if _, err := Join(ctx, cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	join("and rank 1 does not; set on all", func(c *Config) { c.TLS = nil })
	refused("it does not encrypt, and this job does; set on all")
	join("does not have this rank's certificate; all ranks must", func(c *Config) { c.TLS = newTLS(t) })
	refused("it does not accept this job's certificate; all ranks must")
	join("does not know the job's secret", func(c *Config) { c.Secret = []byte("wrong") })
	refused("does not know the job's secret")
	bare := encrypt.Clone()
	bare.Certificates = nil
	nobody, err := net.Dial("tcp", members[1].cfg.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	up := newConn(nobody)
	if _, err := up.receive(maxHello); err != nil {
		t.Fatal(err)
	}
	if err := up.encrypt(tls.Client(nobody, bare)); err != nil {
		t.Fatal(err) // the server rejects the certificate later
	}
	refused("client didn't provide a certificate")
	for garbage, says := range map[string]string{
		"GET / HTTP/1.1\r\n\r\n": "it does not speak TLS, and this job does",
		"\x00\x00\x00\x02{}":     "it does not encrypt, and this job does",
		"\x16\x03\x01\xff\xff":   "it does not speak TLS, and this job does",
		"\x16\x03\x01":           "no encrypted connection",
		"":                       "no encrypted connection",
	} {
		c, err := net.Dial("tcp", members[1].cfg.Addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, garbage)
		_ = c.(*net.TCPConn).CloseWrite()
		refused(says)
		c.Close()
	}
	var ranks sync.WaitGroup
	for r, m := range members {
		ranks.Go(func() {
			if _, err := m.Gather(ctx, "after", []int{0, 1}, nil); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	ranks.Wait()
}

// TestEncryptedOrNot lets only one of rank 0 and rank 1 use TLS. Both errors say what to do.
func TestEncryptedOrNot(t *testing.T) {
	for _, root := range []bool{true, false} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		log := new(proctest.Output)
		cfg := Config{Size: 2, Addr: l.Addr().String(), Secret: []byte("secret"), Logger: slog.New(slog.NewTextHandler(log, nil))}
		first, second := cfg, cfg
		first.Listener, second.Rank = l, 1
		if root {
			first.TLS = newTLS(t)
		} else {
			second.TLS = newTLS(t)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := Join(ctx, first)
			ended <- err
		}()
		_, err = Join(t.Context(), second)
		if !errors.Is(err, engine.ErrMismatch) || !strings.Contains(err.Error(), tlsHint) {
			t.Errorf("rank 0 encrypts: %v; rank 1: %v", root, err)
		}
		for len(log.Lines()) == 0 { // until rank 0 has read rank 1's hello
			time.Sleep(time.Millisecond)
		}
		cancel()
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "rank 1 missing (127.0.0.1:") ||
			!strings.Contains(err.Error(), tlsHint) {
			t.Errorf("rank 0 encrypts: %v; rank 0: %v", root, err)
		}
		if lines := log.Lines(); len(lines) != 1 {
			t.Errorf("%q", lines)
		}
	}
}

// slowConn is a connection whose first write is delayed.
type slowConn struct {
	net.Conn
	once sync.Once
}

func (h *slowConn) Write(b []byte) (int, error) {
	h.once.Do(func() { time.Sleep(helloTime * 7 / 10) })
	return h.Conn.Write(b)
}

// TestEncryptedSilent opens a silent connection to a job with TLS while a rank connects slowly.
// The silent connection is closed in time, and the rank joins.
func TestEncryptedSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorm(1)
		g := &virtualListener{arrive: make(chan net.Conn, 2), shut: make(chan struct{})}
		log := new(proctest.Output)
		cfg := Config{
			Size: 2, Listener: g, Secret: []byte("secret"), TLS: newTLS(t), HostTimeout: 24 * time.Hour,
			Logger: slog.New(slog.NewTextHandler(log, nil)),
		}
		root := newMember(cfg)
		cfg.Rank = 1
		rank := newMember(cfg)
		silent := s.connect(1, g)
		var ranks sync.WaitGroup
		ranks.Go(func() {
			if err := root.serveJoin(t.Context()); err != nil {
				t.Error(err)
			}
		})
		if err := rank.joinOver(t.Context(), &slowConn{Conn: s.connect(1, g)}); err != nil {
			t.Fatal(err)
		}
		ranks.Wait()
		if lines := log.Lines(); len(lines) != 0 {
			t.Errorf("it was sent away early: %q", lines)
		}
		time.Sleep(helloTime)
		if lines := log.Lines(); len(lines) != 1 || !strings.Contains(lines[0], "no encrypted connection") {
			t.Errorf("%q", lines)
		}
		if said, err := io.ReadAll(silent); err != nil || !bytes.Contains(said, []byte(challenge)) {
			t.Errorf("%q, %v", said, err)
		}
		ranks.Go(func() { _ = root.Close(t.Context()) })
		if err := rank.Close(t.Context()); err != nil {
			t.Error(err)
		}
		ranks.Wait()
	})
}

// recordingListener records what its connections read and write.
type recordingListener struct {
	net.Listener
	mu   sync.Mutex
	seen []byte // guarded by mu
}

type tappedConn struct {
	net.Conn
	*recordingListener
}

func (l *recordingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return tappedConn{c, l}, err
}

func (l *recordingListener) keep(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, b...)
}

func (c tappedConn) Close() error { return c.Conn.Close() }

func (c tappedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.keep(b[:n])
	return n, err
}

func (c tappedConn) Write(b []byte) (int, error) {
	c.keep(b)
	return c.Conn.Write(b)
}

// TestRecorded checks that an observer sees the ranks' data only without TLS.
func TestRecorded(t *testing.T) {
	for _, encrypt := range []*tls.Config{nil, newTLS(t)} {
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l := &recordingListener{Listener: inner}
		members, errs := make([]*Member, 2), make([]error, 2)
		var ranks sync.WaitGroup
		for r := range members {
			ranks.Go(func() {
				cfg := Config{
					Rank: r, Size: 2, Addr: inner.Addr().String(), Secret: []byte("secret"), TLS: encrypt,
					Logger: slog.New(slog.DiscardHandler),
				}
				if r == 0 {
					cfg.Listener = l
				}
				if members[r], errs[r] = Join(t.Context(), cfg); errs[r] == nil {
					_, errs[r] = members[r].Gather(t.Context(), "a word of ours", []int{0, 1}, nil)
				}
			})
		}
		ranks.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		leave(t, members)
		if got := bytes.Contains(l.seen, []byte("a word of ours")); got != (encrypt == nil) {
			t.Errorf("encrypted: %v; it was seen: %v", encrypt != nil, got)
		}
		if !bytes.Contains(l.seen, []byte(challenge)) {
			t.Error("nothing was seen")
		}
	}
}

// TestRelayed relays between a rank and rank 0 with the job's certificate. The proofs are bound to
// the TLS sessions, so the ranks do not accept them.
func TestRelayed(t *testing.T) {
	encrypt := newTLS(t)
	members, _ := joinAllTLS(t, 2, encrypt)
	defer leave(t, members)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	passed := make(chan error, 1)
	go func() { passed <- relay(l, members[1].cfg.Addr, encrypt) }()
	cfg := members[1].cfg
	cfg.Addr = l.Addr().String()
	if _, err := Join(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "does not know the job's secret") {
		t.Error(err) // if the proof were accepted, rank 1 would have joined already
	}
	if err := <-passed; err != nil {
		t.Error(err)
	}
}

// relay forwards the handshake of one connection, for which it ends TLS on both sides. It runs in
// a goroutine of the test and returns its first error.
func relay(l net.Listener, addr string, encrypt *tls.Config) error {
	defer l.Close()
	near, err := l.Accept()
	if err != nil {
		return err
	}
	defer near.Close()
	far, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer far.Close()
	up, down := newConn(far), newConn(near)
	f, err := up.receive(maxHello)
	if err == nil {
		err = down.send(f)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(down.encrypt(tls.Server(near, encrypt)), up.encrypt(tls.Client(far, encrypt))); err != nil {
		return fmt.Errorf("it could not come between: %w", err)
	}
	if f, err = down.receive(maxHello); err == nil {
		err = up.send(f)
	}
	if err == nil {
		if f, err = up.receive(maxHello); err == nil {
			err = down.send(f)
		}
	}
	return err
}
