// Package nccl is a complete binding to NVIDIA's NCCL, loaded at run time. It is for
// programs that need NCCL's own interface. Package tutti has the same collectives with
// deadlines, and for host memory too.
//
//	lib, err := nccl.Load("")
//	id, err := lib.NewID() // on one rank, which sends it to the others
//	comm, err := lib.Init(ctx, dev, id, rank, size, nccl.Config{})
//	defer comm.Close()
//	x, err := cuda.Alloc[float32](dev, 1<<20)
//	err = comm.AllReduce(nccl.Of(x), nccl.Of(x), nccl.Sum, stream)
//	err = stream.Synchronize()
//
// One binary works with NCCL 2.14 and newer. A call that the loaded version does not
// have returns a *cuda.VersionError, which names the version that it needs. All ranks of
// a communicator need the same version.
//
// # Checks
//
// Invalid arguments are errors, and NCCL is not called: memory that is freed or on
// another device, counts that do not match, a root that does not exist, types that
// differ. NCCL itself checks little. Ranks that make different calls hang; see
// Comm.Abort.
//
// # Concurrency
//
// Many goroutines may use a communicator; their calls run one after the other. All ranks
// must make the same calls in the same order, across all communicators of a device; the
// caller ensures that order. A collective is enqueued on a stream and returns; its result
// is there when the stream has completed it. For many small collectives, Hold saves the
// way from Go to C and back.
//
// On a nonblocking communicator (Config.NonBlocking) calls wait as well, but Abort from
// another goroutine ends that wait. A blocking communicator is aborted only when no call
// on it is in progress, or after a second in NCCL.
package nccl
