// Element types that are stored, added up and rounded.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../flashcliff.h"

namespace fc {

// The element type behind a pointer type.
template <class P> struct Pointee;
template <class T> struct Pointee<T *> { using Type = T; };

// The type in which elements are added up.
template <class T> struct Accumulator { using Type = float; };
template <> struct Accumulator<double> { using Type = double; };

__device__ inline float widen(float a) { return a; }
__device__ inline double widen(double a) { return a; }
__device__ inline float widen(__nv_bfloat16 a) { return __bfloat162float(a); }
__device__ inline float widen(__half a) { return __half2float(a); }

__device__ inline void narrow(float a, float *to) { *to = a; }
__device__ inline void narrow(double a, double *to) { *to = a; }
__device__ inline void narrow(float a, __nv_bfloat16 *to) { *to = __float2bfloat16_rn(a); }
__device__ inline void narrow(float a, __half *to) { *to = __float2half_rn(a); }

// Calls f with null pointers of both element types, if the one may be rounded to the other.
template <class F>
int with_rounding(fc_dtype from, fc_dtype to, F &&f) {
  const auto same = [&](auto *type) { return f(type, type); };
  float *const f32 = nullptr;
  __nv_bfloat16 *const bf16 = nullptr;
  __half *const f16 = nullptr;
  if (from == FC_F32 && to == FC_BF16) return f(f32, bf16);
  if (from == FC_F32 && to == FC_F16) return f(f32, f16);
  if (from != to) return FC_ERROR_BAD_CALL;
  switch (from) {
    case FC_F32: return same(f32);
    case FC_F64: return same(static_cast<double *>(nullptr));
    case FC_BF16: return same(bf16);
    case FC_F16: return same(f16);
    default: return FC_ERROR_BAD_CALL;
  }
}

}  // namespace fc
