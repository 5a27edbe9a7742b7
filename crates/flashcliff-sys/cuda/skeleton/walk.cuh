// The kernel that walks rows of any number of channels, with scalar channels or numbers of the row beside them, or
// tensors with their own strides.
//
// The threads of a row walk its channels, then its scalar channels, once for each reduction and once more for the values that depend on the
// last. Operands are read again each time, mostly from the first cache. Sums over the batch stay in shared memory until the CTA has walked
// all of its rows, because a thread has several channels.
#pragma once

#include "parameter.cuh"
#include "strided.cuh"

namespace fc {

template <class P, class Scalar, int N, int Bytes, uint64_t Wide>
struct WalkContext : StridedRow<P, Scalar, N, Bytes, Wide> {
  using Row = StridedRow<P, Scalar, N, Bytes, Wide>;
  using typename Row::T;
  using typename Row::V;
  using Row::a;
  using Row::totals;
  static constexpr int kAllSums = P::kShape.all_sums();

  int64_t channel;  // the first one
  int pass;
  V sums[kAllSums > 0 ? kAllSums : 1];

  FC_INLINE explicit WalkContext(const Walk &arguments) : Row(arguments), channel(0), pass(0) {}

  FC_INLINE bool is_last() const { return pass == Row::kReductions; }

  // ---- what the functions of a program ask for ----

  template <int Slot, int K>
  FC_INLINE void load(V (&values)[K]) const {
    Row::template read<Slot>(channel, values);
  }

  template <int Slot, int K>
  FC_INLINE void store(const V (&values)[K]) const {
    if (is_last()) Row::template write<Slot>(channel, values);
  }

  template <int Slot>
  FC_INLINE ChannelParameter<V> param() const {
    constexpr int count = Row::count(Row::kParams, Slot);
    const int bytes = sizeof(T) == 8 ? 8 : (a.param_dtype == FC_F32 ? 4 : 2);
    return {static_cast<const unsigned char *>(a.params[Slot]) + channel * count * bytes, count, a.param_dtype};
  }

  template <int Slot>
  FC_INLINE V *sum() {
    constexpr Shape shape = P::kShape;
    constexpr int first = shape.first_sum(Slot);
    return sums + first;
  }

  // A total is collected in the last pass, as nothing waits for it.
  template <int Total>
  FC_INLINE bool wants_total() const {
    return is_last() && Row::template wants_total<Total>();
  }
  template <int Total>
  FC_INLINE void add_to_total(T own) {
    if (is_last()) Row::row_totals[Total] += own;
  }

  // A row sum, complete.
  FC_INLINE T total(int k) const { return totals[k]; }

  // Whether so many reductions are complete. If not, the caller returns, and is called again.
  template <int Reductions>
  FC_INLINE bool reached() const {
    return pass >= Reductions;
  }

  // Adds to the row sums of a reduction, of which the first has the number `First`, or gives them. Totals may follow the first `Count`.
  template <int At, int First, int Count = 0, int K>
  FC_INLINE bool reduce(T (&own)[K]) {
#pragma unroll
    for (int k = 0; k < (Count > 0 ? Count : K); k++) {
      if (pass == At) totals[First + k] += own[k];
      own[k] = totals[First + k];
    }
    return pass > At;
  }

  // ---- rows ----

  // The lanes of a width, as far as they are the thread's.
  template <int Width>
  FC_INLINE void walk() {
    int tile = 0;
#pragma unroll 1
    for (channel = this->lane * N; channel < a.channels[Width]; channel += this->step(), tile++) {
#pragma unroll
      for (int k = 0; k < kAllSums; k++) sums[k] = splat<V>(T(0));
      P::template run<Width>(*this);
      if (this->adds() && this->active && is_last()) add_from<Width, 0>(tile);
    }
  }

  // Adds up the row sums of the reduction of this pass.
  FC_INLINE void collect() {
    collect_from<0>();
    pass++;
  }

  template <int K>
  FC_INLINE void collect_from() {
    if constexpr (K < Row::kRowSums) {
      if (P::reduction_of(K) == pass) Row::collect(K, P::place_of(K));
      collect_from<K + 1>();
    }
  }

  // ---- sums over the batch ----

  FC_INLINE void clear() const {
    if (!this->adds()) return;
    for (int64_t at = 0; at < this->slots(); at++) reinterpret_cast<T *>(partial_sums)[at * blockDim.x + threadIdx.x] = T(0);
  }

  template <int Width, int Sum>
  FC_INLINE void add_from(int tile) {
    if constexpr (Sum < Row::kSums) {
      if constexpr (Row::width(Row::kOfSums, Sum) == Width) {
        constexpr int count = Row::count(Row::kOfSums, Sum), place = Row::place(Row::kOfSums, Sum);
        const V *own = sum<Sum>();
#pragma unroll
        for (int k = 0; k < count; k++) {
          FC_EACH(N, this->slot(Width, tile, place + k, i)[threadIdx.x] += own[k].v[i])
        }
      }
      add_from<Width, Sum + 1>(tile);
    }
  }
};

template <class P, class T, int N, int Bytes, uint64_t Wide>
__global__ void __launch_bounds__(kWalkThreads) walk_kernel(const __grid_constant__ Walk a) {
  take_turn();
  WalkContext<P, T, N, Bytes, Wide> c(a);
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
    c.write_totals();
  }
  if (!c.adds()) return;
  __syncthreads();
  c.template write_sums<0>();
  c.template write_sums<1>();
}

}  // namespace fc
