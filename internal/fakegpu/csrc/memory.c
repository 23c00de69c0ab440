// Memory: allocations, copies and fills.
#define _GNU_SOURCE
#include "cuda.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum kind { DEVICE, HOST, REGISTERED };

struct alloc {
  uint64_t base;
  size_t size, reserved;
  enum kind kind;
  int device;
  char *bytes;
  struct pool *pool;
  struct alloc *next;
};

struct pool { int device; int is_default; uint64_t threshold; struct pool *next; };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct alloc *allocs;
static struct pool *pools, defaults[MAX_DEVICES];
static size_t used[MAX_DEVICES];
static const size_t total = (size_t)1 << 32, page = 4096;

// find returns the allocation that contains the whole range. The caller holds mu.
static struct alloc *find(uint64_t addr, size_t bytes) {
  for (struct alloc *a = allocs; a; a = a->next)
    if (addr >= a->base && addr - a->base <= a->size && bytes <= a->size - (addr - a->base)) return a;
  return NULL;
}

void *fake_bytes_at(uint64_t addr, size_t bytes) {
  pthread_mutex_lock(&mu);
  struct alloc *a = find(addr, bytes);
  void *p = a ? a->bytes + (addr - a->base) : NULL;
  pthread_mutex_unlock(&mu);
  return p;
}

int fake_device_of(uint64_t addr) {
  pthread_mutex_lock(&mu);
  struct alloc *a = find(addr, 1);
  int d = a ? a->device : -1;
  pthread_mutex_unlock(&mu);
  return d;
}

static uint64_t add_alloc(enum kind kind, int device, size_t bytes, void *given, struct pool *pool) {
  struct alloc *a = calloc(1, sizeof *a);
  size_t room = (bytes + page - 1) / page * page;
  a->kind = kind, a->device = device, a->size = bytes, a->pool = pool;
  if (kind == REGISTERED) {
    a->bytes = given;
    a->base = (uint64_t)given;
  } else {
    a->bytes = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    a->base = (uint64_t)a->bytes;
    a->reserved = room;
    if (kind == DEVICE) {
      memset(a->bytes, 0xa5, bytes);  // no test can rely on zeros in new memory
      a->base = (uint64_t)mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
  }
  pthread_mutex_lock(&mu);
  a->next = allocs;
  allocs = a;
  if (kind == DEVICE) used[device] += bytes;
  pthread_mutex_unlock(&mu);
  fake_count(kind == DEVICE ? LIVE_MEMORY : LIVE_HOST, 1);
  return a->base;
}

// remove_alloc frees the allocation that begins at addr, if it is of the kind.
static int remove_alloc(uint64_t addr, enum kind kind) {
  pthread_mutex_lock(&mu);
  struct alloc **at = &allocs, *a;
  while ((a = *at) && !(a->base == addr && a->kind == kind)) at = &a->next;
  if (a) {
    *at = a->next;
    if (kind == DEVICE) used[a->device] -= a->size;
  }
  pthread_mutex_unlock(&mu);
  if (!a) return 0;
  if (kind != REGISTERED) munmap(a->bytes, a->reserved);
  if (kind == DEVICE) munmap((void *)a->base, a->reserved);
  free(a);
  fake_count(kind == DEVICE ? LIVE_MEMORY : LIVE_HOST, -1);
  return 1;
}

uint64_t fake_alloc(int device, size_t bytes) {
  pthread_mutex_lock(&mu);
  int full = bytes > total - used[device];
  pthread_mutex_unlock(&mu);
  return full ? 0 : add_alloc(DEVICE, device, bytes, NULL, NULL);
}

int fake_free(uint64_t addr) { return remove_alloc(addr, DEVICE); }

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice d) {
  PROBE();
  NEED(bytes, CUDA_ERROR_INVALID_VALUE);
  NEED(d >= 0 && d < fake_devices(), CUDA_ERROR_INVALID_DEVICE);
  *bytes = total;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *all) {
  PROBE();
  READY();
  NEED(free_bytes && all, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&mu);
  *free_bytes = total - used[fake_current_device()];
  pthread_mutex_unlock(&mu);
  *all = total;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
  PROBE();
  READY();
  NEED(out && bytes > 0, CUDA_ERROR_INVALID_VALUE);
  fake_sync_context(fake_current_device());
  uint64_t p = fake_alloc(fake_current_device(), bytes);
  NEED(p, CUDA_ERROR_OUT_OF_MEMORY);
  *out = p;
  return CUDA_SUCCESS;
}

// As in the real driver, this waits for all work on the device.
EXPORT CUresult cuMemFree_v2(CUdeviceptr p) {
  PROBE();
  READY();
  int d = fake_device_of(p);
  NEED(d >= 0, CUDA_ERROR_INVALID_VALUE);
  fake_sync_context(d);
  fake_sync_device(d);
  return remove_alloc(p, DEVICE) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
  PROBE();
  READY();
  NEED(out && bytes > 0 && flags <= 7, CUDA_ERROR_INVALID_VALUE);
  fake_sync_context(fake_current_device());
  *out = (void *)add_alloc(HOST, fake_current_device(), bytes, NULL, NULL);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFreeHost(void *p) {
  PROBE();
  READY();
  fake_sync_context(fake_current_device());
  return remove_alloc((uint64_t)p, HOST) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags) {
  PROBE();
  READY();
  NEED(p && bytes > 0 && flags <= 15, CUDA_ERROR_INVALID_VALUE);
  NEED(!fake_bytes_at((uint64_t)p, 1), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  add_alloc(REGISTERED, fake_current_device(), bytes, p, NULL);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostUnregister(void *p) {
  PROBE();
  READY();
  return remove_alloc((uint64_t)p, REGISTERED) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned flags) {
  PROBE();
  READY();
  NEED(out && flags == 0 && fake_bytes_at((uint64_t)p, 1), CUDA_ERROR_INVALID_VALUE);
  *out = (CUdeviceptr)p;
  return CUDA_SUCCESS;
}

// Attributes: 2 memory type, 9 device ordinal, 11 start of the range, 12 size. All are zero
// for an unknown address.
EXPORT CUresult cuPointerGetAttributes(unsigned n, const int *attributes, void **out, CUdeviceptr p) {
  PROBE();
  NEED(n > 0 && attributes && out, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&mu);
  struct alloc *a = find(p, 1);
  CUresult rc = CUDA_SUCCESS;
  for (unsigned i = 0; i < n; i++) switch (attributes[i]) {
      case 2: *(unsigned *)out[i] = !a ? 0 : a->kind == DEVICE ? 2 : 1; break;
      case 9: *(int *)out[i] = a ? a->device : 0; break;
      case 11: *(CUdeviceptr *)out[i] = a ? a->base : 0; break;
      case 12: *(size_t *)out[i] = a ? a->size : 0; break;
      default: rc = CUDA_ERROR_INVALID_VALUE;
    }
  pthread_mutex_unlock(&mu);
  return rc;
}

// A memop is one copy or fill. It is checked when it is queued and again when it runs: a
// copy of memory that was freed meanwhile is an illegal access.
struct memop {
  uint64_t dst, src;
  size_t bytes, width, pitch, rows;
  unsigned value;
  void *host_dst;        // instead of dst
  const void *host_src;  // instead of src
  void *staged;          // a copy of pageable memory, freed with the memop
  int device, fill;
};

static void run_memop(void *arg) {
  struct memop *m = arg;
  char *dst = m->host_dst ? m->host_dst : fake_bytes_at(m->dst, m->bytes);
  if (!dst) {
    fake_set_sticky(m->device, CUDA_ERROR_ILLEGAL_ADDRESS);
  } else if (m->fill) {
    for (size_t r = 0; r < m->rows; r++)
      for (size_t i = 0; i < m->pitch / m->width && (m->rows == 1 || i < 1); i++)
        memcpy(dst + r * m->pitch + i * m->width, &m->value, m->width);
  } else {
    const char *src = m->host_src ? m->host_src : fake_bytes_at(m->src, m->bytes);
    if (src)
      memmove(dst, src, m->bytes);
    else
      fake_set_sticky(m->device, CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  free(m->staged);
  free(m);
}

// submit checks a memop, and executes or queues it.
static CUresult submit(struct memop m, CUstream s, int async) {
  READY();
  if (m.bytes == 0) return CUDA_SUCCESS;
  NEED(m.host_dst || fake_bytes_at(m.dst, m.bytes), CUDA_ERROR_INVALID_VALUE);
  NEED(m.fill || m.host_src || fake_bytes_at(m.src, m.bytes), CUDA_ERROR_INVALID_VALUE);
  m.device = fake_current_device();
  struct memop *p = malloc(sizeof *p);
  *p = m;
  if (!async) {
    run_memop(p);
    return fake_ready();
  }
  int pageable_dst = m.host_dst && !fake_bytes_at((uint64_t)m.host_dst, m.bytes);
  if (m.host_src && !fake_bytes_at((uint64_t)m.host_src, m.bytes)) {
    p->staged = malloc(m.bytes);
    memcpy(p->staged, m.host_src, m.bytes);
    p->host_src = p->staged;
  }
  CUresult rc = fake_push(s, run_memop, p);
  if (rc) {
    free(p->staged);
    free(p);
    return rc;
  }
  extern CUresult cuStreamSynchronize(CUstream);
  return pageable_dst ? cuStreamSynchronize(s) : CUDA_SUCCESS;
}

#define COPY(name, params, ...)                                      \
  EXPORT CUresult name##_v2 params {                                 \
    PROBE();                                                         \
    return submit((struct memop){__VA_ARGS__, .bytes = n}, NULL, 0); \
  }
#define COPY_ASYNC(name, params, ...)                             \
  EXPORT CUresult name##_v2 params {                              \
    PROBE();                                                      \
    return submit((struct memop){__VA_ARGS__, .bytes = n}, s, 1); \
  }
COPY(cuMemcpyHtoD, (CUdeviceptr dst, const void *src, size_t n), .dst = dst, .host_src = src)
COPY(cuMemcpyDtoH, (void *dst, CUdeviceptr src, size_t n), .host_dst = dst, .src = src)
COPY(cuMemcpyDtoD, (CUdeviceptr dst, CUdeviceptr src, size_t n), .dst = dst, .src = src)
COPY_ASYNC(cuMemcpyHtoDAsync, (CUdeviceptr dst, const void *src, size_t n, CUstream s), .dst = dst, .host_src = src)
COPY_ASYNC(cuMemcpyDtoHAsync, (void *dst, CUdeviceptr src, size_t n, CUstream s), .host_dst = dst, .src = src)
COPY_ASYNC(cuMemcpyDtoDAsync, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s), .dst = dst, .src = src)

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dc, CUdeviceptr src, CUcontext sc, size_t n, CUstream s) {
  PROBE();
  NEED(dc && sc && dc->retained && sc->retained, CUDA_ERROR_INVALID_CONTEXT);
  NEED(n == 0 || (fake_device_of(dst) == dc->device && fake_device_of(src) == sc->device), CUDA_ERROR_INVALID_VALUE);
  return submit((struct memop){.dst = dst, .src = src, .bytes = n}, s, 1);
}

static struct memop fill_op(CUdeviceptr dst, unsigned value, size_t width, size_t n) {
  return (struct memop){.dst = dst, .value = value, .width = width, .bytes = n * width, .pitch = n * width, .rows = 1, .fill = 1};
}

#define FILL(name, type)                                                           \
  EXPORT CUresult name##_v2(CUdeviceptr dst, type value, size_t n) {               \
    PROBE();                                                                       \
    NEED(dst % sizeof value == 0, CUDA_ERROR_INVALID_VALUE);                       \
    return submit(fill_op(dst, value, sizeof value, n), NULL, 0);                  \
  }                                                                                \
  EXPORT CUresult name##Async(CUdeviceptr dst, type value, size_t n, CUstream s) { \
    PROBE();                                                                       \
    NEED(dst % sizeof value == 0, CUDA_ERROR_INVALID_VALUE);                       \
    return submit(fill_op(dst, value, sizeof value, n), s, 1);                     \
  }
FILL(cuMemsetD8, unsigned char)
FILL(cuMemsetD16, unsigned short)
FILL(cuMemsetD32, unsigned)

EXPORT CUresult cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height, CUstream s) {
  PROBE();
  NEED(width == 1 && pitch >= 4 && pitch % 4 == 0 && dst % 4 == 0, CUDA_ERROR_INVALID_VALUE);
  if (height == 0) return CUDA_SUCCESS;
  struct memop m = {.dst = dst, .value = value, .width = 4, .pitch = pitch, .rows = height, .fill = 1};
  m.bytes = (height - 1) * pitch + 4;
  if (height == 1) m.pitch = 4;
  return submit(m, s, 1);
}

// Stream-ordered memory. It exists at once; only freeing is ordered.
static struct pool *pool_of(CUmemoryPool p) {
  for (int d = 0; d < MAX_DEVICES; d++)
    if (p == &defaults[d]) return p;
  for (struct pool *q = pools; q; q = q->next)
    if (q == p) return q;
  return NULL;
}

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice d) {
  PROBE();
  NEED(out, CUDA_ERROR_INVALID_VALUE);
  NEED(d >= 0 && d < fake_devices(), CUDA_ERROR_INVALID_DEVICE);
  defaults[d].device = d;
  defaults[d].is_default = 1;
  *out = &defaults[d];
  return CUDA_SUCCESS;
}

struct pool_props {
  int alloc_type, handle_types;
  struct { int type, id; } location;
  void *security;
  size_t max_size;
  unsigned short usage;
  unsigned char reserved[54];
};

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *out, const struct pool_props *props) {
  PROBE();
  NEED(sizeof *props == 88, CUDA_ERROR_INVALID_VALUE);
  NEED(out && props && props->alloc_type == 1 && props->location.type == 1, CUDA_ERROR_INVALID_VALUE);
  NEED(props->location.id >= 0 && props->location.id < fake_devices(), CUDA_ERROR_INVALID_VALUE);
  for (size_t i = 0; i < sizeof props->reserved; i++) NEED(props->reserved[i] == 0, CUDA_ERROR_INVALID_VALUE);
  struct pool *p = calloc(1, sizeof *p);
  p->device = props->location.id;
  pthread_mutex_lock(&mu);
  p->next = pools;
  pools = p;
  pthread_mutex_unlock(&mu);
  fake_count(LIVE_POOLS, 1);
  *out = p;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  PROBE();
  pthread_mutex_lock(&mu);
  struct pool **at = &pools;
  while (*at && *at != pool) at = &(*at)->next;
  int found = *at != NULL;
  if (found) *at = pool->next;
  pthread_mutex_unlock(&mu);
  NEED(found, CUDA_ERROR_INVALID_VALUE);
  free(pool);
  fake_count(LIVE_POOLS, -1);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool p, int attribute, void *value) {
  PROBE();
  NEED(pool_of(p) && value && attribute == 4, CUDA_ERROR_INVALID_VALUE);
  p->threshold = *(uint64_t *)value;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool p, size_t keep) {
  PROBE();
  (void)keep;
  NEED(pool_of(p), CUDA_ERROR_INVALID_VALUE);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool p, CUstream s) {
  PROBE();
  READY();
  NEED(out && bytes > 0 && pool_of(p), CUDA_ERROR_INVALID_VALUE);
  NEED(fake_stream_device(s) == p->device, CUDA_ERROR_INVALID_HANDLE);
  NEED(!fake_capturing(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  uint64_t addr = fake_alloc(p->device, bytes);
  NEED(addr, CUDA_ERROR_OUT_OF_MEMORY);
  *out = addr;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream s) {
  PROBE();
  READY();
  int d = fake_stream_device(s);
  NEED(out && bytes > 0, CUDA_ERROR_INVALID_VALUE);
  NEED(d >= 0, CUDA_ERROR_INVALID_HANDLE);
  NEED(!fake_capturing(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  uint64_t addr = fake_alloc(d, bytes);
  NEED(addr, CUDA_ERROR_OUT_OF_MEMORY);
  *out = addr;
  return CUDA_SUCCESS;
}

struct free_request { uint64_t addr; int device; };
static void free_now(void *arg) {
  struct free_request *e = arg;
  if (!remove_alloc(e->addr, DEVICE)) fake_set_sticky(e->device, CUDA_ERROR_ILLEGAL_ADDRESS);
  free(e);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s) {
  PROBE();
  READY();
  int d = fake_device_of(p);
  NEED(d >= 0, CUDA_ERROR_INVALID_VALUE);
  struct free_request *e = malloc(sizeof *e);
  *e = (struct free_request){p, d};
  CUresult rc = fake_push(s, free_now, e);
  if (rc) free(e);
  return rc;
}
