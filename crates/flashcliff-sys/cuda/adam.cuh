// The arithmetic of Adam, the same for all kernels: sums of squares, coefficients of a step, the update of an element.
#pragma once

#include <cuda_runtime.h>

#include "adam.h"

// Functions that a file may leave unused.
#define FC_ADAM static __device__ __forceinline__

namespace fc {
namespace {

constexpr int kThreads = 256;
// Elements of a CTA of the update. One thread has few, since the parameters of small networks must fill the GPU.
constexpr int kUpdate = 1024;

// Arithmetic that is rounded after each operation, as on the CPU: nothing is fused.
FC_ADAM float mul(float a, float b) { return __fmul_rn(a, b); }
FC_ADAM float add(float a, float b) { return __fadd_rn(a, b); }
FC_ADAM float sub(float a, float b) { return __fsub_rn(a, b); }
FC_ADAM float quotient(float a, float b) { return __fdiv_rn(a, b); }
FC_ADAM float root(float a) { return __fsqrt_rn(a); }
FC_ADAM double mul(double a, double b) { return __dmul_rn(a, b); }
FC_ADAM double add(double a, double b) { return __dadd_rn(a, b); }
FC_ADAM double sub(double a, double b) { return __dsub_rn(a, b); }
FC_ADAM double quotient(double a, double b) { return __ddiv_rn(a, b); }
FC_ADAM double root(double a) { return __dsqrt_rn(a); }

// The first CTA of each of up to N tensors; the number behind the last is that of all.
template <int N>
struct StartsOf {
  uint32_t at[N + 1];
};

// The CTAs of `count` tensors, with so many elements each; false if there are too many.
template <int N, class Tensor>
bool starts_of(const Tensor *tensors, int count, int64_t elements, StartsOf<N> *starts) {
  int64_t ctas = 0;
  for (int i = 0; i <= count; i++) {
    if (ctas > 0x7fffffff) return false;
    starts->at[i] = uint32_t(ctas);
    if (i < count) ctas += (tensors[i].count + elements - 1) / elements;
  }
  return true;
}

// The sum over a CTA, in a fixed order, for its first thread.
FC_ADAM double sum_over_cta(double value) {
  __shared__ double warps[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) value = add(value, __shfl_down_sync(0xffffffffu, value, offset));
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  double total = 0;
  if (threadIdx.x == 0) {
    for (int warp = 0; warp < kThreads / 32; warp++) total = add(total, warps[warp]);
  }
  return total;
}

// The sum of the squares of the elements of a CTA of FC_ADAM_BLOCK, in f64, for its first thread.
template <typename T>
FC_ADAM double sum_of_squares(const T *gradient, int64_t count, uint32_t cta) {
  const int64_t first = int64_t(cta) * FC_ADAM_BLOCK;
  const int64_t end = min(count, first + FC_ADAM_BLOCK);
  double sum = 0;
  for (int64_t i = first + threadIdx.x; i < end; i += kThreads) {
    const double g = gradient[i];
    sum = add(sum, mul(g, g));
  }
  return sum_over_cta(sum);
}

// A power by repeated squaring, as the CPU computes it: functions of libraries differ in the last bit.
FC_ADAM double power(double base, uint32_t exponent) {
  double result = 1;
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) result = mul(result, base);
    base = mul(base, base);
  }
  return result;
}

// The coefficients of a parameter at its step, counted from 1.
FC_ADAM fc_adam_coefficients coefficients_at(double beta1, double beta2, double decoupled_decay, double rate, uint32_t step) {
  fc_adam_coefficients own;
  own.step_size = quotient(rate, sub(1.0, power(beta1, step)));
  own.correction2 = root(sub(1.0, power(beta2, step)));
  own.keep = sub(1.0, mul(rate, decoupled_decay));
  return own;
}

// The numbers of a step of one parameter, in its type. The gradient has two factors, since their product may be too small for T.
template <typename T>
struct Numbers {
  T unscale, clip, decay, keep, gain1, beta2, gain2, correction2, eps, step_size;

  FC_ADAM Numbers of(double beta1, double beta2, double eps, double decay, const fc_adam_coefficients &own, double unscale,
                     double clip) {
    return {T(unscale),         T(clip), T(decay), T(own.keep), T(sub(1.0, beta1)), T(beta2), T(sub(1.0, beta2)),
            T(own.correction2), T(eps),  T(own.step_size)};
  }

  // Changes an element and its moments.
  __device__ __forceinline__ void apply(T &p, T gradient, T &m, T &v) const {
    const T g = add(mul(mul(gradient, unscale), clip), mul(decay, p));
    m = add(m, mul(gain1, sub(g, m)));
    v = add(mul(beta2, v), mul(mul(gain2, g), g));
    p = sub(mul(keep, p), mul(step_size, quotient(m, add(quotient(root(v), correction2), eps))));
  }
};

}  // namespace
}  // namespace fc
