// The list of the kernels of path products, which is generated.
#pragma once

#include "../../fully_connected.h"
#include "entry.h"

struct fc_block_kernels {
  const char *name;
  int paths;
  const fc::BlockVariants *f32, *f64;
};

namespace fc {
// The list of the kernels of all algebras. It ends with null.
const fc_block_kernels *const *blocks();
}  // namespace fc
