// The kernels of the fully connected product of an algebra, for the host.
#pragma once

#include <atomic>

#include "../../fully_connected.h"

struct fc_product {
  static constexpr int kPrecisions = 3;
  static constexpr int kDevices = 32;
  const char *name;
  int blades, grades, paths;
  int parts;                // partial sums of squares of a row
  int forward_groups;
  int forward_batch_paths;  // of a batch, the most
  int weights_groups;
  int operands_blades, operands_paths;  // of a group, the most
  // By blade, by part and by group.
  int (*grade_of)(int);
  int (*part_grade)(int);
  int (*weights_operands)(int);
  int (*weights_blades)(int);
  const void *forward[kPrecisions], *weights[kPrecisions], *operands[kPrecisions];
  // What is known of the kernels of a precision, by device; 0 before the first use.
  mutable std::atomic<int> ready[kPrecisions][kDevices];
};

namespace fc {
// Ends with null.
const fc_product *const *products();
}  // namespace fc
