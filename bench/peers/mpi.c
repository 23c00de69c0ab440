//go:build ignore

// One rank of an MPI job that times a collective or messages; see peers.go.
// The line above keeps the Go tool from compiling this file.

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __linux__
#include <signal.h>
#include <sys/prctl.h>
#endif

// bench/compare/measure.go and gloo.cc have copies.
enum { MIN_ITERS = 5, MAX_ITERS = 100000 };
// bench/compare/messages.go has copies.
enum { WINDOW = 64, SPACING = 16, SMALL_MESSAGE = 4096, GROUP = 16, TAG = 100, ACK_TAG = 101 };

enum op { ALLREDUCE, BROADCAST, ALLGATHER, REDUCESCATTER, ALLTOALL, REDUCE, SCAN, EXSCAN, BARRIER, SENDRECV, PINGPONG, RATE, OPS };
static const char *names[OPS] = {"allreduce", "broadcast", "allgather", "reducescatter", "alltoall", "reduce",
                                 "scan",      "exscan",    "barrier",   "sendrecv",      "pingpong", "rate"};

static enum op op;
static int rank, ranks;
static int n, part;  // elements in the larger buffer or a message, and in one rank's part of the buffer
static int from_n, to_n;  // elements in src and in dst
static int peer, group;   // of messages: the other rank of the pair, and how many exchanges are one iteration
static float *src, *dst;
static int64_t limit_ns;  // the time for one size

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what) {
  fprintf(stderr, "rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static int is_message(void) { return op == SENDRECV || op == PINGPONG || op == RATE; }

// waits_for_peers reports whether no rank can run ahead of the ranks that it exchanges data with.
static int waits_for_peers(void) { return op == ALLREDUCE || is_message(); }

static void ping_pong(void) {
  MPI_Comm w = MPI_COMM_WORLD;
  if (rank % 2 == 0) {
    MPI_Send(src, n, MPI_FLOAT, peer, TAG, w);
    MPI_Recv(dst, n, MPI_FLOAT, peer, TAG, w, MPI_STATUS_IGNORE);
  } else {
    MPI_Recv(dst, n, MPI_FLOAT, peer, TAG, w, MPI_STATUS_IGNORE);
    MPI_Send(src, n, MPI_FLOAT, peer, TAG, w);
  }
}

// send_window sends WINDOW messages to the odd rank and waits for its acknowledgement.
// Message j begins SPACING elements behind message j-1, so the receiver can tell them apart.
static void send_window(void) {
  MPI_Request all[WINDOW];
  int ack = 0, sends = rank % 2 == 0;
  for (int j = 0; j < WINDOW; j++)
    if (sends)
      MPI_Isend(src + j * SPACING, n, MPI_FLOAT, peer, TAG, MPI_COMM_WORLD, &all[j]);
    else
      MPI_Irecv(dst + (size_t)j * n, n, MPI_FLOAT, peer, TAG, MPI_COMM_WORLD, &all[j]);
  MPI_Waitall(WINDOW, all, MPI_STATUSES_IGNORE);
  if (sends)
    MPI_Recv(&ack, 1, MPI_INT, peer, ACK_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  else
    MPI_Send(&ack, 1, MPI_INT, peer, ACK_TAG, MPI_COMM_WORLD);
}

static void run(void) {
  MPI_Comm w = MPI_COMM_WORLD;
  switch (op) {
    case ALLREDUCE: MPI_Allreduce(MPI_IN_PLACE, dst, n, MPI_FLOAT, MPI_SUM, w); break;
    case BROADCAST: MPI_Bcast(dst, n, MPI_FLOAT, 0, w); break;
    case ALLGATHER: MPI_Allgather(src, part, MPI_FLOAT, dst, part, MPI_FLOAT, w); break;
    case REDUCESCATTER: MPI_Reduce_scatter_block(src, dst, part, MPI_FLOAT, MPI_SUM, w); break;
    case ALLTOALL: MPI_Alltoall(src, part, MPI_FLOAT, dst, part, MPI_FLOAT, w); break;
    case REDUCE: MPI_Reduce(src, dst, n, MPI_FLOAT, MPI_SUM, 0, w); break;
    case SCAN: MPI_Scan(src, dst, n, MPI_FLOAT, MPI_SUM, w); break;
    case EXSCAN: MPI_Exscan(src, dst, n, MPI_FLOAT, MPI_SUM, w); break;
    case SENDRECV:
      for (int i = 0; i < group; i++)
        MPI_Sendrecv(src, n, MPI_FLOAT, peer, TAG, dst, n, MPI_FLOAT, peer, TAG, w, MPI_STATUS_IGNORE);
      break;
    case PINGPONG:
      for (int i = 0; i < group; i++) ping_pong();
      break;
    case RATE: send_window(); break;
    default: MPI_Barrier(w);
  }
}

// value is element i of rank r's source; sum is element i of the sum of all sources, prefix that of the first k.
static float value(int i, int r) { return (float)(i % 13 + r); }
static float prefix(int i, int k) { return (float)(k * (i % 13) + k * (k - 1) / 2); }
static float sum(int i) { return prefix(i, ranks); }

// expect is element i of the result on this rank.
static float expect(int i) {
  switch (op) {
    case BROADCAST: return value(i, 0);
    case ALLGATHER: return value(i % part, i / part);
    case REDUCESCATTER: return sum(rank * part + i);
    case ALLTOALL: return value(rank * part + i % part, i / part);
    case SCAN: return prefix(i, rank + 1);
    case EXSCAN: return prefix(i, rank);
    case SENDRECV:
    case PINGPONG: return value(i, peer);
    case RATE: return value(i % n + i / n * SPACING, peer);
    default: return sum(i);
  }
}

// check runs the operation on known values.
static void check(void) {
  for (int i = 0; i < from_n; i++) src[i] = value(i, rank);
  for (int i = 0; i < to_n; i++) dst[i] = op == ALLREDUCE || op == BROADCAST ? value(i, rank) : -1;
  run();
  int results = op == REDUCESCATTER ? part : to_n;
  if (op == BARRIER || (op == REDUCE && rank != 0) || (op == EXSCAN && rank == 0) || (op == RATE && rank % 2 == 0)) results = 0;
  for (int i = 0; i < results; i++)
    if (dst[i] != expect(i)) die("wrong result");
}

static double middle(const double m[3]) {
  double low = m[0] < m[1] ? m[0] : m[1], high = m[0] < m[1] ? m[1] : m[0];
  return m[2] < low ? low : m[2] > high ? high : m[2];
}

// calibrate warms up and returns how many iterations fit into the budget, by the
// median of the last three batches. A single slow batch must not reduce the number
// to a few.
static int calibrate(double budget_us) {
  double total = 0, mean[3] = {0};
  for (int64_t batch = 1, k = 0;; batch *= 2, k++) {
    int64_t start = now();
    for (int64_t i = 0; i < batch; i++) {
      if (!waits_for_peers()) MPI_Barrier(MPI_COMM_WORLD);
      run();
    }
    double us = (double)(now() - start) / 1e3, fit = 0;
    total += us;
    mean[k % 3] = us / batch;
    if (total >= budget_us / 4 && k >= 2) fit = budget_us / middle(mean);
    MPI_Bcast(&fit, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (fit > 0) return fit < MIN_ITERS ? MIN_ITERS : fit > MAX_ITERS ? MAX_ITERS : (int)fit;
  }
}

// enough reports whether a busy machine has made a loop take twice its budget; the
// ranks agree on it. Each loop calls it ten times.
static int enough(int64_t start) {
  int over = now() - start > 2 * limit_ns;
  MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return over;
}

static int ascending(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

// combine_pairs replaces the numbers of rank 0 by those of all pairs, each measured by its
// even rank: the mean of the times, divided by the pairs for RATE, and the sum of the rates.
static void combine_pairs(double *all) {
  double pairs = ranks / 2, sum[5] = {0};
  for (int r = 0; r < ranks; r += 2)
    for (int k = 0; k < 5; k++) sum[k] += all[5 * r + k];
  for (int k = 0; k < 5; k++) all[k] = k == 4 ? sum[k] : sum[k] / pairs / (op == RATE ? pairs : 1);
}

// report prints the results of each rank; with alone, of rank 0 only; of messages, of all pairs.
static void report(long bytes, int64_t *t, int iters, int64_t elapsed, int alone) {
  qsort(t, iters, sizeof *t, ascending);
  double each = op == SENDRECV ? group : op == PINGPONG ? 2 * group : op == RATE ? WINDOW : 1, us = 1e3 * each;
  double mine[5] = {t[iters / 2] / us, t[(int64_t)iters * 99 / 100] / us,
                    t[(int64_t)iters * 999 / 1000] / us, t[0] / us, iters * each * 1e9 / elapsed};
  double *all = malloc(ranks * sizeof mine);
  MPI_Gather(mine, 5, MPI_DOUBLE, all, 5, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  if (rank == 0 && is_message()) combine_pairs(all);
  for (int r = 0; rank == 0 && r < (alone || is_message() ? 1 : ranks); r++) {
    double *s = all + 5 * r;
    printf("R %ld %d %d %.5f %.5f %.5f %.5f %.1f\n", bytes, r, iters, s[0], s[1], s[2], s[3], s[4]);
    fflush(stdout);
  }
  free(all);
}

// back_to_back times each iteration from return to return.
static void back_to_back(long bytes, int iters) {
  int64_t *t = malloc(iters * sizeof *t);
  memset(t, 0, iters * sizeof *t);
  MPI_Barrier(MPI_COMM_WORLD);
  int64_t start = now(), last = start;
  int done = 0, over = 0, block = iters / 10 + 1;
  while (done < iters && !over) {
    run();
    int64_t end = now();
    t[done++] = end - last;
    last = end;
    if (done % block == 0) {
      over = enough(start);
      last = now();
    }
  }
  report(bytes, t, done, last - start, 0);
  free(t);
}

// until_all_done times each iteration from the last start to the last return.
static void until_all_done(long bytes, int iters) {
  int64_t *t = malloc(2 * iters * sizeof *t), *last = malloc(2 * iters * sizeof *t), total = 0;
  memset(t, 0, 2 * iters * sizeof *t);
  int64_t start = now();
  int done = 0, over = 0, block = iters / 10 + 1;
  while (done < iters && !over) {
    MPI_Barrier(MPI_COMM_WORLD);
    t[2 * done] = now();
    run();
    t[2 * done + 1] = now();
    if (++done % block == 0) over = enough(start);
  }
  MPI_Allreduce(t, last, 2 * done, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
  for (int i = 0; i < done; i++) total += t[i] = last[2 * i + 1] - last[2 * i];
  report(bytes, t, done, total, 1);
  free(t);
  free(last);
}

static void measure(long bytes, double budget_us, int iters) {
  part = (int)((bytes / 4 + ranks - 1) / ranks);
  n = op == ALLREDUCE || op == BROADCAST || op == REDUCE || is_message() ? (int)(bytes / 4) : part * ranks;
  from_n = to_n = n;
  if (op == RATE) {
    from_n += (WINDOW - 1) * SPACING;
    to_n *= WINDOW;
  }
  peer = rank ^ 1;
  group = bytes <= SMALL_MESSAGE ? GROUP : 1;
  src = aligned_alloc(4096, ((size_t)from_n * 4 + 4096) & ~(size_t)4095);
  dst = aligned_alloc(4096, ((size_t)to_n * 4 + 4096) & ~(size_t)4095);
  if (!src || !dst) die("out of memory");
  check();
  memset(src, 0, (size_t)from_n * 4);
  memset(dst, 0, (size_t)to_n * 4);
  int fit = calibrate(budget_us);
  limit_ns = iters == 0 ? (int64_t)(budget_us * 1e3) : INT64_MAX / 2;
  if (iters == 0) iters = fit;
  if (waits_for_peers())
    back_to_back(bytes, iters);
  else
    until_all_done(bytes, iters);
  check();
  free(src);
  free(dst);
}

// about prints the library's version and, for Open MPI, how a rank reads another
// rank's memory: cma is a single copy by the kernel, none is two copies.
static void about(void) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int len, provided, at, scope, verbosity, bind, count, mechanism, size;
  MPI_Get_library_version(version, &len);
  version[strcspn(version, ",\n")] = 0;
  printf("I %s\n", version);
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  if (MPI_T_cvar_get_index("btl_vader_single_copy_mechanism", &at) == MPI_SUCCESS) {
    MPI_Datatype type;
    MPI_T_enum values;
    MPI_T_cvar_handle handle;
    char name[64];
    int none = 0;
    len = sizeof name;
    MPI_T_cvar_get_info(at, NULL, &none, &verbosity, &type, &values, NULL, &none, &bind, &scope);
    MPI_T_cvar_handle_alloc(at, NULL, &handle, &count);
    MPI_T_cvar_read(handle, &mechanism);
    MPI_T_enum_get_info(values, &count, NULL, &none);
    for (int i = 0; i < count; i++) {
      len = sizeof name;
      MPI_T_enum_get_item(values, i, &size, name, &len);
      if (size == mechanism) printf("I single copy mechanism: %s\n", name);
    }
  }
  fflush(stdout);
}

int main(int argc, char **argv) {
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // the ranks end with the launcher
#endif
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 5) die("arguments: operation sizes budget_us iterations");
  while (op < OPS && strcmp(argv[1], names[op]) != 0) op++;
  if (op == OPS) die("no such operation");
  if (is_message() && ranks % 2) die("an odd number of ranks has no pairs");
  if (rank == 0) about();
  for (char *s = strtok(argv[2], ","); s; s = strtok(NULL, ","))
    measure(atol(s), atof(argv[3]), atoi(argv[4]));
  MPI_Finalize();
  return 0;
}
