package cudasys

import (
	"math"

	"github.com/tutti-go/tutti/internal/dl"
)

// Flags of streams and events, and the condition of StreamWaitValue.
const (
	StreamNonBlocking = 1

	EventDisableTiming = 2

	WaitGreaterOrEqual = 0
)

// StreamCreate makes a stream in the current context.
func (d *Driver) StreamCreate(flags uint32, priority int) (uintptr, error) {
	return d.out1(fnStreamCreateWithPriority, uintptr(flags), uintptr(priority))
}

// StreamDestroy destroys a stream once its work is complete. It does not wait.
func (d *Driver) StreamDestroy(stream uintptr) error { return d.simple(fnStreamDestroy, stream) }

// StreamSynchronize waits until a stream's work is complete.
func (d *Driver) StreamSynchronize(stream uintptr) error {
	return d.simple(fnStreamSynchronize, stream)
}

// StreamQuery reports whether a stream's work is complete.
func (d *Driver) StreamQuery(stream uintptr) (bool, error) { return d.query(fnStreamQuery, stream) }

// StreamWaitEvent makes a stream wait for an event's last record.
func (d *Driver) StreamWaitEvent(stream, event uintptr) error {
	return d.callIn(nil, fnStreamWaitEvent, &dl.Args{stream, event})
}

// StreamCtx returns the context that a stream belongs to.
func (d *Driver) StreamCtx(stream uintptr) (uintptr, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	err := d.call(fr, fnStreamGetCtx, stream, fr.Out(0))
	return uintptr(fr.Result(0)), err
}

// StreamCapturing reports whether a stream is being captured into a graph.
func (d *Driver) StreamCapturing(stream uintptr) (bool, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	err := d.call(fr, fnStreamIsCapturing, stream, fr.Out(0))
	return uint32(fr.Result(0)) != 0, err
}

// StreamBeginCapture begins a capture that affects only this thread's calls.
func (d *Driver) StreamBeginCapture(stream uintptr) error {
	return d.simple(fnStreamBeginCapture, stream, 1)
}

// StreamEndCapture ends a capture and returns the graph.
func (d *Driver) StreamEndCapture(stream uintptr) (uintptr, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	err := d.call(fr, fnStreamEndCapture, stream, fr.Out(0))
	return uintptr(fr.Result(0)), err
}

// GraphDestroy frees a graph.
func (d *Driver) GraphDestroy(graph uintptr) error { return d.simple(fnGraphDestroy, graph) }

// StreamWaitValue makes a stream wait until the number at an address satisfies the condition.
func (d *Driver) StreamWaitValue(in *dl.Bracket, stream, addr uintptr, value uint32, condition int) error {
	return d.callIn(in, fnStreamWaitValue32, &dl.Args{stream, addr, uintptr(value), uintptr(condition)})
}

// StreamWriteValue makes a stream write a number to an address.
func (d *Driver) StreamWriteValue(in *dl.Bracket, stream, addr uintptr, value uint32) error {
	return d.callIn(in, fnStreamWriteValue32, &dl.Args{stream, addr, uintptr(value)})
}

// EventCreate makes an event in the current context.
func (d *Driver) EventCreate(flags uint32) (uintptr, error) {
	return d.out1(fnEventCreate, uintptr(flags))
}

// EventDestroy destroys an event.
func (d *Driver) EventDestroy(event uintptr) error { return d.simple(fnEventDestroy, event) }

// EventRecord records an event behind the work now in a stream.
func (d *Driver) EventRecord(event, stream uintptr) error {
	return d.callIn(nil, fnEventRecord, &dl.Args{event, stream})
}

// EventQuery reports whether the work before an event's last record is complete.
func (d *Driver) EventQuery(event uintptr) (bool, error) { return d.query(fnEventQuery, event) }

// EventSynchronize waits until the work before an event's last record is complete.
func (d *Driver) EventSynchronize(event uintptr) error { return d.simple(fnEventSynchronize, event) }

// EventElapsed returns the milliseconds between two events.
func (d *Driver) EventElapsed(from, to uintptr) (float32, error) {
	v, err := d.out1(fnEventElapsedTime, from, to)
	return math.Float32frombits(uint32(v)), err
}
