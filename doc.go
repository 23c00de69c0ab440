// Package tutti is collective communication for Go: AllReduce, Broadcast,
// AllGather and the rest, between ranks that make the same calls in the same
// order. A [Comm] is one rank's membership in a group of ranks: [Join] makes a
// group of processes, [Local] and [RunLocal] one of goroutines.
//
//	comm, err := tutti.Join(ctx, tutti.Config{}) // under tutti run, torchrun, srun or mpirun
//	defer comm.Close()
//	err = comm.AllReduce(ctx, tutti.Of(grad), tutti.Avg) // grad is a []float32; in place
//
// A program needs no flags for that: tutti run -n 4 -- ./prog starts it four
// times. Package gpu adds device memory, and package tuttitest tests programs
// under faults.
//
// # Failure
//
// Every call takes a context. When an operation fails on one rank, because its
// context ended, because ranks called different things, or because a rank has
// left, the Comm is poisoned: all ranks get an [*Error] with the first cause,
// from that call or the next. Nobody stays blocked. [Comm.Shrink] goes on
// without those who are lost.
//
// Arguments are checked before anything moves. A call refused for its
// arguments has not happened: the rank may make the right one instead.
//
// # Results
//
// All ranks get the same bits. Within a host reductions run in rank order; over
// a network in any, unless Config.Reproducible says otherwise. Integers wrap;
// floats are rounded to their type after each step; a NaN is the canonical one.
// In host memory Min and Max yield NaN if an input is NaN and take -0 as less than
// +0; in device memory both are as NCCL defines them, which may ignore a NaN. Avg
// multiplies by 1/n before the sum. Avg and PreMul are for floating-point elements
// only; on integers they are ErrInvalid.
package tutti
