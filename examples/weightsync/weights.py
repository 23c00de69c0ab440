"""The trainer of examples/weightsync: makes a model's tensors and broadcasts them.

    python3 weights.py send [--store HOST:PORT,...] [--mib 1024] [--rounds 5]
    python3 weights.py receive --store HOST:PORT,...

"receive" does what the Go server does, to compare with. With several stores, the
groups are made one after the other, each with its own receiver.
"""
import argparse
import ctypes
import hashlib
import json
import os
import statistics
import time
from datetime import timedelta

import torch
import torch.distributed as dist

GIB = 1 << 30
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def tensors(mib):
    """A transformer of about so many MiB."""
    torch.manual_seed(1)
    hidden = 2048 if mib >= 256 else 64
    made = {"step": torch.tensor([1234567], device=device)}

    def add(name, *shape, dtype=torch.bfloat16):
        made[name] = torch.randn(*shape, device=device).to(dtype)

    layer = 0
    while sum(nbytes(t) for t in made.values()) < mib << 20:
        for name in "q", "k", "v", "o":
            add(f"layers.{layer}.attention.{name}", hidden, hidden)
        for name in "up", "gate":
            add(f"layers.{layer}.mlp.{name}", 4 * hidden, hidden)
        add(f"layers.{layer}.mlp.down", hidden, 4 * hidden)
        add(f"layers.{layer}.norm", hidden, dtype=torch.float32)
        layer += 1
    return made


def nbytes(t):
    return t.numel() * t.element_size()


def digest(t):
    host = t.cpu()
    return hashlib.sha256((ctypes.c_char * nbytes(host)).from_address(host.data_ptr())).hexdigest()


def group(address, rank):
    """Joins the default group; the store is rank 0's."""
    host, port = address.rsplit(":", 1)
    return dist.TCPStore(host, int(port), 2, rank == 0, timedelta(minutes=2))


def connect(store, rank):
    # With a device_id the communicator is made here, not in the first collective.
    dist.init_process_group("nccl", store=store, rank=rank, world_size=2, device_id=device)


def transfer(list_of_tensors):
    """One round, timed: all tensors between two barriers."""
    dist.barrier()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for t in list_of_tensors:
        dist.broadcast(t, 0)
    dist.barrier()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def send(stores, mib, rounds):
    made = tensors(mib)
    total = sum(nbytes(t) for t in made.values())
    listing = [
        {"name": n, "dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape), "sha256": digest(t)}
        for n, t in made.items()
    ]
    rates = {}
    for address in stores:
        store = group(address, 0)
        store.set("weights", json.dumps({"rounds": rounds + 1, "tensors": listing}))
        connect(store, 0)
        receiver = store.get("receiver").decode()
        took = [transfer(made.values()) for _ in range(rounds + 1)][1:]  # the first one makes connections
        verdict = store.get("checked").decode()
        dist.barrier()
        dist.destroy_process_group()
        assert verdict == "ok", f"{receiver} says: {verdict}"
        rate = total / GIB / statistics.median(took)
        rates.setdefault(receiver, []).append(rate)
        print(
            f"to {receiver}: {len(made)} tensors, {total / GIB:.3f} GiB, {rate:.3f} GiB/s "
            f"({total / GIB / max(took):.3f} to {total / GIB / min(took):.3f} in {rounds} rounds), all digests right",
            flush=True,
        )
        del store
    if {"Go", "Python"} <= rates.keys():
        go, python = statistics.median(rates["Go"]), statistics.median(rates["Python"])
        print(f"medians of {len(rates['Go'])} groups each: {go:.3f} and {python:.3f} GiB/s, ratio {go / python:.3f}", flush=True)


def receive(stores):
    for address in stores:
        store = group(address, 1)
        store.set("receiver", "Python")
        connect(store, 1)
        listing = json.loads(store.get("weights"))
        made = [torch.zeros(t["shape"], dtype=getattr(torch, t["dtype"]), device=device) for t in listing["tensors"]]
        for _ in range(listing["rounds"]):
            transfer(made)
        wrong = [t["name"] for t, got in zip(listing["tensors"], made) if digest(got) != t["sha256"]]
        store.set("checked", "ok" if not wrong else f"wrong digests: {wrong}")
        dist.barrier()
        dist.destroy_process_group()
        del store


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=["send", "receive"])
    parser.add_argument("--store", default="127.0.0.1:29500")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.cuda.set_device(device)
    if args.role == "send":
        send(args.store.split(","), args.mib, args.rounds)
    else:
        receive(args.store.split(","))
