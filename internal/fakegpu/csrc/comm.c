// Communicators: making, querying and freeing them.
#define _GNU_SOURCE
#include "nccl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct comm *comms;
static char last_error[256];  // of the process, as in NCCL

struct comm *fake_comm(ncclComm_t h) {
  pthread_mutex_lock(&mu);
  struct comm *c = comms;
  while (c && c != h) c = c->next;
  pthread_mutex_unlock(&mu);
  return c;
}

ncclResult_t fake_error(struct comm *c, ncclResult_t code, const char *format, ...) {
  va_list args;
  char text[sizeof last_error] = {0};
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  // Readers take no lock, and vsnprintf would empty the buffer first. If two ranks report the
  // same text, a reader always sees all of it.
  pthread_mutex_lock(&mu);
  memcpy(last_error, text, sizeof last_error);
  pthread_mutex_unlock(&mu);
  return code;
}

void fake_work_begin(struct comm *c) {
  pthread_mutex_lock(&c->mu);
  c->running++;
  pthread_mutex_unlock(&c->mu);
}

void fake_work_end(struct comm *c) {
  pthread_mutex_lock(&c->mu);
  c->running--;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->mu);
}

// await_idle waits until only the caller's own job (own is 1) runs for the communicator.
static void await_idle(struct comm *c, int own) {
  pthread_mutex_lock(&c->mu);
  while (c->running > own) pthread_cond_wait(&c->changed, &c->mu);
  pthread_mutex_unlock(&c->mu);
}

static struct comm *new_comm(int n, int rank, int device, int blocking, const char *name) {
  struct comm *c = calloc(1, sizeof *c);
  c->n = n, c->rank = rank, c->device = device, c->blocking = blocking;
  strncpy(c->name, name, NAME - 1);
  pthread_mutex_init(&c->mu, NULL);
  pthread_cond_init(&c->changed, NULL);
  pthread_mutex_lock(&mu);
  c->next = comms;
  comms = c;
  pthread_mutex_unlock(&mu);
  fake_count(LIVE_COMMS, 1);
  return c;
}

static void destroy(struct comm *c) {
  pthread_mutex_lock(&mu);
  struct comm **at = &comms;
  while (*at && *at != c) at = &(*at)->next;
  if (*at) *at = c->next;
  pthread_mutex_unlock(&mu);
  c->stop = 1;
  if (c->rma_runs) pthread_join(c->rma, NULL);
  fake_disconnect(c);
  for (int i = 0; i < 16; i++)
    if (c->ops[i].used) fake_count(LIVE_OPS, -1);
  for (struct window *w = c->windows, *next; w; w = next) {
    next = w->next;
    free(w);
    fake_count(LIVE_HANDLES, -1);
  }
  for (struct handle *h = c->handles, *next; h; h = next) {
    next = h->next;
    free(h);
    fake_count(LIVE_HANDLES, -1);
  }
  for (int ch = 0; ch < CHANNELS; ch++) free(c->sock[ch]);
  free(c);
  fake_count(LIVE_COMMS, -1);
}

// read_config reads a config of any version.
static ncclResult_t read_config(const ncclConfig_t *given, int *blocking) {
  if (!given) return OK;
  ncclConfig_t c;
  memset(&c, 0, sizeof c);
  memcpy(&c, given, given->size < sizeof c ? given->size : sizeof c);
  if (c.magic != 0xcafebeef) return fake_error(NULL, BAD_ARGUMENT, "the config has no magic number");
  int unset = VERSION >= 21700 && c.blocking == UNSET;
  if (!unset && c.blocking != 0 && c.blocking != 1) return fake_error(NULL, BAD_ARGUMENT, "blocking is %d", c.blocking);
  if (!unset) *blocking = c.blocking;
#if VERSION >= 21700
  if (c.minCTAs != UNSET && c.maxCTAs != UNSET && c.minCTAs > c.maxCTAs) return fake_error(NULL, BAD_ARGUMENT, "minCTAs %d, maxCTAs %d", c.minCTAs, c.maxCTAs);
  if (c.netName && strlen(c.netName) > 64) return fake_error(NULL, BAD_ARGUMENT, "netName");
#endif
#if VERSION >= 22700
  if (c.commName && strlen(c.commName) > 128) return fake_error(NULL, BAD_ARGUMENT, "commName");
#endif
  return OK;
}

// A creation is a communicator that a thread makes for the caller.
struct creation {
  struct comm *parent, *c;
  ncclComm_t *out;
  int kind, color, key, hosts_hub, exclude[MAX_RANKS], excluded, grown, rank, blocking;
  ncclUniqueId id;
  int has_id;
};
enum { INIT, SPLIT, SHRINK, GROW };

// abort_all ends the operations on a communicator, and the making of its child.
static void abort_all(struct comm *c) {
  pthread_mutex_lock(&c->mu);
  c->stop = 1;
  if (c->pending_child) c->pending_child->stop = 1;
  pthread_mutex_unlock(&c->mu);
}

// connect_child connects a child, unless its parent is aborted meanwhile.
static ncclResult_t connect_child(struct creation *b) {
  struct comm *p = b->parent;
  fake_sync_context(b->c->device);  // for the allocation of its memory
  if (!p) return fake_bootstrap(b->c, b->hosts_hub);
  pthread_mutex_lock(&p->mu);
  p->pending_child = b->c;
  b->c->stop = p->stop;
  pthread_mutex_unlock(&p->mu);
  ncclResult_t rc = fake_bootstrap(b->c, b->hosts_hub);
  pthread_mutex_lock(&p->mu);
  p->pending_child = NULL;
  pthread_mutex_unlock(&p->mu);
  return rc;
}

static ncclResult_t run_init(void *arg) {
  struct creation *b = arg;
  struct comm *c = b->c;
  fake_sync_context(c->device);  // for the allocation of its memory
  ncclResult_t rc = fake_bootstrap(b->c, b->hosts_hub);
  if (rc && c->blocking) {
    *b->out = NULL;
    destroy(c);
  }
  free(b);
  return rc;
}

static const char id_mark[16] = "tutti fake NCCL";

EXPORT ncclResult_t ncclGetVersion(int *version) {
  PROBE();
  if (!version) return BAD_ARGUMENT;
  *version = VERSION;
  return OK;
}

static ncclResult_t new_id(ncclUniqueId *id) {
  char name[NAME];
  fake_unique_name(name);
  memset(id, 0, sizeof *id);
  memcpy(id->internal, id_mark, sizeof id_mark);
  strcpy(id->internal + sizeof id_mark, name);
  return fake_start_hub(name) ? OK : SYSTEM;
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  PROBE();
  return id ? new_id(id) : BAD_ARGUMENT;
}

static ncclResult_t init(ncclComm_t *out, int n, ncclUniqueId id, int rank, const ncclConfig_t *config) {
  int blocking = 1, device = fake_current_device();
  if (!out || n < 1 || n > MAX_RANKS || rank < 0 || rank >= n) return fake_error(NULL, BAD_ARGUMENT, "rank %d of %d", rank, n);
  if (memcmp(id.internal, id_mark, sizeof id_mark)) return fake_error(NULL, BAD_ARGUMENT, "the unique id did not arrive");
  ncclResult_t rc = read_config(config, &blocking);
  if (rc) return rc;
  if (fake_ready()) return fake_error(NULL, CUDA_FAILED, "the thread has no usable context: %d", fake_ready());
  struct creation *b = calloc(1, sizeof *b);
  b->c = new_comm(n, rank, device, blocking, id.internal + sizeof id_mark);
  b->out = out;
  *out = b->c;
  return fake_add_job(b->c, run_init, b, blocking);
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n, ncclUniqueId id, int rank, ncclConfig_t *config) {
  PROBE();
  return init(out, n, id, rank, config);
}

EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *out, int n, ncclUniqueId id, int rank) {
  PROBE();
  return init(out, n, id, rank, NULL);
}

EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *out, int n, const int *devices) {
  PROBE();
  ncclUniqueId id;
  if (!out || n < 1 || n > fake_devices()) return BAD_ARGUMENT;
  for (int i = 0; i < n; i++) {
    int d = devices ? devices[i] : i;
    for (int j = 0; j < i; j++)
      if (d < 0 || d >= fake_devices() || d == (devices ? devices[j] : j)) return fake_error(NULL, BAD_USAGE, "device %d", d);
  }
  ncclResult_t rc = new_id(&id), end;
  int before = fake_current_device();
  extern ncclResult_t ncclGroupStart(void), ncclGroupEnd(void);
  ncclGroupStart();
  for (int i = 0; i < n && rc == OK; i++) {
    fake_set_device(devices ? devices[i] : i);
    rc = init(&out[i], n, id, i, NULL);
  }
  end = ncclGroupEnd();
  fake_set_device(before);
  return rc ? rc : end;
}

#if VERSION >= 22300
EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *out, int n, int rank, int ids, ncclUniqueId *id, ncclConfig_t *config) {
  PROBE();
  if (!id || ids < 1 || ids > n) return BAD_ARGUMENT;
  return init(out, n, id[0], rank, config);
}
#endif

// control_allgather exchanges pieces of equal size with every rank over the control
// connections.
static ncclResult_t control_allgather(struct comm *c, int what, void *all, size_t bytes) {
  struct item items[MAX_RANKS];
  for (int r = 0; r < c->n; r++)
    items[r] = (struct item){(char *)all + c->rank * bytes, bytes, (char *)all + r * bytes, bytes};
  return fake_exchange(c, CONTROL, &c->stop, NULL, &what, sizeof what, items);
}

struct barrier { struct comm *c; int what; };

static ncclResult_t run_barrier(void *arg) {
  struct barrier *r = arg;
  char all[MAX_RANKS] = {0};
  if (r->what == 'f') await_idle(r->c, !r->c->blocking);
  ncclResult_t rc = control_allgather(r->c, r->what, all, 1);
  // Other ranks may have finalized and destroyed their communicator already.
  if (r->what == 'f' && rc == REMOTE) rc = OK;
  free(r);
  return rc;
}

ncclResult_t fake_barrier(struct comm *c, int what) {
  struct barrier *r = calloc(1, sizeof *r);
  *r = (struct barrier){c, what};
  return fake_add_job(c, run_barrier, r, c->blocking);
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  PROBE();
  struct comm *c = fake_comm(comm);
  if (!c) return BAD_ARGUMENT;
  if (c->finalized || c->revoked) return fake_error(c, BAD_USAGE, "finalized or revoked before");
  c->finalized = 1;
  return fake_barrier(c, 'f');
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  PROBE();
  struct comm *c = fake_comm(comm);
  if (!c) return BAD_ARGUMENT;
  fake_sync_context(c->device);
  await_idle(c, 0);
  destroy(c);
  return OK;
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
  PROBE();
  struct comm *c = fake_comm(comm);
  if (!c) return BAD_ARGUMENT;
  abort_all(c);
  fake_sync_context(c->device);
  await_idle(c, 0);
  destroy(c);
  return OK;
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out) {
  PROBE();
  struct comm *c = fake_comm(comm);
  if (!c || !out) return BAD_ARGUMENT;
  *out = atomic_load(&c->state);
  return OK;
}

#define ASK(name, field)                                \
  EXPORT ncclResult_t name(ncclComm_t comm, int *out) { \
    PROBE();                                            \
    struct comm *c = fake_comm(comm);                   \
    if (!c || !out) return BAD_ARGUMENT;                \
    *out = c->field;                                    \
    return OK;                                          \
  }
ASK(ncclCommCount, n)
ASK(ncclCommCuDevice, device)
ASK(ncclCommUserRank, rank)

EXPORT const char *ncclGetErrorString(ncclResult_t code) {
  static const char *text[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage", "remote process exited or there was a network error", "NCCL operation in progress"};
  return code >= 0 && code <= IN_PROGRESS ? text[code] : "unknown result code";
}

EXPORT const char *ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return last_error;
}

#if VERSION >= 21800
static struct comm *new_child(struct creation *b, int n, int rank, const char *suffix) {
  char text[NAME + 64], name[NAME];
  snprintf(text, sizeof text, "%s.%d%s", b->parent->name, b->parent->children, suffix);
  uint64_t hash = 1469598103934665603u;  // FNV-1a: all ranks compute the same name
  for (const char *p = text; *p; p++) hash = (hash ^ (unsigned char)*p) * 1099511628211u;
  snprintf(name, sizeof name, "tutti-fake-%lx", hash);
  return new_comm(n, rank, b->parent->device, b->blocking, name);
}

static ncclResult_t plan_split(struct creation *b) {
  struct { int color, key; } all[MAX_RANKS] = {0};
  struct comm *p = b->parent;
  all[p->rank].color = b->color, all[p->rank].key = b->key;
  ncclResult_t rc = control_allgather(p, 's', all, sizeof *all);
  if (rc) return rc;
  if (b->color < 0) return OK;
  int n = 0, rank = 0;
  for (int r = 0; r < p->n; r++)
    if (all[r].color == b->color) {
      n++;
      rank += all[r].key < b->key || (all[r].key == b->key && r < p->rank);
    }
  char suffix[32];
  snprintf(suffix, sizeof suffix, "s%d", b->color);
  b->c = new_child(b, n, rank, suffix);
  b->hosts_hub = rank == 0;
  return OK;
}

static ncclResult_t plan_shrink(struct creation *b) {
  struct comm *p = b->parent;
  int n = 0, rank = 0;
  for (int r = 0; r < p->n; r++) {
    int out = 0;
    for (int i = 0; i < b->excluded; i++) out |= b->exclude[i] == r;
    if (r == p->rank) rank = n;
    n += !out;
  }
  b->c = new_child(b, n, rank, "k");
  b->hosts_hub = rank == 0;
  return OK;
}

static ncclResult_t plan_grow(struct creation *b) {
  if (b->parent) {
    struct { int has; ncclUniqueId id; } all[MAX_RANKS];
    memset(all, 0, sizeof all);
    struct comm *p = b->parent;
    all[p->rank].has = b->has_id;
    all[p->rank].id = b->id;
    ncclResult_t rc = control_allgather(p, 'g', all, sizeof *all);
    if (rc) return rc;
    int roots = 0;
    for (int r = 0; r < p->n; r++)
      if (all[r].has) {
        roots++;
        b->id = all[r].id;
      }
    if (roots != 1) return fake_error(p, BAD_USAGE, "%d ranks gave an id", roots);
  }
  b->c = new_comm(b->grown, b->rank, b->parent ? b->parent->device : fake_current_device(), b->blocking, b->id.internal + sizeof id_mark);
  return OK;
}

struct late_handle { struct comm *parent, *c; ncclComm_t *out; };

// write_late_handle writes the handle of a child some time after its parent is ready.
static void *write_late_handle(void *arg) {
  struct late_handle *p = arg;
  usleep(700);
  __atomic_store_n(p->out, p->c, __ATOMIC_RELEASE);
  fake_work_end(p->parent);
  free(p);
  return NULL;
}

// run_creation writes the new handle. For a nonblocking communicator that is after the call
// has returned, and even after its state is no longer in progress.
static ncclResult_t run_creation(void *arg) {
  struct creation *b = arg;
  int late = b->parent && !b->parent->blocking;
  if (late) usleep(500);
  ncclResult_t rc = b->kind == SPLIT ? plan_split(b) : b->kind == SHRINK ? plan_shrink(b) : plan_grow(b);
  if (rc == OK && b->c) {
    rc = connect_child(b);
    if (rc) {
      destroy(b->c);
    } else if (late) {
      struct late_handle *p = malloc(sizeof *p);
      pthread_t t;
      *p = (struct late_handle){b->parent, b->c, b->out};
      fake_work_begin(b->parent);
      pthread_create(&t, NULL, write_late_handle, p);
      pthread_detach(t);
    } else {
      *b->out = b->c;
    }
  }
  free(b);
  return rc;
}

static ncclResult_t create_child(struct creation b, const ncclConfig_t *config) {
  struct comm *p = b.parent;
  b.blocking = p ? p->blocking : 1;
  ncclResult_t rc = read_config(config, &b.blocking);
  if (rc) return rc;
  if (!b.out) return BAD_ARGUMENT;
  if (p && (p->finalized || p->stop)) return fake_error(p, BAD_USAGE, "the communicator has ended");
  if (fake_ready()) return fake_error(p, CUDA_FAILED, "the thread has no usable context: %d", fake_ready());
  *b.out = NULL;
  if (p) p->children++;
  struct creation *own = malloc(sizeof *own);
  *own = b;
  if (p) return fake_add_job(p, run_creation, own, p->blocking);
  return run_creation(own);
}

EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
  PROBE();
  struct comm *c = fake_comm(comm);
  if (!c || color < -1) return BAD_ARGUMENT;
  return create_child((struct creation){.parent = c, .out = out, .kind = SPLIT, .color = color, .key = key}, config);
}
#endif

#if VERSION >= 22700
EXPORT ncclResult_t ncclCommShrink(ncclComm_t comm, int *exclude, int n, ncclComm_t *out, ncclConfig_t *config, int flags) {
  PROBE();
  struct comm *c = fake_comm(comm);
  if (!c || !exclude || n < 1 || n >= c->n || flags < 0 || flags > 1) return BAD_ARGUMENT;
  struct creation b = {.parent = c, .out = out, .kind = SHRINK, .excluded = n};
  for (int i = 0; i < n; i++) {
    if (exclude[i] < 0 || exclude[i] >= c->n || exclude[i] == c->rank) return fake_error(c, BAD_ARGUMENT, "excluded rank %d", exclude[i]);
    b.exclude[i] = exclude[i];
  }
  if (flags == 1) {
    c->revoked = 1;
    await_idle(c, 0);
    atomic_store(&c->state, OK);
  } else if (atomic_load(&c->state)) {
    return fake_error(c, BAD_USAGE, "the communicator is in state %d", atomic_load(&c->state));
  }
  return create_child(b, config);
}
#endif

#if VERSION >= 22807
EXPORT ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  PROBE();
  struct comm *c = fake_comm(comm);
  if (!c || flags != 0) return BAD_ARGUMENT;
  if (c->finalized) return fake_error(c, BAD_USAGE, "finalized before");
  c->revoked = 1;
  await_idle(c, 0);
  atomic_store(&c->state, OK);
  return OK;
}
#endif

#if VERSION >= 22900
EXPORT ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id) {
  PROBE();
  return fake_comm(comm) && id ? new_id(id) : BAD_ARGUMENT;
}

EXPORT ncclResult_t ncclCommGrow(ncclComm_t comm, int n, const ncclUniqueId *id, int rank, ncclComm_t *out, ncclConfig_t *config) {
  PROBE();
  struct comm *c = comm ? fake_comm(comm) : NULL;
  if ((comm && !c) || n > MAX_RANKS || (c && (rank != -1 || n <= c->n)) || (!c && (!id || rank < 0 || rank >= n))) return BAD_ARGUMENT;
  struct creation b = {.parent = c, .out = out, .kind = GROW, .grown = n, .rank = c ? c->rank : rank, .has_id = id != NULL};
  if (id) b.id = *id;
  if (id && memcmp(id->internal, id_mark, sizeof id_mark)) return BAD_ARGUMENT;
  return create_child(b, config);
}
#endif
