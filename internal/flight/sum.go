package flight

import (
	"math/bits"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// buckets is how many there are for latencies: the i-th takes what lasted less
// than 256 ns << i, the last all the rest.
const buckets = 28

// A sum is what is counted of one kind of operation.
type sum struct {
	ops, bytes, failed uint64
	nanos              uint64
	lasted             [buckets]uint64
}

// add counts operations of so many bytes each.
func (s *sum) add(ops, bytes uint64) {
	put(&s.ops, s.ops+ops)
	put(&s.bytes, s.bytes+ops*bytes)
}

func (s *sum) time(nanos uint64) {
	i := min(bits.Len64(nanos>>8), buckets-1)
	put(&s.lasted[i], s.lasted[i]+1)
	put(&s.nanos, s.nanos+nanos)
}

// A Total is what was counted of one kind of operation.
type Total struct {
	Op     string // such as "AllReduce"
	Count  uint64 // how many were begun
	Bytes  uint64 // of this rank's larger buffer
	Failed uint64 // how many ended with an error
	Timed  uint64 // how many of them were timed
	Time   time.Duration
	Lasted []uint64 // of those, by duration; see Bound
}

// Bound is what the operations in Total.Lasted[i] lasted less than; for the
// last there is no bound, and it returns zero.
func Bound(i int) time.Duration {
	if i >= buckets-1 {
		return 0
	}
	return 256 << i
}

// Totals returns what was counted, of what there was any of. The last operation
// that was begun has number last.
func (l *Log) Totals(last uint64) (list []Total) {
	for {
		runs := load(&l.nRuns)
		list = l.totals(runs, last)
		if load(&l.nRuns) == runs {
			return list
		}
	}
}

func (l *Log) totals(runs, last uint64) (list []Total) {
	now := &l.runs[runs%Size]
	for kind := range l.sums {
		s := &l.sums[kind]
		t := Total{
			Op: kindName(kind), Count: load(&s.ops), Bytes: load(&s.bytes),
			Failed: load(&s.failed), Time: time.Duration(load(&s.nanos)),
		}
		if first := load(&now.first); runs > 0 && verbOf(load(&now.what)) == kind && last >= first {
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
