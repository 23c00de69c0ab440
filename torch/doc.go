// Package torch makes a Go process a rank of a torch.distributed NCCL group. The other
// ranks may be Python or Go processes.
//
//	group, err := torch.Join(ctx, torch.Config{}) // RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//	defer group.Close()
//	weights, err := cuda.Alloc[float32](group.Device(), 1<<20)
//	err = group.Broadcast(ctx, nccl.Of(weights), 0) // dist.broadcast(weights, 0)
//
// The group is the default group of init_process_group(backend="nccl"). Config.IDKey
// selects another group of all ranks. [JoinVLLM] joins groups that vLLM makes with
// StatelessProcessGroup and PyNcclCommunicator.
//
// All ranks need the same version of NCCL. Config.Library or TUTTI_NCCL_LIBRARY names the
// file to load. Without them a Group loads the library in the PyTorch wheel of the python3
// on PATH, and without a wheel the system's library.
//
// # Matching calls
//
// All ranks must make the same calls in the same order, as in any NCCL group. Nothing
// checks that, because Python ranks do not take part in a check.
//
//	Python                             Go
//	dist.all_reduce(t, op)             AllReduce
//	dist.broadcast(t, src)             Broadcast
//	dist.all_gather_into_tensor(o, t)  AllGather; also dist.all_gather of equal tensors
//	dist.barrier()                     Barrier
//
// [Group.Do] makes every other call of NCCL. The Python ranks must use the backend "nccl"
// alone. Another one, such as "cpu:gloo,cuda:nccl" or the default, requires every rank in
// Gloo, which Go ranks cannot join.
//
// PyTorch makes the communicator in the first collective, or in init_process_group with a
// device_id. A Group makes it in its first call, or in Connect. The ranks wait for each
// other there.
//
// # Trust
//
// PyTorch's store has no authentication. Every process that reaches its port can read and
// change everything, also the communicator's id.
package torch
