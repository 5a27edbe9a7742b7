// Gradients of the operands: with D_{j,p} = g_j w_p^T, the gradient of sum (A_{j,p} * D_{j,p}), through the terms of A.
//
// A CTA owns a tile of the batch and one of the in channels. It goes through groups of output blades and paths: the products D
// of a group stay in registers, and are then combined with x and y into u = dL/dx / f and v = dL/dy / f, f the product of the
// gates. u and v of all blades stay in shared memory, where each thread has its own.
#pragma once

#include "../gates.cuh"
#include "mma.cuh"
#include "tiles.cuh"

namespace fc {
namespace gemm {

template <class Algebra, class P>
struct Operands {
  using V = Fragment<4>;
  using Word = typename P::Word;
  static constexpr int kTiles = kOperandColumns / 8;
  static constexpr int kColumns = kColumnWarps * kOperandColumns;
  static constexpr int kPathBytes = kSlabs * kColumns * kSlabBytes;
  static constexpr int kComponents = 2 * Algebra::kBlades * kTiles;

  const Problem &a;
  float *own;               // this thread's u and v
  uint32_t ring;
  int64_t row0, column0;
  int warp_row, warp_column, g, t;
  int slot_bytes;
  uint32_t lefts, rights;   // this thread's words of g and w, in the first slot
  // This thread's first number of x and y in its column tile at work, and how far its second row is.
  int64_t first, second_row;
  int second_column;
  int own_tile;

  FC_INLINE Operands(const Problem &problem, char *memory, int row_tile, int column_tile) : a(problem) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    g = lane / 4;
    t = lane % 4;
    warp_row = warp % a.warp_rows * kWarpRows;
    warp_column = warp / a.warp_rows * kOperandColumns;
    row0 = int64_t(row_tile) * a.warp_rows * kWarpRows;
    column0 = int64_t(column_tile) * kColumns;
    own = reinterpret_cast<float *>(memory) + (warp * kComponents * 32 + lane) * 4;
    ring = shared_address(memory) + kComponents * 16 * blockDim.x;
    slot_bytes = a.warp_rows * Algebra::kOperandsBlades * kSlabs * kBlockBytes + Algebra::kOperandsPaths * kPathBytes;
    lefts = ring + lane * 16;
    rights = ring + lane * 8 + warp_column * kSlabBytes;
  }

  // ---- what generated code calls ----

  FC_INLINE float *place(int component) const {
    return own + (component * kTiles + own_tile) * 128;
  }
  FC_INLINE V get(int component) const {
    const float4 q = *reinterpret_cast<const float4 *>(place(component));
    return V{{q.x, q.y, q.z, q.w}};
  }
  FC_INLINE void set(int component, const V &v) {
    *reinterpret_cast<float4 *>(place(component)) = make_float4(v.v[0], v.v[1], v.v[2], v.v[3]);
  }

  // Rows and columns beyond the tensor read others, whose gradients are not stored.
  FC_INLINE void choose_tile(int tile) {
    own_tile = tile;
    const int64_t row = row0 + warp_row + g, column = column0 + warp_column + tile * 8 + 2 * t;
    const int64_t row1 = row < a.batch ? row : a.batch - 1, row2 = row + 8 < a.batch ? row + 8 : a.batch - 1;
    first = row1 * a.in + (column < a.in ? column : a.in - 1);
    second_column = column + 1 < a.in;
    second_row = (row2 - row1) * a.in;
  }

  // Two neighbours of two rows, one by one: a choice between that and a load of both would cost more.
  FC_INLINE V operand(const Lane &m, int place) const {
    const Word *from = reinterpret_cast<const Word *>(m.data + place * m.blade) + first;
    return V{{widen_element<P>(from[0]), widen_element<P>(from[second_column]), widen_element<P>(from[second_row]),
              widen_element<P>(from[second_row + second_column])}};
  }
  FC_INLINE V x(int blade) const { return operand(a.x, a.left[blade]); }
  FC_INLINE V y(int blade) const { return operand(a.y, a.right[blade]); }
  FC_INLINE int64_t column_of(int tile) const { return column0 + warp_column + tile * 8 + 2 * t; }

  // ---- products ----

  FC_INLINE uint32_t slot(int step) const { return (step & (a.operand_slots - 1)) * slot_bytes; }

  // Of g, 16 rows lie together: [blade][slab][lane][4 words], as the lanes hold them. Of w, [path][slab][row][8 words] follows.
  template <class Group>
  FC_INLINE void load_tiles(int step) {
    const int tid = threadIdx.x, row_pieces = a.warp_rows * kBlockBytes / 16;
    // As many threads as two slabs of the rows have pieces of 16 bytes.
    const int slab = tid >= row_pieces, piece = tid - slab * row_pieces;
    const uint32_t to = ring + slot(step);
    const uint32_t to_g = to + piece / 32 * (Group::kBlades * kSlabs * kBlockBytes) + slab * kBlockBytes + piece % 32 * 16;
    const char *from = a.g.data + uint64_t(step * kSlabs + slab) * a.g.slab + row0 * kSlabBytes + piece * 16;
#pragma unroll
    for (int j = 0; j < Group::kBlades; j++) {
      copy_16(to_g + j * kSlabs * kBlockBytes, from + uint64_t(Group::blade(j)) * a.g.matrix);
    }
    const uint32_t to_w = to + a.warp_rows * (Group::kBlades * kSlabs * kBlockBytes);
    const char *from_w = a.w.data + uint64_t(step * kSlabs) * a.w.slab + column0 * kSlabBytes;
    // 64 threads bring a slab of a path.
    const int unit = tid / 64, within = tid % 64 * 16;
    if (a.warp_rows == 4) {
      from_w += unit % 2 * a.w.slab + within;
#pragma unroll
      for (int p = 0; p < Group::kPaths; p += 2) {
        const bool second = unit / 2;
        const int path = second ? Group::path(p + 1 < Group::kPaths ? p + 1 : p) : Group::path(p);
        if (p + 1 < Group::kPaths || !second) {
          copy_16(to_w + (p * kSlabs + unit) * (kPathBytes / kSlabs) + within, from_w + uint64_t(unsigned(path)) * a.w.matrix);
        }
      }
    } else {
#pragma unroll 1
      for (int i = unit; i < kSlabs; i += a.warp_rows) {
#pragma unroll
        for (int p = 0; p < Group::kPaths; p++) {
          copy_16(to_w + (p * kSlabs + i) * (kPathBytes / kSlabs) + within,
                  from_w + i * a.w.slab + within + uint64_t(Group::path(p)) * a.w.matrix);
        }
      }
    }
  }

  template <class Group>
  struct Sums {
    float d[Group::kBlades][Group::kPaths][kTiles][4];
  };

  template <class Group>
  FC_INLINE void compute(int step, Sums<Group> &sums) {
    const uint32_t from = lefts + slot(step) + warp_row / kWarpRows * (Group::kBlades * kSlabs * kBlockBytes);
    const uint32_t from_w = rights + slot(step) + a.warp_rows * (Group::kBlades * kSlabs * kBlockBytes);
#pragma unroll
    for (int slab = 0; slab < kSlabs; slab++) {
      typename P::A left[Group::kBlades];
#pragma unroll
      for (int j = 0; j < Group::kBlades; j++) {
        uint32_t words[4];
        load_shared(from + (j * kSlabs + slab) * kBlockBytes, words);
        left[j] = P::left_words(words);
      }
#pragma unroll
      for (int p = 0; p < Group::kPaths; p++) {
#pragma unroll
        for (int n = 0; n < kTiles; n++) {
          uint32_t w[2];
          load_shared(from_w + p * kPathBytes + (slab * kColumns + n * 8) * kSlabBytes, w);
          const typename P::B right = P::right(w);
#pragma unroll
          for (int j = 0; j < Group::kBlades; j++) P::mma(sums.d[j][p][n], left[j], right);
        }
      }
    }
  }

  // What generated code sees of the products of a column tile.
  template <class Group, int Tile>
  struct View {
    using V = Fragment<4>;
    Operands &o;
    const Sums<Group> &sums;
    template <int Path, int Blade>
    FC_INLINE V d() const {
      const float *s = sums.d[Blade][Path][Tile];
      return V{{s[0], s[1], s[2], s[3]}};
    }
    FC_INLINE V x(int blade) const { return o.x(blade); }
    FC_INLINE V y(int blade) const { return o.y(blade); }
    FC_INLINE V u(int blade) const { return o.get(blade); }
    FC_INLINE V v(int blade) const { return o.get(Algebra::kBlades + blade); }
    FC_INLINE void set_u(int blade, const V &value) { o.set(blade, value); }
    FC_INLINE void set_v(int blade, const V &value) { o.set(Algebra::kBlades + blade, value); }
  };

  template <class Group, int Tile>
  FC_INLINE void update(const Sums<Group> &sums) {
    choose_tile(Tile);
    View<Group, Tile> view{*this, sums};
    Group::update(view);
  }

  template <class Group>
  FC_INLINE void operator()(Group) {
    Sums<Group> sums;
#pragma unroll
    for (int p = 0; p < Group::kPaths; p++) {
#pragma unroll
      for (int j = 0; j < Group::kBlades; j++) {
#pragma unroll
        for (int n = 0; n < kTiles; n++) {
          for (int k = 0; k < 4; k++) sums.d[j][p][n][k] = 0.0f;
        }
      }
    }
    const int unit = kSlabBytes / int(sizeof(Word)) * kSlabs, steps = int((a.out + unit - 1) / unit);
    const int ahead = a.operand_slots - 1;
    // The ring is still read for the group before.
    __syncthreads();
    for (int step = 0; step < ahead; step++) {
      if (step < steps) load_tiles<Group>(step);
      copy_commit();
    }
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
      copy_wait(ahead - 1);
      __syncthreads();
      if (step + ahead < steps) load_tiles<Group>(step + ahead);
      copy_commit();
      compute<Group>(step, sums);
    }
    update<Group, 0>(sums);
    update<Group, 1>(sums);
  }

  FC_INLINE void run() {
    for (own_tile = 0; own_tile < kTiles; own_tile++) {
      for (int i = 0; i < 2 * Algebra::kBlades; i++) set(i, zero<V>());
    }
    Algebra::each_operands(*this);
#pragma unroll 1
    for (int tile = 0; tile < kTiles; tile++) finish(tile);
  }

  // ---- results ----

  FC_INLINE void store(void *to, int place, const V &v) {
    if (to == nullptr) return;
    const int64_t row = row0 + warp_row + g, column = column_of(own_tile);
    Word *p = static_cast<Word *>(to) + (int64_t(place) * a.batch + row) * a.in + column;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      if (row + h * 8 >= a.batch || column >= a.in) continue;
      if (a.x.whole) {
        if constexpr (P::kNumbers == 1) {
          *reinterpret_cast<float2 *>(p) = make_float2(v.v[2 * h], v.v[2 * h + 1]);
        } else {
          *reinterpret_cast<uint32_t *>(p) = P::pack(v.v[2 * h], v.v[2 * h + 1]);
        }
      } else {
        p[0] = narrow_element<P>(v.v[2 * h]);
        if (column + 1 < a.in) p[1] = narrow_element<P>(v.v[2 * h + 1]);
      }
      p += 8 * a.in;
    }
  }

  // From u and v to the gradients, through the gates.
  FC_INLINE void finish(int tile) {
    choose_tile(tile);
    V gate_x, gate_y, slope_x, slope_y, total = zero<V>();
    gates(a.has_left[0] ? x(0) : zero<V>(), gate_x, slope_x);
    gates(a.has_right[0] ? y(0) : zero<V>(), gate_y, slope_y);
    const V f = product(gate_x, gate_y);
    slope_x = product(slope_x, gate_y);
    slope_y = product(slope_y, gate_x);
#pragma unroll 1
    for (int i = 0; i < Algebra::kBlades; i++) {
      if (a.has_left[i]) add(total, x(i), get(i));
    }
#pragma unroll 1
    for (int i = 0; i < Algebra::kBlades; i++) {
      V grad = product(f, get(i));
      if (i == 0) add(grad, slope_x, total);
      if (a.has_left[i]) store(a.grad_x, a.left[i], grad);
      grad = product(f, get(Algebra::kBlades + i));
      if (i == 0) add(grad, slope_y, total);
      if (a.has_right[i]) store(a.grad_y, a.right[i], grad);
    }
  }

  FC_INLINE void gates(const V &scalar, V &value, V &slope) const {
    Lanes<float, 4> in, values, slopes;
    FC_EACH(4, in.v[i] = scalar.v[i])
    gate_and_slope(a.gate, in, values, slopes);
    FC_EACH(4, value.v[i] = values.v[i]; slope.v[i] = slopes.v[i])
  }
};

template <class Algebra, class P>
__global__ void __launch_bounds__(256, 1) operands_kernel(const __grid_constant__ Problem a) {
  extern __shared__ __align__(128) char shared[];
  Operands<Algebra, P>(a, shared, blockIdx.x / a.column_tiles, blockIdx.x % a.column_tiles).run();
}

}  // namespace gemm
}  // namespace fc
