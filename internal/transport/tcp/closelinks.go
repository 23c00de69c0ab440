package tcp

import (
	"time"

	"github.com/tutti-go/tutti/internal/transport"
	"golang.org/x/sys/unix"
)

// part says goodbye, and why, on links and closes them. A socket that is closed while
// bytes lie unread takes back what it has not delivered, so the other side is
// heard until all is delivered, or the time is up.
func closeLinks(links []*link, why *transport.Head, limit time.Duration) {
	sink := make([]byte, 64<<10)
	for _, l := range links {
		l.startBye(why)
	}
	for end := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		rest := links[:0]
		for _, l := range links {
			if l.advanceBye(sink) || !time.Now().Before(end) {
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

// startBye gets a goodbye ready, unless that would land in the middle of
// something.
func (l *link) startBye(why *transport.Head) {
	l.broken = l.out.partial || !l.flushed()
	if !l.broken {
		l.out.start(header{kind: kindBye}, why, nil)
	}
}

// bye goes on with the goodbye, and reports whether all is said and heard.
func (l *link) advanceBye(sink []byte) bool {
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
	return !l.discardInput(sink) || (l.byeSent && unsentBytes(l.fd) == 0)
}

// drain throws away what has arrived, within reason, and reports whether the
// peer may still listen: it has not closed its side.
func (l *link) discardInput(sink []byte) bool {
	for range 16 {
		n, e := sysRecv(l.fd, sink)
		if failure(e) != nil || (n == 0 && e == 0) {
			return false
		}
		if n == 0 {
			break
		}
	}
	return true
}

// cut ends the connection where it stands: the peer finds that the rest of
// something is missing.
func (l *link) abort() {
	l.out.partial = true
	_ = unix.Shutdown(l.fd, unix.SHUT_RDWR)
}
