//go:build ignore

// One rank of a job that times NCCL's AllReduce without Go; NCCL in peers.go
// describes its input and output. It loads the libraries itself, so it compiles
// without the headers of CUDA and NCCL, and uses the same library files as the Go
// side.
// The line above keeps the Go tool from compiling this file.

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct { char bytes[128]; } id_t_;
typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking, rest1[3];
  const char *net;
  int rest2[2];
  const char *name;
  int rest3[10];
} config_t;

static int (*cuInit)(unsigned), (*cuDevicePrimaryCtxRetain)(void **, int), (*cuCtxSetCurrent)(void *);
static int (*cuCtxPushCurrent)(void *), (*cuCtxPopCurrent)(void **), (*cuCtxGetCurrent)(void **);
static int (*cuMemAlloc)(uint64_t *, size_t), (*cuMemsetD32)(uint64_t, unsigned, size_t), (*cuMemcpyDtoH)(void *, uint64_t, size_t);
static int (*cuStreamCreate)(void **, unsigned, int), (*cuStreamSynchronize)(void *), (*cuCtxSynchronize)(void);
static int (*cuEventCreate)(void **, unsigned), (*cuEventRecord)(void *, void *), (*cuStreamWaitEvent)(void *, void *, unsigned);
static int (*ncclGetUniqueId)(id_t_ *), (*ncclCommInitRankConfig)(void **, int, id_t_, int, config_t *), (*ncclCommDestroy)(void *);
static int (*cuMemGetInfo)(size_t *, size_t *), (*cuStreamDestroy)(void *);
static int (*ncclCommAbort)(void *), (*ncclCommGetAsyncError)(void *, int *), (*ncclCommFinalize)(void *);
static int (*ncclAllReduce)(uint64_t, uint64_t, size_t, int, int, void *, void *);

// bench/gputest has copies: warmCycles and failEvery in cycles.go, burst and small in nccl_rank.go.
enum { WARM = 10, FAIL_EVERY = 5, BURST = 64, SMALL = 256 };
// Numbers of NCCL's header, and the longest line of input.
enum { IN_PROGRESS = 7, FLOAT32 = 7, SUM = 0, MAX_LINE = 4096 };

static int rank, ranks;
static void *context, *comm, *stream, *compute, *before, *after;
static uint64_t buffer;
static size_t capacity;

static void die(const char *what, int code) {
  fprintf(stderr, "rank %d: %s: %d\n", rank, what, code);
  exit(1);
}
#define CHECK(call)                   \
  do {                                \
    int code_ = (call);               \
    if (code_) die(#call, code_);     \
  } while (0)

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *library(const char *variable, const char *name) {
  const char *path = getenv(variable);
  void *lib = dlopen(path && *path ? path : name, RTLD_NOW | RTLD_LOCAL);
  if (!lib) {
    fprintf(stderr, "rank %d: %s\n", rank, dlerror());
    exit(1);
  }
  return lib;
}

static void load(void) {
  void *cuda = library("TUTTI_CUDA_LIBRARY", "libcuda.so.1"), *nccl = library("TUTTI_NCCL_LIBRARY", "libnccl.so.2");
  struct { void *lib; const char *name; void *to; } all[] = {
      {cuda, "cuInit", &cuInit}, {cuda, "cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain},
      {cuda, "cuCtxSetCurrent", &cuCtxSetCurrent}, {cuda, "cuMemAlloc_v2", &cuMemAlloc},
      {cuda, "cuCtxPushCurrent_v2", &cuCtxPushCurrent}, {cuda, "cuCtxPopCurrent_v2", &cuCtxPopCurrent},
      {cuda, "cuCtxGetCurrent", &cuCtxGetCurrent},
      {cuda, "cuMemsetD32_v2", &cuMemsetD32}, {cuda, "cuMemcpyDtoH_v2", &cuMemcpyDtoH},
      {cuda, "cuStreamCreateWithPriority", &cuStreamCreate}, {cuda, "cuStreamSynchronize", &cuStreamSynchronize},
      {cuda, "cuCtxSynchronize", &cuCtxSynchronize}, {cuda, "cuEventCreate", &cuEventCreate},
      {cuda, "cuEventRecord", &cuEventRecord}, {cuda, "cuStreamWaitEvent", &cuStreamWaitEvent},
      {nccl, "ncclGetUniqueId", &ncclGetUniqueId}, {nccl, "ncclCommInitRankConfig", &ncclCommInitRankConfig},
      {nccl, "ncclCommDestroy", &ncclCommDestroy}, {nccl, "ncclAllReduce", &ncclAllReduce},
      {cuda, "cuMemGetInfo_v2", &cuMemGetInfo}, {cuda, "cuStreamDestroy_v2", &cuStreamDestroy},
      {nccl, "ncclCommAbort", &ncclCommAbort}, {nccl, "ncclCommGetAsyncError", &ncclCommGetAsyncError},
      {nccl, "ncclCommFinalize", &ncclCommFinalize},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    void *at = dlsym(all[i].lib, all[i].name);
    if (!at) die(all[i].name, 0);
    memcpy(all[i].to, &at, sizeof at);
  }
}

// exchange_id returns the id: rank 0 makes and prints it, the other ranks read it.
static id_t_ exchange_id(void) {
  id_t_ id;
  char line[MAX_LINE];
  if (rank == 0) {
    CHECK(ncclGetUniqueId(&id));
    printf("id ");
    for (int i = 0; i < 128; i++) printf("%02x", (unsigned char)id.bytes[i]);
    printf("\n");
    fflush(stdout);
    return id;
  }
  if (!fgets(line, sizeof line, stdin) || strlen(line) < 3 + 256) die("no id", 0);
  for (int i = 0; i < 128; i++) {
    unsigned byte;
    if (sscanf(line + 3 + 2 * i, "%2x", &byte) != 1) die("a bad id", i);
    id.bytes[i] = (char)byte;
  }
  return id;
}

static void use_device(void) {
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
}

static config_t settings(int blocking) {
  config_t config;
  memset(&config, 0, sizeof config);
  config.size = sizeof config, config.magic = 0xcafebeef, config.version = 23000, config.blocking = blocking;
  for (int i = 0; i < 3; i++) config.rest1[i] = INT_MIN;
  for (int i = 0; i < 2; i++) config.rest2[i] = INT_MIN;
  for (int i = 0; i < 10; i++) config.rest3[i] = INT_MIN;
  return config;
}

// bind_rank binds this rank, and the threads that it starts later, to its part of the
// cores, if that is requested and each rank has two.
static void bind_rank(void) {
  cpu_set_t all, mine;
  if (!getenv("TUTTI_BENCH_BIND")) return;
  if (sched_getaffinity(0, sizeof all, &all)) die("sched_getaffinity", 0);
  int n = CPU_COUNT(&all);
  if (n < 2 * ranks) return;
  CPU_ZERO(&mine);
  for (int core = 0, i = 0; core < CPU_SETSIZE; core++)
    if (CPU_ISSET(core, &all)) {
      if (i >= rank * n / ranks && i < (rank + 1) * n / ranks) CPU_SET(core, &mine);
      i++;
    }
  if (sched_setaffinity(0, sizeof mine, &mine)) die("sched_setaffinity", 0);
}

static void init(void) {
  use_device();
  CHECK(cuStreamCreate(&stream, 1, 0));
  CHECK(cuStreamCreate(&compute, 1, 0));
  CHECK(cuEventCreate(&before, 2));
  CHECK(cuEventCreate(&after, 2));
  capacity = (size_t)256 << 20;
  const char *most = getenv("TUTTI_BENCH_BYTES");
  if (most) capacity = strtoull(most, NULL, 10);
  CHECK(cuMemAlloc(&buffer, capacity));
  config_t config = settings(1);
  CHECK(ncclCommInitRankConfig(&comm, ranks, exchange_id(), rank, &config));
}

static long long entries(const char *path) {
  long long n = 0;
  DIR *d = opendir(path);
  if (!d) die(path, 0);
  while (readdir(d)) n++;
  closedir(d);
  return n;
}

static void usage(long long *to) {
  size_t unused, total;
  CHECK(cuMemGetInfo(&unused, &total));
  to[0] = (long long)(total - unused), to[1] = entries("/proc/self/fd"), to[2] = entries("/proc/self/task");
}

// wait_settled waits while a call on a non-blocking communicator is in progress.
static void wait_settled(void *c, int code) {
  while (code == IN_PROGRESS) {
    usleep(100);
    int rc = ncclCommGetAsyncError(c, &code);
    if (rc) die("ncclCommGetAsyncError", rc);
  }
  CHECK(code);
}

static void cycle(int fail) {
  void *c = NULL, *s;
  id_t_ id;
  config_t config = settings(0);
  CHECK(cuStreamCreate(&s, 1, 0));
  CHECK(ncclGetUniqueId(&id));
  int code = ncclCommInitRankConfig(&c, fail ? 2 : 1, id, 0, &config);
  if (fail) {  // the other rank never joins
    if (code && code != IN_PROGRESS) die("ncclCommInitRankConfig", code);
    usleep(20000);
    CHECK(ncclCommAbort(c));
  } else {
    wait_settled(c, code);
    wait_settled(c, ncclAllReduce(buffer, buffer, SMALL, FLOAT32, SUM, c, s));
    CHECK(cuStreamSynchronize(s));
    wait_settled(c, ncclCommFinalize(c));
    CHECK(ncclCommDestroy(c));
  }
  CHECK(cuStreamDestroy(s));
}

// cycles makes, uses and destroys communicators of one rank. It prints the resource
// usage after the first few and after the last.
static void cycles(int times, int seconds) {
  long long before[3] = {0}, after[3];
  int64_t end = now() + (int64_t)seconds * 1000000000;
  int done = 0;
  use_device();
  CHECK(cuMemAlloc(&buffer, SMALL * 4));
  for (; done < times && (done < WARM || now() < end); done++) {
    if (done == WARM) {
      sleep(1);
      usage(before);
    }
    cycle(done % FAIL_EVERY == FAIL_EVERY - 1);
  }
  sleep(1);
  usage(after);
  printf("ns %d", done);
  for (int i = 0; i < 3; i++) printf(" %lld", before[i]);
  for (int i = 0; i < 3; i++) printf(" %lld", after[i]);
  printf("\n");
}

static void reduce(size_t n) { CHECK(ncclAllReduce(buffer, buffer, n, FLOAT32, SUM, comm, stream)); }

// reduce_pushed is a reduction for a caller that must not change the thread's context
// and does not know it: it pushes the context and pops it.
static void reduce_pushed(size_t n) {
  void *popped;
  CHECK(cuCtxPushCurrent(context));
  reduce(n);
  CHECK(cuCtxPopCurrent(&popped));
}

// reduce_checked is a reduction for such a caller if the context is already current:
// it only checks that.
static void reduce_checked(size_t n) {
  void *current;
  CHECK(cuCtxGetCurrent(&current));
  if (current != context) die("another context", 0);
  reduce(n);
}

// reduce_ordered is a reduction after the work of a compute stream, which then waits
// for it.
static void reduce_ordered(size_t n) {
  CHECK(cuEventRecord(before, compute));
  CHECK(cuStreamWaitEvent(stream, before, 0));
  reduce(n);
  CHECK(cuEventRecord(after, stream));
  CHECK(cuStreamWaitEvent(compute, after, 0));
}

// verify checks a reduction of ones, and clears the buffer so that sums stay finite.
static void verify(void) {
  float got[SMALL];
  CHECK(cuMemsetD32(buffer, 0x3f800000, SMALL));
  CHECK(cuCtxSynchronize());
  reduce(SMALL);
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemcpyDtoH(got, buffer, sizeof got));
  for (int i = 0; i < SMALL; i++)
    if (got[i] != (float)ranks) die("a wrong sum", i);
  CHECK(cuMemsetD32(buffer, 0, capacity / 4));
  CHECK(cuCtxSynchronize());
}

static void bursts(int times, void (*op)(size_t), int all) {
  printf("ns");
  for (int t = 0; t < times; t++) {
    int64_t begin = now();
    for (int i = 0; i < BURST; i++) op(SMALL);
    int64_t took = now() - begin;
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamSynchronize(compute));
    if (all) took = now() - begin;
    printf(" %lld", (long long)(took / BURST));
  }
}

static void whole(size_t bytes, int times) {
  if (bytes > capacity) die("too many bytes", 0);
  printf("ns");
  for (int t = 0; t < times; t++) {
    int64_t begin = now();
    reduce(bytes / 4);
    CHECK(cuStreamSynchronize(stream));
    printf(" %lld", (long long)(now() - begin));
  }
}

#include "loop.c"

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "cycles") == 0) {
    load();
    cycles(atoi(argv[2]), atoi(argv[3]));
    return 0;
  }
  if (argc != 3) die("usage: nccl RANK RANKS", 0);
  rank = atoi(argv[1]), ranks = atoi(argv[2]);
  bind_rank();
  load();
  init();
  verify();
  printf("ready\n");
  fflush(stdout);
  char line[MAX_LINE];
  while (fgets(line, sizeof line, stdin)) {
    int times, ahead;
    unsigned long long bytes;
    char op[32];
    if (sscanf(line, "burst %d", &times) == 1)
      bursts(times, reduce, 0);
    else if (sscanf(line, "pushed %d", &times) == 1)
      bursts(times, reduce_pushed, 0);
    else if (sscanf(line, "asked %d", &times) == 1)
      bursts(times, reduce_checked, 0);
    else if (sscanf(line, "ordered %d", &times) == 1)
      bursts(times, reduce_ordered, 0);
    else if (sscanf(line, "through %d", &times) == 1)
      bursts(times, reduce_ordered, 1);
    else if (sscanf(line, "whole %llu %d", &bytes, &times) == 2)
      whole(bytes, times);
    else if (sscanf(line, "loop %31s %llu %d %d", op, &bytes, &times, &ahead) == 4)
      loop(op, bytes, times, ahead);
    else
      break;
    printf("\n");
    fflush(stdout);
  }
  CHECK(ncclCommDestroy(comm));
  return 0;
}
