// Package tutti is collective communication for Go: AllReduce, Broadcast,
// AllGather and the other collective operations, between ranks that make the
// same calls in the same order. A [Comm] is one rank's membership in a group of
// ranks. [Join] makes a group of processes; [Local] and [RunLocal] make a group
// of goroutines.
//
//	comm, err := tutti.Join(ctx, tutti.Config{}) // under tutti run, torchrun, srun or mpirun
//	defer comm.Close()
//	err = comm.AllReduce(ctx, tutti.Of(grad), tutti.Avg) // grad is a []float32; in place
//
// The program needs no flags for that: tutti run -n 4 -- ./prog starts it four
// times. Package gpu adds device memory. Package value passes structs, maps and
// other Go values between ranks. Package tuttitest tests programs under faults.
//
// # Failure
//
// Every call takes a context. An operation fails on one rank if its context
// ends, if ranks make different calls, or if a rank has left. Then the Comm
// fails on all ranks: each gets an [*Error] with the first cause, from that call
// or from the next. No rank stays blocked. [Comm.Shrink] continues without the
// lost ranks.
//
// Arguments are checked before data moves. A call that is refused for its
// arguments has no effect: the rank may then make the correct call.
//
// # Results
//
// Operations that deliver a result to all ranks deliver the same bits to all of
// them. Within a host, reductions run in rank order. Over a network they run in
// any order, unless Config.Reproducible is set. Integers wrap. Floats are rounded
// to their type after each step, and a NaN result is the canonical NaN. Scan and
// ExScan combine sources in rank order everywhere; see [Comm.Scan].
//
// In host memory Min and Max yield NaN if an input is NaN, and -0 is less than
// +0. In device memory both follow NCCL, which may ignore a NaN. Avg multiplies
// by 1/ranks before the sum. Avg and PreMul take floating-point elements only;
// with integers they return ErrInvalid. And, Or and Xor take integers only.
//
// NCCL has no Scan and ExScan, no And, Or and Xor, and no int16 and uint16. On
// device memory these return ErrUnsupported, unless Config.HostStaging is set.
package tutti
