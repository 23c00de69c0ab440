// Declarations shared by the sources. They are compiled into two libraries: the fake
// libcuda, and the fake libnccl, which links to the first.
#ifndef FAKE_H
#define FAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#pragma GCC visibility push(default)

// Faults and counters (control.c). PROBE is the first statement of every exported
// function. It counts the call, and returns from the function if the test has injected a
// fault.
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

// fake_count changes the number of live objects of a kind. ../control.go has the kinds in the same order.
enum { LIVE_MEMORY, LIVE_HOST, LIVE_STREAMS, LIVE_EVENTS, LIVE_CONTEXTS, LIVE_POOLS, LIVE_COMMS, LIVE_OPS, LIVE_HANDLES, LIVE_KINDS };
void fake_count(int kind, int by);
void fake_apply_lag(void);

// Memory (memory.c). A device address is reserved, and the host cannot access it.
// fake_bytes_at returns the bytes behind it, or NULL if they do not all lie in one live
// allocation.
void *fake_bytes_at(uint64_t addr, size_t bytes);
int fake_device_of(uint64_t addr);
uint64_t fake_alloc(int device, size_t bytes);
int fake_free(uint64_t addr);
int fake_devices(void);

// Contexts (context.c).
int fake_current_device(void);  // -1: the thread has no current context
int fake_set_device(int device);  // returns the previous device; -1: none
int fake_sticky(int device);
void fake_set_sticky(int device, int code);
int fake_ready(void);  // 0 if cuInit was called and the thread has a current context

// Streams (stream.c). Each stream is a queue with a thread that executes it. fake_push
// takes ownership of arg, which run frees. It returns a CUresult.
struct stream;
typedef void (*fake_run)(void *arg);
int fake_push(void *stream, fake_run run, void *arg);
int fake_stream_device(void *stream);  // -1: not a stream
int fake_capturing(void *stream);
int fake_stream_join(void *first, void *other);  // first waits for the work now in other
void fake_sync_device(int device);

// fake_sync_context waits until no stream of the device waits for a value. The real
// driver does so in every call that synchronizes the context. Meanwhile it holds a lock
// that other calls need.
void fake_sync_context(int device);

#pragma GCC visibility pop

#endif
