package tutti

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tutti-go/tutti/internal/launchenv"
	"github.com/tutti-go/tutti/store"
)

// A teller tells this process's launcher, through its store, what the process is
// doing: when the launcher asks, because it is about to end the job, and when a
// Comm is poisoned, because the program may exit on that. It installs no signal
// handler. The Comms of one Join share it; a nil teller does nothing.
type teller struct {
	site  *processes
	name  string
	mu    sync.Mutex
	comms map[*Comm]struct{}
	stop  context.CancelFunc // of who waits for the question

	telling sync.Mutex // what is told later is newer
	failed  bool       // what was told last is of a Comm that failed
}

const (
	// tellTime is how long an error may be held back until the launcher knows.
	tellTime = 300 * time.Millisecond
	// startTime is how long a process is left alone before it connects to be
	// asked: what starts together need not do that, too, and a short job never.
	startTime = 100 * time.Millisecond
	// mostTold is how many Comms are told of.
	mostTold = 8
)

// newTeller is the teller of a process that has a name; nil if it has none.
func newTeller(cfg *Config, p *launchenv.Place) *teller {
	if p == nil || p.Name == "" || p.Store == "" {
		return nil
	}
	return &teller{site: newProcesses(cfg, p), name: p.Name, comms: make(map[*Comm]struct{})}
}

// add has a Comm told of, until remove.
func (t *teller) add(c *Comm) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.comms[c] = struct{}{}
	if t.stop == nil {
		var ctx context.Context
		ctx, t.stop = context.WithCancel(context.Background())
		go t.wait(ctx)
	}
}

func (t *teller) remove(c *Comm) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.comms, c)
	if len(t.comms) == 0 && t.stop != nil {
		t.stop()
		t.stop = nil
	}
}

// wait waits for the launcher's question, and answers it.
func (t *teller) wait(ctx context.Context) {
	again := t.recovered()
	if !again {
		select {
		case <-ctx.Done():
			return
		case <-time.After(startTime):
		}
	}
	s, closeStore, err := t.site.open(ctx)
	if err != nil {
		return // a launcher that is gone asks nobody
	}
	defer func() { _ = closeStore() }()
	if again && t.put(ctx, s, false) != nil {
		return
	}
	if _, err := s.Get(ctx, launchenv.AskKey); err != nil {
		return
	}
	if t.put(ctx, s, false) != nil {
		return
	}
	for _, c := range t.list() {
		c.leave()
	}
	_ = s.Set(ctx, launchenv.AnsweredKey(t.name), nil)
}

// tell tells the launcher, unasked.
func (t *teller) tell() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tellTime)
	defer cancel()
	s, closeStore, err := t.site.open(ctx)
	if err != nil {
		return
	}
	defer func() { _ = closeStore() }()
	_ = t.put(ctx, s, true)
}

// recovered reports whether the launcher must be told that the process goes on,
// with another Comm.
func (t *teller) recovered() bool {
	t.telling.Lock()
	defer t.telling.Unlock()
	return t.failed
}

// put writes what the process is doing into the store.
func (t *teller) put(ctx context.Context, s store.Store, failed bool) error {
	t.telling.Lock()
	defer t.telling.Unlock()
	t.failed = failed
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	for _, c := range t.list() {
		if err := e.Encode(c.dump().Brief()); err != nil {
			return err
		}
	}
	return s.Set(ctx, launchenv.ToldKey(t.name), text.Bytes())
}

// list returns some Comms: first those that are poisoned, then those in which
// something is under way.
func (t *teller) list() []*Comm {
	t.mu.Lock()
	all := slices.SortedFunc(maps.Keys(t.comms), func(a, b *Comm) int { return strings.Compare(a.home.title(), b.home.title()) })
	t.mu.Unlock()
	var by [3][]*Comm
	for _, c := range all {
		i := 2
		switch {
		case c.e.Failure() != nil:
			i = 0
		case !(*idle)(c).Ready():
			i = 1
		}
		by[i] = append(by[i], c)
	}
	all = slices.Concat(by[:]...)
	return all[:min(len(all), mostTold)]
}
