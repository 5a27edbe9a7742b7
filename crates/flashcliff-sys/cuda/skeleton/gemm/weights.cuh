// Gradients of the weights: dw_p = sum over the blades j of its output grade of A_{j,p}^T g_j.
//
// A CTA owns some paths of one output grade, a tile of the in channels, one of the out channels and a part of the batch. A row of
// the left operand is an in channel: a thread forms products for two neighbouring ones. The gradients g come transposed, so
// that both operands have the batch as k.
#pragma once

#include "async.cuh"

namespace fc {
namespace gemm {

template <class Algebra, class Group, class P>
struct Weights {
  using V = typename P::V;
  using Word = typename P::Word;
  static constexpr int kPaths = Group::kPaths;
  static constexpr int kColumns = kColumnWarps * kWarpColumns;
  static constexpr int kTileBytes = kColumns * kSlabBytes;
  static constexpr int kOperands = Group::kLefts + Group::kRights + 1;
  static constexpr int kElements = kSlabBytes / int(sizeof(Word));  // of the batch in a slab
  // The operands of 16 channels lie together, [operand][element of the batch][channel]; elements two apart begin 8 banks apart.
  static constexpr int kPitch = kWarpRows * int(sizeof(Word)) + 16;
  static constexpr int kBlock = kSlabs * kElements * kPitch;
  static constexpr bool kCached = (Group::kLefts + Group::kRights) * V::kCount <= 64;
  static constexpr bool kAsync = Algebra::kBlades <= kAsyncWeightsBlades;

  const Problem &a;
  uint32_t shared;
  int64_t row0, column0;
  int warp_row, warp_column, g, t;
  int operand_bytes, slot_bytes;
  // This thread's 16 bytes of the rows of x, y and f: of row `element` of a slab.
  int64_t byte0;
  int element, left_bytes;
  uint32_t to_operands;
  const char *from_g;
  float sums[kPaths][8][4];
  V xs[kCached ? Group::kLefts : 1], ys[kCached ? Group::kRights : 1];
  V gate;
  uint32_t operands, gradients;

  FC_INLINE Weights(const Problem &problem, char *memory, int row_tile, int column_tile)
      : a(problem), shared(shared_address(memory)) {
    // The same for all threads of the warp, which the compiler is to know.
    const int warp = __shfl_sync(~0u, int(threadIdx.x / 32), 0);
    g = (threadIdx.x % 32) / 4;
    t = threadIdx.x % 4;
    warp_row = warp % a.warp_rows * kWarpRows;
    warp_column = warp / a.warp_rows * kWarpColumns;
    row0 = int64_t(row_tile) * a.warp_rows * kWarpRows;
    column0 = int64_t(column_tile) * kColumns;
    operand_bytes = a.warp_rows * kOperands * kBlock;
    slot_bytes = operand_bytes + Group::kBlades * kSlabs * kTileBytes;
    // Two slabs have as many pieces of 16 bytes as there are threads.
    constexpr int kBlockPieces = kWarpRows * int(sizeof(Word)) / 16;
    const int pieces = a.warp_rows * kBlockPieces;
    element = threadIdx.x / pieces;
    const int piece = threadIdx.x % pieces;
    byte0 = row0 * int(sizeof(Word)) + piece * 16;
    left_bytes = int(a.x.bytes - byte0);
    to_operands = shared + piece / kBlockPieces * (kOperands * kBlock) + element * kPitch + piece % kBlockPieces * 16;
    from_g = a.g.data + column0 * kSlabBytes;
  }

  FC_INLINE uint32_t slot(int step) const { return (step & (a.operand_slots - 1)) * slot_bytes; }

  FC_INLINE void load_tiles(int step, int64_t pair) {
    const uint32_t to = to_operands + slot(step);
    const int64_t row = pair * kSlabs * kElements + element;
    const int left = row < a.batch ? left_bytes : 0;
    const bool exists = left > 0;
    const int64_t at = exists ? row * a.x.row + byte0 : 0;
    if (a.x.whole && a.y.whole) {
#pragma unroll
      for (int i = 0; i < Group::kLefts; i++) {
        copy_or_zero(to + i * kBlock, a.x.data + at + Group::left(i) * a.x.blade, exists);
      }
#pragma unroll
      for (int i = 0; i < Group::kRights; i++) {
        copy_or_zero(to + (Group::kLefts + i) * kBlock, a.y.data + at + Group::right(i) * a.y.blade, exists);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < Group::kLefts; i++) {
        copy_ragged<Word>(to + i * kBlock, a.x.data + a.left[Group::left(i)] * a.x.blade + at, left);
      }
#pragma unroll 1
      for (int i = 0; i < Group::kRights; i++) {
        copy_ragged<Word>(to + (Group::kLefts + i) * kBlock, a.y.data + a.right[Group::right(i)] * a.y.blade + at, left);
      }
    }
    if (a.f.data != nullptr) {
      copy_or_zero(to + (kOperands - 1) * kBlock, a.f.data + (exists ? row * a.f.row + byte0 : 0), exists);
    }
    const uint32_t to_g = shared + slot(step) + operand_bytes;
    const char *from = from_g + uint64_t(pair * kSlabs) * a.g.slab;
#pragma unroll 1
    for (int k = threadIdx.x * 16; k < kTileBytes; k += blockDim.x * 16) {
#pragma unroll
      for (int i = 0; i < Group::kBlades; i++) {
        const char *tile = from + k + uint64_t(Group::blade(i)) * a.g.matrix;
        copy_16(to_g + i * kSlabs * kTileBytes + k, tile);
        copy_16(to_g + (i * kSlabs + 1) * kTileBytes + k, tile + a.g.slab);
      }
    }
  }

  FC_INLINE V load(int operand) const {
    V v;
    const uint32_t at = operands + operand * kBlock;
    if constexpr (P::kNumbers == 1) {
      uint32_t first[2], second[2];
      load_shared(at, first);
      load_shared(at + kPitch, second);
      FC_EACH(2, v.v[i] = __uint_as_float(first[i]); v.v[2 + i] = __uint_as_float(second[i]))
    } else {
      FC_EACH(2, {
        const uint32_t first = load_shared_word(at + 2 * i * kPitch);
        const uint32_t second = load_shared_word(at + (2 * i + 1) * kPitch);
        v.v[4 * i] = P::low(first);
        v.v[4 * i + 1] = P::low(second);
        v.v[4 * i + 2] = P::high(first);
        v.v[4 * i + 3] = P::high(second);
      })
    }
    return v;
  }

  FC_INLINE V x(int place) const {
    if constexpr (kCached) return xs[place];
    return load(place);
  }
  FC_INLINE V y(int place) const {
    if constexpr (kCached) return ys[place];
    return load(Group::kLefts + place);
  }

  // Adds what blade `blade` of the group gives.
  FC_INLINE void multiply(int blade, const V (&v)[kPaths]) {
    typename P::A left[kPaths];
#pragma unroll
    for (int i = 0; i < kPaths; i++) left[i] = P::left(kCached ? v[i] : product(v[i], gate));
    multiply_slab<P, kAsync>(sums, left, gradients + blade * kSlabs * kTileBytes);
  }

  FC_INLINE void compute(int step) {
    const uint32_t begin = shared + slot(step);
    const uint32_t own = begin + warp_row / kWarpRows * (kOperands * kBlock) + 2 * g * int(sizeof(Word));
#pragma unroll 1
    for (int slab = 0; slab < kSlabs; slab++) {
      const int first = slab * kElements + t * 2 * P::kNumbers;
      operands = own + first * kPitch;
      gradients = begin + operand_bytes + slab * kTileBytes + warp_column * kSlabBytes;
      if (a.f.data != nullptr) {
        gate = load(kOperands - 1);
      } else {
        FC_EACH(V::kCount, gate.v[i] = a.scale)
      }
      if constexpr (kCached) {
#pragma unroll
        for (int i = 0; i < Group::kLefts; i++) xs[i] = load(i);
#pragma unroll
        for (int i = 0; i < Group::kRights; i++) ys[i] = product(load(Group::kLefts + i), gate);
      }
      Group::step(*this);
      finish_products<kAsync>();
    }
  }

  FC_INLINE void run(int split) {
#pragma unroll
    for (int i = 0; i < kPaths; i++) {
#pragma unroll
      for (int tile = 0; tile < 8; tile++) {
        for (int k = 0; k < 4; k++) sums[i][tile][k] = 0.0f;
      }
    }
    const int64_t pairs = (a.batch + kSlabs * kElements - 1) / (kSlabs * kElements);
    const int64_t begin = pairs * split / a.splits, end = pairs * (split + 1) / a.splits;
    const int count = int(end - begin), ahead = a.operand_slots - 1;
    for (int step = 0; step < ahead; step++) {
      if (step < count) load_tiles(step, begin + step);
      copy_commit();
    }
#pragma unroll 1
    for (int step = 0; step < count; step++) {
      if (ahead == 0) {
        __syncthreads();
        load_tiles(step, begin + step);
        copy_commit();
      }
      copy_wait(ahead > 0 ? ahead - 1 : 0);
      publish_copies<kAsync>();
      __syncthreads();
      if (ahead > 0) {
        if (step + ahead < count) load_tiles(step + ahead, begin + step + ahead);
        copy_commit();
      }
      compute(step);
    }
    __syncthreads();
    finish(split);
  }

  FC_INLINE void finish(int split) {
    extern __shared__ __align__(128) char memory[];
    float *own = reinterpret_cast<float *>(memory + threadIdx.x / 32 * kResultBytes);
    const int64_t first_row = row0 + warp_row, first_column = column0 + warp_column;
    const int rows_left = int(a.in - first_row < kWarpRows ? a.in - first_row : kWarpRows);
    const int columns_left = int(a.out - first_column < kWarpColumns ? a.out - first_column : kWarpColumns);
    if (rows_left <= 0 || columns_left <= 0) return;
#pragma unroll
    for (int i = 0; i < kPaths; i++) {
      const int place = a.path[Group::path(i)];
      if (place < 0) continue;
      __syncwarp();
      place_results(own, sums[i], 2 * g * kResultPitch + 2 * t, (2 * g + 1) * kResultPitch + 2 * t);
      __syncwarp();
      const int64_t path = int64_t(split) * a.slices + place;
      write_results(own, static_cast<float *>(a.result) + (path * a.in + first_row) * a.out + first_column, rows_left,
                    columns_left, a.out);
    }
  }
};

template <class Algebra, class P>
struct WeightsLaunch {
  const Problem &a;
  char *shared;
  int row_tile, column_tile, split;
  template <class Group>
  FC_INLINE void operator()(Group) const {
    Weights<Algebra, Group, P>(a, shared, row_tile, column_tile).run(split);
  }
};

template <class Algebra, class P>
__global__ void __launch_bounds__(256, 1) weights_kernel(const __grid_constant__ Problem a) {
  extern __shared__ __align__(128) char shared[];
  const int column_tile = blockIdx.x % a.column_tiles;
  const int rest = blockIdx.x / a.column_tiles;
  const int group = rest / a.row_tiles;
  const WeightsLaunch<Algebra, P> launch{a, shared, rest % a.row_tiles, column_tile, group % a.splits};
  // The groups with the most work first.
  Algebra::with_weights(group / a.splits, launch);
}

}  // namespace gemm
}  // namespace fc
