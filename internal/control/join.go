package control

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/keepalive"
	"github.com/tutti-go/tutti/internal/launchenv"
)

// version is the encoding of challenge, hello and refused. It never changes. The version of the
// program is Version.
const version = 1

// helloReadTime is how long a rank that cannot join waits for rank 0 to read its hello.
const helloReadTime = time.Second

// Config says which rank joins which job.
type Config struct {
	Rank, Size int
	// Addr is the "host:port" where rank 0 listens and the other ranks connect.
	Addr string
	// Listener, on rank 0, replaces a listener on Addr.
	Listener net.Listener
	// Secret is known only to the ranks of the job.
	Secret []byte
	// TLS, if not nil, encrypts the channel. Either all ranks have it or none. See jobtls.Config.
	TLS *tls.Config
	// Version describes this rank's program. Ranks of different versions refuse each other.
	Version Version
	// Blob is this rank's data for all other ranks; see Member.Blobs.
	Blob []byte
	// Protocol1Blob replaces Blob if rank 0 uses protocol 1, which compares no versions. It makes the
	// ranks of protocol 1 fail their own Join with a reason.
	Protocol1Blob []byte
	// HostTimeout is how long another rank's host may not answer, approximately, before the rank is
	// lost. Zero: 30 s.
	HostTimeout time.Duration
	// Logger logs refused connections. It must not be nil.
	Logger *slog.Logger
}

// Join connects this rank with the other ranks and returns when all have joined. If ctx ends first,
// the error names the missing ranks as far as this rank knows them: on rank 0 it is an
// *engine.AbsentError.
func Join(ctx context.Context, cfg Config) (*Member, error) {
	m := newMember(cfg)
	var err error
	if cfg.Rank == 0 {
		err = m.serveJoin(ctx)
	} else {
		err = m.connect(ctx)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// maxTries is how often a rank connects to rank 0 if the connection ends during the handshake.
const maxTries = 6

// connect joins as a rank other than 0. It retries if the connection ends during the handshake. The
// error is an *engine.AbsentError if rank 0 does not listen before ctx ends, and a *RootLostError if
// rank 0 has exited or closes every connection.
func (m *Member) connect(ctx context.Context) error {
	stop := Remind(ctx, RemindInterval, func(_ context.Context, waited time.Duration) {
		m.cfg.Logger.Info("tutti: Join waits for rank 0", "address", m.cfg.Addr, "waited", waited.Round(time.Second))
	})
	nc, err := dial(ctx, m.cfg.Addr)
	stop()
	if err != nil {
		return &engine.AbsentError{Ranks: []int{0}, Err: fmt.Errorf("rank 0 cannot be reached at %s: %w", m.cfg.Addr, err)}
	}
	for try := 1; ; try++ {
		err = m.joinOver(ctx, nc)
		if ctx.Err() != nil || !disconnected(err) {
			return err
		}
		if try == maxTries {
			return rootLost(err)
		}
		// Rank 0 may have evicted this connection because too many were pending. If the process of
		// rank 0 has exited, nothing listens now.
		var dialErr error
		if nc, dialErr = dialOnce(ctx, m.cfg.Addr); errors.As(dialErr, new(*notLoopbackError)) {
			return dialErr
		} else if dialErr != nil {
			return rootLost(err)
		}
	}
}

// rootLost returns the error for a connection that has ended without a reason.
func rootLost(err error) *RootLostError {
	return &RootLostError{fmt.Errorf("rank 0 has exited, or has stopped waiting for ranks to join: %w", err)}
}

// A RootLostError says that rank 0 has closed the connection without a reason before all ranks had
// joined: its process has exited or was replaced.
type RootLostError struct{ Err error }

func (e *RootLostError) Error() string { return e.Err.Error() }

// Unwrap returns why the connection has ended.
func (e *RootLostError) Unwrap() error { return e.Err }

// A TakenError says that another process of the rank is connected to rank 0. After that process
// exits, the rank can join as soon as rank 0 has noticed.
type TakenError struct{ reason string }

func (e *TakenError) Error() string { return e.reason }

// disconnected reports whether err is the end of a connection for an unknown reason.
func disconnected(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// joinOver joins on a new connection, and starts the goroutine that reads from it. It closes the
// connection if it fails or ctx ends first.
func (m *Member) joinOver(ctx context.Context, nc net.Conn) error {
	// The end of ctx ends every read. After the hello the connection stays open, for leaveJoin.
	m.greeted.Store(false)
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		if m.greeted.Load() {
			_ = nc.SetReadDeadline(time.Unix(1, 0))
		} else {
			nc.Close()
		}
	})
	m.rootConn = newConn(nc)
	err := keepalive.Apply(nc, m.cfg.HostTimeout)
	if err == nil {
		err = m.handshake()
	}
	if !stop() {
		<-interrupted
		defer nc.Close()
		switch {
		case !m.answered:
			return fmt.Errorf("the process at %s does not answer like rank 0 of a job; check Config.Addr (TUTTI_ADDR): %w", m.cfg.Addr, ctx.Err())
		case err == nil || !m.greeted.Load():
			return errNotAll(ctx)
		case !disconnected(err) && !errors.Is(err, os.ErrDeadlineExceeded): // rank 0 has refused this rank at this moment
			return err
		}
		return m.leaveJoin(ctx)
	}
	if err != nil {
		nc.Close()
		return err
	}
	l := m.startNode([]*conn{m.rootConn})[0]
	m.wg.Go(func() {
		f, err := l.receive(maxFrame)
		m.readLink(0, l, f, err)
	})
	return nil
}

// A notLoopbackError says that an address that names the loopback resolved to another interface.
type notLoopbackError struct {
	addr   string
	actual net.Addr
}

func (e *notLoopbackError) Error() string {
	return fmt.Sprintf("%s resolves to %v on this host, which is not on the loopback", e.addr, e.actual)
}

// checkLoopback returns a *notLoopbackError if the address said names the loopback and is does not:
// the name may resolve to anything.
func checkLoopback(addr string, actual net.Addr) error {
	if tcp, ok := actual.(*net.TCPAddr); launchenv.OnLoopback(addr) && ok && !tcp.IP.IsLoopback() {
		return &notLoopbackError{addr, actual}
	}
	return nil
}

// dialOnce connects to rank 0 with one attempt.
func dialOnce(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := checkLoopback(addr, c.RemoteAddr()); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// dial retries until rank 0 listens, because ranks start in any order.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		c, err := dialOnce(ctx, addr)
		if err == nil || errors.As(err, new(*notLoopbackError)) {
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

// handshake authenticates this rank and rank 0 to each other and receives the welcome.
func (m *Member) handshake() error {
	cfg := &m.cfg
	f, err := m.rootConn.receive(maxHello)
	if err != nil {
		return fmt.Errorf("no answer from rank 0 at %s: %w", cfg.Addr, err)
	}
	if f.Kind != challenge || len(f.Nonce) != nonceBytes {
		return fmt.Errorf("a program other than tutti listens at %s; check Config.Addr (TUTTI_ADDR)", cfg.Addr)
	}
	if f.Version != version {
		return mismatchError(fmt.Sprintf("rank 0 uses version %d of the handshake, this rank uses version %d; build all ranks with the same version of tutti", f.Version, version))
	}
	m.answered = true
	if err := m.encrypt(f.TLS); err != nil {
		return err
	}
	root, fits := f.Build, cfg.Version.fits(f.Build)
	blob := cfg.Blob
	if root == nil {
		blob = cfg.Protocol1Blob
	}
	theirs, ours := f.Nonce, newNonce()
	err = m.rootConn.send(&frame{
		Kind: hello, Version: version, Build: &cfg.Version, Rank: cfg.Rank, Size: cfg.Size, Nonce: ours, Blob: blob, TLS: cfg.TLS != nil,
		Proof: prove(cfg.Secret, "rank", theirs, ours, cfg.Rank, cfg.Size, m.rootConn.binding),
	})
	if err != nil {
		return err
	}
	m.greeted.Store(true)
	if !fits {
		// Rank 0 detects the difference in the hello. Its answer is not needed.
		_ = m.rootConn.SetReadDeadline(time.Now().Add(helloReadTime))
		_, _ = m.rootConn.receive(maxFrame)
		return mismatchError(versionMismatch(cfg.Rank, &cfg.Version, root))
	}
	f, err = m.rootConn.receive(maxFrame)
	switch {
	case err != nil:
		return fmt.Errorf("rank 0 has closed the connection: %w", err)
	case f.Kind == refused && f.Mismatch:
		return mismatchError(f.Reason)
	case f.Kind == refused:
		text := fmt.Sprintf("rank 0 has refused rank %d: %s", cfg.Rank, f.Reason)
		if f.Taken {
			return &TakenError{text}
		}
		return errors.New(text)
	case f.Kind != welcome || len(f.Blobs) != cfg.Size || len(f.JobKey) != keyBytes:
		return errors.New("rank 0 has sent an invalid answer")
	case !proved(cfg.Secret, "root", theirs, ours, cfg.Rank, cfg.Size, m.rootConn.binding, f.Proof):
		return fmt.Errorf("the process at %s does not know the job's secret; set the same secret on all ranks (Config.Secret, TUTTI_SECRET)", cfg.Addr)
	}
	m.blobs, m.key = f.Blobs, f.JobKey
	return nil
}
