// The kernels of path products, and their list.
#pragma once

#include "context.cuh"

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

// Neighbours take neighbouring rows.
template <int Channels>
FC_INLINE bool find_transposed_place(const fc_block &a, Place &place) {
  const int64_t tiles = (a.in / Channels + kTransposedGroups - 1) / kTransposedGroups;
  const int64_t row_tile = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  place.row = row_tile * kTransposedRows + threadIdx.x % kTransposedRows;
  place.channel = (tile * kTransposedGroups + threadIdx.x / kTransposedRows) * Channels;
  return place.row < a.rows && place.channel < a.in;
}

template <class Algebra, class Variant, bool Transposed>
__global__ void __launch_bounds__(kBlockThreads)
    form_kernel(const __grid_constant__ fc_block a, const __grid_constant__ PathProducts to) {
  Place place;
  constexpr int kChannels = Variant::kChannels;
  const bool exists = Transposed ? find_transposed_place<kChannels>(a, place) : find_place<kChannels>(a, place);
  if (!exists) return;
  FormContext<Algebra, Variant, Transposed> c(a, place, to);
  Algebra::form(c);
}

template <class Algebra, class Variant>
__global__ void __launch_bounds__(kBlockThreads)
    pull_back_kernel(const __grid_constant__ fc_block a, const __grid_constant__ PathProducts from, void *grad_x, void *grad_y) {
  Place place;
  if (!find_place<Variant::kChannels>(a, place)) return;
  PullBackContext<Algebra, Variant> c(a, place, from, grad_x, grad_y);
  Algebra::pull_back(c);
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
  functions.form = reinterpret_cast<const void *>(&form_kernel<Algebra, Variant, false>);
  // The only operands that are wanted transposed.
  if constexpr (Variant::kBytes == 0 || Variant::kBytes == 4) {
    functions.form_transposed = reinterpret_cast<const void *>(&form_kernel<Algebra, Variant, true>);
  }
  functions.pull_back = reinterpret_cast<const void *>(&pull_back_kernel<Algebra, Variant>);
  functions.channels = Variant::kChannels;
  return functions;
}

template <class Algebra>
BlockVariants f32_variants() {
  constexpr int wide = wide_channels<Algebra>();
  return {functions_of<Algebra, Variant<float, 1, 0, false>>(), functions_of<Algebra, Variant<float, wide, 4, true>>(),
          functions_of<Algebra, Variant<float, wide, 2, true>>()};
}

template <class Algebra>
BlockVariants f64_variants() {
  return {functions_of<Algebra, Variant<double, 1, 8, false>>(), {}, {}};
}

}  // namespace fc
