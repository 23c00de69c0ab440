// Rendezvous of ranks. A hub listens under the abstract socket name in the unique id, sends
// every rank the addresses of the others, and ends. Nothing of this is in the file system.
#define _GNU_SOURCE
#include "nccl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct hello { int n, rank, version, device; uint64_t host; char listens[NAME]; };
struct reply { int status; char text[128]; char listens[MAX_RANKS][NAME]; };

enum { HUB_TIMEOUT_MS = 120000 };

static socklen_t address(struct sockaddr_un *a, const char *name) {
  memset(a, 0, sizeof *a);
  a->sun_family = AF_UNIX;
  size_t n = strlen(name);
  memcpy(a->sun_path + 1, name, n);
  return offsetof(struct sockaddr_un, sun_path) + 1 + n;
}

static int listen_on(const char *name) {
  struct sockaddr_un a;
  socklen_t len = address(&a, name);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && (bind(fd, (void *)&a, len) || listen(fd, 4 * MAX_RANKS))) {
    close(fd);
    fd = -1;
  }
  return fd;
}

static int connect_to(const char *name) {
  struct sockaddr_un a;
  socklen_t len = address(&a, name);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, (void *)&a, len)) {
    close(fd);
    fd = -1;
  }
  return fd;
}

// ready waits until fd is readable. It returns 0 if it was stopped.
static int ready(int fd, volatile int *stop, int ms) {
  struct pollfd p = {.fd = fd, .events = POLLIN};
  for (int left = ms; left > 0; left -= 5) {
    if (stop && *stop) return 0;
    if (poll(&p, 1, 5) > 0) return 1;
  }
  return 0;
}

static int read_all(int fd, void *to, size_t n, volatile int *stop) {
  for (char *p = to; n > 0;) {
    if (!ready(fd, stop, HUB_TIMEOUT_MS)) return 0;
    ssize_t k = recv(fd, p, n, 0);
    if (k <= 0) return 0;
    p += k, n -= k;
  }
  return 1;
}

static int write_all(int fd, const void *from, size_t n) {
  for (const char *p = from; n > 0;) {
    ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
    if (k <= 0) return 0;
    p += k, n -= k;
  }
  return 1;
}

static void check_hellos(struct hello *h, int *fds, int n, struct reply *r) {
  for (int i = 0; i < n; i++) {
    if (fds[i] < 0) continue;
    if (h[i].n != n) {
      r->status = BAD_USAGE;
      snprintf(r->text, sizeof r->text, "rank %d has another number of ranks", i);
    }
    if (h[i].version != h[0].version) {
      r->status = BAD_USAGE;
      snprintf(r->text, sizeof r->text, "Mismatched NCCL version detected : rank %d version %d rank 0 version %d", i, h[i].version, h[0].version);
    }
    for (int j = 0; j < i; j++)
      if (h[i].host == h[j].host && h[i].device == h[j].device) {
        r->status = BAD_USAGE;
        snprintf(r->text, sizeof r->text, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %d", j, i, h[i].device);
      }
    memcpy(r->listens[i], h[i].listens, NAME);
  }
}

static void *run_hub(void *arg) {
  int fd = (int)(intptr_t)arg, n = 1, have = 0, fds[MAX_RANKS];
  struct hello hellos[MAX_RANKS] = {0};
  memset(fds, -1, sizeof fds);
  while (have < n && ready(fd, NULL, HUB_TIMEOUT_MS)) {
    struct hello h;
    int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    if (conn < 0 || !read_all(conn, &h, sizeof h, NULL) || h.rank < 0 || h.rank >= MAX_RANKS || h.n > MAX_RANKS || fds[h.rank] >= 0) {
      if (conn >= 0) close(conn);
      continue;
    }
    if (have++ == 0) n = h.n;
    fds[h.rank] = conn;
    hellos[h.rank] = h;
  }
  struct reply *r = calloc(1, sizeof *r);
  if (have < n) r->status = REMOTE;
  check_hellos(hellos, fds, n, r);
  for (int i = 0; i < MAX_RANKS; i++)
    if (fds[i] >= 0) {
      write_all(fds[i], r, sizeof *r);
      close(fds[i]);
    }
  close(fd);
  free(r);
  return NULL;
}

int fake_start_hub(const char *name) {
  int fd = listen_on(name);
  pthread_t t;
  if (fd < 0) return 0;
  if (pthread_create(&t, NULL, run_hub, (void *)(intptr_t)fd)) {
    close(fd);
    return 0;
  }
  pthread_detach(t);
  return 1;
}

void fake_unique_name(char *name) {
  static atomic_int made;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  snprintf(name, NAME, "tutti-fake-%d-%lx%lx-%d", getpid(), (long)now.tv_sec, now.tv_nsec, atomic_fetch_add(&made, 1));
}

static uint64_t host_hash(void) {
  const char *text = getenv("NCCL_HOSTID");
  uint64_t h = 1469598103934665603u;
  for (; text && *text; text++) h = (h ^ (unsigned char)*text) * 1099511628211u;
  return h;
}

static ncclResult_t register_with_hub(struct comm *c, int fd, struct reply *r, const char *mine) {
  struct hello h = {.n = c->n, .rank = c->rank, .version = VERSION, .device = c->device, .host = host_hash()};
  strcpy(h.listens, mine);
  if (!write_all(fd, &h, sizeof h)) return fake_error(c, SYSTEM, "the hub is gone");
  if (!read_all(fd, r, sizeof *r, &c->stop)) return fake_error(c, REMOTE, "no answer from the hub");
  return r->status ? fake_error(c, r->status, "%s", r->text) : OK;
}

struct peer_id { int rank, channel; };

static ncclResult_t connect_mesh(struct comm *c, struct reply *r, int listener) {
  for (int j = 0; j < c->rank; j++)
    for (int ch = 0; ch < CHANNELS; ch++) {
      struct peer_id me = {c->rank, ch};
      int fd = connect_to(r->listens[j]);
      c->sock[ch][j] = fd;
      if (fd < 0 || !write_all(fd, &me, sizeof me)) return fake_error(c, SYSTEM, "cannot reach rank %d", j);
    }
  for (int left = (c->n - 1 - c->rank) * CHANNELS; left > 0; left--) {
    struct peer_id it;
    if (!ready(listener, &c->stop, HUB_TIMEOUT_MS)) return fake_error(c, REMOTE, "a rank did not connect");
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0 || !read_all(fd, &it, sizeof it, &c->stop)) return fake_error(c, SYSTEM, "a connection broke");
    c->sock[it.channel][it.rank] = fd;
  }
  return OK;
}

ncclResult_t fake_bootstrap(struct comm *c, int hosts_hub) {
  for (int ch = 0; ch < CHANNELS; ch++) {
    c->sock[ch] = malloc(c->n * sizeof(int));
    for (int i = 0; i < c->n; i++) c->sock[ch][i] = -1;
  }
  if (hosts_hub && !fake_start_hub(c->name)) return fake_error(c, SYSTEM, "cannot listen");
  char mine[NAME];
  fake_unique_name(mine);
  int listener = listen_on(mine), fd = -1;
  // The hub of a derived communicator may not listen yet.
  for (int tries = 0; fd < 0 && tries < 60000 && !c->stop; tries++) {
    fd = connect_to(c->name);
    if (fd < 0) usleep(1000);
  }
  ncclResult_t rc = SYSTEM;
  struct reply *r = calloc(1, sizeof *r);
  if (listener >= 0 && fd >= 0) rc = register_with_hub(c, fd, r, mine);
  if (rc == OK) rc = connect_mesh(c, r, listener);
  free(r);
  if (fd >= 0) close(fd);
  if (listener >= 0) close(listener);
  return rc;
}

void fake_disconnect(struct comm *c) {
  for (int ch = 0; ch < CHANNELS; ch++)
    for (int i = 0; c->sock[ch] && i < c->n; i++)
      if (c->sock[ch][i] >= 0) close(c->sock[ch][i]);
}
