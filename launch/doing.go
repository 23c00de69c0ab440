package launch

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/flight"
	"github.com/tutti-go/tutti/internal/flight/inspect"
	"github.com/tutti-go/tutti/internal/place"
	"github.com/tutti-go/tutti/store"
)

// ranks is where the ranks of an attempt meet.
func (h *host) ranks(epoch int) store.Store { return store.Prefix(h.all, "tutti/"+strconv.Itoa(epoch)) }

// joined returns how far the ranks of an attempt have come with Join.
func (h *host) joined(epoch int) map[int]string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return joinStates(ctx, h.ranks(epoch))
}

// joinStates reads how far ranks have come with Join.
func joinStates(ctx context.Context, ranks store.Store) map[int]string {
	keys, err := ranks.List(ctx)
	if err != nil {
		return nil
	}
	state := make(map[int]string)
	for _, k := range keys {
		var rank int
		if n, _ := fmt.Sscanf(k, "joined/%d", &rank); n == 1 {
			state[rank] = hadJoined
		}
		if n, _ := fmt.Sscanf(k, "rank/%d", &rank); n == 1 && state[rank] == "" {
			state[rank] = inJoin
		}
	}
	return state
}

const (
	hadJoined = "had joined"
	inJoin    = "was waiting in Join"
)

// lookAt notes how far the ranks have come, at the time of the first failure.
func (w *world) lookAt(first Exit) {
	state := w.h.joined(w.epoch)
	for _, r := range w.ranks {
		switch {
		case r.exit != nil && !first.of(r):
		case r.replacement > 0 && !w.isMember(r):
			r.doing = "was waiting to be let in"
		case state[r.number] != "":
			r.doing = state[r.number]
		case len(state) > 0:
			r.doing = "never called Join"
		}
	}
}

// askTime is how long ranks may take to say what they were doing.
func (w *world) askTime() time.Duration {
	const least, most = 500 * time.Millisecond, 10 * time.Second
	return min(max(w.cfg.Grace/10, least), most)
}

// ask asks the ranks that run, and have joined, what they are doing. What it
// returns is closed when they have answered, or will not; nil if there are none.
func (w *world) ask() <-chan struct{} {
	var keys []string
	for _, r := range w.ranks {
		if r.exit == nil && r.doing == hadJoined {
			keys = append(keys, place.AnsweredKey(r.name()))
		}
	}
	if len(keys) == 0 {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), w.askTime())
		defer cancel()
		s := w.h.ranks(w.epoch)
		if s.Set(ctx, place.AskKey, nil) == nil {
			_ = s.Wait(ctx, keys...)
		}
	}()
	return done
}

// told is what a rank has said of what it was doing; nil if it has said nothing.
func (h *host) told(epoch int, name string) []*flight.Dump {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s, key := h.ranks(epoch), place.ToldKey(name)
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

// suffered reports whether a rank has failed because of another.
func suffered(dumps []*flight.Dump) bool {
	return slices.ContainsFunc(dumps, func(d *flight.Dump) bool { return d.Error != nil && d.Error.Rank != d.Rank })
}

// found is what can be said of the ranks of a job that was stopped: it may have
// hung, and this names who kept the others waiting.
func found(dumps []*flight.Dump) (list []string) {
	const most = 3
	if len(dumps) == 0 {
		return nil
	}
	for _, f := range inspect.Comms(dumps)[0].Diagnose().Findings {
		if len(list) < most {
			list = append(list, f.Text)
		}
	}
	return list
}

// doing puts what a rank was doing in words: on the communicator that matters
// most, which is the first.
func doing(dumps []*flight.Dump) string {
	d := dumps[0]
	text := inspect.Where(d)
	if rest, now := strings.CutPrefix(text, "is in "); now {
		text = "was in " + rest
	}
	if len(d.Behind) > 0 {
		text += ", waiting for " + engine.Ranks(d.Behind)
	}
	if d.Comm != place.WorldLine {
		text += fmt.Sprintf(", as rank %d of %s", d.Rank, d.Comm)
	}
	return text
}

// flightDir is the folder for ranks' dumps in an attempt; "" if there is none.
func (h *host) flightDir(epoch int) string {
	dir := h.cfg.FlightDir
	if dir == "" {
		return ""
	}
	if h.cfg.Restarts > 0 {
		dir = filepath.Join(dir, "attempt-"+strconv.Itoa(epoch))
	}
	if abs, err := filepath.Abs(dir); err == nil {
		return abs // ranks may start elsewhere
	}
	return dir
}

// dumps is a pattern for the dumps that ranks have left; "" if they have not.
func (h *host) dumps(epoch int) string {
	dir := h.flightDir(epoch)
	if files, err := filepath.Glob(filepath.Join(dir, "*.json")); dir == "" || err != nil || len(files) == 0 {
		return ""
	}
	return filepath.Join(dir, "*")
}
