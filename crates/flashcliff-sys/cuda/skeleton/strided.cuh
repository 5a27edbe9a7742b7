// What kernels on tensors with strides share: a row of channels, of scalar channels and of numbers of the row, and a few
// neighbouring threads that work on it.
//
// The rows of a CTA have equally many threads each, so that they meet in sums of their warps. A tile is the channels
// that these threads have at once, some neighbouring ones each.
#pragma once

#include "uniforms.cuh"
#include "walk.h"

namespace fc {

extern __shared__ __align__(16) unsigned char partial_sums[];

// Bytes is the size of an element of lanes. Wide has a bit for each tensor with elements of the arithmetic's type instead, as `fc_call`
// has them.
template <class P, class Scalar, int N, int Bytes, uint64_t Wide>
struct StridedRow {
  using T = Scalar;
  using V = Lanes<T, N>;
  static constexpr int kRowSums = P::kShape.row_sums;
  static constexpr int kReductions = P::kShape.reductions;
  static constexpr int kSums = P::kShape.sums;
  static constexpr int kOutputs = P::kShape.outputs;
  static constexpr int kTotals = P::kShape.totals;
  static __host__ __device__ constexpr int bytes_of_input(int at) { return Wide >> at & 1 ? int(sizeof(Scalar)) : Bytes; }
  static __host__ __device__ constexpr int bytes_of_output(int at) { return bytes_of_input(FC_FIRST_OUTPUT + at); }

  // Static members cannot be indexed in device code; constant expressions can.
  enum Of { kInputs, kParams, kOfSums };
  static __host__ __device__ constexpr int number(Of of) {
    constexpr Shape s = P::kShape;
    return of == kInputs ? s.inputs : of == kParams ? s.params : s.sums;
  }
  static __host__ __device__ constexpr int count(Of of, int at) {
    constexpr Shape s = P::kShape;
    return of == kInputs ? s.input_components[at] : of == kParams ? s.param_counts[at] : s.sum_counts[at];
  }
  static __host__ __device__ constexpr int width(Of of, int at) {
    constexpr Shape s = P::kShape;
    return (of == kInputs ? s.scalar_inputs : of == kParams ? s.scalar_params : s.scalar_sums) >> at & 1;
  }
  // The components of the tensors of a width that come before one.
  static __host__ __device__ constexpr int before(Of of, int at, int of_width) {
    int sum = 0;
    for (int i = 0; i < at; i++) sum += width(of, i) == of_width ? count(of, i) : 0;
    return sum;
  }
  static __host__ __device__ constexpr int place(Of of, int at) { return before(of, at, width(of, at)); }
  static __host__ __device__ constexpr int all(Of of, int of_width) { return before(of, number(of), of_width); }

  const Walk &a;
  Uniforms<T> u;
  int lane;     // which of the threads of its row
  int64_t row;
  bool active;  // the row exists
  T totals[kRowSums > 0 ? kRowSums : 1];
  T row_totals[kTotals > 0 ? kTotals : 1];

  FC_INLINE explicit StridedRow(const Walk &arguments) : a(arguments), u(arguments), row(0), active(false) {
    lane = int(threadIdx.x) % a.threads_per_row;
    u.valid = N;
  }

  FC_INLINE int step() const { return a.threads_per_row * N; }
  FC_INLINE bool adds() const { return kSums > 0 && (a.partials[0] != nullptr || a.partials[1] != nullptr); }

  FC_INLINE void select(int64_t wanted) {
    active = wanted < a.batch;
    row = active ? wanted : a.batch - 1;
#pragma unroll
    for (int k = 0; k < kRowSums; k++) totals[k] = T(0);
#pragma unroll
    for (int k = 0; k < kTotals; k++) row_totals[k] = T(0);
  }

  // ---- memory ----

  template <int Slot, int K>
  FC_INLINE void read(int64_t channel, V (&values)[K]) const {
    with_storage<T, bytes_of_input(Slot)>(a.lane_dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      const fc_strides strides = a.input_strides[Slot];
      const S *p = static_cast<const S *>(a.inputs[Slot]) + row * strides.batch + channel;
#pragma unroll
      for (int k = 0; k < K; k++, p += strides.component) values[k] = load_lanes<S, T, N>(p, a.lane_dtype);
    });
  }

  template <int Slot, int K>
  FC_INLINE void write(int64_t channel, const V (&values)[K]) const {
    if (!active || a.outputs[Slot] == nullptr) return;
    with_storage<T, bytes_of_output(Slot)>(a.lane_dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      const fc_strides strides = a.output_strides[Slot];
      S *p = static_cast<S *>(a.outputs[Slot]) + row * strides.batch + channel;
#pragma unroll
      for (int k = 0; k < K; k++, p += strides.component) store_lanes<S, T, N>(p, values[k], a.lane_dtype);
    });
  }

  FC_INLINE T saved(int k) const { return static_cast<const T *>(a.saved)[k * a.batch + row]; }

  // The number that the caller gives for the row.
  template <int Slot>
  FC_INLINE T row_value() const {
    T value = T(0);
    with_storage<T, bytes_of_input(Slot)>(a.lane_dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      value = widen(static_cast<const S *>(a.inputs[Slot])[row * a.input_strides[Slot].batch], a.lane_dtype);
    });
    return value;
  }

  template <int Total>
  FC_INLINE bool wants_total() const {
    return a.outputs[kOutputs + Total] != nullptr;
  }

  // ---- sums over a row ----

  // Adds up a row sum over the threads of the row.
  FC_INLINE void collect(int k, int place) {
    for (int d = a.threads_per_row / 2; d > 0; d /= 2) totals[k] += __shfl_xor_sync(~0u, totals[k], d);
    if (a.saved != nullptr && P::kShape.saved_sums == 0 && active && lane == 0) {
      static_cast<T *>(a.saved)[place * a.batch + row] = totals[k];
    }
  }

  // Adds up the totals over the threads of the row, and writes those that are wanted.
  template <int Total = 0>
  FC_INLINE void write_totals() const {
    if constexpr (Total < kTotals) {
      if (wants_total<Total>()) {
        T sum = row_totals[Total];
        for (int d = a.threads_per_row / 2; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
        if (active && lane == 0) {
          with_storage<T, bytes_of_output(kOutputs + Total)>(a.lane_dtype, [&](auto *type) {
            using S = typename Element<decltype(type)>::Type;
            S *const to = static_cast<S *>(a.outputs[kOutputs + Total]) + row * a.output_strides[kOutputs + Total].batch;
            *to = Narrow<S, T>::from(sum, a.lane_dtype);
          });
        }
      }
      write_totals<Total + 1>();
    }
  }

  // ---- sums over the batch, in shared memory ----

  FC_INLINE int64_t tiles(int width) const { return (a.channels[width] + step() - 1) / step(); }

  // The place of a sum of the first thread: [width][tile][sum][channel][thread].
  FC_INLINE T *slot(int width, int64_t tile, int sum, int i) const {
    const int64_t before = width == 0 ? 0 : tiles(0) * all(kOfSums, 0);
    const int64_t at = (before + tile * all(kOfSums, width) + sum) * N + i;
    return reinterpret_cast<T *>(partial_sums) + at * blockDim.x;
  }

  FC_INLINE int64_t slots() const { return (tiles(0) * all(kOfSums, 0) + tiles(1) * all(kOfSums, 1)) * N; }

  // Writes the sums of the CTA: the sums of its rows, added in order.
  template <int Width>
  FC_INLINE void write_sums() const {
    if (a.partials[Width] == nullptr) return;
    const int64_t channels = a.channels[Width], columns = all(kOfSums, Width) * channels;
    T *to = static_cast<T *>(a.partials[Width]) + blockIdx.x * columns;
    for (int64_t column = threadIdx.x; column < columns; column += blockDim.x) {
      const int64_t k = column / channels, c = column - k * channels;
      const int within = int(c % step());
      const T *of_threads = slot(Width, c / step(), int(k), within % N);
      T sum = T(0);
      for (unsigned thread = within / N; thread < blockDim.x; thread += a.threads_per_row) sum += of_threads[thread];
      to[column] = sum;
    }
  }
};

}  // namespace fc
