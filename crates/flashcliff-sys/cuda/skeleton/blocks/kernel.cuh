// The kernels of path products.
#pragma once

#include "scales.cuh"

namespace fc {

// The type behind a reference to a constant.
template <class T> struct Plain;
template <class T> struct Plain<const T &> { using Type = T; };

// Finds the place of a thread. Neighbours take neighbouring channels. Threads that are left over get the last place, and the
// result false.
template <int Channels>
FC_INLINE bool find_place(const fc_block &a, Place &place) {
  const int64_t own = int64_t(blockIdx.x) * kBlockThreads + threadIdx.x, groups = a.in / Channels, last = a.rows * groups - 1;
  const int64_t group = own < last ? own : last;
  if (last <= 0x7fffffff) {
    const uint32_t row = uint32_t(group) / uint32_t(groups);
    place = {int64_t(row), int64_t(uint32_t(group) - row * uint32_t(groups)) * Channels};
  } else {
    place = {group / groups, group % groups * Channels};
  }
  return own <= last;
}

// The work of a kernel at its rows, in this order.
enum BlockWork {
  kScalesRows = 1,  // of path products
  kScalesSums = 2,  // over rows
  kPullsBack = 4,   // the gradients of path products
  kForms = 8,       // path products
};

// The smallest number of CTAs that share the registers of a multiprocessor; 0 leaves it to the compiler.
template <class Algebra>
constexpr int least_ctas(int work) {
  if (work & kPullsBack) return Algebra::kBlades <= 8 ? 3 : 2;
  return work & kScalesRows ? Algebra::kBlades <= 8 ? 4 : 3 : 0;
}

template <class Algebra, class Variant, int Work>
__global__ void __launch_bounds__(kBlockThreads, least_ctas<Algebra>(Work))
    block_kernel(const __grid_constant__ fc_block a, const __grid_constant__ PathProducts products, void *grad_x, void *grad_y) {
  using Operands = BlockContext<Algebra, Variant>;
  const auto form = [&](const Operands &operands, const auto &powers) {
    FormContext<Algebra, Variant, typename Plain<decltype(powers)>::Type> c(operands, products, powers);
    Algebra::form(c);
  };
  if constexpr ((Work & kScalesRows) != 0) {
    using Rows = ScaledRows<Algebra, Variant>;
    __shared__ typename Rows::OfRow largest[kBlockThreads];
    const Rows rows(a, largest);
    rows.find();
    rows.walk([&](int row, const Place &place) { form(Operands(a, place), typename Rows::Powers(largest[row])); });
  } else {
    Place place;
    const bool exists = find_place<Variant::kChannels>(a, place);
    if constexpr ((Work & kScalesSums) != 0) scale_sums<Algebra, Variant>(a, place);
    if (!exists) return;
    if constexpr ((Work & kPullsBack) != 0) {
      PullBackContext<Algebra, Variant> c(a, place, products, grad_x, grad_y);
      Algebra::pull_back(c);
      // The gates are the same.
      if constexpr ((Work & kForms) != 0) form(c, NoPowers());
    } else if constexpr ((Work & kForms) != 0) {
      if constexpr (Variant::kScales) form(Operands(a, place), SumPowers<Algebra, Variant>(a, place));
      else form(Operands(a, place), NoPowers());
    }
  }
}

// The number of channels that a thread of the wide kernels has: as many as registers can hold the blades of.
template <class Algebra>
constexpr int wide_channels() {
  return Algebra::kBlades <= 8 ? 4 : Algebra::kBlades <= 16 ? 2 : 1;
}

}  // namespace fc
