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
	// abortTimeout bounds NCCL's abort, and after it the wait for a stream, where no caller
	// waits for them.
	abortTimeout = 10 * time.Second
	// closeLimit is how long Close waits for the device and NCCL. Close then returns without
	// them: a driver call that does not return cannot be ended. The comment of tutti.Comm.Close
	// counts it.
	closeLimit = 8 * time.Second
	// closeGrace is the part of closeLimit for NCCL's finalization, which waits for other ranks.
	// abortGrace is the part for an abort after that.
	closeGrace = 4 * time.Second
	abortGrace = 2 * time.Second
)

// errClosed is the error of a closed engine.
var errClosed = errors.New("the Comm is closed")

// An Engine is one rank's side of a group of ranks with one device each. It implements
// engine.DeviceEngine.
type Engine struct {
	engine.Engine // the CPU engine: works on host memory, and holds the failure of the group

	rank, size int
	lib        *nccl.Library
	dev        *cuda.Device
	opt        engine.DeviceOptions
	comm       *nccl.Comm // of all ranks; nil before the first operation
	stream     *cuda.Stream
	one        *cuda.Slice[int32] // buffer of a barrier that is ordered with a stream
	entry      *cuda.Event        // recorded in a caller's stream; the engine's stream waits for it
	events     eventPool          // for messages
	stage      *stage             // replaces NCCL if device memory goes through host memory; else nil
	// spinAllowed reports that the host has CPUs for all ranks and NCCL's proxy threads, so that
	// a goroutine that polls the device need not yield.
	spinAllowed bool

	pipeline pipeline // submitted operations

	// The goroutine that launches owns these fields: the caller of Run, or the launching goroutine
	// of the pipeline. They are kept for the next operation.
	id        nccl.UniqueID
	ownDigest [digestWords]uint64
	digests   []uint64 // digestWords of each rank
	agreed    int      // number of next operations that are equal on all ranks
	coalesced *pending // launched operations that have no completion event yet; nil: none
	held      bool     // the communicator holds operations back until flush
	calls     []engine.Call
	counts    [2][]int64
	steps     []step
	guard     guard
	// known holds the signatures of operations that have succeeded; see noteKnown. The pipeline's
	// mu guards it as well while operations are in the pipeline.
	known map[uint64]bool

	pollGuard  guard // of the goroutine that polls the device
	order      messageOrder
	orderGuard guard // of the goroutine that passes messages to NCCL
	// cpuUse is read-locked while a goroutine uses the CPU engine, and locked by Close, which
	// then sets cpuClosed.
	cpuUse    sync.RWMutex
	cpuClosed bool
	// inUse is read-locked while a goroutine uses resources that free releases. A goroutine that
	// is stuck in the driver keeps the lock, and so keeps everything that the driver may touch.
	inUse sync.RWMutex
	// abandoned is set when a goroutine that launches has been left in the driver. That goroutine
	// keeps the fields above, so no operation is launched after that.
	abandoned atomic.Bool
	aborts    sync.WaitGroup // aborts without a waiting caller; added to while inUse is read-locked
	watcher   sync.WaitGroup // the goroutine that runs watch
	closing   chan struct{}  // closed by Close
	close     sync.Once
	closeErr  error // result of Close

	mu         sync.Mutex           // guards the fields below
	freed      bool                 // free has released everything
	quiesceBy  time.Time            // when callers stop waiting for the device after a failure; zero: no failure
	comms      []*nccl.Comm         // all communicators, for abort and Close
	pendings   []*pending           // for reuse
	pairs      map[int]*pair        // by the other rank
	selfSends  map[uint64]*transfer // messages to this rank itself, by number
	lastNumber uint64               // number of the last message sent
}

// New returns an engine that carries out operations on device memory with NCCL, and everything
// else with the CPU engine of the rank. With opt.HostStaging, lib is not used and device memory
// goes through the CPU engine. New takes ownership of the device and, unless it fails, of the
// CPU engine.
func New(cpu engine.Engine, lib *nccl.Library, dev *cuda.Device, opt engine.DeviceOptions) (*Engine, error) {
	e := &Engine{
		Engine: cpu, rank: cpu.Rank(), size: cpu.Size(), lib: lib, dev: dev, opt: opt,
		digests: make([]uint64, digestWords*cpu.Size()), closing: make(chan struct{}),
		pairs: map[int]*pair{}, selfSends: map[uint64]*transfer{}, known: map[uint64]bool{},
		events: eventPool{dev: dev},
	}
	e.order.start = (*transfer).start
	e.pipeline.init(e)
	if !opt.HostStaging {
		e.spinAllowed = engine.ReserveProxyCPUs(cpu)
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

// free releases what New and the operations have allocated. Close calls it on a goroutine that holds inUse
// locked, so no other goroutine uses the resources; New calls it after an error. It waits up to abortTimeout
// for the engine's stream, and returns all errors.
func (e *Engine) free() error {
	var errs []error
	e.aborts.Wait()
	if e.stream != nil {
		// Work that is still in the stream may write to memory that is freed here. An
		// error of the device has been reported.
		ctx, cancel := context.WithTimeout(context.Background(), abortTimeout)
		defer cancel()
		_ = e.stream.Wait(ctx)
	}
	for _, p := range e.pairs {
		errs = append(errs, p.close())
	}
	e.mu.Lock()
	e.freed = true
	pendings := append(e.pendings, e.coalesced)
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

// MarkWaits forwards to the CPU engine.
func (e *Engine) MarkWaits(m *wait.FirstWait) { engine.MarkWaits(e.Engine, m) }

// Behind forwards to the CPU engine. It returns nil after Close.
func (e *Engine) Behind() []int {
	e.cpuUse.RLock()
	defer e.cpuUse.RUnlock()
	if e.cpuClosed {
		return nil
	}
	return engine.Behind(e.Engine)
}

// Settle forwards to the CPU engine, on which the ranks also agree about operations on device memory. It does
// nothing after Close.
func (e *Engine) Settle(ctx context.Context) {
	e.cpuUse.RLock()
	defer e.cpuUse.RUnlock()
	if !e.cpuClosed {
		engine.Settle(ctx, e.Engine)
	}
}

// Close leaves the group and frees the communicators. NCCL's finalization waits for the other ranks, because
// it may still have data to send. Close aborts the communicators if the group fails or the finalization takes
// too long. After closeLimit it returns an error; its goroutine then frees everything when the driver
// returns. Further calls return the same result.
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
		case <-time.After(engine.AbandonAfter):
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

// end finalizes the communicators, all at once: other ranks may finalize them in another order. It aborts
// them if the group has failed, or fails meanwhile, or closeGrace passes. A goroutine of Close calls it.
func (e *Engine) end() error {
	comms := e.allComms()
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

// Sub returns this rank's side of a new group of some of the ranks. If the device cannot be used for it, Sub
// fails this group and the new one, and returns the first failure of this group.
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
		// A group whose subgroup cannot be made fails. Other members may already have the
		// subgroup and wait for this rank there, so it fails as well.
		what := engine.Facts{Event: engine.DeviceUnfit, Device: e.dev.String()}
		f := engine.FailGroup(ctx, e.Engine, what, err)
		_ = engine.FailGroup(ctx, cpu, what, err)
		_ = cpu.Close() // the first cause is reported
		return nil, f
	}
	return sub, nil
}

// Ordinal returns the ordinal of the rank's device.
func (e *Engine) Ordinal() int { return e.dev.Ordinal() }

// Admit returns an error if a call cannot be carried out.
func (e *Engine) Admit(c *engine.Call) error {
	if err := c.CheckOn(e.rank, e.size, e.dev.Ordinal()); err != nil || !c.OnDevice() {
		return err
	}
	if e.stage == nil {
		if err := inNCCL(c); err != nil {
			return err
		}
	}
	var wrong error
	c.Memories(func(m *engine.Mem) {
		if wrong == nil {
			wrong = e.holds(m)
		}
	})
	return wrong
}

// holds returns an error if m is not memory of the device, or if NCCL, unless staging replaces it, lacks its
// type.
func (e *Engine) holds(m *engine.Mem) error {
	if e.stage == nil {
		if err := typeInNCCL(m.Type); err != nil {
			return err
		}
	}
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

// Run carries out calls on host memory, device memory, or both. A barrier is compared with the
// other ranks as operations on device memory are; see usesDevice.
func (e *Engine) Run(ctx context.Context, seq uint64, calls []engine.Call) error {
	if !usesDevice(calls) {
		return e.onCPU(ctx, seq, calls)
	}
	if s := signature(calls); !e.known[s] {
		return e.runFirst(ctx, seq, calls, s)
	}
	return e.runDevice(ctx, seq, calls)
}

// runDevice launches an operation and waits for it.
func (e *Engine) runDevice(ctx context.Context, seq uint64, calls []engine.Call) error {
	e.inUse.RLock()
	defer e.inUse.RUnlock()
	r := request{ctx: ctx, seq: seq, calls: calls}
	return e.launchOne(&r, nil, false).settleLocked()
}

// usesDevice reports whether the ranks compare an operation as one on device memory. A barrier
// counts as one: if one rank calls Barrier and another an operation on device memory, the error
// names both.
func usesDevice(calls []engine.Call) bool {
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
