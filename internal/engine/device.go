package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// A DeviceEngine is an Engine that works on the memory of one device in addition to host
// memory.
//
// Run and Submit exclude each other: Run must not be called while a submitted operation is
// incomplete, and Submit not while Run is under way.
type DeviceEngine interface {
	Engine
	// Admit is Call.Check for a call whose buffers may be device memory.
	Admit(c *Call) error
	// AdmitStream returns an error if operations cannot be ordered with stream.
	AdmitStream(stream any) error
	// Submit appends op to the engine's queue and returns without waiting, unless
	// op.OnCaller allows otherwise. The engine launches the operations on the device in the
	// order of submission, keeps at most 256 of them launched and incomplete, and reports
	// each as complete exactly once, in that order, from its completion goroutine; see
	// DeviceOp.Done. Submit must not be called concurrently.
	Submit(op *DeviceOp)
	// Await adds delta to the number of callers that wait for the operation with number
	// seq, which need not have been submitted. The engine polls the device often only for
	// an operation with waiting callers. A delta of zero asks for one immediate poll.
	Await(seq uint64, delta int)
	// Staged returns the number of calls on device memory that went through host memory.
	Staged() uint64
}

// A DeviceOp is an operation on device memory for DeviceEngine.Submit. The engine owns it from
// Submit until it calls Done of it or of a later one. The engine calls the three functions without allocating, so the
// caller can reuse a DeviceOp together with its functions.
type DeviceOp struct {
	Ctx   context.Context
	Seq   uint64
	Calls []Call
	// Stream orders the operation with a stream of the caller. The operation starts after the
	// work that the stream holds at the launch. Work that enters the stream after the call of
	// Launched waits for the operation. Nil means no ordering.
	Stream any
	// OnCaller lets Submit launch the operation on the calling goroutine, which saves waking
	// another goroutine. Submit then waits for the other ranks. The engine does so only for an
	// operation with a Stream, when nothing is queued before it, and when an operation like it
	// has succeeded: NCCL may allocate in the first one, and a caller that is stuck in the
	// driver cannot return on a timeout.
	OnCaller bool

	// Begun reports that the engine begins this operation and all that were submitted before
	// it. The engine may call it only for the last of several operations. It is called before
	// the engine waits for the other ranks, and by Submit only if OnCaller is set.
	Begun func()
	// Launched is called when an operation with a Stream is in the device's queue or has
	// failed. It must not call the engine and must not block.
	Launched func()
	// Done reports that this operation and all that were submitted before it are complete,
	// with the error that Run would return for each of them that was not reported before. The
	// engine may call it only for the last of several operations with one result. After a failure of the group, Done is delayed for as long as a call of the driver does
	// not return; see AbandonAfter.
	Done func(error)
}

// AbandonAfter is how long a failed operation waits until the device no longer uses the memory
// of the operation. Callers return after that time even if the driver does not.
const AbandonAfter = 1500 * time.Millisecond

// ExpiredInQueue is the failure of an operation whose context ended while the operation waited
// for earlier ones.
func ExpiredInQueue(ctx context.Context, op string, seq uint64, rank int) *Failure {
	f := &Failure{Op: op, Seq: seq, Rank: rank}
	f.Wait.Phase = Queued
	f.Interrupt(ctx, ctx.Err(), 0)
	return f
}

// DeviceOptions configure the attachment of a device to an engine.
type DeviceOptions struct {
	// Timeout bounds each operation. Zero or less means no bound.
	Timeout time.Duration
	Logger  *slog.Logger
	// HostStaging copies device memory through host memory in place of using NCCL.
	HostStaging bool
	// Slot is the size in bytes of one staging buffer in host memory. Zero means 4 MiB.
	// Tests make it small so that small operations have many pieces.
	Slot int
	// Before is the rank's engine in the group that the new group replaces. The new engine
	// uses the same device. Nil means that there is no such group.
	Before Engine
}

// Memories calls f with every buffer of the call, including missing buffers.
func (c *Call) Memories(f func(m *Mem)) {
	if !c.Uneven || c.DstParts == nil {
		f(&c.Dst)
	}
	if !c.Uneven || c.SrcParts == nil {
		f(&c.Src)
	}
	for i := range c.DstParts {
		f(&c.DstParts[i])
	}
	for i := range c.SrcParts {
		f(&c.SrcParts[i])
	}
}

// OnDevice reports whether any buffer of the call is device memory.
func (c *Call) OnDevice() bool {
	if c.Dst.Device != 0 || c.Src.Device != 0 {
		return true
	}
	there := func(m Mem) bool { return m.Device != 0 }
	return slices.ContainsFunc(c.DstParts, there) || slices.ContainsFunc(c.SrcParts, there)
}

// CheckOn is Check for an engine that accepts host memory and the memory of one device.
func (c *Call) CheckOn(rank, size, device int) error {
	if !c.OnDevice() {
		return c.Check(rank, size)
	}
	plain := *c
	if c.Uneven {
		plain.DstParts, plain.SrcParts = slices.Clone(c.DstParts), slices.Clone(c.SrcParts)
	}
	err := plain.Dst.bring(device)
	if err == nil {
		err = plain.Src.bring(device)
	}
	for _, list := range [...][]Mem{plain.DstParts, plain.SrcParts} {
		for i := 0; i < len(list) && err == nil; i++ {
			err = list[i].bring(device)
		}
	}
	if err != nil {
		return err
	}
	return plain.Check(rank, size)
}

// bring turns device memory into host memory, so that Check accepts it.
func (m *Mem) bring(device int) error {
	switch {
	case m.Nothing(), m.Device == NoSuchDevice: // Check refuses NoSuchDevice
		return nil
	case m.Device == 0:
		return invalid("some of the memory is the host's and some is device %d's: one call takes only one kind", device)
	case int(m.Device) != device+1:
		return invalid("the memory is on device %d, the Comm on device %d", m.Device-1, device)
	}
	m.Device = 0
	return nil
}

// A DeviceMessenger is a DeviceEngine that sends and receives device memory.
type DeviceMessenger interface {
	// AdmitMessage is Message.Check for a message whose buffer may be device memory.
	AdmitMessage(m *Message) error
}

// errDeviceMessage is the error for messages of device memory where only host memory works.
var errDeviceMessage = fmt.Errorf("%w: Send and Recv take host memory only; copy it there, or use AllToAllV", ErrUnsupported)

// CheckOn is Check for an engine that accepts device memory in collectives but not in messages.
func (m *Message) CheckOn(rank, size int) error {
	if m.Mem.Device > 0 {
		return errDeviceMessage
	}
	return m.Check(rank, size)
}

// CheckThere is Check for an engine that sends and receives the memory of one device.
func (m *Message) CheckThere(rank, size, device int) error {
	if m.Mem.Device != NoSuchDevice && int(m.Mem.Device) != device+1 {
		return invalid("the memory is on device %d, the Comm on device %d", m.Mem.Device-1, device)
	}
	plain := Message{Peer: m.Peer, Tag: m.Tag, Mem: m.Mem}
	if m.Mem.Device != NoSuchDevice {
		plain.Mem.Device = 0
	}
	return plain.Check(rank, size)
}
