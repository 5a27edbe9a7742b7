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

}  // namespace fc
