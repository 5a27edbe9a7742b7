// Powers of two that bring f32 numbers into the range of 16-bit ones, found by the largest of them.
#pragma once

#include <stdint.h>

#include "lanes.cuh"

namespace fc {

// 2^exponent; 0 where that is too small for an f32, the largest power where it is too large.
FC_INLINE float power_of_two(int exponent) {
  if (exponent >= -126) return __uint_as_float(uint32_t(min(exponent, 127) + 127) << 23);
  return exponent >= -149 ? __uint_as_float(1u << (exponent + 149)) : 0.0f;
}

// The larger of two magnitudes, as bits, which are in the order of the numbers. Infinities and NaNs need no scale: they stay what
// they are.
FC_INLINE uint32_t larger(uint32_t magnitude, float a) {
  const uint32_t bits = __float_as_uint(a) & 0x7fffffffu;
  return bits < 0x7f800000u ? max(magnitude, bits) : magnitude;
}
template <int N>
FC_INLINE uint32_t larger(uint32_t magnitude, const Lanes<float, N> &a) {
  FC_EACH(N, magnitude = larger(magnitude, a.v[i]))
  return magnitude;
}

// The exponent of a normal power of two that brings magnitudes up to `largest` below 2^bound, and near it: half of it at
// least, or 2^127 times what they were. 2 <= bound <= 15.
FC_INLINE int exponent_below(int bound, uint32_t largest) {
  const int exponent = int(largest >> 23) - 127;  // largest < 2^(exponent + 1)
  return min(bound - 1 - exponent, 127);
}

// Below the largest f16, 65504.
constexpr int kScaledBound = 15;

// Of x and y, where gates are not small; and how many binary orders of magnitude gates that are small in a whole row may take
// from its path products.
constexpr int kXBound = 2, kYBound = 9, kMostGates = 64;

// The exponents of a sum over rows: such that a factor that undoes it exists.
constexpr int kLeastSum = -127, kMostSum = 120;

}  // namespace fc
