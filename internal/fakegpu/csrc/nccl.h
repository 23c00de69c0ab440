// NCCL's types and result codes, and the state of a communicator.
#ifndef FAKE_NCCL_H
#define FAKE_NCCL_H

#include "fake.h"

#ifndef VERSION
#define VERSION 22907
#endif

typedef int ncclResult_t;
typedef struct comm *ncclComm_t;
typedef struct window *ncclWindow_t;
typedef struct { char internal[128]; } ncclUniqueId;

enum { OK, CUDA_FAILED, SYSTEM, INTERNAL, BAD_ARGUMENT, BAD_USAGE, REMOTE, IN_PROGRESS };
enum { I8, U8, I32, U32, I64, U64, F16, F32, F64, BF16, F8E4M3, F8E5M2, TYPES };
enum { SUM, PROD, MAX, MIN, AVG, BUILT_IN };
enum { MAX_RANKS = 64, NAME = 100, UNSET = -2147483647 - 1 };
enum { DATA, CONTROL, RMA, CHANNELS };

typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking;
#if VERSION >= 21700
  int cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare;
#endif
#if VERSION >= 22500
  int trafficClass;
#endif
#if VERSION >= 22700
  const char *commName;
  int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs;
#endif
#if VERSION >= 22800
  int nChannelsPerNetPeer, nvlinkCentricSched;
#endif
#if VERSION >= 22900
  int graphUsageMode, numRmaCtx;
#endif
} ncclConfig_t;

struct premul { int used, type, on_device; uint64_t addr; char value[8]; };
struct window { struct comm *comm; uint64_t addr; size_t size; int index; struct window *next; };
struct handle { struct comm *comm; struct handle *next; };

struct comm {
  int rank, n, device, blocking;
  char name[NAME];
  int *sock[CHANNELS];
  atomic_int state;               // the result of ncclCommGetAsyncError
  volatile int stop;              // set by abort: all operations end
  volatile int revoked;             // set by revoke: operations on the device end
  int finalized, children, windows_made;
  struct comm *pending_child;            // a child that is being made; it ends with this communicator
  pthread_mutex_t mu;
  pthread_cond_t changed;
  int running;                    // plans on streams, and threads that work for the communicator
  struct premul ops[16];
  struct window *windows;
  struct handle *handles;
  uint64_t signals[MAX_RANKS], taken[MAX_RANKS];
  pthread_t rma;
  int rma_runs;
  struct comm *next;
};

struct task {
  enum { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, GATHER, SCATTER, SEND, RECV, PUT, SIGNAL, WAIT_SIGNAL } kind;
  uint64_t send, recv;
  size_t count;
  int type, op, peer;             // peer: or the root
  int window;                     // PUT: the index of the peer's window
  size_t offset;
  int times;                      // WAIT_SIGNAL: the number of signals
};

// comm.c
struct comm *fake_comm(ncclComm_t c);
ncclResult_t fake_error(struct comm *c, ncclResult_t code, const char *format, ...);
void fake_work_begin(struct comm *c);
void fake_work_end(struct comm *c);
ncclResult_t fake_barrier(struct comm *c, int what);  // all ranks must call it
// bootstrap.c
int fake_start_hub(const char *name);
void fake_unique_name(char *name);
ncclResult_t fake_bootstrap(struct comm *c, int hosts_hub);
void fake_disconnect(struct comm *c);
// exchange.c: one message to and one from every other rank; each may be empty.
struct item { const void *out; size_t out_bytes; void *in; size_t in_bytes; };
ncclResult_t fake_exchange(struct comm *c, int channel, volatile int *stop, volatile int *revoked, const void *head, size_t head_bytes, struct item *items);
struct message { int peer, kind; void *bytes; size_t n; struct task *task; };
ncclResult_t fake_send_recv(struct comm *c, volatile int *stop, volatile int *revoked, struct message *p, int n);
// reduce.c
size_t fake_type_size(int type);
void fake_scale(int type, char *p, size_t n, const char *scalar);
void fake_reduce(int ranks, char *dst, char **src, struct task *t);
// plan.c: the operations of one group on one communicator, executed on a stream.
struct plan { struct comm *c; int n; struct task tasks[]; };
void fake_run_plan(void *arg);
// rma.c
ncclResult_t fake_rma_task(struct comm *c, struct task *t);
void fake_rma_start(struct comm *c);
// group.c
ncclResult_t fake_add_task(ncclComm_t comm, void *stream, struct task t);
ncclResult_t fake_add_job(struct comm *c, ncclResult_t (*run)(void *), void *arg, int blocking);

#endif
