// Streams and events. A stream is a queue with a thread that executes it, so that streams
// that no event orders really run unordered.
#define _GNU_SOURCE
#include "cuda.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct op { fake_run run; void *arg; struct op *next; };

struct stream {
  int device, closing, capturing;
  pthread_mutex_t mu;
  pthread_cond_t changed;
  struct op *head, *tail;
  uint64_t pushed, done;
  struct stream *next;
};

struct event {
  int device, timed;
  uint64_t recorded, done;  // how often it was recorded, and how often reached
  struct timespec at;
  int refs;
  struct event *next;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;  // guards the lists and all events
static pthread_cond_t reached = PTHREAD_COND_INITIALIZER;
static struct stream *streams;
static struct event *events;

// A value_waits counts a device's submitted waits for values that are not satisfied.
static struct value_waits {
  pthread_mutex_t context;  // held by a call that synchronizes the context
  atomic_int waiting;
} value_waits[MAX_DEVICES] = {[0 ... MAX_DEVICES - 1] = {PTHREAD_MUTEX_INITIALIZER, 0}};

void fake_sync_context(int device) {
  struct value_waits *g = &value_waits[device];
  pthread_mutex_lock(&g->context);
  while (atomic_load(&g->waiting) > 0) usleep(50);
  pthread_mutex_unlock(&g->context);
}

static void *run_stream(void *arg) {
  struct stream *s = arg;
  pthread_mutex_lock(&s->mu);
  for (;;) {
    while (!s->head && !s->closing) pthread_cond_wait(&s->changed, &s->mu);
    struct op *o = s->head;
    if (!o) break;
    s->head = o->next;
    if (!s->head) s->tail = NULL;
    pthread_mutex_unlock(&s->mu);
    fake_apply_lag();
    o->run(o->arg);
    free(o);
    pthread_mutex_lock(&s->mu);
    s->done++;
    pthread_cond_broadcast(&s->changed);
  }
  pthread_mutex_unlock(&s->mu);
  // A thread in fake_sync_device may still look at the stream. The memory of a closed
  // stream is small and is never freed.
  return NULL;
}

static struct stream *new_stream(int device) {
  struct stream *s = calloc(1, sizeof *s);
  s->device = device;
  pthread_mutex_init(&s->mu, NULL);
  pthread_cond_init(&s->changed, NULL);
  pthread_t t;
  if (pthread_create(&t, NULL, run_stream, s)) {
    free(s);
    return NULL;
  }
  pthread_detach(t);
  return s;
}

// get returns a live stream. The first use of the null stream makes it.
static struct stream *get(CUstream h) {
  struct stream *s = NULL;
  CUcontext c = fake_current();
  pthread_mutex_lock(&mu);
  if ((uintptr_t)h <= 2) {
    if (c && !c->null_stream) {
      c->null_stream = new_stream(c->device);
      c->null_stream->next = streams;
      streams = c->null_stream;
    }
    s = c ? c->null_stream : NULL;
  } else {
    for (s = streams; s && s != h; s = s->next) {}
  }
  pthread_mutex_unlock(&mu);
  return s;
}

int fake_stream_device(void *h) {
  struct stream *s = get(h);
  return s ? s->device : -1;
}

int fake_capturing(void *h) {
  struct stream *s = get(h);
  return s && s->capturing;
}

static void push(struct stream *s, fake_run run, void *arg) {
  struct op *o = malloc(sizeof *o);
  *o = (struct op){run, arg, NULL};
  pthread_mutex_lock(&s->mu);
  *(s->tail ? &s->tail->next : &s->head) = o;
  s->tail = o;
  s->pushed++;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->mu);
}

int fake_push(void *h, fake_run run, void *arg) {
  READY();
  struct stream *s = get(h);
  NEED(s && s->device == fake_current_device(), CUDA_ERROR_INVALID_HANDLE);
  NEED(!s->capturing, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  push(s, run, arg);
  return CUDA_SUCCESS;
}

static void sync_stream(struct stream *s) {
  pthread_mutex_lock(&s->mu);
  uint64_t until = s->pushed;
  while (s->done < until) pthread_cond_wait(&s->changed, &s->mu);
  pthread_mutex_unlock(&s->mu);
}

void fake_sync_device(int device) {
  struct stream *all[1024];
  int n = 0;
  pthread_mutex_lock(&mu);
  for (struct stream *s = streams; s && n < 1024; s = s->next)
    if (s->device == device) all[n++] = s;
  pthread_mutex_unlock(&mu);
  for (int i = 0; i < n; i++) sync_stream(all[i]);
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
  PROBE();
  READY();
  NEED(out && flags <= 1 && priority <= 0 && priority >= -5, CUDA_ERROR_INVALID_VALUE);
  struct stream *s = new_stream(fake_current_device());
  NEED(s, CUDA_ERROR_OUT_OF_MEMORY);
  pthread_mutex_lock(&mu);
  s->next = streams;
  streams = s;
  pthread_mutex_unlock(&mu);
  fake_count(LIVE_STREAMS, 1);
  *out = s;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }

// As in the real driver, queued work still completes.
EXPORT CUresult cuStreamDestroy_v2(CUstream h) {
  PROBE();
  NEED((uintptr_t)h > 2, CUDA_ERROR_INVALID_HANDLE);
  pthread_mutex_lock(&mu);
  struct stream **at = &streams;
  while (*at && *at != h) at = &(*at)->next;
  struct stream *s = *at;
  if (s) *at = s->next;
  pthread_mutex_unlock(&mu);
  NEED(s, CUDA_ERROR_INVALID_HANDLE);
  pthread_mutex_lock(&s->mu);
  s->closing = 1;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->mu);
  fake_count(LIVE_STREAMS, -1);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(CUstream h) {
  PROBE();
  struct stream *s = get(h);
  NEED(s, CUDA_ERROR_INVALID_HANDLE);
  NEED(!s->capturing, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  sync_stream(s);
  return fake_sticky(s->device);
}

EXPORT CUresult cuStreamQuery(CUstream h) {
  PROBE();
  struct stream *s = get(h);
  NEED(s, CUDA_ERROR_INVALID_HANDLE);
  NEED(!s->capturing, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  pthread_mutex_lock(&s->mu);
  int ready = s->done == s->pushed;
  pthread_mutex_unlock(&s->mu);
  TRY(fake_sticky(s->device));
  return ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

EXPORT CUresult cuStreamGetCtx(CUstream h, CUcontext *out) {
  PROBE();
  NEED(out, CUDA_ERROR_INVALID_VALUE);
  struct stream *s = get(h);
  NEED(s, CUDA_ERROR_INVALID_HANDLE);
  *out = fake_ctx(s->device);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamIsCapturing(CUstream h, int *status) {
  PROBE();
  NEED(status, CUDA_ERROR_INVALID_VALUE);
  struct stream *s = get(h);
  NEED(s, CUDA_ERROR_INVALID_HANDLE);
  *status = s->capturing;
  return CUDA_SUCCESS;
}

// A capture is only marked: no operation can be captured.
EXPORT CUresult cuStreamBeginCapture_v2(CUstream h, int mode) {
  PROBE();
  NEED(mode >= 0 && mode <= 2, CUDA_ERROR_INVALID_VALUE);
  struct stream *s = get(h);
  NEED(s && (uintptr_t)h > 2, CUDA_ERROR_INVALID_HANDLE);
  s->capturing = 1;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamEndCapture(CUstream h, void **graph) {
  PROBE();
  struct stream *s = get(h);
  NEED(s && s->capturing, CUDA_ERROR_INVALID_HANDLE);
  s->capturing = 0;
  *graph = s;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphDestroy(void *graph) {
  PROBE();
  return graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Events.

static struct event *ref(CUevent h) {
  pthread_mutex_lock(&mu);
  struct event *e = events;
  while (e && e != h) e = e->next;
  if (e) e->refs++;
  pthread_mutex_unlock(&mu);
  return e;
}

static void unref(struct event *e) {
  pthread_mutex_lock(&mu);
  int last = --e->refs == 0;
  pthread_mutex_unlock(&mu);
  if (last) free(e);
}

EXPORT CUresult cuEventCreate(CUevent *out, unsigned flags) {
  PROBE();
  READY();
  NEED(out && flags <= 7, CUDA_ERROR_INVALID_VALUE);
  struct value_waits *g = &value_waits[fake_current_device()];
  pthread_mutex_lock(&g->context);
  pthread_mutex_unlock(&g->context);
  struct event *e = calloc(1, sizeof *e);
  e->device = fake_current_device();
  e->timed = !(flags & 2);
  e->refs = 1;
  pthread_mutex_lock(&mu);
  e->next = events;
  events = e;
  pthread_mutex_unlock(&mu);
  fake_count(LIVE_EVENTS, 1);
  *out = e;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuEventDestroy_v2(CUevent h) {
  PROBE();
  pthread_mutex_lock(&mu);
  struct event **at = &events;
  while (*at && *at != h) at = &(*at)->next;
  struct event *e = *at;
  if (e) *at = e->next;
  pthread_mutex_unlock(&mu);
  NEED(e, CUDA_ERROR_INVALID_HANDLE);
  unref(e);
  fake_count(LIVE_EVENTS, -1);
  return CUDA_SUCCESS;
}

struct mark { struct event *e; uint64_t which; };

static void reach(void *arg) {
  struct mark *m = arg;
  pthread_mutex_lock(&mu);
  if (m->e->done < m->which) m->e->done = m->which;
  clock_gettime(CLOCK_MONOTONIC, &m->e->at);
  pthread_cond_broadcast(&reached);
  pthread_mutex_unlock(&mu);
  unref(m->e);
  free(m);
}

static void await(void *arg) {
  struct mark *m = arg;
  pthread_mutex_lock(&mu);
  while (m->e->done < m->which) pthread_cond_wait(&reached, &mu);
  pthread_mutex_unlock(&mu);
  unref(m->e);
  free(m);
}

static struct mark *mark(struct event *e, uint64_t which) {
  struct mark *m = malloc(sizeof *m);
  *m = (struct mark){e, which};
  return m;
}

// The context is the stream's, not the thread's. Only the default stream needs a current
// context.
EXPORT CUresult cuEventRecord(CUevent h, CUstream sh) {
  PROBE();
  struct stream *s = get(sh);
  NEED(s, CUDA_ERROR_INVALID_HANDLE);
  NEED(!s->capturing, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  struct event *e = ref(h);
  NEED(e, CUDA_ERROR_INVALID_HANDLE);
  if (e->device != s->device) {
    unref(e);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  pthread_mutex_lock(&mu);
  uint64_t which = ++e->recorded;
  pthread_mutex_unlock(&mu);
  push(s, reach, mark(e, which));
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamWaitEvent(CUstream sh, CUevent h, unsigned flags) {
  PROBE();
  NEED(flags == 0, CUDA_ERROR_INVALID_VALUE);
  struct stream *s = get(sh);
  NEED(s, CUDA_ERROR_INVALID_HANDLE);
  NEED(!s->capturing, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  struct event *e = ref(h);
  NEED(e, CUDA_ERROR_INVALID_HANDLE);
  pthread_mutex_lock(&mu);
  uint64_t which = e->recorded;
  pthread_mutex_unlock(&mu);
  push(s, await, mark(e, which));
  return CUDA_SUCCESS;
}

// fake_stream_join makes first wait for the work now in other.
int fake_stream_join(void *first, void *other) {
  CUevent e;
  TRY(cuEventCreate(&e, 2));
  CUresult rc = cuEventRecord(e, other);
  if (!rc) rc = cuStreamWaitEvent(first, e, 0);
  cuEventDestroy_v2(e);
  return rc;
}

EXPORT CUresult cuEventQuery(CUevent h) {
  PROBE();
  struct event *e = ref(h);
  NEED(e, CUDA_ERROR_INVALID_HANDLE);
  pthread_mutex_lock(&mu);
  int ready = e->done >= e->recorded;
  pthread_mutex_unlock(&mu);
  CUresult sticky = fake_sticky(e->device);
  unref(e);
  TRY(sticky);
  return ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

EXPORT CUresult cuEventSynchronize(CUevent h) {
  PROBE();
  struct event *e = ref(h);
  NEED(e, CUDA_ERROR_INVALID_HANDLE);
  pthread_mutex_lock(&mu);
  uint64_t which = e->recorded;
  while (e->done < which) pthread_cond_wait(&reached, &mu);
  pthread_mutex_unlock(&mu);
  CUresult sticky = fake_sticky(e->device);
  unref(e);
  return sticky;
}

EXPORT CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
  PROBE();
  NEED(ms, CUDA_ERROR_INVALID_VALUE);
  struct event *a = ref(from), *b = ref(to);
  CUresult rc = CUDA_ERROR_INVALID_HANDLE;
  if (a && b && a->timed && b->timed && a->recorded && b->recorded) {
    rc = a->done < a->recorded || b->done < b->recorded ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    *ms = (b->at.tv_sec - a->at.tv_sec) * 1e3f + (b->at.tv_nsec - a->at.tv_nsec) / 1e6f;
  }
  if (a) unref(a);
  if (b) unref(b);
  return rc;
}

// Writing and waiting for values in memory, in the order of a stream.

struct value { uint64_t addr; uint32_t value; unsigned flags; int device; };

static void write_value(void *arg) {
  struct value *v = arg;
  _Atomic uint32_t *p = fake_bytes_at(v->addr, 4);
  if (p)
    atomic_store(p, v->value);
  else
    fake_set_sticky(v->device, CUDA_ERROR_ILLEGAL_ADDRESS);
  free(v);
}

static void wait_value(void *arg) {
  struct value *v = arg;
  for (;;) {
    _Atomic uint32_t *p = fake_bytes_at(v->addr, 4);
    if (!p) {
      fake_set_sticky(v->device, CUDA_ERROR_ILLEGAL_ADDRESS);
      break;
    }
    uint32_t now = atomic_load(p);
    int met = v->flags == 0   ? (int32_t)(now - v->value) >= 0
              : v->flags == 1 ? now == v->value
              : v->flags == 2 ? (now & v->value) != 0
                              : ~(now | v->value) != 0;
    if (met) break;
    usleep(50);
  }
  atomic_fetch_sub(&value_waits[v->device].waiting, 1);
  free(v);
}

static CUresult queue_value(CUstream s, CUdeviceptr addr, uint32_t value, unsigned flags, fake_run run) {
  NEED(addr % 4 == 0 && fake_bytes_at(addr, 4), CUDA_ERROR_INVALID_VALUE);
  struct value *v = malloc(sizeof *v);
  *v = (struct value){addr, value, flags, fake_current_device()};
  CUresult rc = fake_push(s, run, v);
  if (rc) free(v);
  return rc;
}

EXPORT CUresult cuStreamWaitValue32_v2(CUstream s, CUdeviceptr addr, uint32_t value, unsigned flags) {
  PROBE();
  NEED(flags <= 3, CUDA_ERROR_INVALID_VALUE);
  // The wait counts from now on, not from when the stream's thread reaches it.
  struct value_waits *g = &value_waits[fake_current_device()];
  atomic_fetch_add(&g->waiting, 1);
  CUresult rc = queue_value(s, addr, value, flags, wait_value);
  if (rc) atomic_fetch_sub(&g->waiting, 1);
  return rc;
}

EXPORT CUresult cuStreamWriteValue32_v2(CUstream s, CUdeviceptr addr, uint32_t value, unsigned flags) {
  PROBE();
  NEED(flags == 0, CUDA_ERROR_INVALID_VALUE);
  return queue_value(s, addr, value, flags, write_value);
}
