// One-sided writes and signals: a thread of each communicator takes them from
// the others and puts them into this rank's windows.
#define _GNU_SOURCE
#include "nccl.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct note { int window; uint64_t offset, bytes; };

static int take(int fd, void *to, size_t n, volatile int *stop) {
  for (char *p = to; n > 0;) {
    struct pollfd f = {.fd = fd, .events = POLLIN};
    if (*stop) return 0;
    if (poll(&f, 1, 2) <= 0) continue;
    ssize_t k = recv(fd, p, n, 0);
    if (k <= 0) return 0;
    p += k, n -= k;
  }
  return 1;
}

static int take_note(struct comm *c, int from) {
  struct note note;
  if (!take(c->sock[RMA][from], &note, sizeof note, &c->stop)) return 0;
  char *tmp = malloc(note.bytes + 1);
  int ok = take(c->sock[RMA][from], tmp, note.bytes, &c->stop);
  pthread_mutex_lock(&c->mu);
  if (ok && note.window >= 0) {
    struct window *w = c->windows;
    while (w && w->index != note.window) w = w->next;
    char *at = w && note.offset + note.bytes <= w->size ? standin_at(w->addr + note.offset, note.bytes) : NULL;
    if (at)
      memcpy(at, tmp, note.bytes);
    else
      atomic_store(&c->state, BAD_USAGE);
  }
  if (ok) c->signals[from]++;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->mu);
  free(tmp);
  return ok;
}

static void *rma_thread(void *arg) {
  struct comm *c = arg;
  int gone[MAX_RANKS] = {0};
  while (!c->stop) {
    struct pollfd p[MAX_RANKS];
    int n = 0, who[MAX_RANKS];
    for (int r = 0; r < c->n; r++)
      if (r != c->rank && !gone[r]) {
        who[n] = r;
        p[n++] = (struct pollfd){.fd = c->sock[RMA][r], .events = POLLIN};
      }
    if (n == 0) break;
    if (poll(p, n, 5) <= 0) continue;
    for (int i = 0; i < n; i++)
      if (p[i].revents && !take_note(c, who[i])) gone[who[i]] = 1;
  }
  return NULL;
}

// standin_rma_start starts the thread, once. Only a communicator with a window, a
// signal or a wait for one has use for it; until then signals lie in the sockets.
void standin_rma_start(struct comm *c) {
  pthread_mutex_lock(&c->mu);
  if (!c->rma_runs && c->n > 1) c->rma_runs = !pthread_create(&c->rma, NULL, rma_thread, c);
  pthread_mutex_unlock(&c->mu);
}

static int give(int fd, const void *from, size_t n) {
  for (const char *p = from; n > 0;) {
    ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
    if (k <= 0) return 0;
    p += k, n -= k;
  }
  return 1;
}

ncclResult_t standin_rma_task(struct comm *c, struct task *t) {
  standin_rma_start(c);
  if (t->kind == WAIT_SIGNAL) {
    pthread_mutex_lock(&c->mu);
    while (c->signals[t->peer] - c->taken[t->peer] < (uint64_t)t->times && !c->stop && !c->quiet) {
      pthread_mutex_unlock(&c->mu);
      usleep(200);
      pthread_mutex_lock(&c->mu);
    }
    c->taken[t->peer] += t->times;
    pthread_mutex_unlock(&c->mu);
    return OK;
  }
  struct note note = {.window = -1};
  char *src = NULL;
  if (t->kind == PUT) {
    note = (struct note){t->window, t->offset, t->count * standin_type_size(t->type)};
    src = standin_at(t->send, note.bytes);
    if (!src) return standin_say(c, CUDA_FAILED, "illegal address on the device");
  }
  int fd = c->sock[RMA][t->peer];
  if (!give(fd, &note, sizeof note) || !give(fd, src, note.bytes)) return standin_say(c, REMOTE, "rank %d is gone", t->peer);
  return OK;
}
