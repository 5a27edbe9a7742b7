// The tables of kernels, one or more for each algebra; their list is generated.
#pragma once

#include "arguments.cuh"

namespace fc {

struct Table {
  const fc_kernel *kernels;
  int count;
};

// The list of tables. It ends with a table without kernels.
const Table *tables();

}  // namespace fc
