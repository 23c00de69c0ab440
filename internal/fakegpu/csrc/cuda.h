// The driver's types and result codes, as far as the fake library has them.
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include "fake.h"

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct ctx *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct pool *CUmemoryPool;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
  CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
};

enum { MAX_DEVICES = 16 };

struct ctx {
  int device, retained;
  atomic_int sticky;
  unsigned peers;  // one bit for each device to which access is enabled
  CUstream null_stream;
};

extern int fake_initialized;
CUcontext fake_ctx(int device);
CUcontext fake_current(void);

// TRY returns any result but success from the calling function.
#define TRY(x)             \
  do {                     \
    CUresult try_ = (x);   \
    if (try_) return try_; \
  } while (0)
#define NEED(cond, code)        \
  do {                          \
    if (!(cond)) return (code); \
  } while (0)
#define READY() TRY(fake_ready())

#endif
