package report

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/flight"
	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/store"
)

// A Comm is what reports need of a communicator. Its methods may be called concurrently, at
// any time.
type Comm interface {
	// Title is the Comm's name for people, the same on all its ranks.
	Title() string
	// Failed is closed when the Comm is poisoned.
	Failed() <-chan struct{}
	// Poisoned reports whether Failed is closed, or about to be.
	Poisoned() bool
	// Busy reports whether an operation is under way.
	Busy() bool
	// Dump returns the content of the Comm's flight recorder.
	Dump() *flight.Dump
}

// Config holds the options of a Reporter.
type Config struct {
	// Name is the launcher's name for this process; "" if no launcher wants reports.
	Name string
	// Open connects to the job's store, and returns a function that closes the connection.
	// Nil if Name is "".
	Open func(context.Context) (store.Store, func() error, error)
	// FlightDir is the directory for flight files; "" if none are wanted.
	FlightDir string
	// Logger must not be nil.
	Logger *slog.Logger
}

// A Reporter reports the activity of this process's Comms: when the launcher asks, because
// it is about to end the job, and when a Comm is poisoned, because the program may exit
// then. It installs no signal handler. The Comms of one Join share a Reporter. A nil
// Reporter reports nothing.
type Reporter struct {
	cfg Config

	mu    sync.Mutex
	comms map[Comm]struct{}  // guarded by mu
	stop  context.CancelFunc // ends serve; nil: it does not run; guarded by mu

	sending sync.Mutex  // held during put, so that a later report is a newer one
	failed  atomic.Bool // the last report is about a poisoned Comm; written with sending held
}

const (
	// sendTimeout bounds the time that an error is held back until the launcher is notified.
	sendTimeout = 300 * time.Millisecond
	// connectDelay is how long a process runs before it connects to the store for the
	// launcher's request. It keeps the processes of a job from connecting all at its start,
	// and a short job from connecting at all.
	connectDelay = 100 * time.Millisecond
	// maxComms bounds the number of Comms in a report.
	maxComms = 8
)

// New returns a Reporter; nil if there is nothing to report to.
func New(cfg Config) *Reporter {
	if cfg.Name == "" && cfg.FlightDir == "" {
		return nil
	}
	return &Reporter{cfg: cfg, comms: make(map[Comm]struct{})}
}

// add includes a Comm in the reports to the launcher until remove.
func (r *Reporter) add(c Comm) {
	if r.cfg.Name == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.comms[c] = struct{}{}
	if r.stop == nil {
		var ctx context.Context
		ctx, r.stop = context.WithCancel(context.Background())
		go r.serve(ctx, r.failed.Load())
	}
}

func (r *Reporter) remove(c Comm) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.comms, c)
	if len(r.comms) == 0 && r.stop != nil {
		r.stop()
		r.stop = nil
	}
}

// serve waits for the launcher's request, and answers it. If the process has recovered, it
// continues with another Comm after the one that was reported as poisoned; the launcher is
// notified at once.
func (r *Reporter) serve(ctx context.Context, recovered bool) {
	if !recovered {
		select {
		case <-ctx.Done():
			return
		case <-time.After(connectDelay):
		}
	}
	s, closeStore, err := r.cfg.Open(ctx)
	if err != nil {
		return // a launcher that has exited sends no request
	}
	defer func() { _ = closeStore() }()
	if recovered && r.put(ctx, s, false) != nil {
		return
	}
	if _, err := s.Get(ctx, jobstore.ReportRequest); err != nil {
		return
	}
	if r.put(ctx, s, false) != nil {
		return
	}
	for _, c := range r.list() {
		r.writeFile(c)
	}
	_ = s.Set(ctx, jobstore.ReportComplete(r.cfg.Name), nil)
}

// send sends a report without a request.
func (r *Reporter) send() {
	if r.cfg.Name == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
	defer cancel()
	s, closeStore, err := r.cfg.Open(ctx)
	if err != nil {
		return
	}
	defer func() { _ = closeStore() }()
	_ = r.put(ctx, s, true)
}

// put writes a report into the store.
func (r *Reporter) put(ctx context.Context, s store.Store, failed bool) error {
	r.sending.Lock()
	defer r.sending.Unlock()
	r.failed.Store(failed)
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	for _, c := range r.list() {
		if err := e.Encode(c.Dump().Brief()); err != nil {
			return err
		}
	}
	return s.Set(ctx, jobstore.Report(r.cfg.Name), text.Bytes())
}

// list returns at most maxComms Comms: first the poisoned ones, then those with an
// operation under way.
func (r *Reporter) list() []Comm {
	r.mu.Lock()
	all := slices.SortedFunc(maps.Keys(r.comms), func(a, b Comm) int { return strings.Compare(a.Title(), b.Title()) })
	r.mu.Unlock()
	var classes [3][]Comm
	for _, c := range all {
		i := 2
		switch {
		case c.Poisoned():
			i = 0
		case c.Busy():
			i = 1
		}
		classes[i] = append(classes[i], c)
	}
	all = slices.Concat(classes[:]...)
	return all[:min(len(all), maxComms)]
}
