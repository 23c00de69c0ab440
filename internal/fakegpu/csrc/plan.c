// Collectives and messages on a stream. A rank sends every other rank the data that it needs,
// and reduces what it receives. This is slow, and simple enough to be correct.
#include "nccl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct head { uint32_t magic; int32_t kind, type, op, peer, unused; uint64_t count; };  // no padding: heads are compared as bytes

// sides returns the sizes of the send and the receive buffer on this rank, in elements.
static void sides(struct comm *c, struct task *t, size_t *send, size_t *recv) {
  size_t n = c->n, one = t->count, at_root = c->rank == t->peer;
  *send = *recv = one;
  switch (t->kind) {
    case ALL_GATHER: *recv = n * one; break;
    case REDUCE_SCATTER: *send = n * one; break;
    case ALL_TO_ALL: *send = *recv = n * one; break;
    case GATHER: *recv = at_root ? n * one : 0; break;
    case SCATTER: *send = at_root ? n * one : 0; break;
    case REDUCE: *recv = at_root ? one : 0; break;
    case BROADCAST: *send = at_root ? one : 0; break;
    case SEND: *recv = 0; break;
    case RECV: *send = 0; break;
    default: break;
  }
}

// fake_check_buffers refuses addresses that are not completely allocated, or on another
// device.
ncclResult_t fake_check_buffers(struct comm *c, struct task *t) {
  size_t send, recv, size = fake_type_size(t->type);
  sides(c, t, &send, &recv);
  if (send && !fake_bytes_at(t->send, send * size)) return fake_error(c, BAD_ARGUMENT, "the send buffer is not allocated, or too short");
  if (recv && !fake_bytes_at(t->recv, recv * size)) return fake_error(c, BAD_ARGUMENT, "the receive buffer is not allocated, or too short");
  return OK;
}

static void combine(struct comm *c, struct task *t, char *dst, char *own, char *got, size_t bytes) {
  char *src[MAX_RANKS];
  for (int r = 0; r < c->n; r++) src[r] = r == c->rank ? own : got + r * bytes;
  fake_reduce(c->n, dst, src, t);
}

static ncclResult_t collective(struct comm *c, struct task *t) {
  size_t ns, nr, size = fake_type_size(t->type), one = t->count * size;
  sides(c, t, &ns, &nr);
  char *send = ns ? fake_bytes_at(t->send, ns * size) : NULL, *recv = nr ? fake_bytes_at(t->recv, nr * size) : NULL;
  if ((ns && !send) || (nr && !recv)) return fake_error(c, CUDA_FAILED, "illegal address on the device");
  // The input is copied first, because NCCL allows some overlaps.
  char *in = malloc(ns * size + 1), *got = malloc(one * c->n + 1);
  if (ns) memcpy(in, send, ns * size);
  struct premul *p = t->op >= BUILT_IN ? &c->ops[t->op - BUILT_IN] : NULL;
  struct task plain = *t;
  if (p) {
    char *at = p->on_device ? fake_bytes_at(p->addr, size) : p->value;
    if (at) fake_scale(t->type, in, ns, at);
    plain.op = SUM;
  }
  struct item items[MAX_RANKS] = {0};
  for (int r = 0; r < c->n; r++) {
    struct item *i = &items[r];
    int to_root = r == t->peer, root = c->rank == t->peer;
    switch (t->kind) {
      case ALL_REDUCE: case ALL_GATHER: i->out = in, i->in = got + r * one; break;
      case REDUCE_SCATTER: case ALL_TO_ALL: i->out = in + r * one, i->in = got + r * one; break;
      case REDUCE: case GATHER: i->out = to_root ? in : NULL, i->in = root ? got + r * one : NULL; break;
      case BROADCAST: i->out = root ? in : NULL, i->in = to_root ? got + r * one : NULL; break;
      case SCATTER: i->out = root ? in + r * one : NULL, i->in = to_root ? got + r * one : NULL; break;
      default: break;
    }
    i->out_bytes = i->in_bytes = one;
  }
  struct head h = {.magic = 0x636f6c6c, .kind = t->kind, .type = t->type, .op = p ? BUILT_IN : t->op, .peer = t->peer, .count = t->count};
  ncclResult_t rc = fake_exchange(c, DATA, &c->stop, &c->revoked, &h, sizeof h, items);
  char *own = t->kind == REDUCE_SCATTER || t->kind == ALL_TO_ALL || (t->kind == SCATTER && ns) ? in + c->rank * one : in;
  if (rc == OK && nr) switch (t->kind) {
      case ALL_REDUCE: case REDUCE: case REDUCE_SCATTER: combine(c, &plain, recv, own, got, one); break;
      case ALL_GATHER: case ALL_TO_ALL: case GATHER:
        memcpy(got + c->rank * one, own, one);
        memcpy(recv, got, c->n * one);
        break;
      default: memcpy(recv, c->rank == t->peer ? own : got + t->peer * one, one);
    }
  free(in);
  free(got);
  return rc;
}

static ncclResult_t run_messages(struct comm *c, struct plan *p) {
  struct message *messages = calloc(p->n + 1, sizeof *messages);
  int n = 0;
  ncclResult_t rc = OK;
  for (int i = 0; i < p->n && rc == OK; i++) {
    struct task *t = &p->tasks[i];
    if (t->kind != SEND && t->kind != RECV) continue;
    size_t bytes = t->count * fake_type_size(t->type);
    void *at = fake_bytes_at(t->kind == SEND ? t->send : t->recv, bytes);
    if (!at && bytes) rc = fake_error(c, CUDA_FAILED, "illegal address on the device");
    messages[n++] = (struct message){.peer = t->peer, .kind = t->kind, .bytes = at, .n = bytes, .task = t};
  }
  if (rc == OK && n) rc = fake_send_recv(c, &c->stop, &c->revoked, messages, n);
  free(messages);
  return rc;
}

// A fault with the name fake_kernel occurs on the stream, not in a call.
static int fake_kernel(volatile int *stop) {
  PROBE_UNTIL(stop);
  return 0;
}

void fake_run_plan(void *arg) {
  struct plan *p = arg;
  struct comm *c = p->c;
  ncclResult_t rc = fake_kernel(&c->stop);
  if (rc == OK) rc = run_messages(c, p);
  for (int i = 0; i < p->n && rc == OK; i++) {
    struct task *t = &p->tasks[i];
    if (t->kind >= PUT)
      rc = fake_rma_task(c, t);
    else if (t->kind != SEND && t->kind != RECV && t->count)
      rc = collective(c, t);
  }
  // A failed operation runs until it is aborted, like a kernel whose peer has exited.
  if (rc && !c->stop && !c->revoked) {
    atomic_store(&c->state, rc);
    while (!c->stop && !c->revoked) usleep(500);
  }
  free(p);
  fake_work_end(c);
}
