package tutti

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	recorder "github.com/tutti-go/tutti/internal/flight"
)

// Stats are the counters of a Comm since its creation. Stats is a value: it does
// not change.
type Stats struct {
	Comm       string // "world", or for what was split from it a name that its ranks share
	Rank, Size int
	Ops        []OpStats // by kind of operation, without kinds that did not occur
	Staged     uint64    // operations on device memory that went through host memory; see Config.HostStaging
	Lost       []int     // the lost ranks
	Err        error     // why the Comm is poisoned, that it is closed, or nil
}

// OpStats are the counters of one kind of operation, such as AllReduce or
// Send. A Batch of several operations is of the kind "Batch".
type OpStats struct {
	Op     string
	Count  uint64 // number of operations that began
	Bytes  uint64 // sum over this rank's larger buffer of each operation
	Failed uint64 // number of operations that ended with an error
	// Timed is the number of timed operations: all large ones, all collectives of a Batch,
	// all that waited for another rank for more than about a
	// microsecond, and one in 64 of the others. Time is the sum of their
	// durations, and Latency the histogram.
	Timed   uint64
	Time    time.Duration
	Latency []LatencyCount
}

// LatencyCount is the number of operations that took less than Below, and at least
// the Below of the previous element. The last element has no bound: its Below is zero.
type LatencyCount struct {
	Below time.Duration
	Count uint64
}

// Stats returns the current counters. It may be called at any time.
func (c *Comm) Stats() Stats {
	s := Stats{Comm: c.member.Title(), Rank: c.rank, Size: c.size, Err: c.Err()}
	if c.device != nil {
		s.Staged = c.device.Staged()
	}
	if f := c.e.Failure(); f != nil {
		s.Lost = f.Lost
	}
	for _, t := range c.log.Totals(c.queue.started()) {
		o := OpStats{Op: t.Op, Count: t.Count, Bytes: t.Bytes, Failed: t.Failed, Timed: t.Timed, Time: t.Time}
		for i, n := range t.Lasted {
			o.Latency = append(o.Latency, LatencyCount{recorder.Bound(i), n})
		}
		s.Ops = append(s.Ops, o)
	}
	return s
}

// WriteMetrics writes the Stats of one or several Comms in the text form of
// Prometheus, to be served at /metrics.
func WriteMetrics(w io.Writer, stats ...Stats) error {
	b := bufio.NewWriter(w)
	family := func(name, kind, help string, each func(s *Stats, labels string)) {
		fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
		for i := range stats {
			s := &stats[i]
			each(s, fmt.Sprintf(`comm="%s",rank="%d"`, escape.Replace(s.Comm), s.Rank))
		}
	}
	ops := func(name, help string, value func(o *OpStats) uint64) {
		family(name, "counter", help, func(s *Stats, labels string) {
			for i := range s.Ops {
				fmt.Fprintf(b, "%s{%s,op=%q} %d\n", name, labels, s.Ops[i].Op, value(&s.Ops[i]))
			}
		})
	}
	ops("tutti_operations_total", "Operations begun.", func(o *OpStats) uint64 { return o.Count })
	ops("tutti_bytes_total", "Bytes of the larger buffer of each operation.", func(o *OpStats) uint64 { return o.Bytes })
	ops("tutti_failed_operations_total", "Operations that ended with an error.", func(o *OpStats) uint64 { return o.Failed })
	const latency = "tutti_operation_seconds"
	family(latency, "histogram", "Duration of the operations that were timed: not all of the small ones are.",
		func(s *Stats, labels string) {
			for i := range s.Ops {
				s.Ops[i].histogram(b, latency, labels)
			}
		})
	const staged = "tutti_staged_operations_total"
	family(staged, "counter", "Operations on device memory that went through host memory.", func(s *Stats, labels string) {
		fmt.Fprintf(b, "%s{%s} %d\n", staged, labels, s.Staged)
	})
	family("tutti_ranks", "gauge", "Ranks of the Comm.", func(s *Stats, labels string) {
		fmt.Fprintf(b, "tutti_ranks{%s} %d\n", labels, s.Size)
	})
	family("tutti_ranks_lost", "gauge", "Ranks that are gone.", func(s *Stats, labels string) {
		fmt.Fprintf(b, "tutti_ranks_lost{%s} %d\n", labels, len(s.Lost))
	})
	family("tutti_up", "gauge", "1 while operations can be started, 0 after a failure or Close.", func(s *Stats, labels string) {
		up := 1
		if s.Err != nil {
			up = 0
		}
		fmt.Fprintf(b, "tutti_up{%s} %d\n", labels, up)
	})
	return b.Flush()
}

// escape escapes the values of labels.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func (o *OpStats) histogram(w io.Writer, name, labels string) {
	sum := uint64(0)
	for _, l := range o.Latency {
		sum += l.Count
		le := "+Inf"
		if l.Below > 0 {
			le = strconv.FormatFloat(l.Below.Seconds(), 'g', -1, 64)
		}
		fmt.Fprintf(w, "%s_bucket{%s,op=%q,le=%q} %d\n", name, labels, o.Op, le, sum)
	}
	fmt.Fprintf(w, "%s_sum{%s,op=%q} %g\n", name, labels, o.Op, o.Time.Seconds())
	fmt.Fprintf(w, "%s_count{%s,op=%q} %d\n", name, labels, o.Op, sum)
}
