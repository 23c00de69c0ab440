package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// A DeviceEngine is an Engine that takes, beside host memory, memory of one
// device.
type DeviceEngine interface {
	Engine
	// Admit is Check for calls that may be on the device.
	Admit(c *Call) error
	// AdmitStream returns an error if operations cannot be put in order with a stream.
	AdmitStream(stream any) error
	// Sign returns a number that tells operations apart; zero says that nobody need
	// know of this one before its turn.
	Sign(calls []Call) uint64
	// Launch is the first half of Run, for operations one after the other: when it
	// returns, the device has them. Launch is called as Run is, not twice at a time.
	// Those after the first are joined with those before them, and agreed upon. Next are
	// the signs of those that will be launched after the first one, as far as they are
	// known; while Agreed is not zero, they need not be told.
	Launch(list []Launch, next []uint64)
	// Agreed is how many of the operations to be launched next the ranks have agreed
	// upon. It is for the goroutine that launches.
	Agreed() int
	// Keen reports whether there are processors enough: who waits for the device need
	// not give its own away.
	Keen() bool
	// Staged is how many calls on device memory went through host memory.
	Staged() uint64
}

// LetGo is how long calls that have failed wait for the device to stop using their memory.
// They return after that even if the driver does not.
const LetGo = 1500 * time.Millisecond

// A Launch is an operation that a device is given.
type Launch struct {
	Ctx   context.Context
	Seq   uint64
	Calls []Call
	// Stream is the caller's stream that the operation is put in order with: the operation
	// starts after what the stream holds when Launch is called, and what is put into the
	// stream after Launch has returned waits for the operation. Nil: none.
	Stream any
	// Join says that it is enough to know that this one is over when the next one is:
	// then Pending may stay nil, and how the next one ends is how this one does.
	Join bool
	// Pending is what Launch makes of it. Each must be settled, in their order, by another
	// goroutine if need be.
	Pending Pending
}

// SignsAhead is how many signs Launch makes use of.
const SignsAhead = 255

// A Pending is an operation that was launched, with those that were joined with it. Its
// methods are called by one goroutine at a time.
type Pending interface {
	// Over reports whether the operation is over, well or not. Look says that there is
	// time for more than a glance.
	Over(look bool) bool
	// Settle waits until the operation is over, and returns what Run would return.
	// It is called once.
	Settle() error
}

// DeviceOptions are what a Device may need to know.
type DeviceOptions struct {
	// Timeout bounds each operation. Zero or less: no bound.
	Timeout time.Duration
	Logger  *slog.Logger
	// HostStaging lets device memory go through host memory, without NCCL.
	HostStaging bool
	// Slot is how many bytes go through host memory at once. Zero: 4 MiB. Tests
	// make it small to reach many pieces cheaply.
	Slot int
	// Before is the rank's engine in a group whose place the new one takes: its
	// device is to be used again. Nil: there was none.
	Before Engine
}

// Memories calls f with every buffer of the call, also with missing ones.
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

// OnDevice reports whether any of the call's memory is a device's.
func (c *Call) OnDevice() bool {
	if c.Dst.Device != 0 || c.Src.Device != 0 {
		return true
	}
	there := func(m Mem) bool { return m.Device != 0 }
	return slices.ContainsFunc(c.DstParts, there) || slices.ContainsFunc(c.SrcParts, there)
}

// CheckOn is Check on behalf of an engine that takes the memory of one device,
// beside that of the host.
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

// bring makes memory of a device the host's, for checks.
func (m *Mem) bring(device int) error {
	switch {
	case m.Nothing(), m.Device == NoSuchDevice: // for check to refuse
		return nil
	case m.Device == 0:
		return invalid("some of the memory is the host's and some is device %d's: one call takes only one kind", device)
	case int(m.Device) != device+1:
		return invalid("the memory is on device %d, the Comm on device %d", m.Device-1, device)
	}
	m.Device = 0
	return nil
}

// A DeviceMessenger is a DeviceEngine whose messages may be of device memory,
// too.
type DeviceMessenger interface {
	// AdmitMessage is Check for messages that may be.
	AdmitMessage(m *Message) error
}

// errDeviceMessage is why messages of device memory are refused.
var errDeviceMessage = fmt.Errorf("%w: Send and Recv take host memory only; copy it there, or use AllToAllV", ErrUnsupported)

// CheckOn is Check on behalf of an engine that takes the memory of one device in
// collectives, but not in messages.
func (m *Message) CheckOn(rank, size int) error {
	if m.Mem.Device > 0 {
		return errDeviceMessage
	}
	return m.Check(rank, size)
}

// CheckThere is Check for a message of memory of one device.
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
