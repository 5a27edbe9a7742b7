// Products of fragments on tensor cores: m16n8k8 of TF32.
//
// With g = lane / 4 and t = lane % 4, A holds (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4), B holds (t, g), (t + 4, g), and C holds
// (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
#pragma once

#include "skeleton/lanes.cuh"

namespace fc {
namespace {

// The place of a thread in a fragment.
struct Lane {
  int g, t;
  FC_INLINE Lane() : g(int(threadIdx.x) % 32 / 4), t(int(threadIdx.x) % 4) {}
};

// Over the four lanes of a row.
FC_INLINE float larger_of_four(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

FC_INLINE float sum_of_four(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// 2^x, where what is too small for a normal number is 0.
FC_INLINE float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

FC_INLINE float rounded(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
}

// A factor of a product: rounded to TF32, and what that loses if the product is exact.
template <bool Exact, int N>
struct Factor {
  float high[N], low[Exact ? N : 1];
  FC_INLINE void set(int i, float x) {
    high[i] = rounded(x);
    if constexpr (Exact) low[i] = rounded(x - high[i]);
  }
  // A number of shared memory. Tensor cores leave out the bits that TF32 lacks.
  FC_INLINE void read(int i, float x) {
    if constexpr (Exact) {
      set(i, x);
    } else {
      high[i] = x;
    }
  }
};

FC_INLINE void multiply(float (&sum)[4], const float (&a)[4], const float (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
        "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

// The same of half as many summands: A holds (g, t), (g + 8, t), B holds (t, g).
FC_INLINE void multiply(float (&sum)[4], const float (&a)[2], const float (&b)[1]) {
  asm("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(b[0])));
}

template <bool Exact, int N>
FC_INLINE void multiply(float (&sum)[4], const Factor<Exact, N> &a, const Factor<Exact, N / 2> &b) {
  if constexpr (Exact) {
    multiply(sum, a.low, b.high);
    multiply(sum, a.high, b.low);
  }
  multiply(sum, a.high, b.high);
}

}  // namespace
}  // namespace fc
