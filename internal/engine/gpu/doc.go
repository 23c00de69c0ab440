// Package gpu is the engine for memory of a device: NCCL beside an engine for
// the same ranks that works on host memory, the CPU engine.
//
// An operation on device memory begins on the CPU engine. There the ranks
// compare what they are about to do, wait for each other, and are told who is
// missing, gone, or of another mind; NCCL, which would hang, is called when all
// agree. If all have started the same further operations, that counts for those,
// too. From then on whatever goes wrong is told to the CPU engine, whose first
// cause ends the operation on every rank: each aborts its communicator.
//
// With DeviceOptions.HostStaging there is no NCCL: stage.go passes the data, in
// pieces, through pinned memory that the CPU engine works on.
//
// The communicator is made with the first operation that needs it; its id
// travels with the comparison.
//
// Messages of device memory are agreed upon by messages of the CPU engine, and go
// through a communicator of the two ranks alone, made with their first message.
// They do not wait for collectives, nor these for them.
package gpu
