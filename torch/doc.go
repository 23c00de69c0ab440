// Package torch makes a Go process a rank of a PyTorch job: one of the ranks of
// a torch.distributed NCCL group, the others being Python or Go.
//
//	group, err := torch.Join(ctx, torch.Config{}) // RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//	defer group.Close()
//	weights, err := cuda.Alloc[float32](group.Device(), 1<<20)
//	err = group.Broadcast(ctx, nccl.Of(weights), 0) // dist.broadcast(weights, 0)
//
// The group is the default one, of init_process_group(backend="nccl"); other
// groups of all ranks are named by Config.IDKey. [JoinVLLM] is for groups that
// vLLM's StatelessProcessGroup and PyNcclCommunicator make.
//
// All ranks need the same version of NCCL. Config.Library and TUTTI_NCCL_LIBRARY
// say which file is loaded. Without them it is that of the wheel that PyTorch
// brings, in the packages of the python3 on PATH, and only without a wheel the
// system's.
//
// # What has to match
//
// All ranks make the same calls in the same order, as in any NCCL group: nothing
// checks that here, because Python ranks do not take part in it.
//
//	Python                             Go
//	dist.all_reduce(t, op)             AllReduce
//	dist.broadcast(t, src)             Broadcast
//	dist.all_gather_into_tensor(o, t)  AllGather; also dist.all_gather of equal tensors
//	dist.barrier()                     Barrier
//
// Whatever else NCCL has is reached by [Group.Do]. A backend other than "nccl"
// alone, such as "cpu:gloo,cuda:nccl" or none at all, also wants every rank in
// Gloo, which a Go rank cannot join.
//
// PyTorch makes the communicator in the first collective, or in
// init_process_group if that is given a device_id; so does a Group in its first
// call, or in Connect. Until then the ranks wait for each other there.
//
// # Trust
//
// PyTorch's store has no authentication. Whoever reaches its port reads and
// changes everything, the id of the communicator included.
package torch
