# A Python rank of TestPyTorch: python3 group.py torch|vllm. The environment has the rank.
# It performs the operations of verbs.program in Go.
import ctypes
import os
import pickle
import sys
import types
from datetime import timedelta

import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
device = torch.device("cuda", 0)
torch.cuda.set_device(device)


class Torch:
    """torch.distributed's default group."""

    def __init__(self):
        eager = {"device_id": device} if os.environ.get("TUTTI_TEST_EAGER") else {}
        dist.init_process_group("nccl", timeout=timedelta(seconds=90), **eager)
        self.all_reduce, self.broadcast, self.barrier = dist.all_reduce, dist.broadcast, dist.barrier
        self.close = dist.destroy_process_group

    def all_gather(self, out, t):
        dist.all_gather_into_tensor(out, t)

    def all_gather_again(self, out, t):
        dist.all_gather(list(out.chunk(size)), t)


class VLLM:
    """The protocol of vLLM's own classes, for when vLLM is not installed."""

    def __init__(self):
        self.store = dist.TCPStore(host, port, size, rank == 0, timedelta(seconds=90), use_libuv=False)
        name = "vllm.distributed.device_communicators.pynccl_wrapper"
        parts = name.split(".")
        for i in range(len(parts)):
            sys.modules.setdefault(".".join(parts[: i + 1]), types.ModuleType(parts[i]))

        class ncclUniqueId(ctypes.Structure):
            _fields_ = [("internal", ctypes.c_byte * 128)]

        ncclUniqueId.__module__, ncclUniqueId.__qualname__ = name, "ncclUniqueId"
        sys.modules[name].ncclUniqueId = ncclUniqueId
        self.lib = ctypes.CDLL("libnccl.so.2")  # PyTorch has loaded it
        uid = ncclUniqueId()
        if rank == 0:
            self.check(self.lib.ncclGetUniqueId(ctypes.byref(uid)))
            self.store.set("broadcast_from/0/0", pickle.dumps(uid))
        else:
            uid = pickle.loads(self.store.get("broadcast_from/0/0"))
        self.comm = ctypes.c_void_p()
        init = self.lib.ncclCommInitRank
        init.argtypes = [ctypes.c_void_p, ctypes.c_int, ncclUniqueId, ctypes.c_int]
        self.check(init(ctypes.byref(self.comm), size, uid, rank))
        self.barrier()

    def check(self, code):
        assert code == 0, f"NCCL says {code}"

    def call(self, function, *args):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.check(getattr(self.lib, function)(*args, self.comm, stream))

    def all_reduce(self, t):
        p = ctypes.c_void_p(t.data_ptr())
        self.call("ncclAllReduce", p, p, ctypes.c_size_t(t.numel()), 7, 0)

    def broadcast(self, t, src):
        p = ctypes.c_void_p(t.data_ptr())
        self.call("ncclBroadcast", p, p, ctypes.c_size_t(t.numel()), 7, src)

    def all_gather(self, out, t):
        p, q = ctypes.c_void_p(t.data_ptr()), ctypes.c_void_p(out.data_ptr())
        self.call("ncclAllGather", p, q, ctypes.c_size_t(t.numel()), 7)

    all_gather_again = all_gather

    def barrier(self):
        self.all_reduce(torch.zeros(1, device=device))
        torch.cuda.synchronize()

    def close(self):
        self.check(self.lib.ncclCommDestroy(self.comm))


def check(what, t, want):
    assert torch.equal(t, want), f"rank {rank}: {what}: {t} instead of {want}"


group = Torch() if sys.argv[1] == "torch" else VLLM()
n = 1000
x = torch.full((n,), float(rank + 1), device=device)
group.all_reduce(x)
check("all_reduce", x, torch.full_like(x, size * (size + 1) / 2))
everything = torch.cat([torch.full_like(x, float(r + 1)) for r in range(size)])
for gather in (group.all_gather, group.all_gather_again):
    x.fill_(rank + 1)
    group.barrier()
    out = torch.zeros(n * size, device=device)
    gather(out, x)
    check("all_gather", out, everything)
for root in (1, 0):
    x.fill_(rank + 1)
    group.broadcast(x, root)
    check("broadcast", x, torch.full_like(x, float(root + 1)))
group.barrier()
group.close()
print(f"well PyTorch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}", flush=True)
