package launch

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/flight"
	"github.com/tutti-go/tutti/internal/flight/inspect"
	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/store"
)

// rankStore returns the part of the store that the ranks of an attempt use.
func (h *host) rankStore(attempt int) store.Store {
	return store.Prefix(h.all, jobstore.Ranks(strconv.Itoa(attempt)))
}

// joinStates returns the progress of an attempt's ranks in Join, by rank.
func (h *host) joinStates(attempt int) map[int]string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return joinStates(ctx, h.rankStore(attempt))
}

// joinStates reads the ranks' progress in Join from their part of the store. Ranks that have not
// called Join are not in the map. If the store does not answer, the map is nil. It may be called by
// any goroutine.
func joinStates(ctx context.Context, ranks store.Store) map[int]string {
	keys, err := ranks.List(ctx)
	if err != nil {
		return nil
	}
	state := make(map[int]string)
	for _, k := range keys {
		if rank, ok := jobstore.ParseJoined(k); ok {
			state[rank] = hadJoined
		}
		if rank, ok := jobstore.ParseRank(k); ok && state[rank] == "" {
			state[rank] = inJoin
		}
	}
	return state
}

const (
	hadJoined = "had joined"
	inJoin    = "was waiting in Join"

	wasStopped = "was stopped (SIGSTOP or a debugger)"
)

// recordActivity stores the ranks' progress in Join when the first failure occurs.
func (a *attempt) recordActivity(first Exit) {
	state := a.h.joinStates(a.number)
	for _, r := range a.ranks {
		switch {
		case r.exit != nil && !first.matches(r):
		case r.exit == nil && isStopped(r.pid):
			r.activity, r.stopped = wasStopped, true
		case r.replacement > 0 && !a.isMember(r):
			r.activity = "was waiting to be admitted"
		case state[r.number] != "":
			r.activity = state[r.number]
		case len(state) > 0:
			r.activity = "never called Join"
		}
	}
}

// activityTimeout bounds the time that ranks may take to report their activity.
func (a *attempt) activityTimeout() time.Duration {
	const least, most = 500 * time.Millisecond, 10 * time.Second
	return min(max(a.cfg.Grace/10, least), most)
}

// requestActivity asks the ranks that run and have joined to report their activity. The
// returned channel is closed when all have answered, when activityTimeout has passed, or when
// the store does not answer. It is nil if there is no such rank. The goroutine that
// waits reads only fields that do not change during an attempt.
func (a *attempt) requestActivity() <-chan struct{} {
	var keys []string
	for _, r := range a.ranks {
		if r.exit == nil && r.activity == hadJoined {
			keys = append(keys, jobstore.ReportComplete(r.name()))
		}
	}
	if len(keys) == 0 {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), a.activityTimeout())
		defer cancel()
		s := a.h.rankStore(a.number)
		if s.Set(ctx, jobstore.ReportRequest, nil) == nil {
			_ = s.Wait(ctx, keys...)
		}
	}()
	return done
}

// activityDumps returns the flight dumps that a rank has put in the store. It returns nil
// if there are none, if the store does not answer within a second, or if they cannot be
// decoded: they are for a report, which goes without them. It may be called by any goroutine.
func (h *host) activityDumps(attempt int, name string) []*flight.Dump {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s, key := h.rankStore(attempt), jobstore.Report(name)
	if there, err := s.Check(ctx, key); err != nil || !there {
		return nil
	}
	text, err := s.Get(ctx, key)
	if err != nil {
		return nil
	}
	dumps, err := inspect.Decode(bytes.NewReader(text))
	if err != nil {
		return nil
	}
	return dumps
}

// failedByPeer reports whether a rank's dumps blame another rank for its failure: the failure began there, or
// this rank found that the other one has exited or closed the Comm.
func failedByPeer(dumps []*flight.Dump) bool {
	return slices.ContainsFunc(dumps, func(d *flight.Dump) bool {
		return d.Error != nil && (d.Error.Rank != d.Rank || len(d.Error.Lost) > 0 && !slices.Contains(d.Error.Lost, d.Rank))
	})
}

// lostRanks returns the ranks of the job that a rank's dumps name as lost.
func lostRanks(dumps []*flight.Dump) (list []int) {
	for _, d := range dumps {
		if d.Error != nil && d.Comm == jobstore.World {
			list = append(list, d.Error.Lost...)
		}
	}
	return list
}

// findings returns at most three diagnoses of a job that was stopped. The job may have
// hung; the diagnoses name the ranks that the others waited for. They omit that there are no
// dumps of the ranks in absent, which are known to be unable to write any.
func findings(dumps []*flight.Dump, absent []int) (list []string) {
	const most = 3
	if len(dumps) == 0 {
		return nil
	}
	for _, f := range inspect.Comms(dumps)[0].Diagnose().Findings {
		known := f.Seq == 0 && !slices.ContainsFunc(f.Ranks, func(r int) bool { return !slices.Contains(absent, r) })
		if len(list) < most && !known {
			list = append(list, f.Text)
		}
	}
	return list
}

// describeActivity says what a rank was doing on its first communicator, which is the
// world if the rank has one.
func describeActivity(dumps []*flight.Dump) string {
	d := dumps[0]
	text := inspect.WhereWas(d)
	if len(d.Behind) > 0 {
		text += ", waiting for " + engine.Ranks(d.Behind)
	}
	if d.Comm != jobstore.World {
		text += fmt.Sprintf(", as rank %d of %s", d.Rank, d.Comm)
	}
	return text
}

// flightDir returns the absolute directory for the flight dumps of an attempt; "" if
// none is configured.
func (h *host) flightDir(attempt int) string {
	dir := h.cfg.FlightDir
	if dir == "" {
		return ""
	}
	if h.cfg.Restarts > 0 {
		dir = filepath.Join(dir, "attempt-"+strconv.Itoa(attempt))
	}
	if abs, err := filepath.Abs(dir); err == nil {
		return abs // the ranks' working directory may differ
	}
	return dir
}

// dumpPattern returns a glob pattern for the flight dumps of an attempt; "" if there
// are none.
func (h *host) dumpPattern(attempt int) string {
	dir := h.flightDir(attempt)
	if files, err := filepath.Glob(filepath.Join(dir, "*.json")); dir == "" || err != nil || len(files) == 0 {
		return ""
	}
	return filepath.Join(dir, "*")
}
