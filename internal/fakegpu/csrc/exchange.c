// Messages between ranks. One loop over all connections moves everything that an operation
// sends and receives, so that no order of sends and receives can deadlock. Every message
// begins with a head. The receiver compares it with what it expects, so that a mismatch of
// calls is an error.
#define _GNU_SOURCE
#include "nccl.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct head { uint32_t magic; int32_t kind, type, op, peer, unused; uint64_t count; };  // no padding: heads are compared as bytes

// A seg is a run of bytes in one direction. If want is set, the bytes must equal it.
struct seg { char *bytes; size_t n, at; const void *want; };
struct peer_io { struct seg *out, *in; int outs, ins, out_at, in_at; };

// progress moves the bytes that can be moved now. It returns 1; 0 if the peer has closed the
// connection; or -1 if a head differs.
static int progress(struct peer_io *l, int fd, short events) {
  while ((events & (POLLIN | POLLHUP | POLLERR)) && l->in_at < l->ins) {
    struct seg *s = &l->in[l->in_at];
    if (s->at < s->n) {
      ssize_t k = recv(fd, s->bytes + s->at, s->n - s->at, MSG_DONTWAIT);
      if (k < 0 && errno == EAGAIN) break;
      if (k <= 0) return 0;
      s->at += k;
    }
    if (s->at < s->n) continue;
    if (s->want && memcmp(s->bytes, s->want, s->n)) return -1;
    l->in_at++;
  }
  while ((events & POLLOUT) && l->out_at < l->outs) {
    struct seg *s = &l->out[l->out_at];
    if (s->at < s->n) {
      ssize_t k = send(fd, s->bytes + s->at, s->n - s->at, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (k < 0 && errno == EAGAIN) break;
      if (k <= 0) return 0;
      s->at += k;
    }
    if (s->at == s->n) l->out_at++;
  }
  return 1;
}

static ncclResult_t run_io(struct comm *c, int channel, volatile int *stop, volatile int *revoked, struct peer_io *peers) {
  struct pollfd p[MAX_RANKS];
  for (;;) {
    int n = 0, ranks[MAX_RANKS];
    if ((stop && *stop) || (revoked && *revoked)) return INTERNAL;
    for (int r = 0; r < c->n; r++) {
      struct peer_io *l = &peers[r];
      short events = (l->in_at < l->ins ? POLLIN : 0) | (l->out_at < l->outs ? POLLOUT : 0);
      if (!events) continue;
      ranks[n] = r;
      p[n++] = (struct pollfd){.fd = c->sock[channel][r], .events = events};
    }
    if (n == 0) return OK;
    if (poll(p, n, 2) <= 0) continue;
    for (int i = 0; i < n; i++) {
      int k = p[i].revents ? progress(&peers[ranks[i]], p[i].fd, p[i].revents) : 1;
      if (k == 0) return fake_error(c, REMOTE, "connection closed by remote peer: rank %d", ranks[i]);
      if (k < 0) return fake_error(c, BAD_USAGE, "rank %d called something else", ranks[i]);
    }
  }
}

ncclResult_t fake_exchange(struct comm *c, int channel, volatile int *stop, volatile int *revoked, const void *head, size_t head_bytes, struct item *items) {
  struct peer_io *peers = calloc(c->n, sizeof *peers);
  struct seg *segs = calloc(4 * c->n, sizeof *segs);
  char *heads = malloc(head_bytes * c->n + 1);
  for (int r = 0; r < c->n; r++) {
    struct peer_io *l = &peers[r];
    if (r == c->rank) continue;
    l->out = &segs[4 * r], l->in = l->out + 2;
    if (items[r].out) {
      l->out[l->outs++] = (struct seg){.bytes = (void *)head, .n = head_bytes};
      l->out[l->outs++] = (struct seg){.bytes = (void *)items[r].out, .n = items[r].out_bytes};
    }
    if (items[r].in) {
      l->in[l->ins++] = (struct seg){.bytes = heads + r * head_bytes, .n = head_bytes, .want = head};
      l->in[l->ins++] = (struct seg){.bytes = items[r].in, .n = items[r].in_bytes};
    }
  }
  ncclResult_t rc = run_io(c, channel, stop, revoked, peers);
  free(heads);
  free(segs);
  free(peers);
  return rc;
}

static struct head head_of(struct message *p) {
  return (struct head){.magic = 0x70327032, .kind = SEND, .type = p->task->type, .count = p->task->count};
}

// to_self matches the i-th message that a rank sends to itself with the i-th that it
// receives, without a connection.
static ncclResult_t to_self(struct comm *c, struct message *p, int n) {
  int j = 0;
  for (int i = 0; i < n; i++) {
    if (p[i].peer != c->rank || p[i].kind != SEND) continue;
    while (j < n && !(p[j].peer == c->rank && p[j].kind == RECV)) j++;
    if (j == n || p[j].n != p[i].n) return fake_error(c, BAD_USAGE, "a send to oneself without its receive");
    memmove(p[j++].bytes, p[i].bytes, p[i].n);
  }
  return OK;
}

ncclResult_t fake_send_recv(struct comm *c, volatile int *stop, volatile int *revoked, struct message *p, int n) {
  ncclResult_t rc = to_self(c, p, n);
  if (rc) return rc;
  struct peer_io *peers = calloc(c->n, sizeof *peers);
  struct head *heads = calloc(2 * n + 1, sizeof *heads);
  for (int r = 0; r < c->n; r++) {
    peers[r].out = calloc(2 * n, sizeof(struct seg));
    peers[r].in = calloc(2 * n, sizeof(struct seg));
  }
  for (int i = 0; i < n; i++) {
    struct peer_io *l = &peers[p[i].peer];
    if (p[i].peer == c->rank) continue;
    heads[2 * i] = head_of(&p[i]);
    if (p[i].kind == SEND) {
      l->out[l->outs++] = (struct seg){.bytes = (char *)&heads[2 * i], .n = sizeof *heads};
      l->out[l->outs++] = (struct seg){.bytes = p[i].bytes, .n = p[i].n};
    } else {
      l->in[l->ins++] = (struct seg){.bytes = (char *)&heads[2 * i + 1], .n = sizeof *heads, .want = &heads[2 * i]};
      l->in[l->ins++] = (struct seg){.bytes = p[i].bytes, .n = p[i].n};
    }
  }
  rc = run_io(c, DATA, stop, revoked, peers);
  for (int r = 0; r < c->n; r++) {
    free(peers[r].out);
    free(peers[r].in);
  }
  free(heads);
  free(peers);
  return rc;
}
