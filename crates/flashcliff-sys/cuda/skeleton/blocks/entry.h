// The kernels that form path products and take their gradients back, for the host.
#pragma once

#include "../../blocked.h"

namespace fc {

// What pull_back reads and writes besides the block.
struct PullBack {
  const void *products[FC_MAX_GRADES];
  void *grad_x, *grad_y;
};

// The kernels in one arithmetic.
struct BlockFunctions {
  const void *form[FC_MAX_GRADES];
  const void *pull_back;
};

}  // namespace fc

struct fc_block_kernels {
  const char *name;
  int grades;
  const fc::BlockFunctions *f32, *f64;
};

namespace fc {
// Ends with null.
const fc_block_kernels *const *blocks();
}  // namespace fc
