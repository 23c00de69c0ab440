// Groups: the calls of a thread between start and end are launched together.
#include "nccl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_TASKS = 4096, MAX_JOBS = 64 };

struct entry { struct comm *c; void *stream; struct task task; };
struct job { struct comm *c; ncclResult_t (*run)(void *); void *arg; int blocking; ncclResult_t rc; pthread_t thread; };

static __thread struct {
  int depth, entries, jobs;
  ncclResult_t error;
  struct entry *entry;
  struct job job[MAX_JOBS];
} group;

EXPORT long fake_group_depth(void) { return group.depth; }

// launch enqueues a group's operations on one communicator. All of them run on the first of
// their streams, which waits for the others before and which the others wait for after.
static ncclResult_t launch(struct comm *c, struct entry *e, int n) {
  struct plan *p = malloc(sizeof *p + n * sizeof(struct task));
  void *first = NULL, *others[16];
  int streams = 0;
  p->c = c, p->n = 0;
  for (int i = 0; i < n; i++) {
    if (e[i].c != c) continue;
    p->tasks[p->n++] = e[i].task;
    if (p->n == 1) first = e[i].stream;
    int known = e[i].stream == first;
    for (int j = 0; j < streams; j++) known |= others[j] == e[i].stream;
    if (!known && streams < 16) others[streams++] = e[i].stream;
  }
  int before = fake_set_device(c->device), rc = 0;
  for (int j = 0; j < streams && !rc; j++) rc = fake_stream_join(first, others[j]);
  fake_work_begin(c);
  if (!rc) rc = fake_push(first, fake_run_plan, p);
  if (rc) {
    fake_work_end(c);
    free(p);
  }
  for (int j = 0; j < streams && !rc; j++) rc = fake_stream_join(others[j], first);
  fake_set_device(before);
  return rc ? fake_error(c, CUDA_FAILED, "the driver says %d", rc) : OK;
}

struct deferred_launch { struct comm *c; int n; struct entry e[]; };

// A nonblocking communicator launches from a thread of its own, after the call has
// returned.
static void *run_deferred_launch(void *arg) {
  struct deferred_launch *l = arg;
  usleep(500);
  ncclResult_t rc = l->c->stop ? OK : launch(l->c, l->e, l->n);
  int was = IN_PROGRESS;
  atomic_compare_exchange_strong(&l->c->state, &was, rc);
  fake_work_end(l->c);
  free(l);
  return NULL;
}

static void detach(void *(*run)(void *), void *arg) {
  pthread_t t;
  if (pthread_create(&t, NULL, run, arg) == 0) pthread_detach(t);
}

static ncclResult_t launch_all(struct entry *e, int n) {
  ncclResult_t result = OK;
  for (int i = 0; i < n; i++) {
    struct comm *c = e[i].c;
    int seen = 0;
    for (int j = 0; j < i; j++) seen |= e[j].c == c;
    if (seen) continue;
    if (c->blocking) {
      ncclResult_t rc = launch(c, e, n);
      if (rc) result = rc;
      continue;
    }
    struct deferred_launch *l = malloc(sizeof *l + n * sizeof *e);
    l->c = c, l->n = n;
    memcpy(l->e, e, n * sizeof *e);
    atomic_store(&c->state, IN_PROGRESS);
    fake_work_begin(c);
    detach(run_deferred_launch, l);
    if (result == OK) result = IN_PROGRESS;
  }
  return result;
}

static void *run_job(void *arg) {
  struct job *j = arg;
  fake_set_device(j->c->device);
  j->rc = j->run(j->arg);
  if (!j->blocking) {
    atomic_store(&j->c->state, j->rc);
    fake_work_end(j->c);
    free(j);
  }
  return NULL;
}

// run_jobs runs jobs that make communicators. They wait for each other, so each has a thread.
static ncclResult_t run_jobs(struct job *jobs, int n) {
  ncclResult_t result = OK;
  for (int i = 0; i < n; i++) {
    if (jobs[i].blocking) {
      pthread_create(&jobs[i].thread, NULL, run_job, &jobs[i]);
      continue;
    }
    struct job *own = malloc(sizeof *own);
    *own = jobs[i];
    atomic_store(&own->c->state, IN_PROGRESS);
    fake_work_begin(own->c);
    detach(run_job, own);
    result = IN_PROGRESS;
  }
  for (int i = 0; i < n; i++)
    if (jobs[i].blocking) {
      pthread_join(jobs[i].thread, NULL);
      if (jobs[i].rc) result = jobs[i].rc;
    }
  return result;
}

static ncclResult_t finish(int simulate) {
  if (group.depth == 0) return BAD_USAGE;
  if (--group.depth > 0) return OK;
  ncclResult_t rc = group.error;
  // As in NCCL, a communicator that was aborted meanwhile makes the group fail.
  for (int i = 0; i < group.entries && rc == OK; i++)
    if (!fake_comm(group.entry[i].c)) rc = INTERNAL;
  if (rc == OK && !simulate) {
    if (group.jobs) rc = run_jobs(group.job, group.jobs);
    if (rc == OK || rc == IN_PROGRESS) {
      ncclResult_t launched = launch_all(group.entry, group.entries);
      if (launched) rc = launched;
    }
  }
  free(group.entry);
  group.entry = NULL;
  group.entries = group.jobs = 0;
  group.error = OK;
  return rc;
}

// record_error records the first error of a group. The end of the group returns it and
// launches nothing.
static ncclResult_t record_error(ncclResult_t rc) {
  if (group.depth && group.error == OK) group.error = rc;
  return rc;
}

ncclResult_t fake_check_buffers(struct comm *c, struct task *t);

static ncclResult_t check(struct comm *c, void *stream, struct task *t) {
  if (fake_ready()) return fake_error(c, CUDA_FAILED, "the thread has no usable context: %d", fake_ready());
  if (c->finalized || c->revoked || c->stop) return fake_error(c, BAD_USAGE, "the communicator is finalized or revoked");
  int state = atomic_load(&c->state);
  if (state && !(state == IN_PROGRESS && group.depth > 0)) return fake_error(c, state == IN_PROGRESS ? BAD_ARGUMENT : state, "the communicator is in state %d", state);
  int types = VERSION >= 22400 ? TYPES : F8E4M3;
  if (t->type < 0 || t->type >= types) return fake_error(c, BAD_ARGUMENT, "type %d", t->type);
  if (t->peer < 0 || t->peer >= c->n) return fake_error(c, BAD_ARGUMENT, "rank or root %d of %d", t->peer, c->n);
  if (t->op < 0 || t->op >= BUILT_IN + 16) return fake_error(c, BAD_ARGUMENT, "op %d", t->op);
  if (t->op >= BUILT_IN && (!c->ops[t->op - BUILT_IN].used || c->ops[t->op - BUILT_IN].type != t->type)) return fake_error(c, BAD_ARGUMENT, "op %d is not there, or of another type", t->op);
  if (fake_stream_device(stream) != c->device) return fake_error(c, BAD_USAGE, "the stream is not one of the communicator's device");
  if (fake_capturing(stream)) return fake_error(c, BAD_USAGE, "the stream is being captured");
  return t->kind == PUT || t->kind == SIGNAL || t->kind == WAIT_SIGNAL ? OK : fake_check_buffers(c, t);
}

ncclResult_t fake_add_task(ncclComm_t comm, void *stream, struct task t) {
  struct comm *c = fake_comm(comm);
  if (!c) return record_error(BAD_ARGUMENT);
  ncclResult_t rc = check(c, stream, &t);
  if (rc) return record_error(rc);
  group.depth++;
  if (!group.entry) group.entry = malloc(MAX_TASKS * sizeof *group.entry);
  if (group.entries == MAX_TASKS)
    record_error(INTERNAL);
  else
    group.entry[group.entries++] = (struct entry){c, stream, t};
  return finish(0);
}

ncclResult_t fake_add_job(struct comm *c, ncclResult_t (*run)(void *), void *arg, int blocking) {
  group.depth++;
  if (group.jobs == MAX_JOBS)
    record_error(INTERNAL);
  else
    group.job[group.jobs++] = (struct job){.c = c, .run = run, .arg = arg, .blocking = blocking};
  return finish(0);
}

EXPORT ncclResult_t ncclGroupStart(void) {
  PROBE();
  group.depth++;
  return OK;
}

// A fault here still ends the group, as a failed launch does.
EXPORT ncclResult_t ncclGroupEnd(void) {
  static struct probe probe = {.name = "ncclGroupEnd"};
  int fault = fake_probe(&probe, NULL);
  if (fault) record_error(fault);
  return finish(0);
}

#if VERSION >= 22200
typedef struct { size_t size; unsigned magic, version; float estimatedTime; } ncclSimInfo_t;

EXPORT ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info) {
  PROBE();
  if (!info || info->size < sizeof *info || info->magic != 0x74685283) return record_error(BAD_ARGUMENT);
  info->estimatedTime = 12.5f * group.entries;
  return finish(1);
}
#endif
