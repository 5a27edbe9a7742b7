// Tiles in shared memory, brought there asynchronously: rows of 8 words, of which eight neighbours fill all banks once.
#pragma once

#include "../memory.cuh"
#include "problem.cuh"

namespace fc {
namespace gemm {

// Copies 16 bytes, or zeros.
FC_INLINE void copy_or_zero(uint32_t to, const void *from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)),
               "r"(exists ? 16 : 0)
               : "memory");
}

FC_INLINE void copy_16(uint32_t to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(__cvta_generic_to_global(from)) : "memory");
}

// 16 bytes of a row that is not aligned or ends within them: `left` bytes of it remain.
template <class Word>
__device__ __noinline__ void copy_ragged(uint32_t to, const char *from, int left) {
  constexpr int kCount = 16 / int(sizeof(Word));
#pragma unroll 1
  for (int i = 0; i < kCount; i++) {
    const Word word = (i + 1) * int(sizeof(Word)) <= left ? reinterpret_cast<const Word *>(from)[i] : Word(0);
    if constexpr (sizeof(Word) == 4) {
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + i * 4), "r"(__float_as_uint(word)) : "memory");
    } else {
      asm volatile("st.shared.b16 [%0], %1;" ::"r"(to + i * 2), "h"(word) : "memory");
    }
  }
}

FC_INLINE void load_shared(uint32_t address, uint32_t (&w)[2]) {
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "r"(address));
}
FC_INLINE void load_shared(uint32_t address, uint32_t (&w)[4]) {
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(address));
}
FC_INLINE uint32_t load_shared_word(uint32_t address) {
  uint32_t w;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(w) : "r"(address));
  return w;
}

// ---- results ----

// How far the rows of a warp's results are apart in shared memory, in floats.
constexpr int kResultPitch = kWarpColumns + 4;
constexpr int kResultBytes = kWarpRows * kResultPitch * 4;

// Copies `rows` rows (every `step`-th of a warp's results) of up to 64 columns to memory, f32.
inline __device__ __noinline__ void write_results(const float *from, float *to, int rows, int columns, int64_t pitch) {
  const int lane = threadIdx.x % 32;
  const bool wide = columns == kWarpColumns && (reinterpret_cast<uintptr_t>(to) | uintptr_t(pitch * 4)) % 16 == 0;
  if (wide) {
    for (int i = lane; i < rows * (kWarpColumns / 4); i += 32) {
      const int row = i / (kWarpColumns / 4), piece = i % (kWarpColumns / 4);
      *reinterpret_cast<float4 *>(to + row * pitch + piece * 4) =
          *reinterpret_cast<const float4 *>(from + row * kResultPitch + piece * 4);
    }
  } else {
    for (int i = lane; i < rows * kWarpColumns; i += 32) {
      const int row = i / kWarpColumns, column = i % kWarpColumns;
      if (column < columns) to[row * pitch + column] = from[row * kResultPitch + column];
    }
  }
}

// Places the sums of a warp, as the tensor cores leave them, in shared memory; row g and row g + 8 lie `top` and `bottom` floats
// from its beginning.
template <int Tiles>
FC_INLINE void place_results(float *to, const float (&sums)[Tiles][4], int top, int bottom) {
#pragma unroll
  for (int tile = 0; tile < Tiles; tile++) {
    *reinterpret_cast<float2 *>(to + top + tile * 8) = make_float2(sums[tile][0], sums[tile][1]);
    *reinterpret_cast<float2 *>(to + bottom + tile * 8) = make_float2(sums[tile][2], sums[tile][3]);
  }
}

}  // namespace gemm
}  // namespace fc
