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
  const void *form_transposed;
  const void *pull_back;
  int channels;  // a thread
};

// The kernels of one arithmetic: for any call, and for those with all paths and aligned channels, by the bytes of an element.
struct BlockVariants {
  BlockFunctions any, bytes_4, bytes_2;
};

constexpr int kBlockThreads = 128;

// The rows and groups of channels that a CTA of `form_transposed` has: a warp takes its rows, and a group.
constexpr int kTransposedRows = 32;
constexpr int kTransposedGroups = kBlockThreads / kTransposedRows;

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
