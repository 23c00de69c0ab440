package inspect

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/tutti-go/tutti/internal/flight"
)

// An event is an event in Chrome's trace format.
type event struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	Cat   string         `json:"cat,omitempty"`
	Time  float64        `json:"ts"` // microseconds
	Dur   float64        `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// Trace writes the operations with times in the format that Perfetto and Chrome
// (about:tracing) open: a process for each rank, a thread for each communicator and
// another for its messages. An operation that has not ended lasts until the dump.
func Trace(w io.Writer, comms []*Comm) error {
	var zero time.Time
	for _, c := range comms {
		for _, d := range c.Ranks {
			if zero.IsZero() || d.Began.Before(zero) {
				zero = d.Began
			}
		}
	}
	events := []event{}
	for i, c := range comms {
		for _, d := range c.Ranks {
			add := func(thread int, name string, ops []flight.Op) {
				events = append(events, event{Name: "thread_name", Phase: "M", PID: d.World, TID: thread, Args: map[string]any{"name": name}})
				for j := range ops {
					if e, ok := eventOf(d, &ops[j], zero); ok {
						e.TID = thread
						events = append(events, e)
					}
				}
			}
			events = append(events, event{
				Name: "process_name", Phase: "M", PID: d.World,
				Args: map[string]any{"name": fmt.Sprintf("rank %d (process %d on %s)", d.World, d.PID, d.Host)},
			})
			add(2*i, c.Name, d.Ops)
			if len(d.Msgs) > 0 {
				add(2*i+1, c.Name+" messages", d.Msgs)
			}
		}
	}
	return json.NewEncoder(w).Encode(map[string]any{"traceEvents": events, "displayTimeUnit": "ns"})
}

func eventOf(d *flight.Dump, op *flight.Op, zero time.Time) (event, bool) {
	if op.Start == 0 {
		return event{}, false
	}
	end := op.End
	if end == 0 {
		end = d.At
	}
	micros := func(at int64) float64 { return (float64(d.Began.Sub(zero)) + float64(at)) / 1e3 }
	return event{
		Name: name(op), Phase: "X", Cat: op.State, Time: micros(op.Start), Dur: float64(span(op.Start, end)) / 1e3, PID: d.World,
		Args: map[string]any{"call": Describe(op), "bytes": op.Bytes, "state": op.State},
	}, true
}
