package flight

import (
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// Version is the version of the dump format.
const Version = 1

// A Dump is the contents of one rank's recorder, as written to files. Times are
// nanoseconds since Began; zero means not recorded.
type Dump struct {
	Version int       `json:"tutti_flight"`
	Comm    string    `json:"comm"`  // the same on all its ranks
	Rank    int       `json:"rank"`  // in the Comm
	Size    int       `json:"size"`  // of the Comm
	World   int       `json:"world"` // the rank's number in the job
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Began   time.Time `json:"began"`            // when the Comm was made
	At      int64     `json:"at"`               // when the dump was written
	Behind  []int     `json:"behind,omitempty"` // ranks that had not arrived in the running operation
	Closed  bool      `json:"closed,omitempty"`
	Error   *Error    `json:"error,omitempty"`
	Ops     []Op      `json:"ops"`
	Msgs    []Op      `json:"messages,omitempty"`
}

// Brief returns a dump with the last few operations and messages, enough to tell
// what the rank was doing.
func (d *Dump) Brief() *Dump {
	const few = 16
	b := *d
	b.Ops = b.Ops[max(len(b.Ops)-few, 0):]
	b.Msgs = b.Msgs[max(len(b.Msgs)-few, 0):]
	return &b
}

// An Error is why the Comm has failed.
type Error struct {
	Kind string `json:"kind"`
	Op   string `json:"op,omitempty"`
	Seq  uint64 `json:"seq,omitempty"`
	Rank int    `json:"rank"`
	Lost []int  `json:"lost,omitempty"`
	Text string `json:"text"`
}

// An Op is an operation or a message.
type Op struct {
	Seq    uint64 `json:"seq"`
	Verb   string `json:"verb"`
	Type   string `json:"type,omitempty"`
	Red    string `json:"op,omitempty"`
	Root   *int   `json:"root,omitempty"`
	Peer   *int   `json:"peer,omitempty"` // of a message
	Tag    int    `json:"tag,omitempty"`
	Count  uint64 `json:"count"`
	Bytes  uint64 `json:"bytes"`
	Name   string `json:"name,omitempty"`
	Print  uint32 `json:"print,omitempty"` // of a Batch: hash that differs between different batches
	State  string `json:"state"`
	Queued int64  `json:"queued,omitempty"`
	Start  int64  `json:"start,omitempty"`
	End    int64  `json:"end,omitempty"`
}

// Names of the states in a dump.
const (
	StateQueued  = "queued"
	StateRunning = "running"
	StateFailed  = "failed"
	StateDone    = "done"
)

// Progress is the position of a rank in a Comm's operations.
type Progress struct {
	Last    uint64 // number of the last operation that was begun
	Running bool   // that operation has not ended
	Oldest  uint64 // first operation that has not ended; zero: Last is the only one
	Posted  uint64 // number of the last message
}

// Snapshot fills d from the Log. It omits records that are written meanwhile.
func (l *Log) Snapshot(d *Dump, p Progress) {
	d.Version, d.Began, d.At = Version, l.began, int64(l.now())
	d.Ops = l.operations(p)
	d.Msgs = l.messages(p.Posted)
}

// operations returns the last operations, oldest first. It omits times that are
// overwritten meanwhile.
func (l *Log) operations(p Progress) []Op {
	runs := l.readRuns()
	times := make(map[uint64]opTimes)
	for n, i := load(&l.nTimes), uint64(0); i < min(n, Size-1); i++ {
		t := &l.times[(n-i)%Size]
		c := opTimes{load(&t.seq), load(&t.queued), load(&t.started), load(&t.ended), load(&t.failed)}
		if load(&l.nTimes) < n-i+Size-1 { // the slot is not being overwritten
			times[c.seq] = c
		}
	}
	var list []Op
	first := uint64(1)
	if p.Last > Size {
		first = p.Last - Size + 1
	}
	for i, r := range runs {
		end := p.Last
		if i+1 < len(runs) {
			end = runs[i+1].first - 1
		}
		for seq := max(r.first, first); seq <= end; seq++ {
			op, t := l.describe(seq, &r), times[seq]
			op.Queued, op.Start, op.End, op.State = int64(t.queued), int64(t.started), int64(t.ended), StateDone
			switch {
			case t.failed != 0:
				op.State = StateFailed
			case p.Running && t.ended == 0 && (seq == p.Last || p.Oldest != 0 && seq >= p.Oldest):
				op.State = StateRunning
				if op.Start == 0 {
					op.Start = l.wait.Value()
				}
			}
			list = append(list, op)
		}
	}
	return list
}

// readRuns returns the runs, oldest first.
func (l *Log) readRuns() (list []run) {
	last := load(&l.nRuns)
	n := min(last, Size-1)
	for i := last - n + 1; i <= last; i++ {
		r := &l.runs[i%Size]
		c := run{load(&r.first), load(&r.packed), load(&r.count), load(&r.bytes), load(&r.print)}
		if load(&l.nRuns) < i+Size-1 {
			list = append(list, c)
		}
	}
	return list
}

// describe returns an operation of a run as an Op.
func (l *Log) describe(seq uint64, r *run) Op {
	op := Op{Seq: seq, Verb: kindName(verbOf(r.packed)), Type: typeName(r.packed), Count: r.count, Bytes: r.bytes, Print: uint32(r.print)}
	if red := engine.ReduceOp(r.packed >> redAt & (1<<(unevenAt-redAt) - 1)); red != 0 {
		op.Red = red.String()
	}
	if r.packed>>unevenAt&1 != 0 {
		op.Verb += "V"
	}
	if r.packed>>rootedAt&1 != 0 {
		root := int(r.packed >> rootAt & rootMask)
		op.Root = &root
	}
	if id := r.packed >> nameAt; id != 0 {
		l.mu.Lock()
		op.Name = l.names[id-1]
		l.mu.Unlock()
	}
	if call, ok := engine.MethodOf(op.Name); ok {
		return Op{Seq: seq, Verb: call}
	}
	return op
}

func typeName(what uint64) string {
	if t := kernel.DType(what >> typeAt & (1<<(redAt-typeAt) - 1)); t != 0 {
		return t.String()
	}
	return ""
}

// Describe returns calls that have not begun as an Op. It reads the calls, which the Comm's lock guards.
func (l *Log) Describe(seq uint64, calls []engine.Call, queued uint64) Op {
	r := l.runOf(calls)
	op := l.describe(seq, &r)
	op.State, op.Queued = StateQueued, int64(queued)
	return op
}

// messages returns the last messages, oldest first. It omits a record that is
// overwritten meanwhile.
func (l *Log) messages(last uint64) (list []Op) {
	for i := last - min(last, Size) + 1; i <= last; i++ {
		r := &l.msgs[i%Size]
		peer, kind := int(load(&r.peer)), load(&r.kind)
		op := Op{
			Seq: i, Verb: kindName(verbOf(kind)), Type: kernel.DType(kind >> typeAt).String(), Peer: &peer, Tag: int(load(&r.tag)),
			Count: load(&r.count), Bytes: load(&r.bytes), Start: int64(r.begin()), End: int64(load(&r.ended)),
		}
		switch load(&r.state) {
		case messageFailed:
			op.State = StateFailed
		case messageRuns:
			op.State = StateRunning
		default:
			op.State = StateDone
		}
		if load(&r.number) == i {
			list = append(list, op)
		}
	}
	return list
}
