// A chain: programs of rows and products with matrices, one after another on a tile of rows, in one kernel.
//
// A CTA has 16 or 32 rows at a time. What a part of the chain makes for the next one stays in shared memory; what others read is written
// to memory too. In a program some threads of a warp have the channels of a row. In a product each warp has some of the columns of the
// result, for all rows, so it alone reads their weights: from memory, two steps ahead, in the order in which it needs them.
//
// The matrix of an equivariant map has the same block for all blades of a grade, at most with another sign. A warp takes the columns of
// two such blades together, and reads their weights once.
//
// In shared memory the rows g and g + 8 of 16 alternate, number by number. So 16 bytes are a fragment of a product, in the order of its
// registers: two columns of both rows.
//
// The text of a chain says where its tensors are in a row and in shared memory, so that places are constants of the code. Shared memory
// is addressed by 32 bits, as generic addresses would cost several instructions for each access.
#pragma once

#include "../tensor_cores.cuh"
#include "memory.cuh"
#include "uniforms.cuh"

namespace fc {

constexpr int kChainWarps = 16;
constexpr int kChainThreads = 32 * kChainWarps;
constexpr int kChainMembers = 2;  // pairs of units of a result with the same weights
constexpr int kChainKept = 64;    // numbers of a row that a thread keeps from pass to pass, at most

struct ChainProgram {
  float eps, inv_channels;
  int32_t gate, unused;
};

// Rows of a matrix that go to shared memory, `width` numbers each.
struct ChainCopy {
  const float *from;
  int32_t width, shared, shared_row, unused;
};

// out = bias + x w, where x is in shared memory, and rounded.
//
// Columns come in units of eight, and units in pairs. A step multiplies a pair of inputs with weights. An item is one pair of outputs, or
// two with the same weights but for signs, its members; it has some steps. A warp has some items, one after another.
//
// A pair is a word: the numbers of two units by 16 bits, for inputs with kChainNegative if the weights have the other sign, for outputs
// kChainNone if there is one unit.
//
// | array   | for each | has                                                                                                          |
// |---------|----------|--------------------------------------------------------------------------------------------------------------|
// | warps   | warp     | its first item and its first step by pairs of words of `items`, with the number of items in between, and the |
// |         |          | number of all steps before                                                                                   |
// | items   | item     | four words: all steps and the steps without signs, by 16 bits; the members and the set of members with       |
// |         |          | a bias, by 16 bits; the pairs of outputs                                                                     |
// |         | step     | two words after all items: the pairs of inputs of both members                                               |
// | weights | step     | 256 rounded numbers: for each unit of inputs and each lane 4 g + t the weights of inputs 2 t and 2 t + 1 and |
// |         |          | of outputs 2 g and 2 g + 1 of the pair                                                                       |
struct ChainProduct {
  const float4 *weights;
  const float *bias;
  const int2 *items;
  float *memory;  // unused if the result goes to shared memory alone
  int64_t row;
  int32_t shared, shared_row, from, from_row;
  int32_t warps[kChainWarps][4];
};
constexpr uint32_t kChainNegative = 0x8000, kChainNone = 0xffff, kChainColumn = 0x3fff;
constexpr int kChainUnit = 8;

template <int Addresses, int Programs, int Products, int Copies>
struct ChainCall {
  int64_t rows;
  float *memory[Addresses > 0 ? Addresses : 1];
  ChainProgram programs[Programs > 0 ? Programs : 1];
  ChainProduct products[Products > 0 ? Products : 1];
  ChainCopy copies[Copies > 0 ? Copies : 1];
};

// The rows of a CTA: the first one, all, and the address of shared memory.
struct ChainTile {
  uint32_t first, rows, shared;
};

extern __shared__ __align__(16) unsigned char chain_memory[];

// ---- shared memory, by bytes ----

FC_INLINE float chain_read(uint32_t from) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from));
  return v;
}
FC_INLINE float4 chain_read4(uint32_t from) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(from));
  return v;
}
FC_INLINE void chain_write(uint32_t to, float v) { asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory"); }
FC_INLINE void chain_write4(uint32_t to, float4 v) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}

// A number rounded to the bits that products read: they leave out what TF32 does not have.
FC_INLINE float chain_rounded(float x) {
  // Infinities, and numbers that are none, stay what they are.
  return fabsf(x) < __int_as_float(0x7f800000) ? __int_as_float(__float_as_int(x) + 0x1000) : x;
}

// The numbers from a column to the next.
constexpr int kChainColumnStride = 2;
// The numbers from the first row of a tile to another one.
FC_INLINE int chain_row(int row, int stride) { return (row / 16 * 8 + row % 8) * kChainColumnStride * stride + row / 8 % 2; }
// The threads of a row in programs, and the row of a thread. A warp with two rows has those that alternate, so its threads have different
// banks.
template <int Rows>
__host__ __device__ constexpr int chain_lanes() { return kChainThreads / Rows; }
template <int Rows>
FC_INLINE int chain_own_row() {
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  return Rows == 32 ? warp / 8 * 16 + warp % 8 + lane / 16 * 8 : warp;
}

// ---- programs ----

// A parameter [channels, count] in memory, at a channel.
struct ChainParameter {
  const float *first;
  FC_INLINE Lanes<float, 1> operator[](int k) const { return {{__ldg(first + k)}}; }
};

// A program on the tensors of a use `U`, which says for each tensor whether it is in memory and where in shared memory it is, and the
// numbers from a row or a component to the next.
template <class U, int Rows, class Call>
struct ChainRow {
  using P = typename U::P;
  static constexpr int kLanes = chain_lanes<Rows>();
  using T = float;
  using V = Lanes<float, 1>;
  static constexpr int kRowSums = P::kShape.row_sums;
  static constexpr int kReductions = P::kShape.reductions;
  static constexpr int kInputs = P::kShape.inputs;
  static constexpr int kOutputs = kInputs + P::kShape.row_values;
  static constexpr int kParams = kOutputs + P::kShape.outputs;

  static __host__ __device__ constexpr int tiles_of(int width) { return (U::channels(width) + kLanes - 1) / kLanes; }
  static __host__ __device__ constexpr int count(int input) {
    constexpr Shape s = P::kShape;
    return s.input_components[input];
  }
  static __host__ __device__ constexpr int width(int input) {
    constexpr Shape s = P::kShape;
    return s.scalar_inputs >> input & 1;
  }
  // The components of the inputs of a width in front of one.
  static __host__ __device__ constexpr int before(int input, int of_width) {
    int sum = 0;
    for (int i = 0; i < input; i++) sum += width(i) == of_width ? count(i) : 0;
    return sum;
  }
  static __host__ __device__ constexpr int all(int of_width) { return before(kInputs, of_width); }
  static __host__ __device__ constexpr int some(int number) { return number > 0 ? number : 1; }
  // Whether all inputs are read before the first reduction, and stay in registers.
  static constexpr bool kKeeps = kReductions > 0 && tiles_of(0) * all(0) + tiles_of(1) * all(1) <= kChainKept;

  const Call &call;
  Uniforms<float> u;
  int lane, row_of_tile;
  uint32_t row, shared;
  bool active;
  float totals[some(kRowSums)];
  V kept0[some(kKeeps ? tiles_of(0) * all(0) : 0)], kept1[some(kKeeps ? tiles_of(1) * all(1) : 0)];

  FC_INLINE ChainRow(const Call &given, const ChainProgram &own, const ChainTile &tile) : call(given), u(own.gate), shared(tile.shared) {
    u.eps = own.eps, u.inv_channels = own.inv_channels;
    u.counts[0] = float(U::channels(0)), u.counts[1] = float(U::channels(1));
    lane = int(threadIdx.x) % kLanes, row_of_tile = chain_own_row<Rows>();
    active = tile.first + row_of_tile < tile.rows;
    row = active ? tile.first + row_of_tile : tile.rows - 1;
#pragma unroll
    for (int k = 0; k < kRowSums; k++) totals[k] = 0;
  }

  template <int Slot>
  FC_INLINE float *memory(int channel) const {
    return call.memory[U::kFirst + Slot] + (uint64_t(row) * uint32_t(U::row(Slot)) + uint32_t(channel));
  }
  template <int Slot>
  FC_INLINE uint32_t place(int channel) const {
    return shared + 4 * (U::shared(Slot) + chain_row(row_of_tile, U::shared_row(Slot)) + kChainColumnStride * channel);
  }

  template <int Slot, int K>
  FC_INLINE void read(int channel, V *values) const {
    if constexpr (U::shared(Slot) >= 0) {
      const uint32_t from = place<Slot>(channel);
#pragma unroll
      for (int k = 0; k < K; k++) values[k].v[0] = chain_read(from + 4 * kChainColumnStride * k * U::component(Slot));
    } else {
      const float *from = memory<Slot>(channel);
#pragma unroll
      for (int k = 0; k < K; k++) values[k].v[0] = from[k * U::component(Slot)];
    }
  }

  template <int Slot, int K>
  FC_INLINE void write(int channel, const V *values) const {
    if constexpr (U::shared(Slot) >= 0) {
      const uint32_t to = place<Slot>(channel);
#pragma unroll
      for (int k = 0; k < K; k++) {
        const float v = values[k].v[0];
        chain_write(to + 4 * kChainColumnStride * k * U::component(Slot), U::rounds(Slot) ? chain_rounded(v) : v);
      }
    }
    if constexpr (U::in_memory(Slot)) {
      float *to = memory<Slot>(channel);
      if (active) {
#pragma unroll
        for (int k = 0; k < K; k++) to[k * U::component(Slot)] = values[k].v[0];
      }
    }
  }

  template <int Width>
  FC_INLINE V *kept(int tile) {
    if constexpr (Width == 0) {
      return kept0 + tile * all(0);
    } else {
      return kept1 + tile * all(1);
    }
  }

  // The channels of a thread in a pass, with what the functions of a program ask for.
  template <int Width, int Pass>
  struct Part {
    using T = float;
    using V = Lanes<float, 1>;
    static constexpr bool kIsLast = Pass == kReductions;

    ChainRow &c;
    const Uniforms<T> &u;
    int channel;
    const V *own;

    FC_INLINE Part(ChainRow &row, int at, const V *inputs) : c(row), u(row.u), channel(at), own(inputs) {}

    template <int Slot, int K>
    FC_INLINE void load(V (&values)[K]) const {
      if constexpr (kKeeps) {
#pragma unroll
        for (int k = 0; k < K; k++) values[k] = own[before(Slot, Width) + k];
      } else {
        c.template read<Slot, K>(channel, values);
      }
    }
    template <int Slot, int K>
    FC_INLINE void store(const V (&values)[K]) const {
      if constexpr (kIsLast) c.template write<kOutputs + Slot, K>(channel, values);
    }
    template <int Slot>
    FC_INLINE ChainParameter param() const {
      constexpr Shape shape = P::kShape;
      constexpr int count = shape.param_counts[Slot];
      return {c.call.memory[U::kFirst + kParams + Slot] + channel * count};
    }
    template <int Slot>
    FC_INLINE T row_value() const {
      return *c.template memory<Slot>(0);
    }
    FC_INLINE T total(int k) const { return c.totals[k]; }
    template <int Reductions>
    FC_INLINE constexpr bool reached() const {
      return Pass >= Reductions;
    }
    template <int At, int From, int Count = 0, int K>
    FC_INLINE bool reduce(T (&sums)[K]) {
#pragma unroll
      for (int k = 0; k < (Count > 0 ? Count : K); k++) {
        if constexpr (Pass == At) c.totals[From + k] += sums[k];
        sums[k] = c.totals[From + k];
      }
      return Pass > At;
    }
  };

  template <int Width, int Tile>
  FC_INLINE bool has() const {
    return (Tile + 1) * kLanes <= U::channels(Width) || Tile * kLanes + lane < U::channels(Width);
  }

  template <int Width, int Tile, int Slot>
  FC_INLINE void keep_inputs() {
    if constexpr (Slot < kInputs) {
      if constexpr (width(Slot) == Width && count(Slot) > 0) {
        read<Slot, count(Slot)>(Tile * kLanes + lane, kept<Width>(Tile) + before(Slot, Width));
      }
      keep_inputs<Width, Tile, Slot + 1>();
    }
  }
  template <int Width, int Tile>
  FC_INLINE void keep_tiles() {
    if constexpr (Tile < tiles_of(Width)) {
      if (has<Width, Tile>()) keep_inputs<Width, Tile, 0>();
      keep_tiles<Width, Tile + 1>();
    }
  }

  template <int Width, int Pass, int Tile>
  FC_INLINE void work() {
    if constexpr (!kKeeps) {
#pragma unroll 1
      for (int channel = lane; channel < U::channels(Width); channel += kLanes) {
        Part<Width, Pass> part(*this, channel, nullptr);
        P::template run<Width>(part);
      }
    } else if constexpr (Tile < tiles_of(Width)) {
      if (has<Width, Tile>()) {
        Part<Width, Pass> part(*this, Tile * kLanes + lane, kept<Width>(Tile));
        P::template run<Width>(part);
      }
      work<Width, Pass, Tile + 1>();
    }
  }

  template <int Pass, int K>
  FC_INLINE void collect() {
    if constexpr (K < kRowSums) {
      if constexpr (P::reduction_of(K) == Pass) {
#pragma unroll
        for (int d = kLanes / 2; d > 0; d /= 2) totals[K] += __shfl_xor_sync(~0u, totals[K], d);
      }
      collect<Pass, K + 1>();
    }
  }

  template <int Pass>
  FC_INLINE void passes() {
    work<0, Pass, 0>();
    work<1, Pass, 0>();
    if constexpr (Pass < kReductions) {
      collect<Pass, 0>();
      passes<Pass + 1>();
    }
  }
};

template <class U, int Rows, int At, class Call>
FC_INLINE void run_program(const Call &call, const ChainTile &tile) {
  using Row = ChainRow<U, Rows, Call>;
  Row c(call, call.programs[At], tile);
  if constexpr (Row::kKeeps) {
    c.template keep_tiles<0, 0>();
    c.template keep_tiles<1, 0>();
  }
  c.template passes<0>();
}

// ---- rows of matrices ----

// Copies the rows of a tile to shared memory, rounded.
template <int Rows>
FC_INLINE void copy_rows(const ChainCopy &of, const ChainTile &tile) {
  constexpr int kLanes = chain_lanes<Rows>();
  const int row = chain_own_row<Rows>(), lane = int(threadIdx.x) % kLanes;
  const float *from = of.from + uint64_t(min(tile.first + row, tile.rows - 1)) * uint32_t(of.width);
  const uint32_t to = tile.shared + 4 * (of.shared + chain_row(row, of.shared_row));
  // Some at once, as a write would make the next read wait.
  constexpr int kAtOnce = 6;
#pragma unroll 1
  for (int first = 2 * lane; first < of.width; first += 2 * kLanes * kAtOnce) {
    float2 v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) {
      if (const int at = first + 2 * kLanes * i; at < of.width) v[i] = *reinterpret_cast<const float2 *>(from + at);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) {
      const int at = first + 2 * kLanes * i;
      if (at >= of.width) break;
      chain_write(to + 4 * kChainColumnStride * at, chain_rounded(v[i].x));
      chain_write(to + 4 * kChainColumnStride * (at + 1), chain_rounded(v[i].y));
    }
  }
}

// ---- products ----

// What a lane has of a step: the weights of its inputs in both units, and the pairs of inputs of both members.
struct ChainStep {
  float4 first, second;
  int2 inputs;
};

// A unit of a pair.
FC_INLINE uint32_t chain_unit(int pair, int at) { return at == 0 ? uint32_t(pair) & 0xffff : uint32_t(pair) >> 16; }

// Sums of a member: of 16 rows each, of both units of outputs.
template <int Halves>
struct ChainSums {
  float of[Halves][2][4];
};

// Adds the products of a unit of inputs with weights. The first two columns of a lane are at `rows`, 16 rows further `below` bytes more.
template <int Halves>
FC_INLINE void chain_multiply(ChainSums<Halves> &sums, float4 weights, uint32_t rows, uint32_t below) {
#pragma unroll
  for (int half = 0; half < Halves; half++) {
    const float4 x = chain_read4(rows + half * below);
    multiply(sums.of[half][0], {x.x, x.y, x.z, x.w}, {weights.x, weights.y});
    multiply(sums.of[half][1], {x.x, x.y, x.z, x.w}, {weights.z, weights.w});
  }
}

template <bool Signed, int Halves>
FC_INLINE void chain_step(ChainSums<Halves> &sums, const ChainStep &own, int pair, uint32_t rows, uint32_t below) {
  constexpr uint32_t kBytes = 4 * kChainUnit * kChainColumnStride;
#pragma unroll
  for (int at = 0; at < 2; at++) {
    float4 weights = at == 0 ? own.first : own.second;
    uint32_t unit = chain_unit(pair, at);
    if constexpr (Signed) {
      const uint32_t sign = (unit & kChainNegative) << 16;
      const auto with_sign = [&](float v) { return __uint_as_float(__float_as_uint(v) ^ sign); };
      weights = make_float4(with_sign(weights.x), with_sign(weights.y), with_sign(weights.z), with_sign(weights.w));
      unit &= kChainColumn;
    }
    chain_multiply<Halves>(sums, weights, rows + kBytes * unit, below);
  }
}

// What a warp has of a product.
template <int Halves>
struct ChainWork {
  const float4 *weights;
  const int2 *inputs;
  ChainStep next, behind;  // which have been read
  uint32_t from, below;

  // There are two steps more than all warps take.
  FC_INLINE ChainStep read() {
    const ChainStep step{__ldg(weights), __ldg(weights + 32), __ldg(inputs)};
    weights += 64, inputs++;
    return step;
  }

  template <bool Signed, int Members>
  FC_INLINE void step(ChainSums<Halves> (&sums)[Members], const ChainStep &own) const {
    chain_step<false>(sums[0], own, own.inputs.x, from, below);
    if constexpr (Members > 1) chain_step<Signed>(sums[1], own, own.inputs.y, from, below);
  }

  template <bool Signed, int Members>
  FC_INLINE void steps(ChainSums<Halves> (&sums)[Members], int count) {
#pragma unroll 1
    for (; count > 0; count--) {
      const ChainStep own = next;
      next = behind;
      behind = read();
      step<Signed>(sums, own);
    }
  }
};

// Where the result of a product goes, for a lane.
template <bool Made, bool Left, bool Rounded, int Halves>
struct ChainResult {
  uint32_t made, below;
  float *left;
  int64_t row;
  int there;  // the rows from the first one of the lane on
  int t;

  // A lane has four columns of a pair, which are of one unit: outputs 4 t to 4 t + 3.
  FC_INLINE void write(const ChainSums<Halves> &sums, int pair) const {
    const uint32_t unit = chain_unit(pair, t / 2), column = kChainUnit * unit + t % 2 * 4;
    if (unit == kChainNone) return;
#pragma unroll
    for (int half = 0; half < Halves; half++) {
      const float *const even = sums.of[half][0], *const odd = sums.of[half][1];
      if constexpr (Made) {
        const auto round = [](float x) { return Rounded ? chain_rounded(x) : x; };
        const uint32_t to = made + half * below + 4 * kChainColumnStride * column;
        chain_write4(to, make_float4(round(even[0]), round(even[2]), round(odd[0]), round(odd[2])));
        chain_write4(to + 16, make_float4(round(even[1]), round(even[3]), round(odd[1]), round(odd[3])));
      }
      if constexpr (Left) {
        float *const to = left + 16 * half * row + column;
        if (16 * half < there) *reinterpret_cast<float4 *>(to) = make_float4(even[0], odd[0], even[1], odd[1]);
        if (16 * half + 8 < there) *reinterpret_cast<float4 *>(to + 8 * row) = make_float4(even[2], odd[2], even[3], odd[3]);
      }
    }
  }
};

template <int Halves>
FC_INLINE void chain_begin(ChainSums<Halves> &sums, const float *bias, bool has_bias, int pair, int t) {
  const uint32_t unit = chain_unit(pair, t / 2), column = kChainUnit * unit + t % 2 * 4;
  float4 v = make_float4(0, 0, 0, 0);
  if (has_bias && unit != kChainNone) v = __ldg(reinterpret_cast<const float4 *>(bias + column));
#pragma unroll
  for (int half = 0; half < Halves; half++) {
    float *const even = sums.of[half][0], *const odd = sums.of[half][1];
    even[0] = even[2] = v.x, odd[0] = odd[2] = v.y, even[1] = even[3] = v.z, odd[1] = odd[3] = v.w;
  }
}

// `Made` and `Left`: whether the result goes to shared memory, and to memory. It waits for all threads when it has asked for what it needs
// first. Not inlined: products of a chain are the same code, which stays in a cache.
template <int Rows, bool Made, bool Left, bool Rounded>
static __device__ __noinline__ void multiply_rows(const ChainProduct &of, const ChainTile tile) {
  constexpr int kHalves = Rows / 16;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
  const int32_t *const own_work = of.warps[warp];
  const int2 *item = of.items + own_work[0];
  const int items = own_work[1];
  ChainWork<kHalves> work{of.weights + int64_t(own_work[3]) * 64 + lane, of.items + own_work[2]};
  int2 head = __ldg(item), outputs = __ldg(item + 1);
  work.next = work.read();
  work.behind = work.read();
  work.from = tile.shared + 4 * (of.from + chain_row(g, of.from_row)) + 16 * t;
  work.below = 4 * chain_row(16, of.from_row);
  ChainResult<Made, Left, Rounded, kHalves> result;
  result.made = tile.shared + 4 * (of.shared + chain_row(g, of.shared_row));
  result.below = 4 * chain_row(16, of.shared_row);
  result.row = of.row, result.there = int(tile.rows - min(tile.rows, tile.first + g)), result.t = t;
  result.left = Left ? of.memory + uint64_t(tile.first + g) * result.row : nullptr;
  const float *const bias = of.bias;
  __syncthreads();
#pragma unroll 1
  for (int left = items; left > 0; left--) {
    const int2 own = head, pairs = outputs;
    item += 2;
    // Steps follow the last item.
    head = __ldg(item), outputs = __ldg(item + 1);
    const int all = own.x & 0xffff, plain = int(uint32_t(own.x) >> 16), members = own.y & 0xffff, biases = int(uint32_t(own.y) >> 16);
    if (members == 1) {
      ChainSums<kHalves> sums[1];
      chain_begin(sums[0], bias, biases & 1, pairs.x, t);
      work.template steps<false>(sums, all);
      result.write(sums[0], pairs.x);
    } else {
      ChainSums<kHalves> sums[2];
      chain_begin(sums[0], bias, biases & 1, pairs.x, t);
      chain_begin(sums[1], bias, biases & 2, pairs.y, t);
      work.template steps<false>(sums, plain);
      work.template steps<true>(sums, all - plain);
      result.write(sums[0], pairs.x);
      result.write(sums[1], pairs.y);
    }
  }
}

template <class Chain, class Call>
__global__ void __launch_bounds__(kChainThreads, 1) chain_kernel(const __grid_constant__ Call call) {
  take_turn();
  const uint32_t shared = shared_address(chain_memory), rows = uint32_t(call.rows);
  // Each part of a chain begins when all threads have done the one before.
#pragma unroll 1
  for (uint32_t first = blockIdx.x * Chain::kRows; first < rows; first += gridDim.x * Chain::kRows) {
    Chain::run(call, ChainTile{first, rows, shared});
  }
}

}  // namespace fc
