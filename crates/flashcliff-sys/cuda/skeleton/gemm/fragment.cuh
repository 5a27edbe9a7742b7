// The part of a matrix operand that a thread holds: a few numbers, and their arithmetic.
#pragma once

#include "../lanes.cuh"

// A function from an index to a number, for generated tables.
#define FC_TABLE(name, ...)                                  \
  __host__ __device__ static constexpr int name(int index) { \
    constexpr int numbers[] = {__VA_ARGS__};                 \
    return numbers[index];                                   \
  }

namespace fc {
namespace gemm {

template <int N>
struct Fragment {
  static constexpr int kCount = N;
  float v[N];
};

template <int N>
FC_INLINE Fragment<N> product(const Fragment<N> &a, const Fragment<N> &b) {
  Fragment<N> r;
  FC_EACH(N, r.v[i] = a.v[i] * b.v[i])
  return r;
}

template <int N>
FC_INLINE Fragment<N> minus_product(const Fragment<N> &a, const Fragment<N> &b) {
  Fragment<N> r;
  FC_EACH(N, r.v[i] = -a.v[i] * b.v[i])
  return r;
}

// sum += a b
template <int N>
FC_INLINE void add(Fragment<N> &sum, const Fragment<N> &a, const Fragment<N> &b) {
  FC_EACH(N, sum.v[i] = fmaf(a.v[i], b.v[i], sum.v[i]))
}

// sum -= a b
template <int N>
FC_INLINE void subtract(Fragment<N> &sum, const Fragment<N> &a, const Fragment<N> &b) {
  FC_EACH(N, sum.v[i] = fmaf(-a.v[i], b.v[i], sum.v[i]))
}

template <class V>
FC_INLINE V zero() {
  V r;
  FC_EACH(V::kCount, r.v[i] = 0.0f)
  return r;
}

}  // namespace gemm
}  // namespace fc
