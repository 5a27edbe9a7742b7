// The powers of two of path products: of a row and output grade, or of a path in all rows. They are found by forming the
// products without storing them. So they follow the actual numbers, not bounds of them.
#pragma once

#include "context.cuh"

namespace fc {

// ---- powers by row and grade, so that an output is a sum of numbers of one scale ----

// The rows of a CTA, with their largest path products.
template <class Algebra, class Variant>
struct ScaledRows {
  static constexpr int kGrades = Algebra::kGrades;
  using OfRow = Largest[kGrades];

  // Finds the largest product of each path, at the entry of its grade.
  struct Look : BlockContext<Algebra, Variant> {
    using typename BlockContext<Algebra, Variant>::V;
    OfRow largest = {};

    FC_INLINE Look(const fc_block &block, const Place &place) : BlockContext<Algebra, Variant>(block, place) {}

    template <int Path, int K>
    FC_INLINE void store(const V (&values)[K]) {
      largest[Algebra::output(Path)].add(values);
    }
  };

  // The powers of two of a row.
  struct Powers {
    float of_grade[kGrades];

    FC_INLINE explicit Powers(const OfRow &largest) {
#pragma unroll
      for (int grade = 0; grade < kGrades; grade++) of_grade[grade] = normal_power(largest[grade].scale());
    }

    template <int Path, class V>
    FC_INLINE V scaled(const V &values) const {
      return values * of_grade[Algebra::output(Path)];
    }
  };

  const fc_block &a;
  int groups, rows;
  int64_t first;
  OfRow *largest;  // of the rows of the CTA

  FC_INLINE ScaledRows(const fc_block &block, OfRow (&shared)[kBlockThreads])
      : a(block), groups(int(block.in / Variant::kChannels)), largest(shared) {
    const int most = rows_of_cta(groups);
    first = int64_t(blockIdx.x) * most;
    rows = int(a.rows - first < most ? a.rows - first : most);
  }

  // Calls f(row of the CTA, place) for all places of a thread.
  template <class F>
  FC_INLINE void walk(F &&f) const {
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * groups; i += kBlockThreads) {
      const int row = rows == 1 ? 0 : i / groups;
      f(row, {first + row, int64_t(i - row * groups) * Variant::kChannels});
    }
  }

  // Finds the largest products. All threads call it, once. The values that it reads are read again from a cache.
  FC_INLINE void find() const {
    for (int grade = 0; grade < kGrades; grade++) largest[threadIdx.x][grade] = {};
    __syncthreads();
    const bool whole_warps = groups % 32 == 0;
    walk([&](int row, const Place &place) {
      Look look(a, place);
      Algebra::form(look);
#pragma unroll
      for (int grade = 0; grade < kGrades; grade++) {
        const Largest own = whole_warps ? look.largest[grade].of_warp() : look.largest[grade];
        if (!whole_warps || threadIdx.x % 32 == 0) atomicMax(&largest[row][grade].order, own.order);
      }
    });
    __syncthreads();
    for (int i = threadIdx.x; i < rows * kGrades; i += kBlockThreads) {
      const int row = i / kGrades, grade = i % kGrades;
      a.scales.rows[grade * a.rows + first + row] = largest[row][grade].scale();
    }
  }
};

// ---- powers by path: the gradient of its weights is a sum over all rows, of its products times the gradient of the product
// ----

// Finds the exponents of sums that the places of a warp allow.
template <class Algebra, class Variant>
struct LookAtSums : BlockContext<Algebra, Variant> {
  using typename BlockContext<Algebra, Variant>::V;
  int grad_scales[Algebra::kGrades];
  int (&least)[Algebra::kPaths];

  FC_INLINE LookAtSums(const fc_block &block, const Place &place, int (&of_warp)[Algebra::kPaths])
      : BlockContext<Algebra, Variant>(block, place), least(of_warp) {
    find_grad_scales<Variant>(block, place, grad_scales);
  }

  template <int Path, int K>
  FC_INLINE void store(const V (&values)[K]) {
    Largest largest = {};
    largest.add(values);
    // Zeros allow any exponent.
    const int own = largest.is_zero() ? 2 * kMostScale : largest.scale() + grad_scales[Algebra::output(Path)];
    const int of_warp = __reduce_min_sync(~0u, own);
    if (threadIdx.x % 32 == 0) least[Path] = of_warp;
  }
};

// Lowers the exponents of sums to those that the places of a CTA's threads allow. All threads call it, once; some may have the
// same place as another.
template <class Algebra, class Variant>
FC_INLINE void scale_sums(const fc_block &a, const Place &place) {
  constexpr int kWarps = kBlockThreads / 32;
  __shared__ int least[kWarps][Algebra::kPaths];
  LookAtSums<Algebra, Variant> look(a, place, least[threadIdx.x / 32]);
  Algebra::form(look);
  __syncthreads();
  for (int path = threadIdx.x; path < Algebra::kPaths; path += kBlockThreads) {
    if (!look.has(path)) continue;
    int of_all = least[0][path];
    for (int warp = 1; warp < kWarps; warp++) of_all = min(of_all, least[warp][path]);
    // The minimum is the same in any order.
    if (of_all < a.scales.sums[path]) atomicMin(&a.scales.sums[path], of_all);
  }
}

// The powers of two of a row, by which its path products times its gradient get the scales of the sums.
template <class Algebra, class Variant>
struct SumPowers {
  const fc_block &a;
  int grad_scales[Algebra::kGrades];

  FC_INLINE SumPowers(const fc_block &block, const Place &place) : a(block) {
    find_grad_scales<Variant>(block, place, grad_scales);
  }

  template <int Path, class V>
  FC_INLINE V scaled(const V &values) const {
    // Only zeros allow larger powers. The next larger power would be infinite, and infinity times zero is NaN.
    return values * normal_power(min(a.scales.sums[Path] - grad_scales[Algebra::output(Path)], kMostScale));
  }
};

}  // namespace fc
