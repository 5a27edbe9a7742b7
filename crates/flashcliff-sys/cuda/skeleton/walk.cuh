// The kernel of programs with scalar channels beside the channels, and of row programs on tensors with strides of their own.
//
// A few neighbouring threads share a row. They walk its channels, then its scalar channels, once for each reduction and once more for the
// values that depend on the last. Operands are read again each time, mostly from the first cache. Sums over the batch stay in shared memory
// until the CTA has walked all of its rows, because a thread has several channels.
#pragma once

#include "uniforms.cuh"
#include "walk.h"

namespace fc {

extern __shared__ __align__(16) unsigned char walked[];

// A parameter in memory, [channels, count], at a thread's channels.
template <class V>
struct WalkedParameter {
  const void *first;
  int count;
  int dtype;
  FC_INLINE V operator[](int k) const {
    using T = typename V::Scalar;
    V r;
    with_storage<T>(dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      const S *p = static_cast<const S *>(first) + k;
      FC_EACH(V::kCount, r.v[i] = widen(p[i * count], dtype))
    });
    return r;
  }
};

// Bytes are those of an element of lanes if they are known, else 0.
template <class P, class Scalar, int N, int Bytes>
struct WalkContext {
  using T = Scalar;
  using V = Lanes<T, N>;
  static constexpr int kRowSums = P::kShape.row_sums;
  static constexpr int kReductions = P::kShape.reductions;
  static constexpr int kSums = P::kShape.sums;
  static constexpr int kAllSums = P::kShape.all_sums();

  // Static members cannot be indexed in device code; constant expressions can.
  static __host__ __device__ constexpr int param_count(int param) {
    constexpr Shape shape = P::kShape;
    return shape.param_counts[param];
  }
  static __host__ __device__ constexpr int sum_count(int sum) {
    constexpr Shape shape = P::kShape;
    return shape.sum_counts[sum];
  }
  static __host__ __device__ constexpr int width_of_sum(int sum) {
    constexpr Shape shape = P::kShape;
    return shape.scalar_sums >> sum & 1;
  }
  static __host__ __device__ constexpr int width_of_param(int param) {
    constexpr Shape shape = P::kShape;
    return shape.scalar_params >> param & 1;
  }
  static __host__ __device__ constexpr int first_sum(int sum) {
    int first = 0;
    for (int i = 0; i < sum; i++) first += sum_count(i);
    return first;
  }
  // The elements of a sum come behind those of the sums before it of the same width.
  static __host__ __device__ constexpr int first_of_width(int sum) {
    int first = 0;
    for (int i = 0; i < sum; i++) first += width_of_sum(i) == width_of_sum(sum) ? sum_count(i) : 0;
    return first;
  }
  static __host__ __device__ constexpr int sums_of(int width) {
    int count = 0;
    for (int i = 0; i < kSums; i++) count += width_of_sum(i) == width ? sum_count(i) : 0;
    return count;
  }

  const Walk &a;
  Uniforms<T> u;
  int lane;         // which of the threads of its row
  int64_t row;
  int64_t channel;  // the first one
  bool active;      // the row exists
  int pass;
  T totals[kRowSums > 0 ? kRowSums : 1];
  V sums[kAllSums > 0 ? kAllSums : 1];

  FC_INLINE explicit WalkContext(const Walk &arguments) : a(arguments), u(arguments), row(0), channel(0), active(false), pass(0) {
    lane = int(threadIdx.x) % a.threads_per_row;
    u.valid = N;
  }

  FC_INLINE int step() const { return a.threads_per_row * N; }
  FC_INLINE bool is_last() const { return pass == kReductions; }
  FC_INLINE bool adds() const { return kAllSums > 0 && (a.partials[0] != nullptr || a.partials[1] != nullptr); }

  // ---- what the functions of a program ask for ----

  template <int Slot, int K>
  FC_INLINE void load(V (&values)[K]) const {
    with_storage<T, Bytes>(a.lane_dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      const fc_strides strides = a.input_strides[Slot];
      const S *p = static_cast<const S *>(a.inputs[Slot]) + row * strides.batch + channel;
#pragma unroll
      for (int k = 0; k < K; k++, p += strides.component) values[k] = load_lanes<S, T, N>(p, a.lane_dtype);
    });
  }

  template <int Slot, int K>
  FC_INLINE void store(const V (&values)[K]) const {
    if (!active || !is_last() || a.outputs[Slot] == nullptr) return;
    with_storage<T, Bytes>(a.lane_dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      const fc_strides strides = a.output_strides[Slot];
      S *p = static_cast<S *>(a.outputs[Slot]) + row * strides.batch + channel;
#pragma unroll
      for (int k = 0; k < K; k++, p += strides.component) store_lanes<S, T, N>(p, values[k], a.lane_dtype);
    });
  }

  template <int Slot>
  FC_INLINE WalkedParameter<V> param() const {
    constexpr int count = param_count(Slot);
    const int bytes = sizeof(T) == 8 ? 8 : (a.param_dtype == FC_F32 ? 4 : 2);
    return {static_cast<const unsigned char *>(a.params[Slot]) + channel * count * bytes, count, a.param_dtype};
  }

  template <int Slot>
  FC_INLINE V *sum() {
    return sums + first_sum(Slot);
  }

  FC_INLINE T saved(int k) const { return static_cast<const T *>(a.saved)[k * a.batch + row]; }

  // A row sum, complete.
  FC_INLINE T total(int k) const { return totals[k]; }

  // Whether so many reductions are complete. If not, the caller returns, and is called again.
  template <int Reductions>
  FC_INLINE bool reached() const {
    return pass >= Reductions;
  }

  // Adds to the row sums of a reduction, of which the first has the number `First`, or gives them.
  template <int At, int First, int K>
  FC_INLINE bool reduce(T (&own)[K]) {
#pragma unroll
    for (int k = 0; k < K; k++) {
      if (pass == At) totals[First + k] += own[k];
      own[k] = totals[First + k];
    }
    return pass > At;
  }

  // ---- rows ----

  FC_INLINE void select(int64_t wanted) {
    active = wanted < a.batch;
    row = active ? wanted : a.batch - 1;
#pragma unroll
    for (int k = 0; k < kRowSums; k++) totals[k] = T(0);
  }

  // The lanes of a width, as far as they are the thread's.
  template <int Width>
  FC_INLINE void walk() {
    int tile = 0;
#pragma unroll 1
    for (channel = lane * N; channel < a.channels[Width]; channel += step(), tile++) {
#pragma unroll
      for (int k = 0; k < kAllSums; k++) sums[k] = splat<V>(T(0));
      P::template run<Width>(*this);
      if (adds() && active && is_last()) add_from<Width, 0>(tile);
    }
  }

  // Adds up the row sums of the reduction of this pass over the threads of the row.
  FC_INLINE void collect() {
    collect_from<0>();
    pass++;
  }

  template <int K>
  FC_INLINE void collect_from() {
    if constexpr (K < kRowSums) {
      if (P::reduction_of(K) == pass) {
        for (int d = a.threads_per_row / 2; d > 0; d /= 2) totals[K] += __shfl_xor_sync(~0u, totals[K], d);
        if (a.saved != nullptr && P::kShape.saved_sums == 0 && active && lane == 0) {
          static_cast<T *>(a.saved)[P::place_of(K) * a.batch + row] = totals[K];
        }
      }
      collect_from<K + 1>();
    }
  }

  // ---- sums over the batch ----

  FC_INLINE int64_t tiles(int width) const { return (a.channels[width] + step() - 1) / step(); }

  // The place of a sum of the thread in shared memory: [width][tile][sum][channel][thread].
  FC_INLINE T *slot(int width, int64_t tile, int sum, int i) const {
    const int64_t before = width == 0 ? 0 : tiles(0) * sums_of(0);
    const int64_t at = (before + tile * sums_of(width) + sum) * N + i;
    return reinterpret_cast<T *>(walked) + at * blockDim.x;
  }

  FC_INLINE int64_t slots() const { return (tiles(0) * sums_of(0) + tiles(1) * sums_of(1)) * N; }

  FC_INLINE void clear() const {
    if (!adds()) return;
    for (int64_t at = 0; at < slots(); at++) reinterpret_cast<T *>(walked)[at * blockDim.x + threadIdx.x] = T(0);
  }

  template <int Width, int Sum>
  FC_INLINE void add_from(int tile) {
    if constexpr (Sum < kSums) {
      if constexpr (width_of_sum(Sum) == Width) {
        constexpr int count = sum_count(Sum), first = first_sum(Sum), place = first_of_width(Sum);
#pragma unroll
        for (int k = 0; k < count; k++) {
          FC_EACH(N, slot(Width, tile, place + k, i)[threadIdx.x] += sums[first + k].v[i])
        }
      }
      add_from<Width, Sum + 1>(tile);
    }
  }

  // Writes the sums of the CTA, those of its rows added in order.
  template <int Width>
  FC_INLINE void write() const {
    if (a.partials[Width] == nullptr) return;
    const int64_t channels = a.channels[Width], columns = sums_of(Width) * channels;
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

template <class P, class T, int N, int Bytes>
__global__ void __launch_bounds__(kWalkThreads) walk_kernel(const __grid_constant__ Walk a) {
  WalkContext<P, T, N, Bytes> c(a);
  c.clear();
  const int64_t rows = blockDim.x / a.threads_per_row;
  // All threads of a warp walk equally many rows, because they meet in sums.
  for (int64_t first = blockIdx.x * rows; first < a.batch; first += gridDim.x * rows) {
    c.select(first + threadIdx.x / a.threads_per_row);
    for (c.pass = 0;;) {
      c.template walk<0>();
      c.template walk<1>();
      if (c.is_last()) break;
      c.collect();
    }
  }
  if (!c.adds()) return;
  __syncthreads();
  c.template write<0>();
  c.template write<1>();
}

}  // namespace fc
