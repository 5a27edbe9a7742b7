// Products of rows in shared memory, by the fragments of a warp.
#pragma once

#include "attention_rows.cuh"
#include "tensor_cores.cuh"

namespace fc {
namespace {

constexpr int kOwn = 16;  // rows of a warp

// sums[n] = own . others of block n, over all features.
template <bool Exact, int Blocks>
FC_INLINE void dot_products(float (&sums)[Blocks][4], const Rows &own, const Rows &others) {
  const Lane lane;
  const float *a = own.at + (int(threadIdx.x) / 32 * kOwn + lane.g) * own.stride + lane.t;
  const float *b = others.at + lane.g * others.stride + lane.t;
#pragma unroll
  for (int n = 0; n < Blocks; n++) FC_EACH(4, sums[n][i] = 0;)
#pragma unroll 2
  for (int k = 0; k < own.width; k += kEight) {
    Factor<Exact, 4> x;
    x.read(0, a[k]);
    x.read(1, a[k + kEight * own.stride]);
    x.read(2, a[k + 4]);
    x.read(3, a[k + kEight * own.stride + 4]);
#pragma unroll
    for (int n = 0; n < Blocks; n++) {
      Factor<Exact, 2> y;
      y.read(0, b[n * kEight * others.stride + k]);
      y.read(1, b[n * kEight * others.stride + k + 4]);
      multiply(sums[n], x, y);
    }
  }
}

// sums += weights . others: the features of the others' rows, times one weight for each row. Columns after the features get what follows in
// shared memory, where no copy may be under way, and nobody reads them.
template <bool Exact, int Blocks, int Columns>
FC_INLINE void weighted_sums(float (&sums)[Columns][4], const float (&weights)[Blocks][4], const Rows &others) {
  const Lane lane;
#pragma unroll
  for (int n = 0; n < Blocks; n++) {
    Factor<Exact, 4> x;
    x.set(0, weights[n][0]);
    x.set(1, weights[n][2]);
    x.set(2, weights[n][1]);
    x.set(3, weights[n][3]);
    const float *b = others.at + (n * kEight + 2 * lane.t) * others.stride + lane.g;
#pragma unroll
    for (int column = 0; column < Columns; column++) {
      Factor<Exact, 2> y;
      y.read(0, b[column * kEight]);
      y.read(1, b[column * kEight + others.stride]);
      multiply(sums[column], x, y);
    }
  }
}

// Writes own rows, each times a factor.
template <class S, int Columns>
FC_INLINE void write(const float (&sums)[Columns][4], const float (&factors)[2], const fc_attention_tensor &to, const Span &span,
                     int start, int width, int dtype) {
  const Lane lane;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = start + int(threadIdx.x) / 32 * kOwn + lane.g + half * kEight;
    if (row >= span.rows) continue;
    S *features = span.template at<S>(to, row);
#pragma unroll
    for (int column = 0; column < Columns; column++) {
      const int at = column * kEight + 2 * lane.t;
      if (at >= width) break;
      const Lanes<float, 2> values = {{sums[column][2 * half] * factors[half], sums[column][2 * half + 1] * factors[half]}};
      store_lanes<S, float, 2>(features + at, values, dtype);
    }
  }
}

}  // namespace
}  // namespace fc
