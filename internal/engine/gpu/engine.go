package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
	"github.com/tutti-go/tutti/nccl"
)

const (
	// patience is how long an abort of NCCL's may take, and a stream to come to its end after
	// that, where nobody waits for it.
	patience = 10 * time.Second
	// closeLimit is how long Close waits for the device and NCCL. After that they are left
	// to themselves: a driver call that does not return cannot be ended.
	closeLimit = 8 * time.Second
	// closeGrace is how much of that NCCL's own end may take, which waits for other ranks, and
	// abortGrace how much an abort may take after that.
	closeGrace = 4 * time.Second
	abortGrace = 2 * time.Second
)

// errClosed is why a closed engine does nothing.
var errClosed = errors.New("the Comm is closed")

// An Engine is one rank's side of a group of ranks that have a device each.
type Engine struct {
	engine.Engine // of the host's memory, and of all that goes wrong

	rank, size int
	lib        *nccl.Library
	dev        *cuda.Device
	opt        engine.DeviceOptions
	comm       *nccl.Comm // of all ranks; nil before the first operation
	stream     *cuda.Stream
	one        *cuda.Slice[int32] // for a barrier in a stream's order
	entry      *cuda.Event        // recorded in a caller's stream, for the engine's to wait for
	events     eventPool          // for messages
	keen       bool               // there are processors for all ranks of the host, and for NCCL's threads
	stage      *stage             // in place of NCCL, if device memory goes through the host's

	// What an operation needs, kept for the next one.
	id     nccl.UniqueID
	mine   [marks]uint64
	all    []uint64
	agreed int      // so many operations that follow are the same on all ranks
	joined *pending // the last of some that are launched and have no event behind them yet
	held   bool     // the communicator holds some of them
	calls  []engine.Call
	counts [2][]int64
	steps  []step
	guard  guard           // of the goroutine that launches
	known  map[uint64]bool // signs of operations that have been carried out; see unknown.go

	lookout   guard // of the goroutine that waits for the device
	lane      lane  // see lane.go
	laneGuard guard
	// cpuUse is read-locked while a goroutine uses the CPU engine, and locked by Close, which
	// then sets cpuClosed.
	cpuUse    sync.RWMutex
	cpuClosed bool
	// inUse is read-locked while a goroutine uses what free gives back. A goroutine that is
	// stuck in the driver keeps it, and with it all that the driver may still touch.
	inUse sync.RWMutex
	mu    sync.Mutex
	// abandoned is set when a goroutine has been left behind in the driver, with the fields of
	// the goroutine that launches. No operation is launched after that.
	abandoned atomic.Bool
	freed     bool                 // free has given everything back; guarded by mu
	aborts    sync.WaitGroup       // aborts that nobody waits for; added to while inUse is read-locked
	quietBy   time.Time            // when callers stop waiting for the device after a failure; zero: none has
	comms     []*nccl.Comm         // all of them, for abort and Close
	pendings  []*pending           // for reuse
	pairs     map[int]*pair        // by the other rank
	own       map[uint64]*transfer // messages to this rank itself, by their numbers
	number    uint64               // of the last message sent
	watcher   sync.WaitGroup
	closing   chan struct{}
	close     sync.Once
	closeErr  error
}

// New puts NCCL beside the CPU engine of a rank; with opt.HostStaging, there is no
// library, and device memory goes through the CPU engine. It takes over the device and,
// unless it fails, the engine.
func New(cpu engine.Engine, lib *nccl.Library, dev *cuda.Device, opt engine.DeviceOptions) (*Engine, error) {
	e := &Engine{
		Engine: cpu, rank: cpu.Rank(), size: cpu.Size(), lib: lib, dev: dev, opt: opt,
		all: make([]uint64, marks*cpu.Size()), closing: make(chan struct{}),
		pairs: map[int]*pair{}, own: map[uint64]*transfer{}, known: map[uint64]bool{},
		events: eventPool{dev: dev},
	}
	e.lane.start = (*transfer).start
	if !opt.HostStaging {
		e.keen = engine.Beside(cpu)
	}
	var err error
	if e.stream, err = dev.NewStream(); err == nil {
		e.one, err = cuda.Alloc[int32](dev, 1)
	}
	if err == nil {
		err = e.one.Fill(0)
	}
	if err == nil {
		e.entry, err = dev.NewEvent()
	}
	if err == nil && opt.HostStaging {
		e.stage, err = newStage(dev, cpu.Size(), opt.Slot)
	}
	if err != nil {
		return nil, errors.Join(err, e.free())
	}
	return e, nil
}

// Keen reports whether who waits for the device need not give way.
func (e *Engine) Keen() bool { return e.keen }

// free gives back what New made.
func (e *Engine) free() error {
	var errs []error
	e.aborts.Wait()
	if e.stream != nil {
		// What is still in the stream may write to what is freed here. If the
		// device has failed, that is known.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = e.stream.Wait(ctx)
	}
	for _, p := range e.pairs {
		errs = append(errs, p.close())
	}
	e.mu.Lock()
	e.freed = true
	pendings := append(e.pendings, e.joined)
	e.mu.Unlock()
	for _, p := range pendings {
		if p != nil && p.event != nil {
			errs = append(errs, p.event.Close())
		}
	}
	if e.stage != nil {
		errs = append(errs, e.stage.close())
	}
	errs = append(errs, e.events.close())
	if e.entry != nil {
		errs = append(errs, e.entry.Close())
	}
	if e.one != nil {
		errs = append(errs, e.one.Free())
	}
	if e.stream != nil {
		errs = append(errs, e.stream.Close())
	}
	return errors.Join(append(errs, e.dev.Close())...)
}

// MarkWaits is the CPU engine's.
func (e *Engine) MarkWaits(m *wait.FirstWait) { engine.MarkWaits(e.Engine, m) }

// Behind is the CPU engine's.
func (e *Engine) Behind() []int {
	e.cpuUse.RLock()
	defer e.cpuUse.RUnlock()
	if e.cpuClosed {
		return nil
	}
	return engine.Behind(e.Engine)
}

// Close leaves the group and frees the communicator. NCCL's own end waits for
// the other ranks, to whom it may still have something to send: it is aborted if
// they have failed for want of this rank, or take too long.
func (e *Engine) Close() error {
	e.close.Do(func() {
		close(e.closing)
		watched := make(chan struct{})
		go func() {
			e.watcher.Wait()
			close(watched)
		}()
		limit := time.NewTimer(closeLimit)
		defer limit.Stop()
		select {
		case <-watched:
		case <-time.After(engine.LetGo):
		}
		e.cpuUse.Lock()
		e.cpuClosed = true
		e.cpuUse.Unlock()
		left := e.Engine.Close()
		ended := make(chan error, 1)
		go func() {
			err := e.end()
			e.inUse.Lock()
			defer e.inUse.Unlock()
			ended <- errors.Join(err, e.free())
		}()
		select {
		case err := <-ended:
			e.closeErr = errors.Join(left, err)
		case <-limit.C:
			e.closeErr = errors.Join(left, fmt.Errorf("%v: the driver or NCCL has not returned for %v; "+
				"what the Comm holds of the device is freed when they do", e.dev, closeLimit))
		}
	})
	return e.closeErr
}

// end ends the communicators, all at once: which of them another rank ends first
// is not known.
func (e *Engine) end() error {
	comms := e.kept()
	if len(comms) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace+abortGrace)
	defer cancel()
	if e.Failure() != nil {
		return nccl.AbortAll(ctx, comms...)
	}
	closed := make(chan error, len(comms))
	for _, c := range comms {
		go func() { closed <- c.Close() }()
	}
	t := time.NewTimer(closeGrace)
	defer t.Stop()
	var errs []error
	for len(errs) < len(comms) {
		select {
		case err := <-closed:
			errs = append(errs, err)
			continue
		case <-e.Failed():
		case <-t.C:
		}
		return errors.Join(append(errs, nccl.AbortAll(ctx, comms...))...)
	}
	return errors.Join(errs...)
}

// Sub returns this rank's side of a group of some of the ranks.
func (e *Engine) Sub(ctx context.Context, seq uint64, members []int) (engine.Engine, error) {
	cpu, err := e.Engine.Sub(ctx, seq, members)
	if err != nil {
		return nil, err
	}
	var sub *Engine
	dev, err := cuda.Open(e.dev.Ordinal(), e.opt.Logger)
	if err == nil {
		sub, err = New(cpu, e.lib, dev, e.opt)
	}
	if err != nil {
		// This group has failed, as always when one cannot be made of it; other
		// members have that, and wait for this one there.
		what := engine.Facts{Event: engine.DeviceUnfit, Device: e.dev.String()}
		f := engine.Spoil(ctx, e.Engine, what, err)
		_ = engine.Spoil(ctx, cpu, what, err)
		_ = cpu.Close() // the first cause is the one to report
		return nil, f
	}
	return sub, nil
}

// Ordinal is the number of the rank's device.
func (e *Engine) Ordinal() int { return e.dev.Ordinal() }

// Admit finds out whether a call can be carried out.
func (e *Engine) Admit(c *engine.Call) error {
	if err := c.CheckOn(e.rank, e.size, e.dev.Ordinal()); err != nil || !c.OnDevice() {
		return err
	}
	var wrong error
	c.Memories(func(m *engine.Mem) {
		if wrong == nil {
			wrong = e.holds(m)
		}
	})
	return wrong
}

// holds returns an error if memory cannot be the device's.
func (e *Engine) holds(m *engine.Mem) error {
	if m.Bytes() == 0 {
		return nil
	}
	if uintptr(m.Ptr)%uintptr(m.Type.Size()) != 0 {
		return fmt.Errorf("%w: address %p is not one of a %v", engine.ErrInvalid, m.Ptr, m.Type)
	}
	if err := e.dev.Holds(uintptr(m.Ptr), uintptr(m.Bytes())); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrInvalid, err)
	}
	return nil
}

// Run carries out calls on host memory, on the device's, or on both.
func (e *Engine) Run(ctx context.Context, seq uint64, calls []engine.Call) error {
	if !e.concerned(calls) {
		return e.onCPU(ctx, seq, calls)
	}
	if s := sign(calls); !e.known[s] {
		return e.runUnknown(ctx, seq, calls, s)
	}
	return e.runDevice(ctx, seq, calls)
}

// runDevice carries out calls in which the device has a part.
func (e *Engine) runDevice(ctx context.Context, seq uint64, calls []engine.Call) error {
	e.inUse.RLock()
	defer e.inUse.RUnlock()
	l := engine.Launch{Ctx: ctx, Seq: seq, Calls: calls}
	return e.begin(&l, nil, false).settle()
}

// concerned reports whether the device has a part in an operation. A barrier
// begins as an operation on device memory does, so that ranks of which one is at
// a barrier and another in such an operation are told that in clear words.
func (e *Engine) concerned(calls []engine.Call) bool {
	barriers := 0
	for i := range calls {
		if calls[i].OnDevice() {
			return true
		}
		if calls[i].Verb == engine.Barrier {
			barriers++
		}
	}
	return barriers == len(calls)
}
