package flight

import (
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// Version is that of the dump's form.
const Version = 1

// A Dump is what one rank's recorder holds, as it is written to files. Times
// are nanoseconds since Began; zero means that they were not taken.
type Dump struct {
	Version int       `json:"tutti_flight"`
	Comm    string    `json:"comm"`  // the same on all its ranks
	Rank    int       `json:"rank"`  // in the communicator
	Size    int       `json:"size"`  // of the communicator
	World   int       `json:"world"` // the rank's number in the job
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Began   time.Time `json:"began"`            // when the communicator was made
	At      int64     `json:"at"`               // when this was written
	Behind  []int     `json:"behind,omitempty"` // who had not arrived in the operation that was running
	Closed  bool      `json:"closed,omitempty"`
	Error   *Error    `json:"error,omitempty"`
	Ops     []Op      `json:"ops"`
	Msgs    []Op      `json:"messages,omitempty"`
}

// Brief is a dump with the last few operations and messages, enough to say what
// the rank was doing.
func (d *Dump) Brief() *Dump {
	const few = 16
	b := *d
	b.Ops = b.Ops[max(len(b.Ops)-few, 0):]
	b.Msgs = b.Msgs[max(len(b.Msgs)-few, 0):]
	return &b
}

// An Error is why the communicator has ended.
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
	Print  uint32 `json:"print,omitempty"` // of a Batch: tells different ones apart
	State  string `json:"state"`
	Queued int64  `json:"queued,omitempty"`
	Start  int64  `json:"start,omitempty"`
	End    int64  `json:"end,omitempty"`
}

// The states' names in a dump.
const (
	StateQueued  = "queued"
	StateRunning = "running"
	StateFailed  = "failed"
	StateDone    = "done"
)

// Progress is how far a communicator's rank is.
type Progress struct {
	Last    uint64 // the number of the last operation that was begun
	Running bool   // it is not over
	Oldest  uint64 // the first that is not over; zero: the last is the only one
	Posted  uint64 // the number of the last message
}

// Snapshot fills in what the Log knows. What is written meanwhile is left out.
func (l *Log) Snapshot(d *Dump, p Progress) {
	d.Version, d.Began, d.At = Version, l.began, int64(l.now())
	d.Ops = l.operations(p)
	d.Msgs = l.messages(p.Posted)
}

// operations returns the last ones, oldest first.
func (l *Log) operations(p Progress) []Op {
	runs := l.readRuns()
	times := make(map[uint64]timed)
	for n, i := load(&l.nTimes), uint64(0); i < min(n, Size-1); i++ {
		t := &l.times[(n-i)%Size]
		c := timed{load(&t.seq), load(&t.queued), load(&t.started), load(&t.ended), load(&t.failed)}
		if load(&l.nTimes) < n-i+Size-1 { // which is then not being overwritten
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
			op, t := l.op(seq, &r), times[seq]
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
		c := run{load(&r.first), load(&r.what), load(&r.count), load(&r.bytes), load(&r.print)}
		if load(&l.nRuns) < i+Size-1 {
			list = append(list, c)
		}
	}
	return list
}

// op puts an operation of a run in words.
func (l *Log) op(seq uint64, r *run) Op {
	op := Op{Seq: seq, Verb: kindName(verbOf(r.what)), Type: typeName(r.what), Count: r.count, Bytes: r.bytes, Print: uint32(r.print)}
	if red := engine.Red(r.what >> redAt & (1<<(unevenAt-redAt) - 1)); red != 0 {
		op.Red = red.String()
	}
	if r.what>>unevenAt&1 != 0 {
		op.Verb += "V"
	}
	if r.what>>rootedAt&1 != 0 {
		root := int(r.what >> rootAt & rootMask)
		op.Root = &root
	}
	if id := r.what >> nameAt; id != 0 {
		l.mu.Lock()
		op.Name = l.names[id-1]
		l.mu.Unlock()
	}
	return op
}

func typeName(what uint64) string {
	if t := kernel.DType(what >> typeAt & (1<<(redAt-typeAt) - 1)); t != 0 {
		return t.String()
	}
	return ""
}

// Describe puts calls that have not begun in words.
func (l *Log) Describe(seq uint64, calls []engine.Call, queued uint64) Op {
	r := l.runOf(calls)
	op := l.op(seq, &r)
	op.State, op.Queued = StateQueued, int64(queued)
	return op
}

// messages returns the last ones, oldest first.
func (l *Log) messages(last uint64) (list []Op) {
	for i := last - min(last, Size) + 1; i <= last; i++ {
		r := &l.msgs[i%Size]
		peer, kind := int(load(&r.peer)), load(&r.kind)
		op := Op{
			Seq: i, Verb: kindName(verbOf(kind)), Type: typeName(kind), Peer: &peer, Tag: int(load(&r.tag)),
			Count: load(&r.count), Bytes: load(&r.bytes), Start: int64(load(&r.started)), End: int64(load(&r.ended)),
		}
		switch {
		case load(&r.failed) != 0:
			op.State = StateFailed
		case op.End == 0:
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
