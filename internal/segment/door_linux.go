package segment

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// maxGreeting is how many processes may be about to show the token at once.
const maxGreeting = 256

// meetTime is how long one process of this host may take to answer another.
const meetTime = 10 * time.Second

// A Door is where the other processes of a host come to exchange segments: an
// abstract unix socket, which only processes in the same network namespace can
// reach and which leaves nothing behind.
type Door struct {
	listener *net.UnixListener
	name     string
	token    []byte
}

// OpenDoor opens this process's door.
func OpenDoor() (*Door, error) {
	secret := make([]byte, 16+tokenBytes)
	rand.Read(secret) // never fails
	name := "@tutti-" + hex.EncodeToString(secret[:16])
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: name, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("segment: %w", err)
	}
	return &Door{l, name, secret[16:]}, nil
}

// An Invitation is what another process needs to know to come to a door. It is
// a secret of the job.
type Invitation struct {
	Name  string
	Token []byte
}

// Invitation returns this door's.
func (d *Door) Invitation() Invitation { return Invitation{d.name, d.token} }

// Close closes the door. Links stay.
func (d *Door) Close() error { return d.listener.Close() }

// Meet links this process with others that may be on its host: with each of
// guests, by number, whose invitation it has. It returns the links that came
// about, and why others did not. All sides call it, with self being their own
// number; news tells of them afterwards.
func (d *Door) Meet(ctx context.Context, self int, guests map[int]Invitation, news News) (map[int]*Link, map[int]error) {
	ctx, cancel := context.WithTimeout(ctx, meetTime)
	defer cancel()
	m := meeting{d: d, self: self, guests: guests, news: news, links: make(map[int]*Link), errs: make(map[int]error)}
	var all sync.WaitGroup
	missing := 0
	for guest, inv := range guests {
		if guest < self {
			missing++
			continue
		}
		// The lower number knocks.
		all.Go(func() {
			c, err := m.knock(ctx, inv)
			m.met(guest, c, err)
		})
	}
	if missing > 0 {
		all.Go(func() { m.admit(ctx, missing) })
	}
	all.Wait()
	for guest := range guests {
		if m.links[guest] == nil && m.errs[guest] == nil {
			m.errs[guest] = errors.New("it did not come")
		}
	}
	return m.links, m.errs
}

// meeting is a Meet that is under way.
type meeting struct {
	d      *Door
	self   int
	guests map[int]Invitation
	news   News

	mu    sync.Mutex
	links map[int]*Link
	errs  map[int]error
}

func (m *meeting) met(guest int, c *net.UnixConn, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.errs[guest] = err
		return
	}
	l := newLink(c)
	m.links[guest] = l
	go l.listen(guest, m.news)
}

// knock comes to another's door: it shows that door's token and expects its
// own.
func (m *meeting) knock(ctx context.Context, inv Invitation) (*net.UnixConn, error) {
	var dialer net.Dialer
	nc, err := dialer.DialContext(ctx, "unixpacket", inv.Name)
	if err != nil {
		return nil, err
	}
	c := nc.(*net.UnixConn)
	if err := m.shake(ctx, c, inv); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (m *meeting) shake(ctx context.Context, c *net.UnixConn, inv Invitation) error {
	if end, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(end); err != nil {
			return err
		}
	}
	if _, err := c.Write(binary.BigEndian.AppendUint32(append([]byte{}, inv.Token...), uint32(m.self))); err != nil {
		return err
	}
	answer := make([]byte, tokenBytes+1)
	n, err := c.Read(answer)
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(answer[:n], m.d.token) != 1 {
		return errors.New("it is not who it should be")
	}
	return c.SetDeadline(time.Time{})
}

// admit lets in those who knock, until all who are expected have come. Any
// process of the host may knock: one that says nothing must not keep others
// waiting, so that each is greeted by itself. Of more than maxGreeting that have
// not shown the token, the oldest is closed.
func (m *meeting) admit(ctx context.Context, missing int) {
	ctx, done := context.WithCancel(ctx)
	end, _ := ctx.Deadline()
	_ = m.d.listener.SetDeadline(end)
	stop := context.AfterFunc(ctx, func() { _ = m.d.listener.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var greeting sync.WaitGroup
	var mu sync.Mutex
	var unproven []*net.UnixConn // the oldest first; guarded by mu
	for {
		c, err := m.d.listener.AcceptUnix()
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
			break
		}
		if err != nil { // most likely for want of descriptors, some of which come back
			time.Sleep(time.Millisecond)
			continue
		}
		mu.Lock()
		if len(unproven) >= maxGreeting {
			unproven[0].Close()
			unproven = slices.Delete(unproven, 0, 1)
		}
		unproven = append(unproven, c)
		mu.Unlock()
		greeting.Go(func() {
			sent := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
			guest, err := m.greet(c, end)
			mu.Lock()
			if i := slices.Index(unproven, c); i >= 0 {
				unproven = slices.Delete(unproven, i, i+1)
			} else if err == nil {
				err = net.ErrClosed // it has made room
			}
			mu.Unlock()
			// One that is sent away by the end of the meeting stays away.
			if !sent() || err != nil {
				c.Close()
				return
			}
			m.met(guest, c, nil)
			mu.Lock()
			defer mu.Unlock()
			if missing--; missing == 0 {
				done()
			}
		})
	}
	done()
	greeting.Wait()
}

func (m *meeting) greet(c *net.UnixConn, end time.Time) (int, error) {
	if err := c.SetDeadline(end); err != nil {
		return 0, err
	}
	ask := make([]byte, tokenBytes+5)
	n, err := c.Read(ask)
	if err != nil {
		return 0, err
	}
	if n != tokenBytes+4 || subtle.ConstantTimeCompare(ask[:tokenBytes], m.d.token) != 1 {
		return 0, errors.New("it does not know the token")
	}
	guest := int(binary.BigEndian.Uint32(ask[tokenBytes:]))
	inv, invited := m.guests[guest]
	if !invited || guest >= m.self {
		return 0, errors.New("it was not invited")
	}
	if _, err := c.Write(inv.Token); err != nil {
		return 0, err
	}
	return guest, c.SetDeadline(time.Time{})
}

// A Link is a connection to another process of this host, over which segments
// are passed. It is safe for concurrent use.
//
// A segment is passed under a scope and a key. The receiver keeps the descriptors of
// the scopes that it has open, until they are taken, and closes all others at
// once: the other process may pass a segment for something that was given up here.
type Link struct {
	c      *net.UnixConn
	gone   chan struct{}
	closed atomic.Bool // by either side

	mu     sync.Mutex
	scopes map[string]scope // open scopes; guarded by mu
}

// A scope holds the descriptors that have arrived and have not been taken, and
// the keys that are waited for.
type scope map[string]*arrival

// An arrival is one key of a scope. Its fields are guarded by Link.mu, except that
// here is received from without it.
type arrival struct {
	here    chan int // holds the descriptor, -1 if the system did not deliver it
	givenUp bool     // Take returned without the descriptor: it is closed when it arrives
}

func newLink(c *net.UnixConn) *Link {
	return &Link{c: c, gone: make(chan struct{}), scopes: map[string]scope{Root: {}}}
}

// Open opens a scope. It must be open before the other process passes anything in it.
func (l *Link) Open(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.scopes[name] == nil {
		l.scopes[name] = scope{}
	}
}

// Drop closes a scope: the descriptors that were not taken are closed, and so are those
// that arrive later. A Take that waits goes on waiting until its context ends.
func (l *Link) Drop(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scopes[name].discard()
	delete(l.scopes, name)
}

// discard closes the descriptors that were not taken.
func (s scope) discard() {
	for _, a := range s {
		a.discard()
	}
}

func (a *arrival) discard() {
	select {
	case fd := <-a.here:
		closeAny(fd)
	default:
	}
}

// listen hears of the other process until it ends, or the link is closed.
func (l *Link) listen(guest int, news News) {
	l.receive(func(note []byte) { news.Note(guest, note) })
	close(l.gone)
	if !l.closed.Load() {
		news.Gone(guest)
	}
}

// Note tells the other process something, after all that it was told and passed
// before. It does not wait: one that does not read is not told.
func (l *Link) Note(note []byte) error { return l.say(append([]byte{noted}, note...)) }

func (l *Link) say(text []byte) error {
	raw, err := l.c.SyscallConn()
	if err != nil {
		return err
	}
	// Not by raw.Write, which waits for a Pass that does.
	var sent error
	err = raw.Control(func(fd uintptr) {
		_, sent = unix.SendmsgN(int(fd), text, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	return errors.Join(err, sent)
}

// Pass gives a segment to the other process, under a scope and a key, which contain no zero
// byte. It returns ErrGone if that process has ended.
func (l *Link) Pass(scope, key string, s *Segment) error {
	_, _, err := l.c.WriteMsgUnix([]byte(scope+separator+key), unix.UnixRights(s.FD()), nil)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return ErrGone
	}
	return err
}

// Take waits for the segment that the other process passes under a scope and a key, and
// maps it. If it returns an error, the descriptor is closed when it arrives.
func (l *Link) Take(ctx context.Context, scope, key string) (*Segment, error) {
	a, err := l.expect(scope, key)
	if err != nil {
		return nil, err
	}
	var fd int
	select {
	case fd = <-a.here:
	case <-l.gone:
		// It may have passed the segment before it ended.
		select {
		case fd = <-a.here:
		default:
			return nil, ErrGone
		}
	case <-ctx.Done():
		l.giveUp(a)
		return nil, ctx.Err()
	}
	l.mu.Lock()
	delete(l.scopes[scope], key)
	l.mu.Unlock()
	if fd < 0 {
		return nil, errors.New("segment: the system did not let the descriptor through")
	}
	return Map(fd)
}

// expect returns the place of a key that is about to be taken.
func (l *Link) expect(scope, key string) (*arrival, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.scopes[scope]
	if s == nil {
		return nil, fmt.Errorf("segment: %q was given up", scope)
	}
	a := s.at(key)
	a.givenUp = false
	return a, nil
}

// at is the place of a key, whether the descriptor or Take comes first. Link.mu is held.
func (s scope) at(key string) *arrival {
	if s[key] == nil {
		s[key] = &arrival{here: make(chan int, 1)}
	}
	return s[key]
}

// giveUp has the descriptor closed that nobody takes: now, or when it arrives.
func (l *Link) giveUp(a *arrival) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.givenUp = true
	a.discard()
}

// arrived takes over a descriptor that was passed under a scope and a key.
func (l *Link) arrived(scope, key string, fd int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.scopes[scope]
	if s == nil {
		closeAny(fd)
		return
	}
	a := s.at(key)
	if a.givenUp {
		closeAny(fd)
		return
	}
	select {
	case a.here <- fd:
	default:
		closeAny(fd) // passed twice
	}
}

// receive takes descriptors and notes until the other process ends. Each descriptor that
// arrives is closed here or handed to arrived.
func (l *Link) receive(note func([]byte)) {
	text := make([]byte, 4096)
	rights := make([]byte, unix.CmsgSpace(4))
	reset := false
	for {
		n, nr, flags, _, err := l.c.ReadMsgUnix(text, rights)
		if errors.Is(err, unix.ECONNRESET) && !reset {
			reset = true // it had not read all; what it had said before is still there
			continue
		}
		if err != nil {
			return
		}
		fd := descriptor(rights[:nr], flags)
		if n == 0 {
			closeAny(fd)
			return
		}
		if text[0] == noted {
			closeAny(fd)
			if n == 1 {
				l.closed.Store(true)
			} else {
				note(slices.Clone(text[1:n]))
			}
			continue
		}
		scope, key, found := strings.Cut(string(text[:n]), separator)
		if !found || flags&unix.MSG_TRUNC != 0 {
			closeAny(fd)
			continue
		}
		l.arrived(scope, key, fd)
	}
}

// descriptor finds the one that a message carries. If there is none, or more than one, it
// closes what has arrived and returns -1. There is none where the system's policy forbids
// this process to have it, or where this process has as many descriptors as it may.
func descriptor(rights []byte, flags int) int {
	var all []int
	list, _ := unix.ParseSocketControlMessage(rights)
	for i := range list {
		fds, _ := unix.ParseUnixRights(&list[i]) // an error: it holds no descriptors
		all = append(all, fds...)
	}
	if len(all) == 1 && flags&unix.MSG_CTRUNC == 0 {
		unix.CloseOnExec(all[0])
		return all[0]
	}
	for _, fd := range all {
		closeAny(fd)
	}
	return -1
}

func closeAny(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// Close ends the link. The other side learns of it, and that the process has not
// just ended.
func (l *Link) Close() error {
	if !l.closed.Swap(true) {
		_ = l.say([]byte{noted}) // it may be gone
	}
	err := l.c.Close()
	<-l.gone
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.scopes {
		s.discard()
	}
	clear(l.scopes)
	return err
}

// HostHint names, as far as one can guess, the host that this process shares
// memory and doors with: the boot of the kernel and the network namespace.
// That two processes have the same hint proves nothing.
func HostHint() string {
	var hint string
	for _, read := range []func() (string, error){bootID, networkNamespace} {
		if text, err := read(); err == nil {
			hint += text + " "
		}
	}
	return hint
}
