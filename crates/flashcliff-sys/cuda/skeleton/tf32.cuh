// Numbers as the tensor cores take them.
#pragma once

#include <stdint.h>

#include "lanes.cuh"

namespace fc {

// An f32 number to the nearest of TF32, to which the tensor cores would truncate it.
FC_INLINE float rounded_to_tf32(float a) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(a));
  return __uint_as_float(bits);
}
FC_INLINE double rounded_to_tf32(double a) { return a; }

// Scalars or lanes as operands of a matrix product, in TF32 or not. Selects for each channel by itself: one branch around all of
// them costs some kernels a third more registers.
template <class A>
FC_INLINE A rounded_to_tf32_if(bool tf32, const A &a) {
  return each(a, [=](auto v) { return tf32 ? rounded_to_tf32(v) : v; });
}

}  // namespace fc
