// The kernel that keeps rows in registers: for the same programs as `walk.cuh`, of rows that are a few tiles.
//
// All operands of a row are read at once, before the first reduction, so each is read once and a thread waits once
// for memory. Programs of one pass without sums over the batch read each where they need it, which takes fewer
// registers. Each pass is written out for the compiler, which leaves out what a pass does not need. Sums over the
// batch stay in registers from row to row.
#pragma once

#include "strided.cuh"

namespace fc {

// `Channels` and `Scalars` are the tiles of the channels and of the scalar channels.
template <class P, class Scalar, int N, int Bytes, uint64_t Wide, int Channels, int Scalars>
struct KeptRow : StridedRow<P, Scalar, N, Bytes, Wide> {
  using Row = StridedRow<P, Scalar, N, Bytes, Wide>;
  using typename Row::T;
  using typename Row::V;
  using Row::a;
  using Row::totals;

  // Whether operands are read ahead.
  static constexpr bool kReadsAhead = Row::kReductions > 0 || Row::kSums > 0;

  static __host__ __device__ constexpr int tiles_of(int width) { return width == 0 ? Channels : Scalars; }
  static __host__ __device__ constexpr int some(int count) { return count > 0 ? count : 1; }

  // What a thread has of the tiles of a width.
  template <int Width>
  struct Tiles {
    V inputs[tiles_of(Width)][some(kReadsAhead ? Row::all(Row::kInputs, Width) : 0)];
    V params[tiles_of(Width)][some(Row::all(Row::kParams, Width))];
    V sums[tiles_of(Width)][some(Row::all(Row::kOfSums, Width))];
  };

  Tiles<0> of_channels;
  Tiles<1> of_scalars;

  FC_INLINE explicit KeptRow(const Walk &arguments) : Row(arguments) {
    begin<0, 0>();
    begin<1, 0>();
  }

  template <int Width>
  FC_INLINE Tiles<Width> &kept() {
    if constexpr (Width == 0) {
      return of_channels;
    } else {
      return of_scalars;
    }
  }

  // The thread's first channel in a tile, and whether it exists.
  FC_INLINE int channel(int tile) const { return tile * this->step() + this->lane * N; }
  template <int Width>
  FC_INLINE bool has(int tile) const {
    return channel(tile) < int(a.channels[Width]);
  }

  // ---- parameters and sums over the batch ----

  template <int Width, int Tile>
  FC_INLINE void begin() {
    if constexpr (Tile < tiles_of(Width)) {
#pragma unroll
      for (int k = 0; k < Row::all(Row::kOfSums, Width); k++) kept<Width>().sums[Tile][k] = splat<V>(T(0));
      if (has<Width>(Tile)) read_params<Width, Tile, 0>();
      begin<Width, Tile + 1>();
    }
  }

  template <int Width, int Tile, int Slot>
  FC_INLINE void read_params() {
    if constexpr (Slot < Row::number(Row::kParams)) {
      if constexpr (Row::width(Row::kParams, Slot) == Width) {
        constexpr int count = Row::count(Row::kParams, Slot), place = Row::place(Row::kParams, Slot);
        with_storage<T>(a.param_dtype, [&](auto *type) {
          using S = typename Element<decltype(type)>::Type;
          const S *p = static_cast<const S *>(a.params[Slot]) + channel(Tile) * count;
          V *to = kept<Width>().params[Tile] + place;
#pragma unroll
          for (int k = 0; k < count; k++) FC_EACH(N, to[k].v[i] = widen(p[i * count + k], a.param_dtype))
        });
      }
      read_params<Width, Tile, Slot + 1>();
    }
  }

  // Leaves the sums over the batch in shared memory.
  template <int Width, int Tile>
  FC_INLINE void leave_sums() {
    if constexpr (Tile < tiles_of(Width)) {
      if (Tile < this->tiles(Width)) {
#pragma unroll
        for (int k = 0; k < Row::all(Row::kOfSums, Width); k++) {
          FC_EACH(N, this->slot(Width, Tile, k, i)[threadIdx.x] = kept<Width>().sums[Tile][k].v[i])
        }
      }
      leave_sums<Width, Tile + 1>();
    }
  }

  // ---- rows ----

  template <int Width, int Tile>
  FC_INLINE void read_tiles() {
    if constexpr (kReadsAhead && Tile < tiles_of(Width)) {
      if (has<Width>(Tile)) read_inputs<Width, Tile, 0>();
      read_tiles<Width, Tile + 1>();
    }
  }

  template <int Width, int Tile, int Slot>
  FC_INLINE void read_inputs() {
    if constexpr (Slot < Row::number(Row::kInputs)) {
      constexpr int count = Row::count(Row::kInputs, Slot);
      if constexpr (Row::width(Row::kInputs, Slot) == Width && count > 0) {
        V values[count];
        Row::template read<Slot>(channel(Tile), values);
        // The sums over the batch of a row that does not exist are zero.
        const bool vanishes = Slot >= P::kVanishesFrom && !this->active;
        V *to = kept<Width>().inputs[Tile] + Row::place(Row::kInputs, Slot);
#pragma unroll
        for (int k = 0; k < count; k++) to[k] = vanishes ? splat<V>(T(0)) : values[k];
      }
      read_inputs<Width, Tile, Slot + 1>();
    }
  }

  // A tile in a pass, with what the functions of a program ask for.
  template <int Width, int Tile, int Pass>
  struct Part {
    using T = Scalar;
    using V = Lanes<Scalar, N>;
    static constexpr bool kIsLast = Pass == Row::kReductions;

    KeptRow &c;
    const Uniforms<T> &u;
    V unused[some(Row::all(Row::kOfSums, Width))];

    FC_INLINE explicit Part(KeptRow &row) : c(row), u(row.u) {}

    template <int Slot, int K>
    FC_INLINE void load(V (&values)[K]) const {
      if constexpr (kReadsAhead) {
        const V *own = c.template kept<Width>().inputs[Tile] + Row::place(Row::kInputs, Slot);
#pragma unroll
        for (int k = 0; k < K; k++) values[k] = own[k];
      } else {
        c.template read<Slot>(c.channel(Tile), values);
      }
    }

    template <int Slot, int K>
    FC_INLINE void store(const V (&values)[K]) const {
      if constexpr (kIsLast) c.template write<Slot>(c.channel(Tile), values);
    }

    template <int Slot>
    FC_INLINE const V *param() const {
      return c.template kept<Width>().params[Tile] + Row::place(Row::kParams, Slot);
    }

    // Sums over the batch come from the last pass.
    template <int Slot>
    FC_INLINE V *sum() {
      V *all = kIsLast ? c.template kept<Width>().sums[Tile] : unused;
      return all + Row::place(Row::kOfSums, Slot);
    }

    FC_INLINE T saved(int k) const { return c.saved(k); }
    FC_INLINE T total(int k) const { return c.totals[k]; }

    // The sums over the batch of a row that does not exist are zero.
    template <int Slot>
    FC_INLINE T row_value() const {
      const bool vanishes = Row::kSums > 0 && Slot >= P::kRowValuesVanishFrom && !c.active;
      return vanishes ? T(0) : c.template row_value<Slot>();
    }

    // A total is collected in the last pass, as nothing waits for it.
    template <int Total>
    FC_INLINE bool wants_total() const {
      return kIsLast && c.template wants_total<Total>();
    }
    template <int Total>
    FC_INLINE void add_to_total(T own) {
      if constexpr (kIsLast) c.row_totals[Total] += own;
    }

    template <int Reductions>
    FC_INLINE constexpr bool reached() const {
      return Pass >= Reductions;
    }

    template <int At, int First, int Count = 0, int K>
    FC_INLINE bool reduce(T (&own)[K]) {
#pragma unroll
      for (int k = 0; k < (Count > 0 ? Count : K); k++) {
        if constexpr (Pass == At) c.totals[First + k] += own[k];
        own[k] = c.totals[First + k];
      }
      return Pass > At;
    }
  };

  template <int Width, int Tile, int Pass>
  FC_INLINE void work() {
    if constexpr (Tile < tiles_of(Width)) {
      if (has<Width>(Tile)) {
        Part<Width, Tile, Pass> part(*this);
        P::template run<Width>(part);
      }
      work<Width, Tile + 1, Pass>();
    }
  }

  template <int Pass, int K>
  FC_INLINE void collect_from() {
    if constexpr (K < Row::kRowSums) {
      if constexpr (P::reduction_of(K) == Pass) Row::collect(K, P::place_of(K));
      collect_from<Pass, K + 1>();
    }
  }

  template <int Pass>
  FC_INLINE void passes() {
    work<0, 0, Pass>();
    work<1, 0, Pass>();
    if constexpr (Pass < Row::kReductions) {
      collect_from<Pass, 0>();
      passes<Pass + 1>();
    }
  }
};

template <class P, class T, int N, int Bytes, uint64_t Wide, int Channels, int Scalars>
__global__ void __launch_bounds__(kWalkThreads) kept_kernel(const __grid_constant__ Walk a) {
  take_turn();
  KeptRow<P, T, N, Bytes, Wide, Channels, Scalars> c(a);
  const int64_t rows = blockDim.x / a.threads_per_row;
  // All threads of a warp take equally many rows, because they meet in sums.
  for (int64_t first = blockIdx.x * rows; first < a.batch; first += gridDim.x * rows) {
    c.select(first + threadIdx.x / a.threads_per_row);
    c.template read_tiles<0, 0>();
    c.template read_tiles<1, 0>();
    c.template passes<0>();
    c.write_totals();
  }
  if (!c.adds()) return;
  c.template leave_sums<0, 0>();
  c.template leave_sums<1, 0>();
  __syncthreads();
  c.template write_sums<0>();
  c.template write_sums<1>();
}

}  // namespace fc
