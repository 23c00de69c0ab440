// Package nccl is NVIDIA's NCCL itself: complete, typed, and loaded at run time.
// It is for programs that want NCCL bare; package tutti has the same collectives
// with deadlines, and for host memory too.
//
//	lib, err := nccl.Load("")
//	id, err := lib.NewID() // on one rank; the others are sent it
//	comm, err := lib.Init(ctx, dev, id, rank, size, nccl.Config{})
//	defer comm.Close()
//	x, err := cuda.Alloc[float32](dev, 1<<20)
//	err = comm.AllReduce(nccl.Of(x), nccl.Of(x), nccl.Sum, stream)
//	err = stream.Synchronize()
//
// One binary serves NCCL 2.14 and newer. What the loaded version does not have
// is a *cuda.VersionError that names the version needed. All ranks of a
// communicator need the same version.
//
// # Checks
//
// Wrong arguments are errors, and NCCL has not been called then: freed or foreign
// memory, counts that do not fit, another device, a root that does not exist,
// types that differ. NCCL itself checks little, and ranks that call different
// things hang: see Abort.
//
// # Concurrency
//
// A communicator may be used by many goroutines; calls on it take turns. All
// ranks must make the same calls in the same order, over all communicators of a
// device, and that order is the caller's duty. Collectives are put into a stream
// and return; the results are there when the stream is done. Of many small ones, Hold
// makes each take what it takes in C.
//
// Calls on a communicator that does not block (Config.NonBlocking) wait too, but
// Abort from another goroutine ends that wait. Other communicators can be aborted
// while no call on them is under way.
package nccl
