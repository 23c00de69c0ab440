// One-sided writes and signals. A thread of each communicator receives them from the other
// ranks and writes them to this rank's windows.
#define _GNU_SOURCE
#include "nccl.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct put_header { int window; uint64_t offset, bytes; };

static int recv_all(int fd, void *to, size_t n, volatile int *stop) {
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

static int recv_put(struct comm *c, int from) {
  struct put_header header;
  if (!recv_all(c->sock[RMA][from], &header, sizeof header, &c->stop)) return 0;
  char *tmp = malloc(header.bytes + 1);
  int ok = recv_all(c->sock[RMA][from], tmp, header.bytes, &c->stop);
  pthread_mutex_lock(&c->mu);
  if (ok && header.window >= 0) {
    struct window *w = c->windows;
    while (w && w->index != header.window) w = w->next;
    char *at = w && header.offset + header.bytes <= w->size ? fake_bytes_at(w->addr + header.offset, header.bytes) : NULL;
    if (at)
      memcpy(at, tmp, header.bytes);
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
  int closed[MAX_RANKS] = {0};
  while (!c->stop) {
    struct pollfd p[MAX_RANKS];
    int n = 0, ranks[MAX_RANKS];
    for (int r = 0; r < c->n; r++)
      if (r != c->rank && !closed[r]) {
        ranks[n] = r;
        p[n++] = (struct pollfd){.fd = c->sock[RMA][r], .events = POLLIN};
      }
    if (n == 0) break;
    if (poll(p, n, 5) <= 0) continue;
    for (int i = 0; i < n; i++)
      if (p[i].revents && !recv_put(c, ranks[i])) closed[ranks[i]] = 1;
  }
  return NULL;
}

// fake_rma_start starts the thread, once. Only a communicator with a window, a signal or a
// wait for a signal needs it. Until then signals stay in the sockets.
void fake_rma_start(struct comm *c) {
  pthread_mutex_lock(&c->mu);
  if (!c->rma_runs && c->n > 1) c->rma_runs = !pthread_create(&c->rma, NULL, rma_thread, c);
  pthread_mutex_unlock(&c->mu);
}

static int send_all(int fd, const void *from, size_t n) {
  for (const char *p = from; n > 0;) {
    ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
    if (k <= 0) return 0;
    p += k, n -= k;
  }
  return 1;
}

ncclResult_t fake_rma_task(struct comm *c, struct task *t) {
  fake_rma_start(c);
  if (t->kind == WAIT_SIGNAL) {
    pthread_mutex_lock(&c->mu);
    while (c->signals[t->peer] - c->taken[t->peer] < (uint64_t)t->times && !c->stop && !c->revoked) {
      pthread_mutex_unlock(&c->mu);
      usleep(200);
      pthread_mutex_lock(&c->mu);
    }
    c->taken[t->peer] += t->times;
    pthread_mutex_unlock(&c->mu);
    return OK;
  }
  struct put_header header = {.window = -1};
  char *src = NULL;
  if (t->kind == PUT) {
    header = (struct put_header){t->window, t->offset, t->count * fake_type_size(t->type)};
    src = fake_bytes_at(t->send, header.bytes);
    if (!src) return fake_error(c, CUDA_FAILED, "illegal address on the device");
  }
  int fd = c->sock[RMA][t->peer];
  if (!send_all(fd, &header, sizeof header) || !send_all(fd, src, header.bytes)) return fake_error(c, REMOTE, "rank %d is closed", t->peer);
  return OK;
}
