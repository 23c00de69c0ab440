// The calls on a communicator: collectives, messages, operators, buffers.
#include "nccl.h"

#include <stdlib.h>
#include <string.h>

#define CALL(name, params, ...)                                     \
  EXPORT ncclResult_t name params {                                 \
    PROBE();                                                        \
    return fake_add_task(comm, stream, (struct task){__VA_ARGS__}); \
  }

CALL(ncclAllReduce, (uint64_t send, uint64_t recv, size_t n, int type, int op, ncclComm_t comm, void *stream),
     .kind = ALL_REDUCE, .send = send, .recv = recv, .count = n, .type = type, .op = op)
CALL(ncclBroadcast, (uint64_t send, uint64_t recv, size_t n, int type, int root, ncclComm_t comm, void *stream),
     .kind = BROADCAST, .send = send, .recv = recv, .count = n, .type = type, .peer = root)
CALL(ncclReduce, (uint64_t send, uint64_t recv, size_t n, int type, int op, int root, ncclComm_t comm, void *stream),
     .kind = REDUCE, .send = send, .recv = recv, .count = n, .type = type, .op = op, .peer = root)
CALL(ncclAllGather, (uint64_t send, uint64_t recv, size_t n, int type, ncclComm_t comm, void *stream),
     .kind = ALL_GATHER, .send = send, .recv = recv, .count = n, .type = type)
CALL(ncclReduceScatter, (uint64_t send, uint64_t recv, size_t n, int type, int op, ncclComm_t comm, void *stream),
     .kind = REDUCE_SCATTER, .send = send, .recv = recv, .count = n, .type = type, .op = op)
CALL(ncclSend, (uint64_t send, size_t n, int type, int peer, ncclComm_t comm, void *stream),
     .kind = SEND, .send = send, .count = n, .type = type, .peer = peer)
CALL(ncclRecv, (uint64_t recv, size_t n, int type, int peer, ncclComm_t comm, void *stream),
     .kind = RECV, .recv = recv, .count = n, .type = type, .peer = peer)

#if VERSION >= 22800
CALL(ncclAlltoAll, (uint64_t send, uint64_t recv, size_t n, int type, ncclComm_t comm, void *stream),
     .kind = ALL_TO_ALL, .send = send, .recv = recv, .count = n, .type = type)
CALL(ncclGather, (uint64_t send, uint64_t recv, size_t n, int type, int root, ncclComm_t comm, void *stream),
     .kind = GATHER, .send = send, .recv = recv, .count = n, .type = type, .peer = root)
CALL(ncclScatter, (uint64_t send, uint64_t recv, size_t n, int type, int root, ncclComm_t comm, void *stream),
     .kind = SCATTER, .send = send, .recv = recv, .count = n, .type = type, .peer = root)
#endif

EXPORT ncclResult_t ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence, ncclComm_t comm) {
  PROBE();
  struct comm *c = fake_comm(comm);
  if (!c || !op || !scalar || type < 0 || type >= TYPES || residence < 0 || residence > 1) return BAD_ARGUMENT;
  size_t size = fake_type_size(type);
  if (residence == 0 && !fake_bytes_at((uint64_t)scalar, size)) return fake_error(c, BAD_ARGUMENT, "the scalar is not in device memory");
  if (residence == 1 && fake_device_of((uint64_t)scalar) >= 0) return fake_error(c, BAD_ARGUMENT, "the scalar is not in host memory");
  for (int i = 0; i < 16; i++) {
    struct premul *p = &c->ops[i];
    if (p->used) continue;
    *p = (struct premul){.used = 1, .type = type, .on_device = residence == 0, .addr = (uint64_t)scalar};
    if (residence == 1) memcpy(p->value, scalar, size);
    *op = BUILT_IN + i;
    fake_count(LIVE_OPS, 1);
    return OK;
  }
  return INTERNAL;
}

EXPORT ncclResult_t ncclRedOpDestroy(int op, ncclComm_t comm) {
  PROBE();
  struct comm *c = fake_comm(comm);
  if (!c || op < BUILT_IN || op >= BUILT_IN + 16 || !c->ops[op - BUILT_IN].used) return BAD_ARGUMENT;
  c->ops[op - BUILT_IN].used = 0;
  fake_count(LIVE_OPS, -1);
  return OK;
}

#if VERSION >= 21900
EXPORT ncclResult_t ncclMemAlloc(void **out, size_t bytes) {
  PROBE();
  if (!out || !bytes) return BAD_ARGUMENT;
  if (fake_ready()) return CUDA_FAILED;
  *out = (void *)fake_alloc(fake_current_device(), bytes);
  return *out ? OK : CUDA_FAILED;
}

EXPORT ncclResult_t ncclMemFree(void *p) {
  PROBE();
  if (fake_ready()) return CUDA_FAILED;
  int d = fake_device_of((uint64_t)p);
  if (d < 0) return BAD_ARGUMENT;
  fake_sync_device(d);
  return fake_free((uint64_t)p) ? OK : BAD_ARGUMENT;
}

EXPORT ncclResult_t ncclCommRegister(ncclComm_t comm, void *p, size_t bytes, void **out) {
  PROBE();
  struct comm *c = fake_comm(comm);
  if (!c || !out || !bytes || !fake_bytes_at((uint64_t)p, bytes)) return BAD_ARGUMENT;
  struct handle *h = calloc(1, sizeof *h);
  h->comm = c;
  h->next = c->handles;
  c->handles = h;
  fake_count(LIVE_HANDLES, 1);
  *out = h;
  return OK;
}

EXPORT ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle) {
  PROBE();
  struct comm *c = fake_comm(comm);
  struct handle **at = c ? &c->handles : NULL;
  while (at && *at && *at != handle) at = &(*at)->next;
  if (!at || !*at) return BAD_ARGUMENT;
  struct handle *h = *at;
  *at = h->next;
  free(h);
  fake_count(LIVE_HANDLES, -1);
  return OK;
}
#endif

#if VERSION >= 22700
EXPORT ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *p, size_t bytes, ncclWindow_t *out, int flags) {
  PROBE();
  struct comm *c = fake_comm(comm);
  if (!c || !out || !bytes || flags < 0 || flags > 3 || !fake_bytes_at((uint64_t)p, bytes)) return BAD_ARGUMENT;
  if ((uint64_t)p % 4096) return fake_error(c, BAD_ARGUMENT, "a window must begin at a multiple of 4096");
  struct window *w = calloc(1, sizeof *w);
  *w = (struct window){.comm = c, .addr = (uint64_t)p, .size = bytes, .index = c->windows_made++};
  pthread_mutex_lock(&c->mu);
  w->next = c->windows;
  c->windows = w;
  pthread_mutex_unlock(&c->mu);
  fake_count(LIVE_HANDLES, 1);
  *out = w;
  if (VERSION >= 22900) fake_rma_start(c);
  return fake_barrier(c, 'w');
}

static struct window *window_of(struct comm *c, ncclWindow_t h) {
  struct window *w = c ? c->windows : NULL;
  while (w && w != h) w = w->next;
  return w;
}

EXPORT ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t h) {
  PROBE();
  struct comm *c = fake_comm(comm);
  if (!window_of(c, h)) return BAD_ARGUMENT;
  pthread_mutex_lock(&c->mu);
  struct window **at = &c->windows;
  while (*at != h) at = &(*at)->next;
  *at = h->next;
  pthread_mutex_unlock(&c->mu);
  free(h);
  fake_count(LIVE_HANDLES, -1);
  return OK;
}
#endif

#if VERSION >= 22900
EXPORT ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t h, void **out) {
  PROBE();
  struct window *w = window_of(fake_comm(comm), h);
  if (!w || !out) return BAD_ARGUMENT;
  *out = (void *)w->addr;
  return OK;
}

EXPORT ncclResult_t ncclPutSignal(uint64_t local, size_t n, int type, int peer, ncclWindow_t win, size_t offset, int signal, int ctx, unsigned flags, ncclComm_t comm, void *stream) {
  PROBE();
  struct comm *c = fake_comm(comm);
  struct window *w = window_of(c, win);
  if (!w || type < 0 || type >= TYPES || signal != 0 || ctx != 0 || flags != 0 || peer == c->rank) return BAD_ARGUMENT;
  size_t bytes = n * fake_type_size(type);
  if (!fake_bytes_at(local, bytes) || offset > w->size || bytes > w->size - offset) return fake_error(c, BAD_ARGUMENT, "outside the buffer or the window");
  return fake_add_task(comm, stream, (struct task){.kind = PUT, .send = local, .count = n, .type = type, .peer = peer, .window = w->index, .offset = offset});
}

EXPORT ncclResult_t ncclSignal(int peer, int signal, int ctx, unsigned flags, ncclComm_t comm, void *stream) {
  PROBE();
  struct comm *c = fake_comm(comm);
  if (!c || signal != 0 || ctx != 0 || flags != 0 || peer == c->rank) return BAD_ARGUMENT;
  return fake_add_task(comm, stream, (struct task){.kind = SIGNAL, .peer = peer});
}

typedef struct { int opCnt, peer, sigIdx, ctx; } ncclWaitSignalDesc_t;

EXPORT ncclResult_t ncclWaitSignal(int n, ncclWaitSignalDesc_t *d, ncclComm_t comm, void *stream) {
  PROBE();
  struct comm *c = fake_comm(comm);
  if (!c || n < 1 || !d) return BAD_ARGUMENT;
  for (int i = 0; i < n; i++)
    if (d[i].opCnt < 1 || d[i].sigIdx != 0 || d[i].ctx != 0 || d[i].peer == c->rank) return BAD_ARGUMENT;
  for (int i = 0; i < n; i++) {
    ncclResult_t rc = fake_add_task(comm, stream, (struct task){.kind = WAIT_SIGNAL, .peer = d[i].peer, .times = d[i].opCnt});
    if (rc) return rc;
  }
  return OK;
}
#endif

#if VERSION >= 22907
EXPORT ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags) {
  PROBE();
  return fake_comm(comm) && flags == 1 ? OK : BAD_ARGUMENT;
}

EXPORT ncclResult_t ncclCommResume(ncclComm_t comm) {
  PROBE();
  return fake_comm(comm) ? OK : BAD_ARGUMENT;
}

EXPORT ncclResult_t ncclCommMemStats(ncclComm_t comm, int stat, uint64_t *value) {
  PROBE();
  if (!fake_comm(comm) || stat < 0 || stat > 3 || !value) return BAD_ARGUMENT;
  *value = 1000 + stat;
  return OK;
}
#endif
