// The kernels of path products, and their list.
#pragma once

#include <type_traits>

#include "scales.cuh"

namespace fc {

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
  const auto form = [&](const Place &place, const auto &powers) {
    FormContext<Algebra, Variant, std::decay_t<decltype(powers)>> c(a, place, products, powers);
    Algebra::form(c);
  };
  if constexpr ((Work & kScalesRows) != 0) {
    using Rows = ScaledRows<Algebra, Variant>;
    __shared__ typename Rows::OfRow largest[kBlockThreads];
    const Rows rows(a, largest);
    rows.find();
    rows.walk([&](int row, const Place &place) { form(place, typename Rows::Powers(largest[row])); });
  } else {
    Place place;
    const bool exists = find_place<Variant::kChannels>(a, place);
    if constexpr ((Work & kScalesSums) != 0) scale_sums<Algebra, Variant>(a, place);
    if (!exists) return;
    if constexpr ((Work & kPullsBack) != 0) {
      PullBackContext<Algebra, Variant> c(a, place, products, grad_x, grad_y);
      Algebra::pull_back(c);
    }
    if constexpr ((Work & kForms) != 0 && Variant::kScales) form(place, SumPowers<Algebra, Variant>(a, place));
    if constexpr ((Work & kForms) != 0 && !Variant::kScales) form(place, NoPowers());
  }
}

// The number of channels that a thread of the wide kernels has: as many as registers can hold the blades of.
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
  // x and y are read again from a cache. For other types and larger algebras other work takes the time.
  if constexpr (type_bytes(Variant::kType) == 2 && Algebra::kBlades <= 16) {
    functions.pull_back_and_form = kernel(&block_kernel<Algebra, Variant, kPullsBack | kForms>);
  }
  if constexpr (Variant::kScales) {
    functions.scale_and_form = kernel(&block_kernel<Algebra, Variant, kScalesRows | kForms>);
    functions.scale_sums = kernel(&block_kernel<Algebra, Variant, kScalesSums>);
    functions.scale_sums_and_pull_back = kernel(&block_kernel<Algebra, Variant, kScalesSums | kPullsBack>);
  }
  functions.channels = Variant::kChannels;
  return functions;
}

template <class Algebra>
BlockVariants f32_variants() {
  constexpr int wide = wide_channels<Algebra>();
  BlockVariants variants = {};
  variants.any = functions_of<Algebra, Variant<float, 1, kAnyType, false>>();
  variants.f32 = functions_of<Algebra, Variant<float, wide, FC_F32, true>>();
  variants.bf16 = functions_of<Algebra, Variant<float, wide, FC_BF16, true>>();
  variants.f16 = functions_of<Algebra, Variant<float, wide, FC_F16, true>>();
  variants.scaled_any = functions_of<Algebra, Variant<float, 1, FC_F32, false, true>>();
  variants.scaled = functions_of<Algebra, Variant<float, wide, FC_F32, true, true>>();
  return variants;
}

template <class Algebra>
BlockVariants f64_variants() {
  BlockVariants variants = {};
  variants.any = functions_of<Algebra, Variant<double, 1, FC_F64, false>>();
  return variants;
}

}  // namespace fc
