// The powers of two of rows of path products, found by what the rows hold.
#pragma once

#include "context.cuh"

namespace fc {

// The largest magnitudes of a row, as bits.
struct RowLargest {
  uint32_t x, y;
  // The exponents of x, y and the gates of one channel, added up, and 1; 0: nothing but zeros.
  uint32_t product;

  FC_INLINE void add(uint32_t of_x, uint32_t of_y, uint32_t of_gates) {
    x = max(x, of_x);
    y = max(y, of_y);
    if (of_x != 0 && of_y != 0 && of_gates != 0) product = max(product, (of_x >> 23) + (of_y >> 23) + (of_gates >> 23) + 1);
  }

  // What brings x near 1, and its products with y and the gates below 2^kScaledBound.
  FC_INLINE RowScale scale() const {
    const int of_x = exponent_below(kXBound, x);
    // Each factor is below 2^(its exponent + 1), 127 is in each that is added up, and up to 16 products are a path product.
    const int of_products = kScaledBound - 4 - 3 - (int(product) - 1 - 3 * 127);
    // Products without their gates stay in the range of f32.
    const int most = min(exponent_below(kYBound, y), 127 - kMostGates) + kMostGates;
    return {of_x, product == 0 ? most : min(of_products - of_x, most)};
  }
};

// The rows of a CTA that finds their scales: some short ones, or a part of a long one, of which it still reads all.
template <class Algebra, class Variant>
struct ScaledRows {
  using T = typename Variant::T;
  static constexpr int kChannels = Variant::kChannels;
  using V = Lanes<T, kChannels>;

  const fc_block &a;
  int groups, rows, part;
  int64_t first;
  RowLargest (&largest)[kBlockThreads];  // by row

  FC_INLINE ScaledRows(const fc_block &block, RowLargest (&shared)[kBlockThreads])
      : a(block), groups(int(block.in / kChannels)), largest(shared) {
    const ScaledGrid grid(groups);
    part = grid.parts == 1 ? 0 : blockIdx.x % grid.parts;
    first = int64_t(blockIdx.x) / grid.parts * grid.rows;
    rows = int(a.rows - first < grid.rows ? a.rows - first : grid.rows);
  }

  // Row of the CTA and place of its i-th group.
  FC_INLINE int row_of(int i) const { return rows == 1 ? 0 : i / groups; }
  FC_INLINE Place place_of(int row, int i) const { return {first + row, int64_t(i - row * groups) * kChannels}; }

  // f(row of the CTA, place) for the place of a thread, if it has one.
  template <class F>
  FC_INLINE void at_place(F &&f) const {
    const int i = part * kBlockThreads + threadIdx.x;
    if (i >= rows * groups) return;
    const int row = row_of(i);
    f(row, place_of(row, i));
  }

  // By all threads, once. What is read here is read again from the nearest cache.
  FC_INLINE void find() const {
    largest[threadIdx.x] = {};
    __syncthreads();
    const bool whole_warps = groups % 32 == 0;
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * groups; i += kBlockThreads) {
      const int row = row_of(i);
      RowLargest own = look(place_of(row, i));
      if (whole_warps) own = {__reduce_max_sync(~0u, own.x), __reduce_max_sync(~0u, own.y), __reduce_max_sync(~0u, own.product)};
      if (!whole_warps || threadIdx.x % 32 == 0) {
        atomicMax(&largest[row].x, own.x);
        atomicMax(&largest[row].y, own.y);
        atomicMax(&largest[row].product, own.product);
      }
    }
    __syncthreads();
    if (part == 0 && threadIdx.x < rows) {
      const RowScale scale = of(threadIdx.x);
      a.scales.rows[first + threadIdx.x] = scale.x;
      a.scales.rows[a.rows + first + threadIdx.x] = scale.y;
    }
  }

  FC_INLINE RowScale of(int row) const { return largest[row].scale(); }

  // Lowers the exponent of sums over rows to what the rows of the CTA allow.
  FC_INLINE void lower_sum() const {
    // A row without path products allows any.
    if (part > 0 || threadIdx.x >= rows || largest[threadIdx.x].product == 0) return;
    const RowScale scale = of(threadIdx.x);
    int exponent = kMostSum;
    for (int grade = 0; grade < Algebra::kGrades; grade++) {
      if (a.result[grade] < 0) continue;
      exponent = min(exponent, scale.x + scale.y + a.scales.grads[grade * a.rows + first + threadIdx.x]);
    }
    // The least of all is the same in any order.
    atomicMin(a.scales.sum, exponent);
  }

 private:
  // Of the channels of a place.
  FC_INLINE RowLargest look(const Place &place) const {
    const BlockContext<Algebra, Variant> c(a, place);
    const T *x = static_cast<const T *>(a.x) + c.lane, *y = static_cast<const T *>(a.y) + c.lane;
    RowLargest all = {};
    uint32_t of_x[kChannels] = {}, of_y[kChannels] = {};
    const auto add = [&](uint32_t (&to)[kChannels], const V &values) { FC_EACH(kChannels, to[i] = larger(to[i], values.v[i])) };
    if constexpr (Variant::kAll) {
      // All are on their way before the first is looked at.
      V from_x[Algebra::kBlades], from_y[Algebra::kBlades];
#pragma unroll
      for (int blade = 0; blade < Algebra::kBlades; blade++) {
        from_x[blade] = load_lanes<T, T, kChannels>(x + blade * c.blade, FC_F32);
        from_y[blade] = load_lanes<T, T, kChannels>(y + blade * c.blade, FC_F32);
      }
#pragma unroll
      for (int blade = 0; blade < Algebra::kBlades; blade++) {
        add(of_x, from_x[blade]);
        add(of_y, from_y[blade]);
      }
    } else {
      for (int blade = 0; blade < blades_of(a.left); blade++) add(of_x, load_lanes<T, T, kChannels>(x + blade * c.blade, FC_F32));
      for (int blade = 0; blade < blades_of(a.right); blade++) add(of_y, load_lanes<T, T, kChannels>(y + blade * c.blade, FC_F32));
    }
    FC_EACH(kChannels, all.add(of_x[i], of_y[i], larger(0, c.f[0].v[i])))
    return all;
  }

  FC_INLINE int blades_of(const int8_t (&places)[FC_MAX_GRADES]) const {
    int blades = 0;
    for (int grade = 0; grade < FC_MAX_GRADES; grade++) blades += places[grade] >= 0 ? a.blades[grade] : 0;
    return blades;
  }
};

}  // namespace fc
