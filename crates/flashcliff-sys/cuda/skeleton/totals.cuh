// Combines the values that the threads of a CTA have found.
#pragma once

#include "lanes.cuh"

namespace fc {

// The total of a CTA of `Warps` warps, in all of its threads; for one warp, the total of that warp. All threads call it, once
// in a kernel. T has of_warp(), the total of the threads of a warp, and add(other).
template <int Warps, class T>
FC_INLINE T total_of(T own) {
  own = own.of_warp();
  if constexpr (Warps > 1) {
    __shared__ T of_warps[Warps];
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
    __syncthreads();
    own = of_warps[0];
#pragma unroll
    for (int warp = 1; warp < Warps; warp++) own.add(of_warps[warp]);
  }
  return own;
}

}  // namespace fc
