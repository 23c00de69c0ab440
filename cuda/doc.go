// Package cuda is what tutti needs of CUDA: devices, streams, events, device
// memory and pinned host memory. It loads the driver (libcuda) when it is first
// used; there is nothing to compile or to link, and no other part of CUDA is
// needed.
//
//	dev, err := cuda.Open(0, nil)
//	defer dev.Close()
//	x, err := cuda.Alloc[float32](dev, 1<<20)
//	defer x.Free()
//	err = x.CopyFrom(numbers)
//
// # Ownership
//
// What was made is ended by its Free or Close, which may be called more than
// once. The garbage collector never frees device memory: a value that is
// forgotten is reported to the device's logger, with the line that made it, and
// stays allocated. A Device can be closed before what was made on it; its context
// lives until the last of that has ended.
//
// # Concurrency
//
// All methods may be called from any goroutine. CUDA's current context belongs
// to a thread of the operating system: every call makes the device's context
// current for as long as it lasts, and leaves the caller's as it was.
//
// # Order
//
// Work on different streams is not ordered, unless an Event or WaitStream orders
// it. Methods whose name ends in On put work into a stream and return; the others
// have finished when they return.
package cuda
