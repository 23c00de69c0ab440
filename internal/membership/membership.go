package membership

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/internal/wait"
	"github.com/tutti-go/tutti/store"
)

// A Membership is one rank's part in one generation of a lineage: its engine, and what it
// needs to decide on the next generation. The fields before decided are constant
// once the Membership is returned. Its methods may be called concurrently.
type Membership struct {
	cfg        *Config
	engine     engine.Engine
	factory    factory        // forms the next generation; nil: the job has no store
	roster     engine.Roster  // nil: the ranks are goroutines of one process
	host       wait.Scheduler // the simulator; nil: the Go runtime
	ids        []int          // by rank: its number in the job
	lineage    string
	generation int
	tickets    int64       // the last ticket that a generation of the lineage has dealt with
	process    string      // the launcher's name for this process; "": it has none
	late       bool        // this process has joined a running job
	decided    atomic.Bool // this rank knows the next generation
	ballot     ballot      // of Agree
}

// A factory makes the engines of generations, and has the store that decides on them.
type factory interface {
	// open returns the store, and a function that closes the connection to it.
	open(ctx context.Context) (store.Store, func() error, error)
	// form makes a rank's engine of a generation. It returns when all ranks of the generation
	// have called it.
	form(ctx context.Context, s store.Store, generation string, rank, size int) (engine.Engine, engine.Roster, error)
}

// Engine returns the rank's engine, with its device.
func (m *Membership) Engine() engine.Engine { return m.engine }

// Logger returns the Logger of the configuration.
func (m *Membership) Logger() *slog.Logger { return m.cfg.Logger }

// Verify reports whether the ranks check their data; see tutti.Config.
func (m *Membership) Verify() bool { return m.cfg.Verify }

// World returns the rank's number in the job.
func (m *Membership) World() int { return m.ids[m.engine.Rank()] }

// Title returns the name of the Comm for people. It is the same on all ranks.
func (m *Membership) Title() string {
	if m.generation == 0 {
		return m.lineage
	}
	return m.name()
}

// Generation returns the number of the generation within its lineage.
func (m *Membership) Generation() int { return m.generation }

// Late reports whether this process has joined a running job.
func (m *Membership) Late() bool { return m.late }

// name returns the name under which the store knows the generation.
func (m *Membership) name() string { return jobstore.Generation(m.lineage, m.generation) }

// Process returns the launcher's name for this process, and a function that connects to the
// job's store. The name is "" if no launcher wants reports.
func (m *Membership) Process() (name string, open func(context.Context) (store.Store, func() error, error)) {
	if m.process == "" {
		return "", nil
	}
	return m.process, m.factory.open
}

// CanDecide reports whether the ranks can decide on a next generation.
func (m *Membership) CanDecide() bool { return m.factory != nil }

// CanGrow reports whether processes can join the lineage. The lineage must be that of all
// processes of the job, because processes with Config.Late look for its name.
func (m *Membership) CanGrow() bool {
	_, goroutines := m.factory.(*localFactory)
	return m.factory != nil && !goroutines && m.lineage == jobstore.World
}

// Bound returns ctx with the Config's Timeout.
func (m *Membership) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if m.cfg.Timeout > 0 {
		return m.within(ctx, m.cfg.Timeout)
	}
	return context.WithCancel(ctx)
}

// within is context.WithTimeout, in the simulator's time if there is one.
func (m *Membership) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if m.host != nil {
		return m.host.WithTimeout(ctx, d)
	}
	return context.WithTimeout(ctx, d)
}

// after calls f on another goroutine after d, in the simulator's time if there is one, unless
// stop is called before.
func (m *Membership) after(d time.Duration, f func()) (stop func()) {
	if m.host == nil {
		t := time.AfterFunc(d, f)
		return func() { t.Stop() }
	}
	ctx, cancel := m.host.WithTimeout(context.Background(), d)
	ignore := m.host.AfterFunc(ctx, f)
	return func() {
		ignore()
		cancel()
	}
}

// Group returns the membership in a group that consists of some ranks of this one, in that
// order. e is the rank's engine in the group; operation seq of this group made it.
func (m *Membership) Group(e engine.Engine, seq uint64, members []int) *Membership {
	g := m.derive()
	g.engine, g.roster = e, m.roster
	g.lineage, g.generation, g.tickets = engine.GroupName(m.Title(), seq, members[0]), 0, m.tickets
	g.ids = make([]int, len(members))
	for i, r := range members {
		g.ids[i] = m.ids[r]
	}
	return g
}

// next returns the membership in the next generation, of size ranks. It has no engine yet.
func (m *Membership) next(size int, tickets int64) *Membership {
	n := m.derive()
	n.lineage, n.generation, n.tickets, n.ids = m.lineage, m.generation+1, tickets, count(size)
	return n
}

// derive returns a Membership with the fields that all memberships of a process share.
func (m *Membership) derive() *Membership {
	return &Membership{cfg: m.cfg, factory: m.factory, host: m.host, process: m.process, late: m.late}
}

// count returns 0, 1, ..., n-1.
func count(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// AttachDevice adds the rank's device to its engine. before is the rank's engine of the
// generation before, nil if there is none. The engine is closed if AttachDevice fails.
func (m *Membership) AttachDevice(before engine.Engine) error {
	if m.cfg.Attach == nil {
		return nil
	}
	e, err := m.cfg.Attach(m.engine, before)
	if err != nil {
		return attachError{err}
	}
	m.engine = e
	return nil
}

// lost returns the ranks that are known to have exited, in any order.
func (m *Membership) lost() []int {
	var list []int
	if f := m.engine.Failure(); f != nil {
		list = append(list, f.Lost...)
	}
	if e, ok := m.engine.(interface{ Left() []int }); ok {
		list = append(list, e.Left()...)
	}
	if m.roster != nil {
		for _, id := range append(m.roster.Lost(), m.roster.Left()...) {
			if r := slices.Index(m.ids, id); r >= 0 {
				list = append(list, r)
			}
		}
	}
	return list
}

// Decided reports whether Shrink or Grow has returned a Successor.
func (m *Membership) Decided() bool { return m.decided.Load() }

// retireTimeout bounds the time to close the engine of a generation that has a successor.
const retireTimeout = 15 * time.Second

// Retire closes the engine once the next generation is decided. If patient is false, it does
// not wait for the other ranks. If patient is true, it waits for half of Config.ShrinkTimeout at
// most: the other ranks wait for this rank in the next generation meanwhile. lot is the
// ParkingLot of the rank's goroutines.
func (m *Membership) Retire(lot *wait.ParkingLot, patient bool) {
	if m.roster != nil {
		if patient {
			defer m.after(m.cfg.ShrinkTimeout/2, m.roster.Hasten)()
		} else {
			m.roster.Hasten()
		}
	}
	var bad error
	closed := new(atomic.Uint64)
	lot.Go(func() {
		bad = m.engine.Close()
		closed.Store(1)
		lot.Wake(closed)
	})
	w := wait.NewWaiter(lot)
	w.Begin(context.Background(), retireTimeout)
	if _, err := w.AtLeast(closed, 1, nil); err != nil {
		m.cfg.Logger.Warn("tutti: the old Comm could not be closed and is abandoned", "waited", retireTimeout)
	} else if bad != nil {
		m.cfg.Logger.Warn("tutti: closing the old Comm failed", "reason", bad)
	}
}
