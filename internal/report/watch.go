package report

import (
	"sync"
	"time"
)

// A Watch reports one Comm when it is poisoned: it sends a report to the launcher, and
// writes a flight file. A nil Watch does nothing.
type Watch struct {
	r      *Reporter
	c      Comm
	closed chan struct{} // closed by Close
	close  sync.Once
	done   chan struct{} // closed when the report is complete, or takes longer than reportTimeout
	finish sync.Once
}

// reportTimeout bounds the time that an error is held back until the report is complete:
// the program may exit on the error, but a file system may never answer.
const reportTimeout = time.Second

// Watch begins to watch a Comm, until Close.
func (r *Reporter) Watch(c Comm) *Watch {
	if r == nil {
		return nil
	}
	w := &Watch{r: r, c: c, closed: make(chan struct{}), done: make(chan struct{})}
	r.add(c)
	go w.run()
	return w
}

// Reporter returns the Reporter of the Watch.
func (w *Watch) Reporter() *Reporter {
	if w == nil {
		return nil
	}
	return w.r
}

func (w *Watch) run() {
	defer w.complete()
	select {
	case <-w.c.Failed():
	case <-w.closed:
		if !w.c.Poisoned() {
			return
		}
	}
	defer time.AfterFunc(reportTimeout, w.complete).Stop()
	w.r.send()
	w.r.writeFile(w.c)
}

func (w *Watch) complete() { w.finish.Do(func() { close(w.done) }) }

// Await waits until a poisoned Comm is reported, but not longer than reportTimeout. The
// caller must not hold a lock that Comm.Dump needs.
func (w *Watch) Await() {
	if w != nil && w.c.Poisoned() {
		<-w.done
	}
}

// Close ends the Watch. A poisoned Comm is reported before. Close may be called more than
// once.
func (w *Watch) Close() {
	if w == nil {
		return
	}
	w.close.Do(func() { close(w.closed) })
	<-w.done
	w.r.remove(w.c)
}
