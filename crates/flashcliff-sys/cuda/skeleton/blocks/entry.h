// The kernels that form path products and take their gradients back, for the host.
#pragma once

#include "../../fully_connected.h"

namespace fc {

// The path products of each output grade, or their gradients.
struct PathProducts {
  void *of[FC_MAX_GRADES];
};

// Null where there is none.
struct BlockFunctions {
  const void *form;
  const void *pull_back;
  // Of scaled blocks.
  const void *find;
  const void *find_and_form;
  const void *find_and_pull_back;
  int channels;  // a thread
};

// The kernels of one arithmetic: for any call, and for those with all paths and aligned channels, by the bytes of an element;
// and the same for scaled blocks, whose tensors are f32.
struct BlockVariants {
  BlockFunctions any, bytes_4, bytes_2, scaled_any, scaled;
};

constexpr int kBlockThreads = 128;

// The CTAs that find the scales of rows of so many groups of channels: each has some rows, or there are parts of one.
struct ScaledGrid {
  int rows, parts;

  inline __host__ __device__ explicit ScaledGrid(int groups)
      : rows(groups >= kBlockThreads ? 1 : kBlockThreads / groups), parts((groups + kBlockThreads - 1) / kBlockThreads) {}
};

}  // namespace fc

struct fc_block_kernels {
  const char *name;
  int paths;
  const fc::BlockVariants *f32, *f64;
};

namespace fc {
// Ends with null.
const fc_block_kernels *const *blocks();
}  // namespace fc
