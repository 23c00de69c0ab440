// Faults that tests inject, and counters that they read.
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HANG = -1, MAX_FAULTS = 64 };  // HANG is Hang in ../control.go

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct probe *probes;
static atomic_long live[LIVE_KINDS];
static atomic_int faults, released;
static atomic_long fired, lag_us;
static struct fault { char func[64]; long nth; int code; } fault[MAX_FAULTS];

int fake_probe(struct probe *p, volatile int *give_up) {
  if (!atomic_load(&p->known)) {
    pthread_mutex_lock(&mu);
    if (!atomic_load(&p->known)) {
      p->next = probes;
      probes = p;
      atomic_store(&p->known, 1);
    }
    pthread_mutex_unlock(&mu);
  }
  atomic_fetch_add(&p->calls, 1);
  if (atomic_load(&faults) == 0) return 0;
  int code = 0, before = atomic_load(&released);
  pthread_mutex_lock(&mu);
  for (int i = 0; i < MAX_FAULTS; i++)
    if (fault[i].nth > 0 && strcmp(fault[i].func, p->name) == 0 && --fault[i].nth == 0) {
      code = fault[i].code;
      atomic_fetch_sub(&faults, 1);
      atomic_fetch_add(&fired, 1);
      break;
    }
  pthread_mutex_unlock(&mu);
  while (code == HANG && atomic_load(&released) == before) {
    if (give_up && *give_up) return 0;
    usleep(500);
  }
  return code == HANG ? 0 : code;
}

// fake_fail makes the nth next call of func return code without doing anything. With code -1
// the call hangs until fake_release.
EXPORT int fake_fail(const char *func, long nth, int code) {
  int rc = -1;
  pthread_mutex_lock(&mu);
  for (int i = 0; i < MAX_FAULTS && rc; i++)
    if (fault[i].nth <= 0 && strlen(func) < sizeof fault[i].func) {
      strcpy(fault[i].func, func);
      fault[i].nth = nth;
      fault[i].code = code;
      atomic_fetch_add(&faults, 1);
      rc = 0;
    }
  pthread_mutex_unlock(&mu);
  return rc;
}

EXPORT void fake_release(void) { atomic_fetch_add(&released, 1); }

// fake_reset removes the faults that have not occurred.
EXPORT void fake_reset(void) {
  pthread_mutex_lock(&mu);
  memset(fault, 0, sizeof fault);
  atomic_store(&faults, 0);
  pthread_mutex_unlock(&mu);
  fake_release();
  atomic_store(&lag_us, 0);
}

EXPORT long fake_fired(void) { return atomic_load(&fired); }

EXPORT long fake_calls(const char *func) {
  long n = 0;
  pthread_mutex_lock(&mu);
  for (struct probe *p = probes; p; p = p->next)  // each loaded library version has its own probe
    if (strcmp(p->name, func) == 0) n += atomic_load(&p->calls);
  pthread_mutex_unlock(&mu);
  return n;
}

EXPORT long fake_live(int kind) { return kind < 0 || kind >= LIVE_KINDS ? -1 : atomic_load(&live[kind]); }

// fake_lag delays the start of every operation on a stream by us microseconds, so that
// operations that are not ordered by events run in the wrong order.
EXPORT void fake_lag(long us) { atomic_store(&lag_us, us); }

void fake_count(int kind, int by) { atomic_fetch_add(&live[kind], by); }

void fake_apply_lag(void) {
  long us = atomic_load(&lag_us);
  if (us > 0) usleep(us);
}

// The environment injects faults into processes that a test starts:
// TUTTI_FAKE_FAULTS=ncclAllReduce:3:1,cuMemAlloc_v2:1:-1
__attribute__((constructor)) static void from_environment(void) {
  const char *lag = getenv("TUTTI_FAKE_LAG_US");
  if (lag) fake_lag(atol(lag));
  const char *text = getenv("TUTTI_FAKE_FAULTS");
  char func[64];
  long nth;
  int code, used;
  while (text && sscanf(text, "%63[^:]:%ld:%d%n", func, &nth, &code, &used) == 3) {
    fake_fail(func, nth, code);
    text += used;
    if (*text == ',') text++;
  }
}
