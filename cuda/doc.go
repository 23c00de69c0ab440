// Package cuda is a binding to the parts of the CUDA driver that tutti needs: devices,
// streams, events, device memory and pinned host memory. It loads the driver's library
// (libcuda) at run time. Nothing is compiled or linked against CUDA, and no other part
// of the toolkit is needed.
//
//	dev, err := cuda.Open(0, nil)
//	defer dev.Close()
//	x, err := cuda.Alloc[float32](dev, 1<<20)
//	defer x.Free()
//	err = x.CopyFrom(numbers)
//
// # Ownership
//
// The caller ends every object with its Free or Close. Both may be called more than
// once. The garbage collector never frees device memory: an object that becomes
// garbage is reported to the device's logger, with the line that made it, and its
// memory stays allocated. A Device may be closed before the objects made on it; its
// context lives until the last of them has ended.
//
// # Concurrency
//
// All methods may be called from any goroutine. In CUDA the current context belongs
// to an operating system thread. Every call makes the device's context current on its
// thread and restores the previous context before it returns.
//
// # Order
//
// Work on different streams is not ordered, unless an Event or WaitStream orders it.
// Methods whose name ends in On submit work to a stream and return; the other
// methods return when their work is complete.
package cuda
