package segment

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tutti-go/tutti/internal/acceptloop"
	"golang.org/x/sys/unix"
)

// maxUnproven bounds the open connections without a valid request. All listeners of a job have this limit and that
// of proofTime; docs/design/security.md lists them.
const maxUnproven = 256

// proofTime bounds the time until a connection has sent its request.
const proofTime = 10 * time.Second

// retryTime is the pause before a retry when the system, or a flood of other connections, has
// prevented an operation.
const retryTime = time.Millisecond

// A Listener passes the descriptors of segments to other processes of this host. It listens on an
// abstract unix socket: only processes in the same network namespace can connect, and nothing is
// left behind in a file system. It is safe for concurrent use.
type Listener struct {
	listener *net.UnixListener
	key      []byte
	serving  chan struct{} // nil before Serve; closed when accepting has ended
	closed   chan struct{}
	handlers sync.WaitGroup

	mu       sync.Mutex               // guards the fields below
	conns    map[*net.UnixConn]bool   // nil: closed
	unproven []*net.UnixConn          // oldest first
	requests map[string][]pending     // by digest of the segment's name
	passing  map[string]chan struct{} // by digest: wakes the active Pass
}

// A pending is a request whose segment is not passed yet.
type pending struct {
	c    *net.UnixConn
	rank int
}

// Listen returns a listener with a new address. Connections are queued until Serve is called.
func Listen() (*Listener, error) {
	random := make([]byte, addrBytes)
	_, _ = rand.Read(random) // never fails
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socketName(random), Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("segment: %w", err)
	}
	return &Listener{
		listener: l, closed: make(chan struct{}),
		conns: make(map[*net.UnixConn]bool), requests: make(map[string][]pending), passing: make(map[string]chan struct{}),
	}, nil
}

// socketName returns the name of the socket with an address.
func socketName(addr []byte) string { return addrPrefix + hex.EncodeToString(addr) }

// Addr returns the address for Fetch: addrBytes random bytes.
func (l *Listener) Addr() []byte {
	addr, err := hex.DecodeString(l.listener.Addr().String()[len(addrPrefix):])
	if err != nil {
		return nil // cannot happen: Listen has made the name
	}
	return addr
}

// Serve begins to accept connections from processes that know the key. It is called once.
func (l *Listener) Serve(key []byte) {
	l.key, l.serving = key, make(chan struct{})
	go func() {
		defer close(l.serving)
		acceptloop.Run(l.listener, func(error) {}, func(nc net.Conn) {
			c := nc.(*net.UnixConn)
			if !l.admit(c) {
				c.Close()
				return
			}
			l.handlers.Go(func() {
				l.handle(c)
				l.remove(c)
			})
		})
	}()
}

// admit adds a new connection. Any process of the host can connect, so of more than maxUnproven
// connections the oldest is closed. It reports false if the listener is closed.
func (l *Listener) admit(c *net.UnixConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		return false
	}
	if len(l.unproven) >= maxUnproven {
		l.unproven[0].Close()
		l.unproven = slices.Delete(l.unproven, 0, 1)
	}
	l.conns[c], l.unproven = true, append(l.unproven, c)
	return true
}

// handle serves a connection, in a goroutine of its own. It queues a valid request for Pass, and
// returns when the other side closes the connection. It returns at once after an invalid request,
// and after proofTime without a request. The caller closes the connection.
func (l *Listener) handle(c *net.UnixConn) {
	if err := c.SetDeadline(time.Now().Add(proofTime)); err != nil {
		return
	}
	message := make([]byte, requestBytes+1)
	n, err := c.Read(message)
	if err != nil {
		return
	}
	name, rank, ok := parseRequest(l.key, l.listener.Addr().String(), message[:n])
	if !ok || c.SetDeadline(time.Time{}) != nil {
		return
	}
	l.mu.Lock()
	i := slices.Index(l.unproven, c)
	if i < 0 { // closed by admit
		l.mu.Unlock()
		return
	}
	l.unproven = slices.Delete(l.unproven, i, i+1)
	l.requests[name] = append(l.requests[name], pending{c, rank})
	if wake := l.passing[name]; wake != nil {
		signal(wake)
	}
	l.mu.Unlock()
	// The other side closes the connection when it has the descriptor or gives up.
	_, _ = c.Read(message)
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.DeleteFunc(l.requests[name], func(p pending) bool { return p.c == c })
	if l.requests[name] = list; len(list) == 0 {
		delete(l.requests, name)
	}
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// remove closes a connection.
func (l *Listener) remove(c *net.UnixConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	l.unproven = slices.DeleteFunc(l.unproven, func(u *net.UnixConn) bool { return u == c })
	c.Close()
}

// Pass passes the descriptor of a segment under a name to the ranks that request it by Fetch. It
// returns when all of ranks have it, when ctx ends, when the listener is closed, or when the system
// does not let it pass descriptors. Only one Pass per name may be active. The segment keeps its
// descriptor.
func (l *Listener) Pass(ctx context.Context, name string, s *Segment, ranks []int) error {
	id := string(digest(name))
	missing := make(map[int]bool)
	for _, r := range ranks {
		missing[r] = true
	}
	wake := make(chan struct{}, 1)
	l.mu.Lock()
	if l.passing[id] != nil {
		l.mu.Unlock()
		return fmt.Errorf("segment: %q is being passed already", name)
	}
	l.passing[id] = wake
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.passing, id)
		l.mu.Unlock()
	}()
	var denied error
	for {
		l.mu.Lock()
		list := l.requests[id]
		delete(l.requests, id)
		l.mu.Unlock()
		for _, p := range list {
			if !missing[p.rank] {
				l.deny(p, id, refused)
				continue
			}
			switch err := l.pass(ctx, p, id, s.FD()); {
			case err == nil:
				delete(missing, p.rank)
			case errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed):
				// The process has given up and may retry, or has exited.
			default:
				l.deny(p, id, withheld)
				denied = fmt.Errorf("segment: passing memory to rank %d: %w", p.rank, err)
			}
		}
		if denied != nil {
			return denied
		}
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-l.closed:
			return net.ErrClosed
		}
	}
}

// answer encodes the answer to a request.
func (l *Listener) answer(p pending, id string, status byte) []byte {
	return append([]byte{status}, prove(l.key, answering, l.listener.Addr().String(), []byte(id), p.rank)...)
}

// pass answers with a descriptor.
func (l *Listener) pass(ctx context.Context, p pending, id string, fd int) error {
	for {
		_, _, err := p.c.WriteMsgUnix(l.answer(p, id, passed), unix.UnixRights(fd), nil)
		// The system bounds the descriptors of a user that are in transit.
		if !errors.Is(err, unix.ETOOMANYREFS) || !pause(ctx) {
			return err
		}
	}
}

// deny answers without a descriptor.
func (l *Listener) deny(p pending, id string, status byte) {
	_, _ = p.c.Write(l.answer(p, id, status)) // the process may have exited
}

// pause waits for retryTime. It reports false if ctx has ended.
func pause(ctx context.Context) bool {
	t := time.NewTimer(retryTime)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Close closes the listener and its connections. Calls of Pass return. Close may be called more
// than once.
func (l *Listener) Close() error {
	l.mu.Lock()
	again := l.conns == nil
	for c := range l.conns {
		c.Close()
	}
	l.conns = nil
	l.mu.Unlock()
	if again {
		return nil
	}
	err := l.listener.Close()
	close(l.closed)
	if l.serving != nil {
		<-l.serving
	}
	l.handlers.Wait()
	return err
}

// Fetch requests a segment by its name, as the given rank, from the listener at addr, and waits
// until that process passes the descriptor. The caller owns the descriptor. Fetch returns ErrGone
// if nothing listens at addr, and the error of ctx if ctx ends first.
func Fetch(ctx context.Context, addr, key []byte, name string, rank int) (fd int, err error) {
	for {
		fd, err = fetch(ctx, socketName(addr), key, name, rank)
		// A flooded listener may close a connection before it has read the request.
		if !errors.Is(err, errDropped) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
		if !pause(ctx) {
			return -1, ctx.Err()
		}
	}
}

// errDropped says that a connection ended without an answer.
var errDropped = errors.New("segment: the connection has ended")

// fetch makes one attempt of Fetch. The end of ctx interrupts it.
func fetch(ctx context.Context, addr string, key []byte, name string, rank int) (int, error) {
	var dialer net.Dialer
	nc, err := dialer.DialContext(ctx, "unixpacket", addr)
	if errors.Is(err, unix.ECONNREFUSED) {
		return -1, ErrGone
	}
	if err != nil {
		return -1, err
	}
	c := nc.(*net.UnixConn)
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	status, fd, err := exchange(c, request(key, addr, name, rank), prove(key, answering, addr, digest(name), rank))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return -1, ctx.Err()
	case err != nil:
		return -1, err
	case status == passed && fd >= 0:
		return fd, nil
	}
	closeFD(fd)
	switch status {
	case refused:
		return -1, errors.New("segment: passing memory: the other process passes it to other ranks only")
	case withheld:
		return -1, errors.New("segment: passing memory: the system does not let the other process send the descriptor")
	}
	return -1, errors.New("segment: passing memory: the system did not let the descriptor through")
}

// Probe reports by its error whether this process can make and pass segments. It passes one to
// itself.
func Probe() error {
	s, err := New("tutti probe", 1, 1, 0)
	if err != nil {
		return err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return errors.Join(fmt.Errorf("segment: %w", err), s.Close())
	}
	err = probe(fds, s.FD())
	return errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]), s.Close())
}

// probe passes fd over a pair of sockets and closes the received descriptor.
func probe(fds [2]int, fd int) error {
	if err := unix.Sendmsg(fds[0], []byte{passed}, unix.UnixRights(fd), nil, 0); err != nil {
		return fmt.Errorf("segment: passing memory: %w", err)
	}
	rights := make([]byte, unix.CmsgSpace(4))
	_, nr, flags, _, err := unix.Recvmsg(fds[1], make([]byte, 1), rights, unix.MSG_DONTWAIT)
	if err != nil {
		return fmt.Errorf("segment: passing memory: %w", err)
	}
	got := descriptor(rights[:nr], flags)
	closeFD(got)
	if got < 0 {
		return errors.New("segment: passing memory: the system did not let the descriptor through")
	}
	return nil
}

// exchange sends a request and returns the answer with its descriptor, or -1 if it has none.
func exchange(c *net.UnixConn, message, proof []byte) (status byte, fd int, err error) {
	dropped := func(err error) error {
		if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, io.EOF) {
			return errDropped
		}
		return err
	}
	if _, err := c.Write(message); err != nil {
		return 0, -1, dropped(err)
	}
	answer, rights := make([]byte, answerBytes+1), make([]byte, unix.CmsgSpace(4))
	n, nr, flags, _, err := c.ReadMsgUnix(answer, rights)
	if err != nil {
		return 0, -1, dropped(err)
	}
	fd = descriptor(rights[:nr], flags)
	if n == 0 {
		closeFD(fd)
		return 0, -1, errDropped
	}
	if n != answerBytes || !hmac.Equal(answer[1:n], proof) {
		closeFD(fd)
		return 0, -1, errors.New("segment: a process other than the rank listens at its address")
	}
	return answer[0], fd, nil
}

// descriptor returns the descriptor in a control message. If there is none, or more than one, it
// closes all of them and returns -1. There is none if a security policy forbids this process to
// have it, or if this process has reached its limit of descriptors.
func descriptor(rights []byte, flags int) int {
	var all []int
	list, _ := unix.ParseSocketControlMessage(rights)
	for i := range list {
		fds, _ := unix.ParseUnixRights(&list[i]) // an error means that it holds no descriptors
		all = append(all, fds...)
	}
	if len(all) == 1 && flags&unix.MSG_CTRUNC == 0 {
		unix.CloseOnExec(all[0])
		return all[0]
	}
	for _, fd := range all {
		closeFD(fd)
	}
	return -1
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}
