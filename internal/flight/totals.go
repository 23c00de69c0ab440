package flight

import (
	"math/bits"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// buckets is the number of latency buckets: bucket i counts durations below 256 ns
// << i, the last bucket all others.
const buckets = 28

// A counter counts one kind of operation.
type counter struct {
	ops, bytes, failed uint64
	nanos              uint64
	lasted             [buckets]uint64
}

// add counts operations of the given size each.
func (s *counter) add(ops, bytes uint64) {
	put(&s.ops, s.ops+ops)
	put(&s.bytes, s.bytes+ops*bytes)
}

func (s *counter) time(nanos uint64) {
	i := min(bits.Len64(nanos>>8), buckets-1)
	put(&s.lasted[i], s.lasted[i]+1)
	put(&s.nanos, s.nanos+nanos)
}

// A Total is the counts of one kind of operation.
type Total struct {
	Op     string        // for example "AllReduce"
	Count  uint64        // operations that were begun
	Bytes  uint64        // bytes of this rank's larger buffer
	Failed uint64        // operations that ended with an error
	Timed  uint64        // operations whose duration was recorded
	Time   time.Duration // total of the recorded durations
	Lasted []uint64      // number of recorded durations by bucket; see Bound
}

// Bound returns the upper bound of bucket i of Total.Lasted. The last bucket has no
// bound; Bound returns zero for it.
func Bound(i int) time.Duration {
	if i >= buckets-1 {
		return 0
	}
	return 256 << i
}

// Totals returns the counts of all kinds of operations that occurred. last is the
// number of the last operation that was begun.
func (l *Log) Totals(last uint64) (list []Total) {
	for {
		runs := load(&l.nRuns)
		list = l.totals(runs, last)
		if load(&l.nRuns) == runs {
			return list
		}
	}
}

// totals is one try of Totals. runs is the number of runs; the result is wrong if
// that number changes meanwhile.
func (l *Log) totals(runs, last uint64) (list []Total) {
	now := &l.runs[runs%Size]
	for kind := range l.sums {
		s := &l.sums[kind]
		t := Total{
			Op: kindName(kind), Count: load(&s.ops), Bytes: load(&s.bytes),
			Failed: load(&s.failed), Time: time.Duration(load(&s.nanos)),
		}
		if first := load(&now.first); runs > 0 && verbOf(load(&now.packed)) == kind && last >= first {
			t.Count += last - first + 1
			t.Bytes += (last - first + 1) * load(&now.bytes)
		}
		if t.Count == 0 {
			continue
		}
		t.Lasted = make([]uint64, buckets)
		for i := range t.Lasted {
			t.Lasted[i] = load(&s.lasted[i])
			t.Timed += t.Lasted[i]
		}
		list = append(list, t)
	}
	return list
}

func kindName(kind int) string {
	switch kind {
	case send:
		return "Send"
	case recv:
		return "Recv"
	}
	return engine.Verb(kind).String()
}
