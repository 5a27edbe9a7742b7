// The kernels of path products, and their list.
#pragma once

#include "context.cuh"

namespace fc {

constexpr int kBlockThreads = 128;

template <class Algebra, class T, int Grade>
__global__ void __launch_bounds__(kBlockThreads) form_kernel(const __grid_constant__ fc_block a, void *products) {
  const int64_t lane = int64_t(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (lane >= a.rows * a.in) return;
  FormContext<Algebra, T> c(a, lane, products);
  Algebra::template form<Grade>(c);
}

template <class Algebra, class T>
__global__ void __launch_bounds__(kBlockThreads)
    pull_back_kernel(const __grid_constant__ fc_block a, const __grid_constant__ PullBack tensors) {
  const int64_t lane = int64_t(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (lane >= a.rows * a.in) return;
  PullBackContext<Algebra, T> c(a, lane, tensors);
  Algebra::pull_back(c);
}

template <class Algebra, class T, int Grade = 0>
void list_forms(BlockFunctions *functions) {
  if constexpr (Grade < Algebra::kGrades) {
    functions->form[Grade] = reinterpret_cast<const void *>(&form_kernel<Algebra, T, Grade>);
    list_forms<Algebra, T, Grade + 1>(functions);
  }
}

template <class Algebra, class T>
BlockFunctions block_functions() {
  static_assert(Algebra::kGrades <= FC_MAX_GRADES && Algebra::kPaths <= FC_MAX_PATHS, "the tables of fc_block are large enough");
  BlockFunctions functions = {};
  list_forms<Algebra, T>(&functions);
  functions.pull_back = reinterpret_cast<const void *>(&pull_back_kernel<Algebra, T>);
  return functions;
}

}  // namespace fc
