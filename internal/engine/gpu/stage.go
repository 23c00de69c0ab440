package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// A stage replaces NCCL where device memory goes through host memory. It has pinned slots in memory
// that the CPU engine works on without further copies. While the CPU engine works on one slot,
// others are copied to and from the device. Copies from the device use the stream in, copies of
// results to the device use the engine's stream.
type stage struct {
	dev  *cuda.Device
	size int // ranks
	slot int // bytes per slot
	in   *cuda.Stream

	base   unsafe.Pointer     // of the first slot; nil before the first operation
	filled [slots]*cuda.Event // recorded after the copy into a slot
	empty  [slots]*cuda.Event // recorded after the copy out of a slot
	free   func() error       // releases the slots

	calls atomic.Uint64 // number of staged calls

	// Memory of an operation, kept for the next one.
	slabs  []slab
	loads  []load
	moves  []move
	host   []engine.Call
	parts  []engine.Mem
	most   []int
	shared []int64
}

// newStage makes the stream and the events of the staging slots; makeSlots allocates the slots later. After
// an error nothing is left.
func newStage(dev *cuda.Device, size, slot int) (*stage, error) {
	if slot <= 0 {
		slot = slotBytes
	}
	// A slot has room for one cache line of every share of a call, for any number of ranks.
	s := &stage{dev: dev, size: size, slot: max(slot, 2*size*line)}
	var err error
	s.in, err = dev.NewStream()
	for i := range slots {
		if err == nil {
			s.filled[i], err = dev.NewEvent()
		}
		if err == nil {
			s.empty[i], err = dev.NewEvent()
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// close releases all resources; the engine's stream is idle. If a copy from the device is still under way
// after abortTimeout, close returns an error and releases nothing, because the copy writes to the slots.
func (s *stage) close() error {
	var errs []error
	if s.in != nil {
		ctx, cancel := context.WithTimeout(context.Background(), abortTimeout)
		defer cancel()
		if err := s.in.Wait(ctx); errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%v still copies to memory that is to be freed: it is left as it is", s.dev)
		}
	}
	for i := range slots {
		for _, ev := range []*cuda.Event{s.filled[i], s.empty[i]} {
			if ev != nil {
				errs = append(errs, ev.Close())
			}
		}
	}
	if s.in != nil {
		errs = append(errs, s.in.Close())
	}
	if s.free != nil {
		errs = append(errs, s.free())
	}
	return errors.Join(errs...)
}

// Describe returns how the engines move data.
func (e *Engine) Describe() engine.Description {
	d := e.Engine.Describe()
	d.DevicePath, d.Device = "nccl", e.dev.Ordinal()
	if e.stage != nil {
		d.DevicePath = "host staging"
	}
	return d
}

// Staged returns the number of calls on device memory that went through host memory.
func (e *Engine) Staged() uint64 {
	if e.stage == nil {
		return 0
	}
	return e.stage.calls.Load()
}

// throughHost carries out the device's part of an operation on which all ranks have agreed. When it
// returns, the copies of the results are in the engine's stream.
func (o *operation) throughHost() error {
	e, s := o.e, o.e.stage
	if s.base == nil {
		if err := o.makeSlots(); err != nil {
			return err
		}
	}
	if err := o.countShares(); err != nil {
		return err
	}
	if o.stream != nil {
		// The host waits, not a stream: after a failure before this point, no copy follows.
		err := e.entry.Record(o.stream)
		if err == nil {
			err = o.await(e.entry, nil)
		}
		if err != nil {
			return err
		}
	}
	s.plan(o, s.most)
	err := o.pump()
	s.forget()
	if err != nil {
		// No copy may write to the slots later.
		ctx, cancel := context.WithTimeout(context.Background(), abortTimeout)
		defer cancel()
		_ = s.in.Wait(ctx)
	}
	return err
}

// makeSlots allocates the slots in memory that the ranks of this host share, and logs once that
// device memory goes through host memory.
func (o *operation) makeSlots() error {
	e, s := o.e, o.e.stage
	bytes := slots * s.slot
	region, err := o.alloc(bytes)
	if err != nil {
		return err
	}
	var pin *cuda.Pinned
	if region.Mapped {
		pin, err = cuda.Pin(s.dev, unsafe.Slice((*byte)(region.Ptr), bytes))
	}
	if pin != nil {
		s.base, s.free = region.Ptr, func() error { return errors.Join(pin.Unpin(), region.Free()) }
	} else {
		// Between goroutines all memory is shared, and over the network none is. Other
		// ranks may have pinned their part of the region, which this rank can read as long
		// as it keeps the region.
		own, err := cuda.AllocHost[byte](s.dev, bytes)
		if err != nil {
			return errors.Join(err, region.Free())
		}
		s.base = unsafe.Pointer(unsafe.SliceData(own.Data()))
		s.free = func() error { return errors.Join(own.Free(), region.Free()) }
	}
	if log := e.opt.Logger; log != nil {
		log.Warn("device memory goes through host memory, as Config.HostStaging says: that is slower than NCCL",
			"rank", e.rank, "ranks", e.size, "device", s.dev.Ordinal())
		if err != nil {
			log.Warn("the memory that the ranks share cannot be pinned; there is one more copy", "error", err)
		}
	}
	return nil
}

// alloc allocates memory together with the other ranks. It waits for them until the operation's
// deadline, or until the group fails.
func (o *operation) alloc(bytes int) (*engine.Region, error) {
	ctx, release := o.boundedContext()
	defer release()
	region, err := o.e.allocOnCPU(ctx, o.seq, bytes)
	if err == nil || o.ctx.Err() != nil {
		return region, err
	}
	// If a rank exited, a failure that names it arrives soon.
	t := time.NewTimer(reportWait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-t.C:
	}
	return nil, err
}

// allocOnCPU calls Alloc of the CPU engine, unless Close has closed it.
func (e *Engine) allocOnCPU(ctx context.Context, seq uint64, bytes int) (*engine.Region, error) {
	e.cpuUse.RLock()
	defer e.cpuUse.RUnlock()
	if e.cpuClosed {
		return nil, e.closedError()
	}
	return e.Engine.Alloc(ctx, seq, bytes)
}

// countShares computes the number of elements of each call's largest share on any rank. In an
// uneven call, no rank may know all counts.
func (o *operation) countShares() error {
	e, s := o.e, o.e.stage
	s.most, s.shared = s.most[:0], s.shared[:0]
	for i := range o.calls {
		n := 0
		if c := &o.calls[i]; c.OnDevice() {
			s.calls.Add(1)
			n = largest(c, s.size)
			if c.Uneven {
				s.shared = append(s.shared, int64(n))
			}
		}
		s.most = append(s.most, n)
	}
	if len(s.shared) == 0 {
		return nil
	}
	m := memOf(s.shared, kernel.Int64)
	s.host = append(s.host[:0], engine.Call{Verb: engine.AllReduce, ReduceOp: engine.Max, Src: m, Dst: m, Method: o.name, Name: comparison})
	if err := e.onCPU(o.ctx, o.seq, s.host); err != nil {
		return err
	}
	k := 0
	for i := range o.calls {
		if c := &o.calls[i]; c.OnDevice() && c.Uneven {
			s.most[i] = int(s.shared[k])
			k++
		}
	}
	return nil
}

// pump copies the loads through the slots, and carries out each load on the CPU engine with the other ranks.
// The goroutine that launches calls it. It returns at the first error or errTimeout; copies may then still be
// under way, and throughHost waits for them.
func (o *operation) pump() error {
	e, s := o.e, o.e.stage
	for i := range min(slots, len(s.loads)) {
		if err := o.fill(i); err != nil {
			return err
		}
	}
	for i := range s.loads {
		if i > 0 && o.pastDeadline() {
			return errTimeout
		}
		if err := o.await(s.filled[i%slots], nil); err != nil {
			return err
		}
		s.host, s.parts = s.host[:0], s.parts[:0]
		for _, p := range s.loads[i] {
			p := s.stager(e.rank, i, p)
			s.host = append(s.host, p.host(o.name, &s.parts))
		}
		if err := e.onCPU(o.ctx, o.seq, s.host); err != nil {
			return err
		}
		if err := o.drain(i); err != nil {
			return err
		}
		if i+slots < len(s.loads) {
			if err := o.fill(i + slots); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *stage) stager(rank, load int, p slab) stager {
	return stager{p, unsafe.Add(s.base, load%slots*s.slot), rank, s.size}
}

// fill enqueues the copy of a load into its slot, after the copy of the previous load out of it.
func (o *operation) fill(load int) error {
	s := o.e.stage
	s.moves = s.moves[:0]
	for _, p := range s.loads[load] {
		p := s.stager(o.e.rank, load, p)
		s.moves = p.in(s.moves)
	}
	if load >= slots {
		if err := s.in.WaitEvent(s.empty[load%slots]); err != nil {
			return err
		}
	}
	for _, m := range s.moves {
		if m.device.N > 0 {
			if err := s.in.CopyOut(m.host, uintptr(m.device.Ptr), uintptr(m.device.Bytes())); err != nil {
				return err
			}
		}
	}
	return s.filled[load%slots].Record(s.in)
}

// drain enqueues the copy of a load's results out of its slot, in the engine's stream, and records the slot
// as empty after it.
func (o *operation) drain(load int) error {
	e, s := o.e, o.e.stage
	s.moves = s.moves[:0]
	for _, p := range s.loads[load] {
		p := s.stager(e.rank, load, p)
		s.moves = p.out(s.moves)
	}
	for _, m := range s.moves {
		if m.device.N > 0 {
			if err := e.stream.CopyIn(uintptr(m.device.Ptr), m.host, uintptr(m.device.Bytes())); err != nil {
				return err
			}
		}
	}
	return s.empty[load%slots].Record(e.stream)
}

// forget drops the references to the caller's memory.
func (s *stage) forget() {
	clear(s.slabs)
	clear(s.loads)
	clear(s.moves)
	clear(s.host)
}
