// The forward pass: o_j = sum over paths of A_{j,p} w_p, where A_{j,p} is formed in registers from x and y.
//
// A CTA owns some output blades, a tile of the batch and a tile of the out channels. It walks the in channels: x, y and the
// product of their gates come to shared memory two slabs at a time, the weights of the paths slab by slab. A warp owns 16
// elements of the batch and 64 columns: what it needs of x and y goes to registers just as the tensor cores want the products.
#pragma once

#include "async.cuh"

namespace fc {
namespace gemm {

// Operands of this many blades are kept in registers for all paths.
constexpr int kCachedBlades = 8;

template <class Algebra, class Group, class P>
struct Forward {
  using V = typename P::V;
  using Word = typename P::Word;
  static constexpr int kBlades = Group::kBlades;
  static constexpr int kColumns = kColumnWarps * kWarpColumns;
  static constexpr int kTileBytes = kColumns * kSlabBytes;
  // The operands of 16 rows lie together: [slab][blades of x, of y, gate][row][8 words].
  static constexpr int kOperands = 2 * Algebra::kBlades + 1;
  static constexpr bool kCached = Algebra::kBlades <= kCachedBlades && P::kNumbers == 1;
  static constexpr bool kAsync = Algebra::kBlades <= kAsyncForwardBlades;
  static constexpr int kSteps = kSlabs * Group::kBatches;  // of two slabs
  static constexpr int kSlabOperandBytes = kOperands * kBlockBytes;

  const Problem &a;
  uint32_t shared;
  int64_t row0, column0;
  int warp_row, warp_column, g, t;
  // This thread's 16 bytes of the rows of x, y and f.
  const char *from_x, *from_y, *from_f;
  uint32_t to_operands;
  int operand_slot_bytes;
  uint32_t operand_place;      // this thread's numbers of x, in the first slot
  int left_bytes;              // of its row, from there on
  const char *from_w;
  float sums[kBlades][8][4];
  V xs[kCached ? Algebra::kBlades : 1], ys[kCached ? Algebra::kBlades : 1];
  V gate;
  uint32_t operands, weights;  // this thread's numbers of x; the weights of the columns of the warp

  FC_INLINE Forward(const Problem &problem, char *memory, int row_tile, int column_tile)
      : a(problem), shared(shared_address(memory)) {
    // The same for all threads of the warp, which the compiler is to know.
    const int warp = __shfl_sync(~0u, int(threadIdx.x / 32), 0);
    g = (threadIdx.x % 32) / 4;
    t = threadIdx.x % 4;
    warp_row = warp % a.warp_rows * kWarpRows;
    warp_column = warp / a.warp_rows * kWarpColumns;
    row0 = int64_t(row_tile) * a.warp_rows * kWarpRows;
    column0 = int64_t(column_tile) * kColumns;
    operand_slot_bytes = a.warp_rows * kSlabs * kSlabOperandBytes;
    // As many threads as the rows have pieces of 16 bytes.
    const int row = threadIdx.x / 4, piece = threadIdx.x % 4;
    const int64_t element = row0 + row;
    const bool exists = element < a.batch;
    const int64_t at = (exists ? element : 0) * a.x.row + piece * 16;
    from_x = a.x.data + at;
    from_y = a.y.data + at;
    from_f = a.f.data == nullptr ? nullptr : a.f.data + (exists ? element : 0) * a.f.row + piece * 16;
    left_bytes = exists ? int(a.x.bytes) - piece * 16 : 0;
    to_operands = shared + (row / kWarpRows * kSlabs + piece / 2) * kSlabOperandBytes + row % kWarpRows * kSlabBytes + piece % 2 * 16;
    from_w = a.w.data + column0 * kSlabBytes;
    operand_place = shared + warp_row / kWarpRows * kSlabs * kSlabOperandBytes + threadIdx.x % 32 * 8;
  }

  // ---- memory ----

  FC_INLINE uint32_t operand_slot(int pair) const { return (pair & (a.operand_slots - 1)) * operand_slot_bytes; }
  FC_INLINE uint32_t weight_slot(int step) const {
    return a.operand_slots * operand_slot_bytes + (step & (a.weight_slots - 1)) * (Group::kBatchPaths * kTileBytes);
  }

  FC_INLINE void load_operands(int pair) {
    const uint32_t to = to_operands + operand_slot(pair);
    const int64_t at = int64_t(pair) * kSlabs * kSlabBytes;
    const int left = left_bytes - int(at);
    const bool exists = left > 0;
    if (a.x.whole && a.y.whole) {
      const char *x0 = exists ? from_x + at : a.x.data, *y0 = exists ? from_y + at : a.y.data;
#pragma unroll 8
      for (int i = 0; i < Algebra::kBlades; i++) {
        copy_or_zero(to + i * kBlockBytes, x0, exists);
        copy_or_zero(to + (Algebra::kBlades + i) * kBlockBytes, y0, exists);
        x0 += a.x.blade;
        y0 += a.y.blade;
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < Algebra::kBlades; i++) {
        copy_ragged<Word>(to + i * kBlockBytes, from_x + a.left[i] * a.x.blade + at, left);
        copy_ragged<Word>(to + (Algebra::kBlades + i) * kBlockBytes, from_y + a.right[i] * a.y.blade + at, left);
      }
    }
    if (from_f != nullptr) {
      copy_or_zero(to + 2 * Algebra::kBlades * kBlockBytes, exists ? from_f + at : a.f.data, exists);
    }
  }

  template <int Batch>
  FC_INLINE void load_batch(const char *from, uint32_t to) {
#pragma unroll 1
    for (int at = threadIdx.x * 16; at < kTileBytes; at += blockDim.x * 16) {
#pragma unroll
      for (int i = 0; i < Group::batch_paths(Batch); i++) {
        copy_16(to + i * kTileBytes + at, from + at + uint64_t(Group::path(Batch * Group::kBatchPaths + i)) * a.w.matrix);
      }
    }
  }

  template <int Batch>
  FC_INLINE void load_batches(int batch, const char *from, uint32_t to) {
    if constexpr (Batch + 1 < Group::kBatches) {
      if (batch != Batch) return load_batches<Batch + 1>(batch, from, to);
    }
    load_batch<Batch>(from, to);
  }

  FC_INLINE void load_weights(int step) {
    load_batches<0>(unsigned(step) % Group::kBatches, from_w + uint64_t(unsigned(step) / Group::kBatches) * a.w.slab, shared + weight_slot(step));
  }

  // ---- what generated code calls ----

  FC_INLINE V load(int blade) const {
    V v;
    uint32_t top[2], bottom[2];
    const uint32_t at = operands + blade * kBlockBytes;
    load_shared(at, top);
    load_shared(at + 8 * kSlabBytes, bottom);
    if constexpr (P::kNumbers == 1) {
      FC_EACH(2, v.v[2 * i] = __uint_as_float(top[i]); v.v[2 * i + 1] = __uint_as_float(bottom[i]))
    } else {
      FC_EACH(2, v.v[4 * i] = P::low(top[i]); v.v[4 * i + 1] = P::high(top[i]); v.v[4 * i + 2] = P::low(bottom[i]);
              v.v[4 * i + 3] = P::high(bottom[i]))
    }
    return v;
  }

  FC_INLINE V x(int blade) const {
    if constexpr (kCached) return xs[blade];
    return load(blade);
  }
  FC_INLINE V y(int blade) const {
    if constexpr (kCached) return ys[blade];
    return load(Algebra::kBlades + blade);
  }

  // sums of blades First on += v w, with the weights in place `slot` of the batch.
  template <int First, int Count>
  FC_INLINE void multiply(int slot, const V (&v)[Count]) {
    typename P::A left[Count];
#pragma unroll
    for (int i = 0; i < Count; i++) left[i] = P::left(kCached ? v[i] : product(v[i], gate));
    multiply_slab<P, kAsync>(sums + First, left, weights + slot * kTileBytes);
  }

  // ---- the pass ----

  template <int Batch>
  FC_INLINE void compute(int pair, int slab) {
    operands = operand_place + operand_slot(pair) + slab * kSlabOperandBytes;
    weights = shared + weight_slot((pair * kSlabs + slab) * Group::kBatches + Batch) + warp_column * kSlabBytes;
    if (from_f != nullptr) {
      gate = load(2 * Algebra::kBlades);
    } else {
      FC_EACH(V::kCount, gate.v[i] = a.scale)
    }
    if constexpr (kCached) {
#pragma unroll
      for (int i = 0; i < Algebra::kBlades; i++) xs[i] = load(i);
#pragma unroll
      for (int i = 0; i < Algebra::kBlades; i++) ys[i] = product(load(Algebra::kBlades + i), gate);
    }
    Group::template step<Batch>(*this);
    finish_products<kAsync>();
  }

  FC_INLINE void prefetch(int step, int last_step) {
    if (step < last_step) {
      load_weights(step);
      if (a.operand_slots > 1 && unsigned(step) % kSteps == 0) load_operands(unsigned(step) / kSteps);
    }
    copy_commit();
  }

  template <int Batch>
  FC_INLINE void batches(int pair, int slab, int last_step) {
    if constexpr (Batch < Group::kBatches) {
      const int step = (pair * kSlabs + slab) * Group::kBatches + Batch, ahead = a.weight_slots - 1;
      const bool late_operands = Batch == 0 && slab == 0 && a.operand_slots == 1;
      if (late_operands || ahead == 0) {
        __syncthreads();
        if (late_operands) load_operands(pair);
        if (ahead == 0) load_weights(step);
        copy_commit();
      }
      copy_wait(late_operands || ahead == 0 ? 0 : ahead - 1);
      publish_copies<kAsync>();
      __syncthreads();
      if (ahead > 0) prefetch(step + ahead, last_step);
      compute<Batch>(pair, slab);
      batches<Batch + 1>(pair, slab, last_step);
    }
  }

  FC_INLINE void run() {
#pragma unroll
    for (int i = 0; i < kBlades; i++) {
#pragma unroll
      for (int tile = 0; tile < 8; tile++) {
        for (int k = 0; k < 4; k++) sums[i][tile][k] = 0.0f;
      }
    }
    const int unit = kSlabs * kSlabBytes, pairs = (int(a.x.bytes) + unit - 1) / unit;
    const int last_step = pairs * kSteps;
    for (int step = 0; step < a.weight_slots - 1; step++) prefetch(step, last_step);
#pragma unroll 1
    for (int pair = 0; pair < pairs; pair++) {
#pragma unroll 1
      for (int slab = 0; slab < kSlabs; slab++) batches<0>(pair, slab, last_step);
    }
    __syncthreads();
    finish();
  }

  // ---- results ----

  FC_INLINE void finish() {
    const int lane = threadIdx.x % 32;
    extern __shared__ __align__(128) char memory[];
    float *own = reinterpret_cast<float *>(memory + threadIdx.x / 32 * kResultBytes);
    const int64_t first_row = row0 + warp_row, first_column = column0 + warp_column;
    const int rows_left = int(a.batch - first_row < kWarpRows ? a.batch - first_row : kWarpRows);
    const int columns_left = int(a.out - first_column < kWarpColumns ? a.out - first_column : kWarpColumns);
    if (rows_left <= 0 || columns_left <= 0) return;
    float squares[2] = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < kBlades; i++) {
      const int place = a.output[Group::blade(i)];
      if (place >= 0) {
        __syncwarp();
        place_results(own, sums[i], g * kResultPitch + 2 * t, (g + 8) * kResultPitch + 2 * t);
        __syncwarp();
        const int64_t at = (int64_t(place) * a.batch + first_row) * a.out + first_column;
        if (!a.result_narrow) {
          write_results(own, static_cast<float *>(a.result) + at, rows_left, columns_left, a.out);
        } else {
#pragma unroll 1
          for (int k = lane; k < rows_left * kWarpColumns; k += 32) {
            const int row = k / kWarpColumns, column = k % kWarpColumns;
            const Word word = narrow_element<P>(own[row * kResultPitch + column]);
            if (column < columns_left) static_cast<Word *>(a.result)[at + row * a.out + column] = word;
          }
        }
      }
      if (a.sums == nullptr) continue;
      // What lies outside of the tensor is zero.
#pragma unroll
      for (int tile = 0; tile < 8; tile++) {
        const float *s = sums[i][tile];
        squares[0] = fmaf(s[0], s[0], fmaf(s[1], s[1], squares[0]));
        squares[1] = fmaf(s[2], s[2], fmaf(s[3], s[3], squares[1]));
      }
      if (i + 1 < kBlades && Group::part(i + 1) == Group::part(i)) continue;
      float *to = a.sums + (int64_t(Group::part(i)) * a.slices + first_column / kWarpColumns) * a.batch + first_row;
#pragma unroll
      for (int h = 0; h < 2; h++) {
        squares[h] += __shfl_xor_sync(~0u, squares[h], 1);
        squares[h] += __shfl_xor_sync(~0u, squares[h], 2);
        if (t == 0 && g + h * 8 < rows_left) to[g + h * 8] = squares[h];
        squares[h] = 0.0f;
      }
    }
  }
};

template <class Algebra, class P>
struct ForwardLaunch {
  const Problem &a;
  char *shared;
  int row_tile, column_tile;
  template <class Group>
  FC_INLINE void operator()(Group) const {
    Forward<Algebra, Group, P>(a, shared, row_tile, column_tile).run();
  }
};

template <class Algebra, class P>
__global__ void __launch_bounds__(256, 1) forward_kernel(const __grid_constant__ Problem a) {
  extern __shared__ __align__(128) char shared[];
  // Column tiles first, then groups: neighbours read the same rows of x and y.
  const int column_tile = blockIdx.x % a.column_tiles;
  const int rest = blockIdx.x / a.column_tiles;
  const ForwardLaunch<Algebra, P> launch{a, shared, rest / Algebra::kForwardGroups, column_tile};
  Algebra::with_forward(rest % Algebra::kForwardGroups, launch);
}

}  // namespace gemm
}  // namespace fc
