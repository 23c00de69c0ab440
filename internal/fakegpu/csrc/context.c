// Devices, primary contexts, and each thread's stack of current contexts.
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 64 };

int fake_initialized;
static struct ctx primary[MAX_DEVICES];
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static __thread CUcontext stack[DEPTH];
static __thread int depth;

int fake_devices(void) {
  const char *n = getenv("TUTTI_FAKE_DEVICES");
  int devices = n ? atoi(n) : 8;
  return devices > MAX_DEVICES ? MAX_DEVICES : devices;
}

CUcontext fake_ctx(int device) { return &primary[device]; }
CUcontext fake_current(void) { return depth ? stack[depth - 1] : NULL; }
int fake_current_device(void) { return depth && stack[depth - 1] ? stack[depth - 1]->device : -1; }
int fake_sticky(int device) { return atomic_load(&primary[device].sticky); }
void fake_set_sticky(int device, int code) { atomic_store(&primary[device].sticky, code); }

int fake_set_device(int device) {
  int before = fake_current_device();
  if (depth == 0) depth = 1;
  stack[depth - 1] = device < 0 ? NULL : &primary[device];
  return before;
}

int fake_ready(void) {
  NEED(fake_initialized, CUDA_ERROR_NOT_INITIALIZED);
  CUcontext c = fake_current();
  NEED(c && c->retained > 0, CUDA_ERROR_INVALID_CONTEXT);
  return atomic_load(&c->sticky);
}

static int alive(CUcontext c) { return c >= primary && c < primary + MAX_DEVICES && c->retained > 0; }
static int exists(CUdevice d) { return d >= 0 && d < fake_devices(); }

EXPORT CUresult cuInit(unsigned flags) {
  PROBE();
  NEED(flags == 0, CUDA_ERROR_INVALID_VALUE);
  NEED(fake_devices() > 0, CUDA_ERROR_NO_DEVICE);
  fake_initialized = 1;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version) {
  PROBE();
  NEED(version, CUDA_ERROR_INVALID_VALUE);
  *version = 13000;
  return CUDA_SUCCESS;
}

static const struct { int code; const char *name, *text; } errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
};

static CUresult lookup(int code, const char **out, int name) {
  NEED(out, CUDA_ERROR_INVALID_VALUE);
  *out = NULL;
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].code == code) {
      *out = name ? errors[i].name : errors[i].text;
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuGetErrorName(CUresult code, const char **out) { return lookup(code, out, 1); }
EXPORT CUresult cuGetErrorString(CUresult code, const char **out) { return lookup(code, out, 0); }

EXPORT CUresult cuDeviceGetCount(int *count) {
  PROBE();
  NEED(fake_initialized, CUDA_ERROR_NOT_INITIALIZED);
  NEED(count, CUDA_ERROR_INVALID_VALUE);
  *count = fake_devices();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  PROBE();
  NEED(fake_initialized, CUDA_ERROR_NOT_INITIALIZED);
  NEED(device, CUDA_ERROR_INVALID_VALUE);
  NEED(exists(ordinal), CUDA_ERROR_INVALID_DEVICE);
  *device = ordinal;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int len, CUdevice d) {
  PROBE();
  NEED(exists(d), CUDA_ERROR_INVALID_DEVICE);
  NEED(name && len > 0, CUDA_ERROR_INVALID_VALUE);
  snprintf(name, len, "tutti fake GPU %d", d);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(unsigned char *uuid, CUdevice d) {
  PROBE();
  NEED(exists(d), CUDA_ERROR_INVALID_DEVICE);
  NEED(uuid, CUDA_ERROR_INVALID_VALUE);
  memset(uuid, 0x50 + d, 16);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int len, CUdevice d) {
  PROBE();
  NEED(exists(d), CUDA_ERROR_INVALID_DEVICE);
  NEED(text && len >= 13, CUDA_ERROR_INVALID_VALUE);
  snprintf(text, len, "0000:%02X:00.0", d + 1);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice d) {
  PROBE();
  NEED(exists(d), CUDA_ERROR_INVALID_DEVICE);
  NEED(value && attribute > 0, CUDA_ERROR_INVALID_VALUE);
  switch (attribute) {
    case 16: *value = 132; break;  // multiprocessors
    case 75: *value = 9; break;    // compute capability, major
    case 76: *value = 0; break;    // minor
    case 115: *value = 1; break;   // memory pools
    default: *value = 0;
  }
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice peer) {
  PROBE();
  NEED(exists(d) && exists(peer), CUDA_ERROR_INVALID_DEVICE);
  NEED(can, CUDA_ERROR_INVALID_VALUE);
  *can = d != peer;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice d) {
  PROBE();
  NEED(fake_initialized, CUDA_ERROR_NOT_INITIALIZED);
  NEED(exists(d), CUDA_ERROR_INVALID_DEVICE);
  NEED(out, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&mu);
  primary[d].device = d;
  if (primary[d].retained++ == 0) {
    fake_count(LIVE_CONTEXTS, 1);
    atomic_store(&primary[d].sticky, 0);
  }
  *out = &primary[d];
  pthread_mutex_unlock(&mu);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) {
  PROBE();
  NEED(exists(d), CUDA_ERROR_INVALID_DEVICE);
  pthread_mutex_lock(&mu);
  CUresult rc = primary[d].retained > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  if (!rc && --primary[d].retained == 0) {
    fake_count(LIVE_CONTEXTS, -1);
    primary[d].peers = 0;
  }
  pthread_mutex_unlock(&mu);
  return rc;
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext c) {
  PROBE();
  NEED(alive(c), CUDA_ERROR_INVALID_CONTEXT);
  NEED(depth < DEPTH, CUDA_ERROR_INVALID_VALUE);
  stack[depth++] = c;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *out) {
  PROBE();
  NEED(depth > 0, CUDA_ERROR_INVALID_CONTEXT);
  CUcontext c = stack[--depth];
  if (out) *out = c;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *out) {
  PROBE();
  NEED(out, CUDA_ERROR_INVALID_VALUE);
  *out = fake_current();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext c) {
  PROBE();
  NEED(!c || alive(c), CUDA_ERROR_INVALID_CONTEXT);
  if (!c) {
    if (depth) depth--;
    return CUDA_SUCCESS;
  }
  if (depth == 0) depth = 1;
  stack[depth - 1] = c;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void) {
  PROBE();
  READY();
  fake_sync_device(fake_current_device());
  return fake_ready();
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  PROBE();
  READY();
  NEED(flags == 0, CUDA_ERROR_INVALID_VALUE);
  NEED(alive(peer), CUDA_ERROR_INVALID_CONTEXT);
  CUcontext c = fake_current();
  NEED(peer != c, CUDA_ERROR_INVALID_CONTEXT);
  NEED(!(c->peers & 1u << peer->device), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  c->peers |= 1u << peer->device;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  PROBE();
  READY();
  NEED(alive(peer), CUDA_ERROR_INVALID_CONTEXT);
  CUcontext c = fake_current();
  NEED(c->peers & 1u << peer->device, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  c->peers &= ~(1u << peer->device);
  return CUDA_SUCCESS;
}
