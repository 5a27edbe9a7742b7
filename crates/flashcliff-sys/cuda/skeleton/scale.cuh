// Powers of two that bring f32 numbers into the range of 16-bit numbers, chosen by the largest of them.
#pragma once

#include <stdint.h>

#include "lanes.cuh"

namespace fc {

// Scaled numbers are below 2^kScaledBound, which is below the largest f16, 65504.
constexpr int kScaledBound = 15;
// The largest exponent of a scale, which zeros have.
constexpr int kMostScale = 127;

// 2^exponent; 0 if that is too small for an f32, the largest power if it is too large.
FC_INLINE float power_of_two(int exponent) {
  if (exponent >= -126) return __uint_as_float(uint32_t(min(exponent, 127) + 127) << 23);
  return exponent >= -149 ? __uint_as_float(1u << (exponent + 149)) : 0.0f;
}

// 2^exponent for exponents up to the largest; 0 below the normal range.
FC_INLINE float normal_power(int exponent) { return __int_as_float(max(exponent + 127, 0) << 23); }

// A power of two whose exponent is the sum of two exponents of f32.
struct TwoPowers {
  float first, second;

  FC_INLINE explicit TwoPowers(int exponent) : first(power_of_two(exponent / 2)), second(power_of_two(exponent - exponent / 2)) {}

  template <class V>
  FC_INLINE V of(const V &values) const {
    return values * first * second;
  }
};

// The largest magnitude of some numbers, as an integer in the order of the numbers: their bits plus the unit of the exponent.
// So infinities and NaNs are below 0; they need no scale and stay what they are. (Twice the bits, without the sign, would do
// too, but ptxas 13.0 moves that factor into a product of floats.)
struct Largest {
  static constexpr int kOfZero = 1 << 23;
  int order;  // 0: of nothing

  FC_INLINE void add(float a) { order = max(order, int((__float_as_uint(a) & 0x7fffffffu) + kOfZero)); }
  template <int N>
  FC_INLINE void add(const Lanes<float, N> &a) {
    FC_EACH(N, add(a.v[i]))
  }
  // Adds all values, or none if one is infinite: its neighbours may then overflow too.
  template <int N, int K>
  FC_INLINE void add(const Lanes<float, N> (&values)[K]) {
    float largest = 0;
#pragma unroll
    for (int k = 0; k < K; k++) FC_EACH(N, largest = fmaxf(largest, fabsf(values[k].v[i])))
    add(largest);
  }
  FC_INLINE void add(const Largest &other) { order = max(order, other.order); }
  // The largest of all threads of a warp, each of which calls this.
  FC_INLINE Largest of_warp() const { return {__reduce_max_sync(~0u, order)}; }

  FC_INLINE bool is_zero() const { return order <= kOfZero; }
  FC_INLINE float value() const { return is_zero() ? 0.0f : __int_as_float(order - kOfZero); }

  // The exponent of a normal power of two that brings all numbers below 2^kScaledBound. The largest number becomes at least
  // half of that, unless the exponent is at its limit of 127.
  FC_INLINE int scale() const {
    const int exponent = (max(order, kOfZero) >> 23) - 128;  // below 2^(exponent + 1)
    return min(kScaledBound - 1 - exponent, kMostScale);
  }
};

}  // namespace fc
