// What the kernels of optimisers share: arithmetic that rounds as the CPU does, the parts of a launch, sums of squares.
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

// The first CTA of each of up to N tensors; the number after the last is the number of all CTAs.
template <int N>
struct StartsOf {
  uint32_t at[N + 1];
};

// The CTAs of `count` tensors, with so many elements each; false if there are too many. `count_of` says how many a tensor has.
template <int N, class Tensor, class CountOf>
bool starts_of(const Tensor *tensors, int count, CountOf count_of, int64_t elements, StartsOf<N> *starts) {
  int64_t ctas = 0;
  for (int i = 0; i <= count; i++) {
    if (ctas > 0x7fffffff) return false;
    starts->at[i] = uint32_t(ctas);
    if (i < count) ctas += (count_of(tensors[i]) + elements - 1) / elements;
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

}  // namespace
}  // namespace fc
