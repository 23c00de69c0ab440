// Package gpu is the engine for device memory. It combines NCCL with the CPU engine, an engine of
// the same ranks that works on host memory.
//
// An operation on device memory begins on the CPU engine: the ranks compare signatures of the
// operations that they start and wait for each other. A missing rank, an exited rank or a mismatch
// becomes an error there. NCCL, which would hang in these cases, is called only when all ranks
// agree. One comparison covers several operations if all ranks have started them already. Every
// later failure is reported to the CPU engine. Its first failure ends the operation on every rank,
// and each rank aborts its communicators.
//
// Submitted operations pass through a pipeline: signatures of the queued operations are compared
// together, the launching goroutine enqueues the operations on the device, and the completion
// goroutine polls their events. Several small operations share one completion event. Run launches
// an operation and polls on the calling goroutine, while the pipeline is empty.
//
// With DeviceOptions.HostStaging, NCCL is not used. The data goes in pieces through pinned memory
// that the CPU engine works on; see stage.
//
// The first operation that needs the communicator creates it. The comparison distributes its id.
//
// Messages of device memory are matched by messages of the CPU engine. They use a communicator of
// the two ranks, which their first message creates, and do not wait for collectives.
package gpu
