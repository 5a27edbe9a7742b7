// The kernels that form path products and take their gradients back, for the host.
#pragma once

#include "../../block.h"

namespace fc {

// The path products of each output grade, or their gradients.
struct PathProducts {
  void *of[FC_MAX_GRADES];
};

// The kernels of one variant, in the order of FC_BLOCK_WORKS. A pointer is null if there is no such kernel.
struct BlockFunctions {
  const void *form;
  const void *pull_back;
  const void *pull_back_and_form;  // in the place of the gradients
  // The kernels for scaled blocks. The first also finds the exponents of rows; the second lowers the exponents of sums.
  const void *scale_and_form;
  const void *scale_sums;
  const void *scale_sums_and_pull_back;
  int channels;  // a thread
};

// The kernels of one arithmetic, in the order of FC_BLOCK_VARIANTS: for any call, and for calls with all paths and aligned
// channels, by the type of the tensors. Scaled blocks, whose tensors are f32, have their own variants.
struct BlockVariants {
  BlockFunctions any, f32, bf16, f16, scaled_any, scaled;
};

constexpr int kBlockThreads = 128;

// The number of whole rows in a CTA, for rows of `groups` groups of channels.
inline __host__ __device__ int rows_of_cta(int groups) { return groups >= kBlockThreads ? 1 : kBlockThreads / groups; }

}  // namespace fc
