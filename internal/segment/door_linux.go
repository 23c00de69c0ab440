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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// tokenBytes is the size of what a process must know to be let in.
const tokenBytes = 32

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
// waiting, so that each is greeted by itself.
func (m *meeting) admit(ctx context.Context, missing int) {
	ctx, done := context.WithCancel(ctx)
	end, _ := ctx.Deadline()
	_ = m.d.listener.SetDeadline(end)
	stop := context.AfterFunc(ctx, func() { _ = m.d.listener.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var greeting sync.WaitGroup
	var mu sync.Mutex
	for {
		c, err := m.d.listener.AcceptUnix()
		if err != nil {
			break
		}
		greeting.Go(func() {
			sent := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
			guest, err := m.greet(c, end)
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
type Link struct {
	c      *net.UnixConn
	gone   chan struct{}
	closed atomic.Bool // by either side

	mu    sync.Mutex
	taken map[string]chan int // descriptors by key, here or awaited
}

func newLink(c *net.UnixConn) *Link {
	return &Link{c: c, gone: make(chan struct{}), taken: make(map[string]chan int)}
}

// listen hears of the other process until it ends, or the link is closed.
func (l *Link) listen(guest int, news News) {
	l.receive(func(note []byte) { news.Note(guest, note) })
	close(l.gone)
	if !l.closed.Load() {
		news.Gone(guest)
	}
}

// noted is the first byte of a message that is no key, but a note; one without
// anything else is a goodbye.
const noted = 0

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

// Pass gives a segment to the other process, under a key. It returns ErrGone if
// that has ended.
func (l *Link) Pass(key string, s *Segment) error {
	_, _, err := l.c.WriteMsgUnix([]byte(key), unix.UnixRights(s.FD()), nil)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return ErrGone
	}
	return err
}

// Take waits for the segment that the other process passes under a key, and
// maps it.
func (l *Link) Take(ctx context.Context, key string) (*Segment, error) {
	slot := l.slot(key)
	var fd int
	select {
	case fd = <-slot:
	case <-l.gone:
		// It may have passed the segment before it ended.
		select {
		case fd = <-slot:
		default:
			return nil, ErrGone
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l.mu.Lock()
	delete(l.taken, key)
	l.mu.Unlock()
	if fd < 0 {
		return nil, errors.New("segment: the system did not let the descriptor through")
	}
	return Map(fd)
}

// slot is where a descriptor goes, whoever comes first for it.
func (l *Link) slot(key string) chan int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.taken[key] == nil {
		l.taken[key] = make(chan int, 1)
	}
	return l.taken[key]
}

// receive takes descriptors and notes until the other process ends.
func (l *Link) receive(note func([]byte)) {
	key := make([]byte, 4096)
	rights := make([]byte, unix.CmsgSpace(4))
	reset := false
	for {
		n, nr, _, _, err := l.c.ReadMsgUnix(key, rights)
		if errors.Is(err, unix.ECONNRESET) && !reset {
			reset = true // it had not read all; what it had said before is still there
			continue
		}
		if err != nil || n == 0 {
			return
		}
		if key[0] == noted && n == 1 {
			l.closed.Store(true)
			continue
		}
		if key[0] == noted {
			note(slices.Clone(key[1:n]))
			continue
		}
		fd := descriptor(rights[:nr])
		select {
		case l.slot(string(key[:n])) <- fd:
		default:
			closeAny(fd) // passed twice
		}
	}
}

// descriptor finds the one that a message carries; -1 if it has lost it, as it does
// where the system's policy forbids this process to have it.
func descriptor(rights []byte) int {
	list, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(list) != 1 {
		return -1
	}
	fds, err := unix.ParseUnixRights(&list[0])
	if err != nil || len(fds) != 1 {
		return -1
	}
	unix.CloseOnExec(fds[0])
	return fds[0]
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
	for _, slot := range l.taken {
		select {
		case fd := <-slot:
			closeAny(fd)
		default:
		}
	}
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
