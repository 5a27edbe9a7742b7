// The kernel of programs with parameters or row sums: persistent CTAs, each walking its share of the rows.
//
// A thread owns N neighbouring channels, for all rows of its CTA, so parameters and sums over the batch stay in place from row to
// row. Rows are copied to shared memory some stages ahead. The threads that share a row are `threads_per_row` neighbours. A row
// may span the CTAs of a cluster; a longer row is walked in tiles.
#pragma once

#include "stages.cuh"
#include "uniforms.cuh"

namespace fc {

// Parameters in shared memory, [element, channels of the CTA].
template <class V>
struct SharedParams {
  using T = typename V::Scalar;
  const T *first;
  int stride;
  FC_INLINE V operator[](int k) const { return load_lanes<T, T, V::kCount>(first + k * stride, 0); }
};

template <class P, class Scalar, int N, int ParamsShared, int Fast, int Gate>
struct RowContext {
  using T = Scalar;
  using V = Lanes<T, N>;
  static __host__ __device__ constexpr Shape shape() {
    constexpr Shape shape = P::kShape.with(N, 0, ParamsShared);
    return shape;
  }
  static constexpr int kWidest = P::kShape.widest_output();
  static constexpr int kParams = P::kShape.params;
  static constexpr int kAllParams = P::kShape.all_params();
  static constexpr int kAllSums = P::kShape.all_sums();
  static constexpr bool kReduces = P::kShape.reductions > 0;
  static constexpr int kRowSums = P::kShape.row_sums;
  static constexpr int kWidth = P::kShape.reduce_width();
  static constexpr int kSaved = P::kShape.saved_sums > 0 ? P::kShape.saved_sums : 1;
  static constexpr int kHeldParams = ParamsShared || kAllParams == 0 ? 1 : kAllParams;
  static constexpr int kHeldSums = kAllSums == 0 ? 1 : kAllSums;
  static constexpr bool kSumsColumns = P::kShape.sums_columns();

  const Arguments &a;
  Uniforms<T> u;
  const Layout layout;
  int lane;         // of the row: which of its threads in this CTA
  int group;        // which row of the CTA
  int slice;        // which part of the channels
  int first_block;  // of the rows, the CTA's first
  int64_t channel;  // the first one
  int64_t row;
  bool active;      // the row exists
  int pass = 0;
  int tile = 0;
  int parity = 0;   // of the reduction
  uint32_t arrivals = 0;  // the phases of its two barriers
  Stages<P, T, N, Fast> stages;
  T saved_now[kSaved], saved_next[kSaved];
  V params[kHeldParams];
  V sums[kHeldSums];

  FC_INLINE explicit RowContext(const Arguments &arguments)
      : a(arguments),
        u(arguments),
        layout(shape(), sizeof(T), blockDim.x, a),
        stages(arguments) {
    if (Gate != kAnyGate) u.gate = Gate;
    group = int(threadIdx.x) / a.threads_per_row;
    lane = int(threadIdx.x) - group * a.threads_per_row;
    const int cta = int(blockIdx.x);
    first_block = a.slices == 1 ? cta : cta / a.slices;
    slice = cta - first_block * a.slices;
    select_tile(0);
#if FC_HOPPER
    if (a.cluster > 1) {
      if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) barrier_init(reinterpret_cast<uint64_t *>(shared) + kMaxStages + i, 1);
        barrier_init_fence();
      }
      // No sums may arrive before the barriers are initialised.
      cluster_barrier();
    }
#endif
    stages.start(layout.stages, group, lane, slice, first_block, a.row_ctas);
    // Parameters are loaded after the first row and before the others, which would delay them.
    stages.fill(0);
    if (tiles() == 1) load_params();
#pragma unroll 1
    for (int s = 1; s < a.stages; s++) stages.fill(s);
    // The conversion happens once, here, not at every use.
    if (!ParamsShared) settle(params);
    load_saved(first_block);
    clear_sums();
  }

  FC_INLINE void clear_sums() {
#pragma unroll
    for (int k = 0; k < kHeldSums; k++) sums[k] = splat<V>(T(0));
    if (kSumsColumns && a.sums_columns) store_lanes<T, T, N>(column_sums(), splat<V>(T(0)), 0);
  }

  FC_INLINE bool bulk() const { return Fast || a.fill == kFillBulk; }
  FC_INLINE bool whole() const { return Fast || a.whole; }
  FC_INLINE int tiles() const { return Fast ? 1 : a.tiles; }
  // The largest number of channels of a CTA.
  FC_INLINE int width() const { return a.threads_per_row * N; }

  FC_INLINE void select_tile(int t) {
    tile = t;
    channel = (int64_t(t + slice) * a.threads_per_row + lane) * N;
    const int64_t left = a.channels - channel;
    u.valid = left < 0 ? 0 : (left > N ? N : int(left));
  }

  // ---- rows ----

  // A thread without a row reads the operands of another row, and zeros for those inputs with which sums over the batch vanish.
  FC_INLINE int64_t row_of(int64_t block) const {
    const int64_t wanted = block * a.rows_per_cta + group;
    return wanted < a.batch ? wanted : a.batch - 1;
  }

  FC_INLINE void select_row(int64_t block) {
    row = row_of(block);
    active = block * a.rows_per_cta + group < a.batch;
#pragma unroll
    for (int k = 0; k < kSaved; k++) saved_now[k] = saved_next[k];
    load_saved(block + a.row_ctas);
  }

  // The saved sums are read a row ahead, since nothing else hides their latency.
  FC_INLINE void load_saved(int64_t block) {
    const T *p = static_cast<const T *>(a.saved) + row_of(block);
#pragma unroll
    for (int k = 0; k < P::kShape.saved_sums; k++, p += a.batch) saved_next[k] = *p;
  }

  template <int Slot, int K>
  FC_INLINE void load(V (&values)[K]) {
    stages.template load<Slot>(values, active);
    if (kAllSums > 0 && Slot >= P::kVanishesFrom && !active) {
#pragma unroll
      for (int k = 0; k < K; k++) values[k] = splat<V>(T(0));
    }
  }

  // Marks that all inputs of the row are in registers. With row sums, the barrier of the reduction serves for this too.
  FC_INLINE void loaded() {
    if (kReduces) return;
    if (bulk()) __syncthreads();
    stages.release();
  }

  // Stores straight to memory if every thread has all its channels, else by way of shared memory.
  template <int Slot, int K>
  FC_INLINE void store(const V (&values)[K]) {
    if (!active || a.outputs[Slot] == nullptr || u.valid == 0) return;
    if constexpr (kSumsColumns && Slot == 1) add_to_columns(values);
    const int bytes = Fast ? Fast : a.lane_bytes;
    const int64_t stride = a.batch * a.channels * bytes;
    auto *to = static_cast<unsigned char *>(a.outputs[Slot]) + (row * a.channels + channel) * bytes;
    with_storage<T, Fast>(a.lane_dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      // All outputs share this place, since another thread may be at the next output already.
      auto *own = shared + layout.bounce + threadIdx.x * int(kWidest * N * sizeof(S));
      unsigned char *p = whole() ? to : own;
      const int64_t step = whole() ? stride : int64_t(N * sizeof(S));
#pragma unroll
      for (int k = 0; k < K; k++, p += step) store_lanes<S, T, N>(reinterpret_cast<S *>(p), values[k], a.lane_dtype);
      if (whole()) return;
#pragma unroll 1
      for (int k = 0; k < K; k++, to += stride, own += N * sizeof(S)) {
#pragma unroll 1
        for (int i = 0; i < u.valid; i++) reinterpret_cast<S *>(to)[i] = reinterpret_cast<const S *>(own)[i];
      }
    });
  }

  // ---- parameters ----

  FC_INLINE T *shared_params() const { return reinterpret_cast<T *>(shared + layout.params); }

  FC_INLINE void load_params() {
    if (kAllParams == 0) return;
    if (ParamsShared) __syncthreads();
    with_storage<T>(a.param_dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      params_from<0, S>();
    });
    if (ParamsShared) __syncthreads();
  }

  // Loads the parameters one after another.
  template <int Slot, class S>
  FC_INLINE void params_from() {
    if constexpr (Slot < kParams) {
      const S *p = static_cast<const S *>(a.params[Slot]);
      if constexpr (ParamsShared) {
        share_params<P::kShape.param_count(Slot), P::kShape.first_param(Slot), S>(p);
      } else {
        hold_params<P::kShape.param_count(Slot), P::kShape.first_param(Slot), S>(p);
      }
      params_from<Slot + 1, S>();
    }
  }

  // Neighbouring threads read neighbouring elements, and write them transposed to shared memory.
  template <int count, int first, class S>
  FC_INLINE void share_params(const S *p) {
    const int64_t start = channel - lane * N;
    const int64_t end = a.channels * count;
    T *to = shared_params() + first * width();
    for (int e = threadIdx.x; e < count * width(); e += blockDim.x) {
      const int c = e / count, k = e - c * count;
      const int64_t from = start * count + e;
      to[k * width() + c] = from < end ? T(widen(p[from], a.param_dtype)) : T(0);
    }
  }

  // Loads the contiguous parameters of a thread: `count` for each of its channels.
  template <int count, int first, class S>
  FC_INLINE void hold_params(const S *p) {
    constexpr int kPer = 16 / sizeof(S);
    const S *own = p + channel * count;
    const bool vectors = sizeof(S) >= 4 && u.valid == N && count * N % kPer == 0 && uint64_t(own) % 16 == 0;
    if (vectors) {
#pragma unroll
      for (int e = 0; e < count * N; e += kPer) {
        const Lanes<T, kPer> values = load_lanes<S, T, kPer>(own + e, a.param_dtype);
#pragma unroll
        for (int j = 0; j < kPer; j++) {
          if (e + j < count * N) params[first + (e + j) % count].v[(e + j) / count] = values.v[j];
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < N; i++) {
        // Threads beyond the last channel read its parameters again.
        const int64_t c = channel + i < a.channels ? channel + i : a.channels - 1;
#pragma unroll
        for (int k = 0; k < count; k++) params[first + k].v[i] = widen(p[c * count + k], a.param_dtype);
      }
    }
  }

  template <int Slot>
  FC_INLINE auto param() const {
    constexpr int kFirst = P::kShape.first_param(Slot);
    if constexpr (ParamsShared) {
      return SharedParams<V>{shared_params() + kFirst * width() + lane * N, width()};
    } else {
      return static_cast<const V *>(params + kFirst);
    }
  }

  template <int Slot>
  FC_INLINE V *sum() {
    constexpr int kFirst = P::kShape.first_sum(Slot);
    return sums + kFirst;
  }

  // ---- row sums ----

  FC_INLINE T saved(int k) const { return saved_now[k]; }

  // Saves row sums, each at its place among the row sums of the program.
  template <int... Places, int K>
  FC_INLINE void keep(const T (&sums)[K]) const {
    static_assert(sizeof...(Places) == K, "every sum has its place");
    if (a.saved == nullptr || !active || lane != 0 || slice != 0) return;
    constexpr int places[] = {Places...};
    T *p = static_cast<T *>(a.saved) + row;
#pragma unroll
    for (int k = 0; k < K; k++) p[places[k] * a.batch] = sums[k];
  }

  // Adds each of `sums` over the threads of the row: the reduction `At` of the program, whose first sum has the number `First`. Returns
  // false if the row is not complete; the caller then returns, and calls again with the next tile. A long row is walked once for each
  // reduction, and once more for the values that depend on the last.
  template <int At, int First, int K>
  FC_INLINE bool reduce(T (&sums)[K]) {
    T *mine = reinterpret_cast<T *>(shared + layout.tile_sums) + First * blockDim.x + threadIdx.x;
    const int step = blockDim.x;
    if (tiles() > 1 && pass == At) {
#pragma unroll
      for (int k = 0; k < K; k++) {
        if (tile > 0) sums[k] += mine[k * step];
        mine[k * step] = sums[k];
      }
    }
    const bool complete = (tiles() == 1 || pass == At) && tile + 1 == tiles();
    if (complete) {
      collect(sums);
    } else if (At == 0 && bulk()) {
      __syncthreads();
    }
    if (At == 0) stages.release();
    if (tiles() == 1) return true;
#pragma unroll
    for (int k = 0; k < K; k++) {
      if (complete) mine[(kRowSums + k) * step] = sums[k];
      sums[k] = mine[(kRowSums + k) * step];
    }
    return pass > At;
  }

  // The sums over the row, in every thread. If rows are copied in bulk, all threads of the CTA have then passed a barrier.
  template <int K>
  FC_INLINE void collect(T (&sums)[K]) {
    if (a.threads_per_row <= 32 && a.cluster == 1) {
      for (int d = a.threads_per_row / 2; d > 0; d /= 2) {
#pragma unroll
        for (int k = 0; k < K; k++) sums[k] += __shfl_xor_sync(~0u, sums[k], d);
      }
      if (bulk()) __syncthreads();
      return;
    }
    collect_from<0>(sums);
  }

  // Adds values over pairs of threads, of which each keeps one half: the number of values halves, and the number of threads that they
  // are summed over doubles. Then does the same again. Returns which value is left in the first place.
  template <int Half, int Distance>
  FC_INLINE static int halve(T (&held)[kWidth]) {
    if constexpr (Half == 0) {
      return 0;
    } else {
      const bool upper = threadIdx.x & Distance;
#pragma unroll
      for (int k = 0; k < Half; k++) {
        const T give = upper ? held[k] : held[k + Half];
        const T stay = upper ? held[k + Half] : held[k];
        held[k] = stay + __shfl_xor_sync(~0u, give, Distance);
      }
      return (upper ? Half : 0) + halve<Half / 2, Distance / 2>(held);
    }
  }

  // The sums from a number on, as many at once as threads exchange.
  template <int First, int K>
  FC_INLINE void collect_from(T (&sums)[K]) {
    T held[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; k++) held[k] = First + k < K ? sums[First + k < K ? First + k : 0] : T(0);
    const int id = threadIdx.x & 31;
    const int index = halve<kWidth / 2, 16>(held);
#pragma unroll
    for (int d = 16 / kWidth; d > 0; d /= 2) held[0] += __shfl_xor_sync(~0u, held[0], d);
    const int warps = a.threads_per_row / 32;
    const int parts = warps * a.cluster;
    T *place = reinterpret_cast<T *>(shared + layout.reduction) + (parity * a.rows_per_cta + group) * parts * kWidth;
    parity ^= 1;
    const bool writes = (id & (32 / kWidth - 1)) == 0;
    const int warp = lane / 32;
#if FC_HOPPER
    if (a.cluster > 1) {
      // Every warp of the row sends its sums to all CTAs. A CTA continues when all sums have arrived. By then all warps have
      // read the sums of the row before, so two places in turn are enough.
      uint64_t *arrival = reinterpret_cast<uint64_t *>(shared) + kMaxStages + (1 - parity);
      if (threadIdx.x == 0) barrier_expect(arrival, parts * kWidth * sizeof(T));
      T *remote = place + (int(cluster_rank()) * warps + warp) * kWidth + index;
      if (writes) {
        for (int rank = 0; rank < a.cluster; rank++) store_remote(remote, held[0], arrival, rank);
      }
      barrier_wait(arrival, arrivals >> (1 - parity) & 1);
      arrivals ^= 1 << (1 - parity);
      // The stage is free when all warps of this CTA are here.
      if (bulk()) __syncthreads();
    } else
#endif
    {
      if (writes) place[warp * kWidth + index] = held[0];
      __syncthreads();
    }
    total<First>(sums, place, parts);
    if constexpr (First + kWidth < K) collect_from<First + kWidth>(sums);
  }

  // Adds up the parts of each sum, which are [part, sum] in shared memory.
  template <int First, int K>
  FC_INLINE void total(T (&sums)[K], const T *place, int parts) const {
    if constexpr (kWidth <= 8) {
      // Every thread adds up all of them.
      Lanes<T, kWidth> totals = splat<Lanes<T, kWidth>>(T(0));
      for (int part = 0; part < parts; part++) totals = totals + load_lanes<T, T, kWidth>(place + part * kWidth, 0);
#pragma unroll
      for (int k = 0; k < kWidth; k++) {
        if (First + k < K) sums[First + k < K ? First + k : 0] = totals.v[k];
      }
    } else {
      // A thread adds up one of them, or half of its parts, and tells the others of its warp.
      constexpr int kShares = 32 / kWidth;
      const int id = threadIdx.x & 31;
      T sum = T(0);
      for (int part = id / kWidth; part < parts; part += kShares) sum += place[part * kWidth + id % kWidth];
#pragma unroll
      for (int d = kWidth; d < 32; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
#pragma unroll
      for (int k = 0; k < kWidth; k++) {
        if (First + k < K) sums[First + k < K ? First + k : 0] = __shfl_sync(~0u, sum, k);
      }
    }
  }

  // ---- sums over the batch and column sums ----

  // The sums of the thread's channels over rows, in shared memory: registers are scarce.
  FC_INLINE T *column_sums() const { return reinterpret_cast<T *>(shared + layout.column_sums) + threadIdx.x * N; }

  template <int K>
  FC_INLINE void add_to_columns(const V (&values)[K]) const {
    if (!a.sums_columns) return;
    V sum = values[0];
    if (a.sums_columns > 1) {
#pragma unroll
      for (int k = 1; k < K; k++) sum = sum + values[k];
    }
    store_lanes<T, T, N>(column_sums(), load_lanes<T, T, N>(column_sums(), 0) + sum, 0);
  }

  // Writes the sums of the CTA to the partial sums of its row block, or adds them. Sums of rows that it walked together
  // are added in order, by way of shared memory that nothing else uses by now.
  FC_INLINE void flush_sums(bool add) {
    if (kAllSums == 0 || a.partial == nullptr) return;
    T *all = reinterpret_cast<T *>(shared + (tiles() == 1 ? layout.stages : layout.bounce));
    const int step = blockDim.x * N;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kHeldSums; k++) {
      store_lanes<T, T, N>(all + k * step + threadIdx.x * N, sums[k], 0);
    }
    __syncthreads();
    const int64_t start = channel - lane * N;
    const int columns = kAllSums + (kSumsColumns && a.sums_columns ? 1 : 0);
    T *block = static_cast<T *>(a.partial) + first_block * columns * a.channels + start;
    const int64_t left = a.channels - start;
    const int count = left < width() ? int(left) : width();
#pragma unroll 1
    for (int k = 0; k < columns; k++, all += step, block += a.channels) {
      const T *of_threads = k < kHeldSums ? all : reinterpret_cast<const T *>(shared + layout.column_sums);
#pragma unroll 1
      for (int c = threadIdx.x; c < count; c += blockDim.x) {
        T sum = of_threads[c];
        for (int g = 1; g < a.rows_per_cta; g++) sum += of_threads[g * width() + c];
        block[c] = add ? block[c] + sum : sum;
      }
    }
    if (tiles() > 1) __syncthreads();
  }
};

// Fast is the bytes of an element, or 0. A fast kernel is for calls that fill their threads with whole vectors, in one tile,
// copied in bulk; it has no code for other calls that would slow it down. A known Gate saves the branches of the others.
template <class P, class T, int N, int Threads, int ParamsShared, int Fast, int Gate>
__global__ void __launch_bounds__(Threads, 1) rows_kernel(const __grid_constant__ Arguments a) {
#if !FC_HOPPER
  // Without the copy engine no call is fast.
  if constexpr (Fast) return;
#endif
  RowContext<P, T, N, ParamsShared, Fast, Gate> c(a);
  // A long row is walked once for each reduction, then for the values that depend on the last.
  const int passes = c.tiles() > 1 ? P::kShape.reductions + 1 : 1;
  for (int64_t block = c.first_block; block < a.blocks; block += a.row_ctas) {
    c.select_row(block);
    for (int pass = 0; pass < passes; pass++) {
      for (int tile = 0; tile < c.tiles(); tile++) {
        if (c.tiles() > 1) {
          c.pass = pass;
          c.select_tile(tile);
          c.load_params();
        }
        c.stages.wait();
        P::run(c);
        if (c.tiles() > 1) {
          if (pass + 1 == passes) c.flush_sums(block != c.first_block);
          c.clear_sums();
        }
      }
    }
  }
#if FC_HOPPER
  // The next kernel, which may add up the partial sums, may start now; it waits for everything that is written here.
  launch_dependents();
#endif
  if (c.tiles() == 1) c.flush_sums(false);
#if FC_HOPPER
  // No CTA may exit while another can still write into its shared memory.
  if (a.cluster > 1) cluster_barrier();
#endif
}

}  // namespace fc
