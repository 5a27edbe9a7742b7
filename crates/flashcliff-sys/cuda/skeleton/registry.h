// Kernels as the host knows them, and their tables, some for each algebra. The list of tables is generated.
#pragma once

#include <atomic>

#include "../flashcliff.h"
#include "arguments.cuh"

namespace fc {

constexpr int kMaxDevices = 32;

}  // namespace fc

struct fc_kernel {
  // The upper and the lower half of the digest of the program.
  uint64_t digest[2];
  int is_f64;
  // Whether lanes do not depend on each other or on their channel: there are no rows and no parameters.
  int pointwise;
  // The variants. Null if there is none.
  const void *functions[FC_VARIANTS];
  fc::Shape shape;
  // The attributes of the compiled kernels, by device; 0 before the first use.
  mutable std::atomic<int> compiled[FC_VARIANTS][fc::kMaxDevices];
  // The last answer about clusters, by device; 0 before the first.
  mutable std::atomic<uint64_t> clusters[fc::kMaxDevices];
  // Whether the kernel takes rows of both widths, and tensors with their own strides.
  int walks;
  // Then the most tiles of the channels and of the scalar channels of a row; 0: any number.
  int tiles[2];
  // And the lane tensors with elements of the arithmetic type, as in `fc_call`.
  uint64_t wide;
};

namespace fc {

struct Table {
  const fc_kernel *kernels;
  int count;
};

// The list of tables. It ends with a table without kernels.
const Table *tables();

}  // namespace fc
