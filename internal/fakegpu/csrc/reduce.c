// Reductions of every type, in rank order.
#include "nccl.h"

#include <math.h>
#include <string.h>

size_t fake_type_size(int type) {
  static const size_t sizes[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

// A format has e exponent bits and m mantissa bits. e4m3 has no infinities, and only its last
// code is a NaN.
struct format { int e, m, finite; };
static const struct format half = {5, 10, 0}, brain = {8, 7, 0}, e4m3 = {4, 3, 1}, e5m2 = {5, 2, 0};

static double decode(struct format f, unsigned bits) {
  int sign = bits >> (f.e + f.m) & 1, exponent = bits >> f.m & ((1 << f.e) - 1), mantissa = bits & ((1 << f.m) - 1);
  int bias = (1 << (f.e - 1)) - 1, top = (1 << f.e) - 1;
  double x;
  if (exponent == top && !f.finite)
    x = mantissa ? NAN : INFINITY;
  else if (exponent == top && mantissa == (1 << f.m) - 1)
    x = NAN;
  else if (exponent == 0)
    x = ldexp(mantissa, 1 - bias - f.m);
  else
    x = ldexp(mantissa + (1 << f.m), exponent - bias - f.m);
  return sign ? -x : x;
}

// encode rounds to nearest, ties to even. Codes grow with the values, in equal steps between
// powers of two.
static unsigned encode(struct format f, double x) {
  int bias = (1 << (f.e - 1)) - 1, exponent;
  unsigned sign = signbit(x) ? 1u << (f.e + f.m) : 0, top = (1u << f.e) - 1;
  unsigned last = f.finite ? (top << f.m | ((1u << f.m) - 2)) : (top << f.m) - 1;
  if (isnan(x)) return sign | (top << f.m) | ((1u << f.m) - 1);
  unsigned code = last + 1;
  if (!isinf(x)) {
    x = fabs(x);
    frexp(x, &exponent);
    if (x == 0 || exponent < 2 - bias) exponent = 2 - bias;
    code = ((unsigned)(exponent + bias - 2) << f.m) + (unsigned)nearbyint(ldexp(x, f.m + 1 - exponent));
  }
  if (code > last) code = f.finite ? last : top << f.m;
  return sign | code;
}

static double read_float(int type, const char *p, size_t i) {
  switch (type) {
    case F32: return ((const float *)p)[i];
    case F64: return ((const double *)p)[i];
    case F16: return decode(half, ((const uint16_t *)p)[i]);
    case BF16: return decode(brain, ((const uint16_t *)p)[i]);
    case F8E4M3: return decode(e4m3, ((const uint8_t *)p)[i]);
    default: return decode(e5m2, ((const uint8_t *)p)[i]);
  }
}

static void write_float(int type, char *p, size_t i, double x) {
  switch (type) {
    case F32: ((float *)p)[i] = (float)x; break;
    case F64: ((double *)p)[i] = x; break;
    case F16: ((uint16_t *)p)[i] = encode(half, x); break;
    case BF16: ((uint16_t *)p)[i] = encode(brain, x); break;
    case F8E4M3: ((uint8_t *)p)[i] = encode(e4m3, x); break;
    default: ((uint8_t *)p)[i] = encode(e5m2, x);
  }
}

static int64_t read_int(int type, const char *p, size_t i) {
  switch (type) {
    case I8: return ((const int8_t *)p)[i];
    case U8: return ((const uint8_t *)p)[i];
    case I32: return ((const int32_t *)p)[i];
    case U32: return ((const uint32_t *)p)[i];
    default: return ((const int64_t *)p)[i];
  }
}

static void write_int(int type, char *p, size_t i, int64_t x) {
  switch (fake_type_size(type)) {
    case 1: ((int8_t *)p)[i] = x; break;
    case 4: ((int32_t *)p)[i] = x; break;
    default: ((int64_t *)p)[i] = x;
  }
}

// As on a device, the minimum and the maximum of a number and a NaN are the number, and the
// negative zero is less than the positive one.
static double combine(int op, double a, double b) {
  int less = a < b || (a == b && signbit(a));
  switch (op) {
    case PROD: return a * b;
    case MAX: return isnan(a) || less ? (isnan(b) ? a : b) : a;
    case MIN: return isnan(b) || less ? (isnan(a) ? b : a) : b;
    default: return a + b;
  }
}

static int64_t combine_int(int type, int op, int64_t a, int64_t b) {
  int less = type == U64 ? (uint64_t)a < (uint64_t)b : a < b;
  switch (op) {
    case PROD: return (uint64_t)a * (uint64_t)b;
    case MAX: return less ? b : a;
    case MIN: return less ? a : b;
    default: return (uint64_t)a + (uint64_t)b;
  }
}

static int64_t divide(int type, int64_t sum, int n) {
  if (type == U64) return (uint64_t)sum / n;
  char wrapped[8];
  write_int(type, wrapped, 0, sum);
  return read_int(type, wrapped, 0) / n;
}

void fake_scale(int type, char *p, size_t n, const char *scalar) {
  for (size_t i = 0; i < n; i++)
    if (type >= F16)
      write_float(type, p, i, read_float(type, p, i) * read_float(type, scalar, 0));
    else
      write_int(type, p, i, (uint64_t)read_int(type, p, i) * (uint64_t)read_int(type, scalar, 0));
}

void fake_reduce(int ranks, char *dst, char **src, struct task *t) {
  int floats = t->type >= F16;
  char tmp[8];
  for (size_t i = 0; i < t->count; i++) {
    double f = 0;
    int64_t k = 0;
    for (int r = 0; r < ranks; r++) {
      if (!floats) {
        int64_t x = read_int(t->type, src[r], i);
        k = r ? combine_int(t->type, t->op, k, x) : x;
        continue;
      }
      double x = read_float(t->type, src[r], i);
      if (t->op == AVG) x *= 1.0 / ranks;
      // Partial results are rounded to the type.
      write_float(t->type, tmp, 0, r ? combine(t->op, f, x) : x);
      f = read_float(t->type, tmp, 0);
    }
    if (floats)
      write_float(t->type, dst, i, f);
    else
      write_int(t->type, dst, i, t->op == AVG ? divide(t->type, k, ranks) : k);
  }
}
