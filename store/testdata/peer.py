# The PyTorch side of TestTorch: python3 peer.py serve|use host port
import sys
from datetime import timedelta
from torch.distributed import TCPStore, PrefixStore

role, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
libuv = sys.argv[4] == "libuv"
store = TCPStore(
    host, port, 2 if role == "serve" else None, role == "serve",
    timeout=timedelta(seconds=60), wait_for_workers=role == "serve", use_libuv=libuv,
)
print("port", store.port, flush=True)


def expect(got, want):
    assert got == want, f"{got!r}, want {want!r}"


store.set("from python", "hello")
expect(store.get("from go"), b"hello too")
expect(store.add("both", 5) in (5, 12), True)
store.wait(["go added"])
expect(store.add("both", 0), 12)
expect(store.compare_set("cas", "", "first"), b"first")
expect(store.compare_set("cas", "other", "second"), b"first")
expect(store.compare_set("cas", "first", "second"), b"second")
expect(store.check(["cas", "both"]), True)
expect(store.check(["cas", "no such"]), False)
store.append("appended", "a")
store.append("appended", "b")
expect(store.get("appended"), b"ab")
store.multi_set(["m1", "m2"], ["1", "22"])
expect(store.multi_get(["m1", "m2"]), [b"1", b"22"])
expect(store.delete_key("m1"), True)
expect(store.delete_key("m1"), False)
expect(store.num_keys() > 0, True)
try:
    store.wait(["no such"], timedelta(milliseconds=50))
    raise SystemExit("the wait ended")
except Exception as e:  # DistStoreError
    assert "timeout" in str(e).lower() or "timed out" in str(e).lower(), str(e)
PrefixStore("prefix", store).set("inside", "x")
if libuv and hasattr(store, "queue_push"):
    store.queue_push("queue to go", "one")
    expect(store.queue_pop("queue to python"), b"two")
    expect(store.queue_len("queue to python"), 0)
    store.set("has queues", "yes")
else:
    store.set("has queues", "no")
if hasattr(store, "list_keys"):
    expect("cas" in store.list_keys(), True)
    store.set("has list", "yes")
else:
    store.set("has list", "no")
store.set("python done", "")
store.get("go done")
print("well", flush=True)
