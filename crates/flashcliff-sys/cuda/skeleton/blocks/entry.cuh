// The kernels of path products, and their list.
#pragma once

#include "scaled_rows.cuh"

namespace fc {

// Neighbours take neighbouring channels.
template <int Channels>
FC_INLINE bool find_place(const fc_block &a, Place &place) {
  const int64_t group = int64_t(blockIdx.x) * kBlockThreads + threadIdx.x, groups = a.in / Channels;
  if (group >= a.rows * groups) return false;
  if (a.rows * groups <= 0x7fffffff) {
    const uint32_t row = uint32_t(group) / uint32_t(groups);
    place = {int64_t(row), int64_t(uint32_t(group) - row * uint32_t(groups)) * Channels};
  } else {
    place = {group / groups, group % groups * Channels};
  }
  return true;
}

// What a kernel does at its rows, in this order.
enum BlockWork {
  kFinds = 1,      // their scales
  kPullsBack = 2,  // the gradients of path products
  kForms = 4,      // path products
};

// The CTAs that share the registers of a multiprocessor at the least, 0: as the compiler likes.
template <class Algebra>
constexpr int least_ctas(int work) {
  return work & kPullsBack ? (Algebra::kBlades <= 8 ? 3 : 2) : 0;
}

template <class Algebra, class Variant, int Work>
__global__ void __launch_bounds__(kBlockThreads, least_ctas<Algebra>(Work))
    block_kernel(const __grid_constant__ fc_block a, const __grid_constant__ PathProducts products, void *grad_x, void *grad_y) {
  const auto pull_back = [&](const Place &place) {
    if constexpr ((Work & kPullsBack) != 0) {
      PullBackContext<Algebra, Variant> c(a, place, products, grad_x, grad_y);
      Algebra::pull_back(c);
    }
  };
  if constexpr ((Work & kFinds) != 0) {
    __shared__ RowLargest largest[kBlockThreads];
    const ScaledRows<Algebra, Variant> rows(a, largest);
    rows.find();
    if constexpr ((Work & kForms) == 0) rows.lower_sum();
    rows.at_place([&](int row, const Place &place) {
      pull_back(place);
      if constexpr ((Work & kForms) != 0) {
        FormContext<Algebra, Variant, false> c(a, place, products, rows.of(row));
        Algebra::form(c);
      }
    });
  } else {
    Place place;
    if (!find_place<Variant::kChannels>(a, place)) return;
    pull_back(place);
    if constexpr ((Work & kForms) != 0) {
      FormContext<Algebra, Variant, Variant::kScales> c(a, place, products, row_scale<Variant>(a, place.row));
      Algebra::form(c);
    }
  }
}

// The channels that a thread of the wide kernels has: as many as registers hold the blades of.
template <class Algebra>
constexpr int wide_channels() {
  return Algebra::kBlades <= 8 ? 4 : Algebra::kBlades <= 16 ? 2 : 1;
}

template <class Algebra, class Variant>
BlockFunctions functions_of() {
  static_assert(Algebra::kGrades <= FC_MAX_GRADES && Algebra::kPaths <= FC_MAX_PATHS, "the tables of fc_block are large enough");
  BlockFunctions functions = {};
  const auto kernel = [](auto *function) { return reinterpret_cast<const void *>(function); };
  functions.form = kernel(&block_kernel<Algebra, Variant, kForms>);
  functions.pull_back = kernel(&block_kernel<Algebra, Variant, kPullsBack>);
  if constexpr (Variant::kScales) {
    functions.find = kernel(&block_kernel<Algebra, Variant, kFinds>);
    functions.find_and_form = kernel(&block_kernel<Algebra, Variant, kFinds | kForms>);
    functions.find_and_pull_back = kernel(&block_kernel<Algebra, Variant, kFinds | kPullsBack>);
  }
  functions.channels = Variant::kChannels;
  return functions;
}

template <class Algebra>
BlockVariants f32_variants() {
  constexpr int wide = wide_channels<Algebra>();
  return {functions_of<Algebra, Variant<float, 1, 0, false>>(), functions_of<Algebra, Variant<float, wide, 4, true>>(),
          functions_of<Algebra, Variant<float, wide, 2, true>>(), functions_of<Algebra, Variant<float, 1, 4, false, true>>(),
          functions_of<Algebra, Variant<float, wide, 4, true, true>>()};
}

template <class Algebra>
BlockVariants f64_variants() {
  return {functions_of<Algebra, Variant<double, 1, 8, false>>(), {}, {}, {}, {}};
}

}  // namespace fc
