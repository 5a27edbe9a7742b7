// Entries of the list of kernels of path products.
#pragma once

#include "kernel.cuh"
#include "registry.h"

namespace fc {

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
