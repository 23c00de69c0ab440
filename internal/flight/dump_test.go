package flight

import (
	"fmt"
	"sync"
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

func call(verb engine.Verb, n int) engine.Call {
	m := engine.Mem{N: n, Type: kernel.Float32}
	return engine.Call{Verb: verb, ReduceOp: engine.Sum, Dst: m, Src: m}
}

// TestOperations checks that a dump lists the operations of a run one by one, with
// the recorded times.
func TestOperations(t *testing.T) {
	l := New()
	small, big, bcast := call(engine.AllReduce, 1), call(engine.AllReduce, large/4), call(engine.Broadcast, 7)
	bcast.Root = 3
	seq := uint64(0)
	do := func(c engine.Call, times int) {
		for range times {
			seq++
			l.Begin(seq, &c)
			l.End(seq, false)
		}
	}
	do(small, 10)
	do(big, 2)
	do(small, 3)
	do(bcast, 1)
	seq++
	named := []engine.Call{small, bcast}
	named[0].Name = "step"
	l.BeginQueued(seq, named, l.Now())
	l.End(seq, true)
	seq++
	l.Begin(seq, &small)

	var d Dump
	l.Snapshot(&d, Progress{Last: seq, Running: true})
	if len(d.Ops) != int(seq) {
		t.Fatalf("%d operations, want %d", len(d.Ops), seq)
	}
	for i, op := range d.Ops {
		want, state, timed := Op{Verb: "AllReduce", Count: 1, Bytes: 4}, StateDone, false
		switch i {
		case 10, 11:
			want, timed = Op{Verb: "AllReduce", Count: large / 4, Bytes: large}, true
		case 15:
			want = Op{Verb: "Broadcast", Count: 7, Bytes: 28}
		case 16:
			want, state, timed = Op{Verb: "Batch", Count: 2, Bytes: 32, Name: "step"}, StateFailed, true
		case 17:
			state = StateRunning
		}
		if op.Seq != uint64(i+1) || op.Verb != want.Verb || op.Count != want.Count || op.Bytes != want.Bytes ||
			op.Name != want.Name || op.State != state || (op.Start > 0) != timed || (op.End >= op.Start) != (op.End > 0 || !timed) {
			t.Errorf("operation %d: %+v, want %+v, %s", i+1, op, want, state)
		}
	}
	if r := d.Ops[15].Root; r == nil || *r != 3 {
		t.Errorf("the root is %v", r)
	}
	totals := map[string]Total{}
	for _, s := range l.Totals(seq) {
		totals[s.Op] = s
	}
	if a := totals["AllReduce"]; a.Count != 16 || a.Bytes != 14*4+2*large || a.Timed != 2 {
		t.Errorf("AllReduce: %+v", a)
	}
	if b := totals["Batch"]; b.Count != 1 || b.Failed != 1 || totals["Broadcast"].Count != 1 {
		t.Errorf("%+v", totals)
	}
}

// TestNames checks that an operation that differs only in its name begins a new
// run.
func TestNames(t *testing.T) {
	l := New()
	for i := range 2 * maxNames {
		c := call(engine.Barrier, 0)
		c.Name = fmt.Sprint("n", i%(maxNames+1))
		l.BeginQueued(uint64(i+1), []engine.Call{c}, 1)
		l.End(uint64(i+1), false)
	}
	var d Dump
	l.Snapshot(&d, Progress{Last: 2 * maxNames})
	at := func(seq int) Op { return d.Ops[seq-int(d.Ops[0].Seq)] }
	if got := at(maxNames).Name; got != fmt.Sprint("n", maxNames-1) {
		t.Errorf("the name is %q", got)
	}
	if got := at(maxNames + 1).Name; got != "" {
		t.Errorf("one name too many: %q", got)
	}
}

// TestReadersAndWriters takes snapshots in two goroutines while the test's
// goroutine writes. Each snapshot must have consecutive operations.
func TestReadersAndWriters(t *testing.T) {
	l := New()
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var d Dump
				l.Snapshot(&d, Progress{Last: Size / 2, Posted: Size / 2})
				for i := 1; i < len(d.Ops); i++ {
					if d.Ops[i].Seq != d.Ops[i-1].Seq+1 {
						t.Errorf("operation %d after %d", d.Ops[i].Seq, d.Ops[i-1].Seq)
					}
				}
				_ = l.Totals(1)
			}
		})
	}
	m := engine.Message{Send: true, Peer: 1, Mem: engine.Mem{N: 3, Type: kernel.Int8}}
	for seq := uint64(1); seq < 20_000; seq++ {
		c := call(engine.AllReduce, 1+int(seq%3/2))
		l.Begin(seq, &c)
		l.End(seq, false)
		l.BeginMessage(seq, &m)
		l.EndMessage(seq, false)
	}
	close(stop)
	readers.Wait()
	var d Dump
	l.Snapshot(&d, Progress{Last: 19_999, Posted: 19_999})
	if len(d.Ops) < Size/2 || len(d.Msgs) != Size {
		t.Errorf("%d operations and %d messages", len(d.Ops), len(d.Msgs))
	}
	if op := d.Msgs[0]; op.Verb != "Send" || *op.Peer != 1 || op.Bytes != 3 || op.State != StateDone {
		t.Errorf("%+v", op)
	}
}

// TestBounds checks that a duration equal to a bound is not counted below it.
func TestBounds(t *testing.T) {
	for _, nanos := range []uint64{0, 255, 256, 511, 512, 1 << 40, 1 << 60} {
		var s counter
		s.time(nanos)
		for i, n := range s.lasted {
			if n == 1 && (Bound(i) != 0 && nanos >= uint64(Bound(i)) || i > 0 && nanos < uint64(Bound(i-1))) {
				t.Errorf("%d ns is in bucket %d, below %v", nanos, i, Bound(i))
			}
		}
	}
}

// TestFailedAtOnce checks that an operation that fails without a wait has the
// duration zero, and not a negative one.
func TestFailedAtOnce(t *testing.T) {
	l := New()
	c := call(engine.AllReduce, 1)
	l.Begin(1, &c)
	l.End(1, true)
	d := &Dump{}
	l.Snapshot(d, Progress{Last: 1})
	if len(d.Ops) != 1 || d.Ops[0].State != StateFailed || d.Ops[0].Start == 0 || d.Ops[0].End < d.Ops[0].Start {
		t.Errorf("%+v", d.Ops)
	}
	if all := l.Totals(1); len(all) != 1 || all[0].Time < 0 || all[0].Failed != 1 {
		t.Errorf("%+v", all)
	}
}
