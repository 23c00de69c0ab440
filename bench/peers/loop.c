//go:build ignore

// The loop that `tutti bench` times, for every collective. nccl.c includes this
// file. The line above keeps the Go tool from compiling this file.

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>

static int (*ncclReduce)(uint64_t, uint64_t, size_t, int, int, int, void *, void *);
static int (*ncclBroadcast)(uint64_t, uint64_t, size_t, int, int, void *, void *);
static int (*ncclAllGather)(uint64_t, uint64_t, size_t, int, void *, void *);
static int (*ncclReduceScatter)(uint64_t, uint64_t, size_t, int, int, void *, void *);
static int (*ncclSend)(uint64_t, size_t, int, int, void *, void *), (*ncclRecv)(uint64_t, size_t, int, int, void *, void *);
static int (*ncclGroupStart)(void), (*ncclGroupEnd)(void);
// Only in newer libraries; exchange replaces them in older ones.
static int (*ncclAlltoAll)(uint64_t, uint64_t, size_t, int, void *, void *);
static int (*ncclGather)(uint64_t, uint64_t, size_t, int, int, void *, void *);
static int (*ncclScatter)(uint64_t, uint64_t, size_t, int, int, void *, void *);

enum { LINE = 64, PATIENCE = 2000 };

static uint64_t other;        // destination
static char *places;          // one cache line per rank
static uint64_t arrivals;     // number of barriers so far

static void load_loop(void) {
  void *nccl = library("TUTTI_NCCL_LIBRARY", "libnccl.so.2");
  struct { const char *name; void *to; int needed; } all[] = {
      {"ncclReduce", &ncclReduce, 1}, {"ncclBroadcast", &ncclBroadcast, 1}, {"ncclAllGather", &ncclAllGather, 1},
      {"ncclReduceScatter", &ncclReduceScatter, 1}, {"ncclSend", &ncclSend, 1}, {"ncclRecv", &ncclRecv, 1},
      {"ncclGroupStart", &ncclGroupStart, 1}, {"ncclGroupEnd", &ncclGroupEnd, 1},
      {"ncclAlltoAll", &ncclAlltoAll, 0}, {"ncclGather", &ncclGather, 0}, {"ncclScatter", &ncclScatter, 0},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    void *at = dlsym(nccl, all[i].name);
    if (!at && all[i].needed) die(all[i].name, 0);
    memcpy(all[i].to, &at, sizeof at);
  }
  const char *path = getenv("TUTTI_BENCH_MEET");
  int fd = path ? open(path, O_RDWR) : -1;
  if (fd < 0) die("TUTTI_BENCH_MEET names no file", 0);
  places = mmap(NULL, (size_t)ranks * LINE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (places == MAP_FAILED) die("mmap", 0);
  close(fd);
  CHECK(cuMemAlloc(&other, capacity));
  CHECK(cuMemsetD32(other, 0, capacity / 4));
  CHECK(cuCtxSynchronize());
}

static _Atomic uint64_t *place(int r) { return (_Atomic uint64_t *)(places + (size_t)r * LINE); }

// barrier waits until all ranks have arrived, through memory that they share.
static void barrier(void) {
  arrivals++;
  atomic_store(place(rank), arrivals);
  for (int r = 0; r < ranks; r++)
    for (int spins = 0; atomic_load(place(r)) < arrivals; spins++)
      if (spins > PATIENCE) sched_yield();
}

// exchange implements gather, scatter and alltoall with sends and receives.
static void exchange(size_t n, int send_all, int recv_all, int root) {
  CHECK(ncclGroupStart());
  for (int r = 0; r < ranks; r++) {
    if (send_all || r == root) CHECK(ncclSend(buffer + (send_all ? r * n * 4 : 0), n, FLOAT32, r, comm, stream));
    if (recv_all || r == root) CHECK(ncclRecv(other + (recv_all ? r * n * 4 : 0), n, FLOAT32, r, comm, stream));
  }
  CHECK(ncclGroupEnd());
}

static void start(const char *op, size_t n) {
  size_t part = n / ranks;
  if (!strcmp(op, "allreduce"))
    CHECK(ncclAllReduce(buffer, other, n, FLOAT32, SUM, comm, stream));
  else if (!strcmp(op, "reduce"))
    CHECK(ncclReduce(buffer, other, n, FLOAT32, SUM, 0, comm, stream));
  else if (!strcmp(op, "broadcast"))
    CHECK(ncclBroadcast(other, other, n, FLOAT32, 0, comm, stream));
  else if (!strcmp(op, "allgather"))
    CHECK(ncclAllGather(buffer, other, part, FLOAT32, comm, stream));
  else if (!strcmp(op, "reducescatter"))
    CHECK(ncclReduceScatter(buffer, other, part, FLOAT32, SUM, comm, stream));
  else if (!strcmp(op, "alltoall") && ncclAlltoAll)
    CHECK(ncclAlltoAll(buffer, other, part, FLOAT32, comm, stream));
  else if (!strcmp(op, "alltoall"))
    exchange(part, 1, 1, 0);
  else if (!strcmp(op, "gather") && ncclGather)
    CHECK(ncclGather(buffer, other, part, FLOAT32, 0, comm, stream));
  else if (!strcmp(op, "gather"))
    exchange(part, 0, rank == 0, rank == 0 ? 0 : -1);
  else if (!strcmp(op, "scatter") && ncclScatter)
    CHECK(ncclScatter(buffer, other, part, FLOAT32, 0, comm, stream));
  else if (!strcmp(op, "scatter"))
    exchange(part, rank == 0, 0, 0);
  else
    die(op, 0);
}

// loop times an operation as tutti bench does: it starts ahead operations and waits for
// the last. Operations in which every rank waits for every other run back to back; all
// others run after a barrier that is not timed.
static void loop(const char *op, size_t bytes, int times, int ahead) {
  if (!places) load_loop();
  if (bytes > capacity) die("too many bytes", 0);
  int waits = !strcmp(op, "allreduce") || !strcmp(op, "allgather") || !strcmp(op, "reducescatter") || !strcmp(op, "alltoall");
  int64_t *took = malloc((size_t)times * sizeof *took);
  if (!took) die("no memory", 0);
  barrier();
  int64_t last = now();
  for (int t = 0; t < times; t++) {
    if (!waits) {
      barrier();
      last = now();
    }
    for (int i = 0; i < ahead; i++) start(op, bytes / 4);
    CHECK(cuStreamSynchronize(stream));
    int64_t end = now();
    took[t] = (end - last) / ahead;
    last = end;
  }
  printf("ns");
  for (int t = 0; t < times; t++) printf(" %lld", (long long)took[t]);
  free(took);
}
