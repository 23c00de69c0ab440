package tcp

import (
	"time"

	"github.com/tutti-go/tutti/internal/transport"
	"golang.org/x/sys/unix"
)

// closeLinks sends a goodbye with an optional reason on links and closes them. The kernel resets a
// connection that is closed with unread input, which discards sent data. closeLinks therefore reads
// and discards input until the peer has received everything, or limit has passed.
func closeLinks(links []*link, why *transport.Head, limit time.Duration) {
	discard := make([]byte, 64<<10)
	for _, l := range links {
		l.startBye(why)
	}
	for end := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		rest := links[:0]
		for _, l := range links {
			if l.advanceBye(discard) || !time.Now().Before(end) {
				l.close()
				continue
			}
			rest = append(rest, l)
		}
		if links = rest; len(links) == 0 {
			return
		}
	}
}

// startBye prepares a goodbye, unless a header or body is partly sent.
func (l *link) startBye(why *transport.Head) {
	l.broken = l.out.partial || !l.flushed()
	if !l.broken {
		l.out.start(header{kind: kindBye}, why, nil)
	}
}

// advanceBye sends the goodbye and reads input without blocking. It reports whether the link can be closed:
// the peer has everything, or the link is broken. Only the goroutine in closeLinks uses the link then.
func (l *link) advanceBye(discard []byte) bool {
	if l.broken {
		return true
	}
	if !l.byeSent {
		_, done, err := l.send()
		if err != nil {
			return true
		}
		if done {
			l.byeSent = true
			_ = unix.Shutdown(l.fd, unix.SHUT_WR)
		}
	}
	return !l.discardInput(discard) || (l.byeSent && unsentBytes(l.fd) == 0)
}

// discardInput reads and discards a bounded amount of input. It reports whether the peer has not
// closed its side.
func (l *link) discardInput(buf []byte) bool {
	for range 16 {
		n, e := sysRecv(l.fd, buf)
		if failure(e) != nil || (n == 0 && e == 0) {
			return false
		}
		if n == 0 {
			break
		}
	}
	return true
}

// abort shuts the connection down, so that the peer notices that the rest of a message is missing.
func (l *link) abort() {
	l.out.partial = true
	_ = unix.Shutdown(l.fd, unix.SHUT_RDWR)
}
