package flight

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/wait"
)

const (
	// Size is how many runs of like operations, how many operations' times, and
	// how many messages are remembered.
	Size = 2048
	// large is the least data, in bytes, of an operation whose times are always
	// taken: it lasts so long that two looks at the clock are nothing.
	large = 64 << 10
	// every is how many of the others there are for each whose times are taken.
	every = 64
	// maxNames bounds the names of operations that are remembered.
	maxNames = 1024
)

// A run is operations that look alike, one after another.
type run struct {
	first uint64 // the number of the first
	what  uint64 // see pack
	count uint64 // elements; of a group, calls
	bytes uint64
	print uint64 // of a group: tells different ones apart
}

// timed are an operation's times, in nanoseconds since the Log was made. Zero:
// not taken.
type timed struct {
	seq                    uint64
	queued, started, ended uint64
	failed                 uint64
}

// A Log is the recorder of one rank's operations on one communicator.
//
// Begin, BeginQueued and End are called by the goroutine whose turn it is,
// Depart and Land by whoever holds the communicator's lock. EndEarlier is called
// under that lock, too, and while operations that it is for are under way,
// nothing else but BeginQueued, also under the lock. All else may be called by
// anybody at any time.
type Log struct {
	// The run that goes on, as calls are compared with it.
	verb   engine.Verb
	red    engine.Red
	kind   kernel.DType
	root   int
	dst    int
	src    int
	busy   uint64 // the number of the running operation, if its times are taken
	wait   wait.FirstWait
	_      [64]byte
	nRuns  uint64 // how many runs there were; the newest is runs[nRuns%Size]
	nTimes uint64 // the same of times
	runs   [Size]run
	times  [Size]timed
	msgs   [Size]message
	sums   [kinds]sum
	began  time.Time

	mu    sync.Mutex
	names []string
	ids   map[string]uint32
}

// New returns an empty Log.
func New() *Log {
	l := &Log{began: time.Now(), ids: make(map[string]uint32)}
	l.wait.Base = l.began
	return l
}

// Mark is where an engine notes since when it waits.
func (l *Log) Mark() *wait.FirstWait { return &l.wait }

// now is never zero.
func (l *Log) now() uint64 { return uint64(max(time.Since(l.began), 1)) }

// Begin notes that a call is carried out, at once.
func (l *Log) Begin(seq uint64, c *engine.Call) {
	if c.Verb != l.verb || c.Src.N != l.src || c.Dst.N != l.dst || c.Red != l.red || c.Src.Type != l.kind ||
		c.Root != l.root || seq%every == 0 {
		l.begin(seq, c)
	}
}

//go:noinline
func (l *Log) begin(seq uint64, c *engine.Call) {
	bytes := l.open(seq, unsafe.Slice(c, 1))
	// Only even calls without a name can be compared, and times are taken of all
	// large ones.
	if c.Uneven || c.Name != "" || bytes >= large {
		l.verb = 0
	} else {
		l.verb, l.red, l.kind, l.root, l.dst, l.src = c.Verb, c.Red, c.Src.Type, c.Root, c.Dst.N, c.Src.N
	}
	if bytes >= large || seq%every == 0 {
		l.clock(seq, 0)
	}
}

// BeginQueued notes that an operation of one or several calls has its turn. It
// was queued at a time that Now returned.
func (l *Log) BeginQueued(seq uint64, calls []engine.Call, queued uint64) {
	l.open(seq, calls)
	l.verb = 0
	l.clock(seq, queued)
}

// open makes the run that an operation belongs to the newest, and returns the
// operation's size.
func (l *Log) open(seq uint64, calls []engine.Call) int {
	r := l.runOf(calls)
	old := &l.runs[l.nRuns%Size]
	if r.first = old.first; *old == r && l.nRuns > 0 {
		return int(r.bytes)
	}
	r.first = seq
	if l.nRuns > 0 {
		l.sums[verbOf(old.what)].add(seq-old.first, old.bytes)
	}
	p := &l.runs[(l.nRuns+1)%Size]
	put(&p.first, r.first)
	put(&p.what, r.what)
	put(&p.count, r.count)
	put(&p.bytes, r.bytes)
	put(&p.print, r.print)
	put(&l.nRuns, l.nRuns+1)
	return int(r.bytes)
}

// runOf describes an operation, as one of a run.
func (l *Log) runOf(calls []engine.Call) run {
	c := &calls[0]
	r := run{what: pack(c) | l.name(c.Name)}
	count, bytes := extent(c)
	if len(calls) > 1 {
		r.what = uint64(engine.Group) | l.name(c.Name)
		r.print = uint64(fingerprint(calls))
		count = len(calls)
		for i := range calls[1:] {
			_, b := extent(&calls[1+i])
			bytes += b
		}
	}
	r.count, r.bytes = uint64(count), uint64(bytes)
	return r
}

// clock notes when an operation has begun.
func (l *Log) clock(seq, queued uint64) {
	l.busy = seq
	t := &l.times[(l.nTimes+1)%Size]
	put(&t.seq, seq)
	put(&t.queued, queued)
	put(&t.started, l.now())
	put(&t.ended, 0)
	put(&t.failed, 0)
	put(&l.nTimes, l.nTimes+1)
}

// End notes that the operation that was begun last is over.
func (l *Log) End(seq uint64, failed bool) {
	if failed || l.busy == seq || l.wait.Waits() {
		l.end(seq, failed)
	}
}

//go:noinline
func (l *Log) end(seq uint64, failed bool) {
	now, since := l.now(), l.wait.Take()
	if l.busy != seq {
		l.clock(seq, 0)
		started := now // it has failed without a wait
		if since != 0 {
			started = uint64(since)
		}
		put(&l.times[l.nTimes%Size].started, started)
	}
	t := &l.times[l.nTimes%Size]
	put(&t.ended, now)
	s := &l.sums[verbOf(l.runs[l.nRuns%Size].what)]
	if failed {
		put(&t.failed, 1)
		put(&s.failed, s.failed+1)
	}
	if t.started != 0 {
		s.time(now - t.started)
	}
}

// EndEarlier notes that an operation is over after which others may have begun.
func (l *Log) EndEarlier(seq uint64, failed bool) {
	n := l.nTimes
	for n > 0 && l.times[n%Size].seq != seq && n+Size > l.nTimes+1 {
		n--
	}
	t := &l.times[n%Size]
	if n == 0 || t.seq != seq {
		return // more have begun since than are remembered
	}
	now := l.now()
	put(&t.ended, now)
	r := l.nRuns
	for r > 1 && l.runs[r%Size].first > seq && r+Size > l.nRuns+1 {
		r--
	}
	s := &l.sums[verbOf(l.runs[r%Size].what)]
	if failed {
		put(&t.failed, 1)
		put(&s.failed, s.failed+1)
	}
	s.time(now - t.started)
}

// Now is the time as BeginQueued, Depart and Land take it.
func (l *Log) Now() uint64 { return l.now() }

// The kinds of what is recorded: the verbs, and after them messages.
const (
	send  = int(engine.Group) + 1
	recv  = send + 1
	kinds = recv + 1
)

// Where things are in run.what: the kind is in its lowest byte.
const (
	typeAt   = 8
	redAt    = 13
	unevenAt = 16
	rootedAt = 17
	rootAt   = 18
	nameAt   = 40
	rootMask = 1<<(nameAt-rootAt) - 1
)

// A type and an operator fit in their bits.
var (
	_ [1<<(redAt-typeAt) - 1 - kernel.NumDTypes]struct{}
	_ [1<<(unevenAt-redAt) - 1 - engine.NumOps]struct{}
)

// pack is a call in one word, without its name.
func pack(c *engine.Call) uint64 {
	s := c.Sig()
	w := uint64(s.Verb) | uint64(s.Type)<<typeAt | uint64(s.Red)<<redAt
	if s.Uneven {
		w |= 1 << unevenAt
	}
	if s.Verb.Rooted() {
		w |= 1<<rootedAt | uint64(s.Root)&rootMask<<rootAt
	}
	return w
}

func verbOf(what uint64) int { return int(what & 0xff) }

// extent is how much an operation moves: the elements that all ranks must agree
// on, of an uneven one those of this rank, and the bytes of its larger side.
func extent(c *engine.Call) (count, bytes int) {
	bytes = max(c.Src.Bytes(), c.Dst.Bytes())
	if !c.Uneven {
		return int(c.Sig().Count), bytes
	}
	count = max(c.Src.N, c.Dst.N)
	for _, list := range [][]engine.Mem{c.DstParts, c.SrcParts} {
		n, b := 0, 0
		for i := range list {
			n, b = n+list[i].N, b+list[i].Bytes()
		}
		count, bytes = max(count, n), max(bytes, b)
	}
	return count, bytes
}

// fingerprint tells groups of calls apart.
func fingerprint(calls []engine.Call) uint32 {
	h := engine.HashStart
	for i := range calls {
		s := calls[i].Sig()
		for _, w := range [...]uint64{uint64(s.Verb), uint64(s.Type), uint64(s.Red), uint64(s.Root), uint64(s.Count), s.Name} {
			h = h.Word(w)
		}
	}
	return uint32(h ^ h>>32)
}

// name returns a number for an operation's name, in its place; zero for none,
// or if there are too many.
func (l *Log) name(name string) uint64 {
	if name == "" {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	id := l.ids[name]
	if id == 0 && len(l.names) < maxNames {
		l.names = append(l.names, name)
		id = uint32(len(l.names))
		l.ids[name] = id
	}
	return uint64(id) << nameAt
}

// load reads a word that is being written by others.
func load(p *uint64) uint64 { return atomic.LoadUint64(p) }
