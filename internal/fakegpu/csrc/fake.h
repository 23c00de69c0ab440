// What the parts of the fake share. It is compiled into two libraries: one
// in the form of libcuda, one in the form of libnccl, which needs the first.
#ifndef FAKE_H
#define FAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#pragma GCC visibility push(default)

// Faults and counters (control.c). PROBE stands first in every exported
// function: it counts the call, and returns a result from it if the test has
// asked for that.
struct probe {
  const char *name;
  atomic_long calls;
  atomic_bool known;
  struct probe *next;
};
int fake_probe(struct probe *p, volatile int *give_up);
#define PROBE_UNTIL(flag)                            \
  do {                                               \
    static struct probe probe_ = {.name = __func__}; \
    int fault_ = fake_probe(&probe_, flag);          \
    if (fault_) return fault_;                       \
  } while (0)
#define PROBE() PROBE_UNTIL(NULL)

// fake_count changes the number of living things of a kind.
enum { LIVE_MEMORY, LIVE_HOST, LIVE_STREAMS, LIVE_EVENTS, LIVE_CONTEXTS, LIVE_POOLS, LIVE_COMMS, LIVE_OPS, LIVE_HANDLES, LIVE_KINDS };
void fake_count(int kind, int by);
void fake_apply_lag(void);

// Memory (memory.c). A device address is reserved but cannot be touched by the
// host; fake_bytes_at gives the bytes behind it, or NULL if they do not all lie in
// one living allocation.
void *fake_bytes_at(uint64_t addr, size_t bytes);
int fake_device_of(uint64_t addr);
uint64_t fake_alloc(int device, size_t bytes);
int fake_free(uint64_t addr);
int fake_devices(void);

// Contexts (context.c).
int fake_current_device(void);  // -1 if the thread has no context
int fake_set_device(int device);  // returns the device before, -1 if none
int fake_sticky(int device);
void fake_set_sticky(int device, int code);
int fake_ready(void);  // 0 once cuInit was called and the thread has a context

// Streams (stream.c): queues that threads of their own work off. fake_push
// takes ownership of arg, which run frees. It returns a driver's error code.
struct stream;
typedef void (*fake_run)(void *arg);
int fake_push(void *stream, fake_run run, void *arg);
int fake_stream_device(void *stream);  // -1 if it is no stream
int fake_capturing(void *stream);
int fake_stream_join(void *first, void *other);  // first waits for what other holds now
void fake_sync_device(int device);

// fake_sync_context waits until no stream of the device waits for a value. The real
// driver does so in every call that synchronises the context, and holds a lock meanwhile
// that other calls need.
void fake_sync_context(int device);

#pragma GCC visibility pop

#endif
