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
	// Size is the number of runs of similar operations, of operation times, and of
	// messages that are kept.
	Size = 2048
	// large is the least data, in bytes, of an operation whose times are always
	// recorded. Compared with its duration, reading the clock twice is cheap.
	large = 64 << 10
	// every is the sampling interval of all other operations: the times of one in
	// every are recorded.
	every = 64
	// maxNames bounds the number of operation names that are kept.
	maxNames = 1024
)

// A run is a sequence of consecutive, similar operations.
type run struct {
	first  uint64 // number of the first operation
	packed uint64 // verb, operator, type and root; see pack
	count  uint64 // elements; of a batch, calls
	bytes  uint64
	print  uint64 // of a batch: hash that differs between different batches
}

// opTimes are an operation's times, in nanoseconds since the Log was made. Zero:
// not recorded.
type opTimes struct {
	seq                    uint64
	queued, started, ended uint64
	failed                 uint64
}

// A Log is the recorder of one rank's operations on one communicator.
//
// One goroutine at a time may call Begin, BeginQueued, End and EndEarlier. It has the
// turn; see the queue of package tutti. A communicator has two kinds of operations:
//   - An operation that a goroutine of this process runs. That goroutine calls Begin or
//     BeginQueued, and then End.
//   - Operations on a device, of which several are in flight. The device engine's
//     goroutines call BeginQueued and later EndEarlier for each, with the
//     communicator's lock held. Begin and End are not called meanwhile.
//
// BeginMessage, EndMessage and Describe require the communicator's lock, so that
// records do not change meanwhile and queued calls are not reused. Any goroutine may
// call all other methods at any time.
type Log struct {
	// The current run, as calls are compared with it.
	verb   engine.Verb
	red    engine.ReduceOp
	kind   kernel.DType
	root   int
	dst    int
	src    int
	timing uint64 // number of the running operation, if its times are recorded
	wait   wait.FirstWait
	_      [64]byte
	nRuns  uint64 // number of runs so far; the newest is runs[nRuns%Size]
	nTimes uint64 // number of recorded times so far, likewise
	runs   [Size]run
	times  [Size]opTimes
	msgs   [Size]message
	sums   [kinds]counter
	began  time.Time

	mu    sync.Mutex
	names []string          // names of operations; guarded by mu
	ids   map[string]uint32 // by name: its index in names, plus one; guarded by mu
}

// New returns an empty Log.
func New() *Log {
	l := &Log{began: time.Now(), ids: make(map[string]uint32)}
	l.wait.Base = l.began
	return l
}

// FirstWait returns where an engine records when an operation begins to wait.
func (l *Log) FirstWait() *wait.FirstWait { return &l.wait }

// now returns the time in nanoseconds since the Log was made. It is never zero.
func (l *Log) now() uint64 { return uint64(max(time.Since(l.began), 1)) }

// Begin records that a call begins now.
func (l *Log) Begin(seq uint64, c *engine.Call) {
	if c.Verb != l.verb || c.Src.N != l.src || c.Dst.N != l.dst || c.ReduceOp != l.red || c.Src.Type != l.kind ||
		c.Root != l.root || seq%every == 0 {
		l.begin(seq, c)
	}
}

//go:noinline
func (l *Log) begin(seq uint64, c *engine.Call) {
	bytes := l.startRun(seq, unsafe.Slice(c, 1))
	// Only even calls without a name can be compared with the run. The times of
	// large calls are always recorded.
	if c.Uneven || c.Name != "" || bytes >= large {
		l.verb = 0
	} else {
		l.verb, l.red, l.kind, l.root, l.dst, l.src = c.Verb, c.ReduceOp, c.Src.Type, c.Root, c.Dst.N, c.Src.N
	}
	if bytes >= large || seq%every == 0 {
		l.recordBegin(seq, 0)
	}
}

// BeginQueued records that an operation of one or several calls begins. queued is
// the time, from Now, when it was queued.
func (l *Log) BeginQueued(seq uint64, calls []engine.Call, queued uint64) {
	l.startRun(seq, calls)
	l.verb = 0
	l.recordBegin(seq, queued)
}

// startRun makes the run of an operation the newest, and returns the operation's
// size in bytes.
func (l *Log) startRun(seq uint64, calls []engine.Call) int {
	r := l.runOf(calls)
	old := &l.runs[l.nRuns%Size]
	if r.first = old.first; *old == r && l.nRuns > 0 {
		return int(r.bytes)
	}
	r.first = seq
	if l.nRuns > 0 {
		l.sums[verbOf(old.packed)].add(seq-old.first, old.bytes)
	}
	p := &l.runs[(l.nRuns+1)%Size]
	put(&p.first, r.first)
	put(&p.packed, r.packed)
	put(&p.count, r.count)
	put(&p.bytes, r.bytes)
	put(&p.print, r.print)
	put(&l.nRuns, l.nRuns+1)
	return int(r.bytes)
}

// runOf returns the run that an operation belongs to.
func (l *Log) runOf(calls []engine.Call) run {
	c := &calls[0]
	r := run{packed: pack(c) | l.name(c.Name)}
	count, bytes := callSize(c)
	if len(calls) > 1 {
		r.packed = uint64(engine.Group) | l.name(c.Name)
		r.print = uint64(fingerprint(calls))
		count = len(calls)
		for i := range calls[1:] {
			_, b := callSize(&calls[1+i])
			bytes += b
		}
	}
	r.count, r.bytes = uint64(count), uint64(bytes)
	return r
}

// recordBegin records when an operation begins.
func (l *Log) recordBegin(seq, queued uint64) {
	l.timing = seq
	t := &l.times[(l.nTimes+1)%Size]
	put(&t.seq, seq)
	put(&t.queued, queued)
	put(&t.started, l.now())
	put(&t.ended, 0)
	put(&t.failed, 0)
	put(&l.nTimes, l.nTimes+1)
}

// End records that the last operation has ended.
func (l *Log) End(seq uint64, failed bool) {
	if failed || l.timing == seq || l.wait.Waits() {
		l.end(seq, failed)
	}
}

// end is the slow part of End: it records when the operation has ended, and counts
// its duration and its failure. If its beginning was not recorded, the time of its
// first wait stands for it, or now.
//
//go:noinline
func (l *Log) end(seq uint64, failed bool) {
	now, since := l.now(), l.wait.Take()
	if l.timing != seq {
		l.recordBegin(seq, 0)
		started := now // it has failed without a wait
		if since != 0 {
			started = uint64(since)
		}
		put(&l.times[l.nTimes%Size].started, started)
	}
	t := &l.times[l.nTimes%Size]
	put(&t.ended, now)
	s := &l.sums[verbOf(l.runs[l.nRuns%Size].packed)]
	if failed {
		put(&t.failed, 1)
		put(&s.failed, s.failed+1)
	}
	if t.started != 0 {
		s.time(now - t.started)
	}
}

// EndEarlier records that an operation has ended after which others may have begun.
// It does nothing if the record was overwritten.
func (l *Log) EndEarlier(seq uint64, failed bool) {
	n := l.nTimes
	for n > 0 && l.times[n%Size].seq != seq && n+Size > l.nTimes+1 {
		n--
	}
	t := &l.times[n%Size]
	if n == 0 || t.seq != seq {
		return // its record was overwritten
	}
	now := l.now()
	put(&t.ended, now)
	r := l.nRuns
	for r > 1 && l.runs[r%Size].first > seq && r+Size > l.nRuns+1 {
		r--
	}
	s := &l.sums[verbOf(l.runs[r%Size].packed)]
	if failed {
		put(&t.failed, 1)
		put(&s.failed, s.failed+1)
	}
	s.time(now - t.started)
}

// Now returns the time for BeginQueued.
func (l *Log) Now() uint64 { return l.now() }

// Kinds of records: the verbs, and after them messages.
const (
	send  = int(engine.Group) + 1
	recv  = send + 1
	kinds = recv + 1
)

// Bit positions in run.packed. The lowest byte is the kind.
const (
	typeAt   = 8
	redAt    = 13
	unevenAt = 17
	rootedAt = 18
	rootAt   = 19
	nameAt   = 41
	rootMask = 1<<(nameAt-rootAt) - 1
)

// The largest type and the largest operator fit into their bits.
var (
	_ [1<<(redAt-typeAt) - 1 - kernel.NumDTypes]struct{}
	_ [1<<(unevenAt-redAt) - 1 - engine.NumOps]struct{}
)

// pack encodes a call, without its name, in one word.
func pack(c *engine.Call) uint64 {
	s := c.Fingerprint()
	w := uint64(s.Verb) | uint64(s.Type)<<typeAt | uint64(s.ReduceOp)<<redAt
	if s.Uneven {
		w |= 1 << unevenAt
	}
	if s.Verb.Rooted() {
		w |= 1<<rootedAt | uint64(s.Root)&rootMask<<rootAt
	}
	return w
}

func verbOf(what uint64) int { return int(what & 0xff) }

// callSize returns a call's number of elements and the bytes of its larger side on
// this rank. Of an even call, count is the number in the fingerprint, on which all
// ranks agree. Of an uneven call, it is the number of elements of this rank's larger
// side; the parts of a side count together.
func callSize(c *engine.Call) (count, bytes int) {
	bytes = max(c.Src.Bytes(), c.Dst.Bytes())
	if !c.Uneven {
		return int(c.Fingerprint().Count), bytes
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

// fingerprint hashes a batch, so that different batches differ.
func fingerprint(calls []engine.Call) uint32 {
	h := engine.HashStart
	for i := range calls {
		s := calls[i].Fingerprint()
		for _, w := range [...]uint64{uint64(s.Verb), uint64(s.Type), uint64(s.ReduceOp), uint64(s.Root), uint64(s.Count), s.Name} {
			h = h.Word(w)
		}
	}
	return uint32(h ^ h>>32)
}

// name returns a number for an operation's name, in the name's bits. It returns
// zero for no name, or if there are too many names.
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

// load reads a word that another goroutine may be writing.
func load(p *uint64) uint64 { return atomic.LoadUint64(p) }
