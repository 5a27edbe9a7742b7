// Products with block-sparse matrices, on tensor cores (m16n8k8 of TF32).
//
// A CTA has the output units of one group, and goes through rows: its warps each copy their own to shared memory, several steps ahead,
// and read from there what they copied. So they wait for copies, and for each other only where a group has so many weights
// that these come in steps too.
//
// A fragment's indices may stand for any columns, as long as both factors agree. They stand for neighbouring ones, so a thread copies
// and reads words of 16 bytes; of rows of 16 bits it reads half a word. Columns are taken in pairs of units: index t of the first step is
// column 4 t of a pair, t + 4 is 4 t + 1, and the indices of the second step are columns 4 t + 2 and 4 t + 3. Output g of tile j is column
// 2 g + j of a pair.
#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "block_sparse.cuh"
#include "skeleton/launch.cuh"
#include "skeleton/memory.cuh"
#include "tensor_cores.cuh"

namespace fc {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kPair = 2 * kUnit;       // columns of a pair of units
constexpr int kPairs = kUnits / 2;     // of outputs, at most
constexpr int kBlock = kPair * kPair;  // weights of a pair of inputs and a pair of outputs
constexpr int kMostGroups = 128;       // of a launch

extern __shared__ __align__(16) float shared[];

// Words of 16 and 8 bytes. As C++ the compiler takes some of them apart, and stores a quarter of each sector at a time.
FC_INLINE float4 read4(const float *from) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(shared_address(from)));
  return v;
}
FC_INLINE float2 read2(const float *from) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(shared_address(from)));
  return v;
}
FC_INLINE void keep4(float *to, float4 v) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(to)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
FC_INLINE void keep2(float *to, float2 v) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(shared_address(to)), "f"(v.x), "f"(v.y) : "memory");
}
FC_INLINE void write4(float *to, float4 v) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
FC_INLINE float4 rounded(float4 v) { return make_float4(rounded(v.x), rounded(v.y), rounded(v.z), rounded(v.w)); }
FC_INLINE float2 rounded(float2 v) { return make_float2(rounded(v.x), rounded(v.y)); }

// Copies a word, or writes zeros where there is none.
template <int Bytes>
FC_INLINE void copy_or_zero(float *to, const void *from, bool there) {
  const int size = there ? Bytes : 0;
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(size) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(shared_address(to)), "l"(from), "r"(size), "n"(Bytes) : "memory");
  }
}
template <int Left>
FC_INLINE void wait_for_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory"); }

// Numbers are copied to shared memory by words of 16 bytes: four columns in f32, a whole unit in 16 bits. A lane reads four columns.
template <class S> constexpr bool kIsWide = sizeof(S) == 4;
template <class S>
FC_INLINE float4 read_columns(const float *from, int dtype) {
  if constexpr (kIsWide<S>) return read4(from);
  const float2 v = read2(from);
  const uint32_t bits[2] = {__float_as_uint(v.x), __float_as_uint(v.y)};
  float wide[4];
  if (dtype == FC_BF16) {
#pragma unroll
    for (int i = 0; i < 2; i++) wide[2 * i] = __uint_as_float(bits[i] << 16), wide[2 * i + 1] = __uint_as_float(bits[i] & 0xffff0000u);
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++) wide[i] = widen(Bits16{uint16_t(bits[i / 2] >> 16 * (i % 2))}, FC_F16);
  }
  return make_float4(wide[0], wide[1], wide[2], wide[3]);
}
// A factor of a product: numbers of 16 bits need no rounding to TF32.
template <class S>
FC_INLINE float4 as_factor(float4 v) {
  if constexpr (kIsWide<S>) return rounded(v);
  return v;
}
// Waits until the words of a warp are there: in 16 bits lanes read what others have copied.
template <int Left, class S>
FC_INLINE void wait_for_words() {
  wait_for_copies<Left>();
  if constexpr (!kIsWide<S>) __syncwarp();
}

// Two numbers in 16 bits, the first one below.
FC_INLINE uint32_t narrowed(float low, float high, int dtype) {
  uint32_t bits;
  if (dtype == FC_BF16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  }
  return bits;
}

// Writes four neighbouring numbers, or nothing: by predicates, since branches of many stores make a long kernel.
FC_INLINE void write_columns(float *to, float4 v, bool there, int) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p st.global.v4.f32 [%0], {%1, %2, %3, %4};\n}" ::"l"(to), "f"(v.x), "f"(v.y),
               "f"(v.z), "f"(v.w), "r"(int(there))
               : "memory");
}
FC_INLINE void write_columns(Bits16 *to, float4 v, bool there, int dtype) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %3, 0;\n@p st.global.v2.b32 [%0], {%1, %2};\n}" ::"l"(to), "r"(narrowed(v.x, v.y, dtype)),
               "r"(narrowed(v.z, v.w, dtype)), "r"(int(there))
               : "memory");
}

// The first of four neighbouring columns of units; -1 where there is no unit.
FC_INLINE int four_columns(const int32_t *units, int count, int at) {
  return at / 2 < count ? units[at / 2] * kUnit + at % 2 * 4 : -1;
}

// The number of rows from a row on, as an int.
FC_INLINE int rows_behind(int64_t rows, int64_t row) { return int(min(rows - row, int64_t(1) << 30)); }

// ---- which CTA has what ----

struct Part {
  int32_t inputs, outputs;  // places in `units`
  int32_t input_count;
  int16_t output_count, leads;
};

// Some groups of a call, and the CTAs that each has.
struct Parts {
  int32_t count;
  int32_t begin[kMostGroups + 1];
  Part parts[kMostGroups];
};

// The group of a CTA.
FC_INLINE int group_of(const Parts &parts, int cta) {
  int low = 0, high = parts.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (parts.begin[middle] <= cta) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Gives groups from `first` on their CTAs, at most `wanted` in all if there are not more groups, so that the longest CTA is as short as it
// can be. `cost` is that of a tile of rows; returns the CTAs.
template <class Cost>
int share(Parts &to, const fc_block_groups &groups, int64_t first, int64_t tiles, int wanted, Cost &&cost) {
  to.count = int(std::min<int64_t>(groups.count - first, kMostGroups));
  double rates[kMostGroups], total = 0;
  for (int at = 0; at < to.count; at++) {
    const int32_t *group = groups.sizes + (first + at) * FC_GROUP_NUMBERS;
    to.parts[at] = Part{group[0], group[2], group[1], int16_t(group[3]), int16_t(group[4])};
    const double own = cost(to.parts[at]);
    rates[at] = 1 / own;
    total += own;
  }
  // The CTAs if none may take longer than `time`.
  const auto ctas_in = [&](double time) {
    int64_t sum = 0;
    for (int at = 0; at < to.count; at++) {
      const auto of_cta = std::clamp<int64_t>(int64_t(time * rates[at]), 1, tiles);
      to.begin[at] = int(sum);
      sum += (tiles + of_cta - 1) / of_cta;
    }
    to.begin[to.count] = int(sum);
    return sum;
  };
  const double most = total * double(tiles);
  double low = most / wanted, high = 2 * low;
  while (ctas_in(high) > wanted && high < most) low = high, high *= 2;
  for (int turn = 0; turn < 6; turn++) {
    const double middle = (low + high) / 2;
    (ctas_in(middle) > wanted ? low : high) = middle;
  }
  return int(ctas_in(high));
}

// ---- rows times the matrix ----

constexpr int kTiles = 2;             // of 16 rows of a warp
constexpr int kOwn = kTiles * 16;     // rows of a warp
constexpr int kRows = kWarps * kOwn;  // rows of a CTA at once
constexpr int kStages = 4;            // steps under way
constexpr int kCtas = 3;              // of a multiprocessor
constexpr int kKept = 24;             // blocks of weights in shared memory, at most
constexpr int kStep = kOwn * kPair;   // numbers that a warp copies in a step
static_assert(kKept >= kStages * kPairs, "weights that come in steps have room");

// What follows in shared memory: rows, weights, biases, columns of outputs, columns of inputs.
constexpr int kOfRows = kWarps * kStages * kStep, kOfWeights = kKept * kBlock, kOfBias = kPairs * kPair, kOfOutputs = kPairs * 4;
constexpr size_t product_bytes(int steps) {
  return (kOfRows + kOfWeights + kOfBias + kOfOutputs + 4 * steps) * sizeof(float);
}

struct Product {
  fc_block_sparse call;
  Parts parts;
};

// The place of a lane's word of 8 bytes among the words of a warp. Lanes of equal t copy neighbouring words, and lanes of equal g read them
// at once: so lanes wait for no banks, neither to copy nor to read.
FC_INLINE int place_of_word2() {
  const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  return (8 * t + (g ^ t / 2 * 4)) * 2;
}

// Copies or rounds the weights of a pair of inputs and a pair of outputs, as fragments want them: the weights of a lane side by side.
template <bool Transposed>
FC_INLINE void copy_block(float *to, const fc_block_sparse &call, const int *inputs, const int *outputs) {
  const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int input = inputs[t], output = outputs[g / 2];
  const bool there = input >= 0 && output >= 0;
  const int64_t k = max(input, 0), n = max(output, 0) + g % 2 * 2;
  if constexpr (Transposed) {
    const float *from = call.weights + n * call.weights_stride + k;
#pragma unroll
    for (int j = 0; j < 2; j++) copy_or_zero<16>(to + j * 128 + lane * 4, from + j * call.weights_stride, there);
  } else {
    const float *from = call.weights + k * call.weights_stride + n;
#pragma unroll
    for (int i = 0; i < 4; i++) copy_or_zero<8>(to + i * 64 + place_of_word2(), from + i * call.weights_stride, there);
  }
}

template <bool Transposed>
FC_INLINE void round_block(float *block) {
  const int lane = int(threadIdx.x) % 32;
  if constexpr (Transposed) {
#pragma unroll
    for (int j = 0; j < 2; j++) keep4(block + j * 128 + lane * 4, rounded(read4(block + j * 128 + lane * 4)));
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++) keep2(block + i * 64 + place_of_word2(), rounded(read2(block + i * 64 + place_of_word2())));
  }
}

// The weights of a lane: `b[j][i]` is that of column 4 t + i of the inputs and 2 g + j of the outputs.
template <bool Transposed>
FC_INLINE void read_block(float (&b)[2][4], const float *block) {
  const int lane = int(threadIdx.x) % 32;
  if constexpr (Transposed) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const float4 v = read4(block + j * 128 + lane * 4);
      b[j][0] = v.x, b[j][1] = v.y, b[j][2] = v.z, b[j][3] = v.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float2 v = read2(block + i * 64 + place_of_word2());
      b[0][i] = v.x, b[1][i] = v.y;
    }
  }
}

// The rows of a CTA, which is one of some of its group. Kept: all weights stay in shared memory; else they come in steps.
template <class S, class Out, int Pairs, bool Transposed, bool Kept>
FC_INLINE void go_through_rows(const fc_block_sparse &call, int steps, int place, int ctas, float *rows, float *weights, const float *bias,
                               const int *outputs, const int *inputs) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
  // The words that a lane copies at once, from its row on, and the rows between them.
  constexpr int kWords = kIsWide<S> ? 4 : 2, kRowsBetween = kOwn / kWords;
  const int own_row = kIsWide<S> ? g : lane / 2, own_columns = kIsWide<S> ? t : lane % 2 * 2;
  const int64_t tiles = (call.rows + kRows - 1) / kRows, between = kRowsBetween * call.x_stride;
  float *const of_warp = rows + warp * kStages * kStep;
  const float *const own = of_warp + lane * int(sizeof(S));
  // What is copied next.
  int64_t next = place;
  int next_step = 0, next_slot = 0;
  int64_t first = next * kRows + warp * kOwn + own_row;
  const S *from = static_cast<const S *>(call.x) + first * call.x_stride;
  int there = rows_behind(call.rows, first);
  const auto begin = [&] {
    if (next < tiles) {
      const int column = inputs[4 * next_step + own_columns];
      float *const to = of_warp + next_slot * kStep + lane * 4;
#pragma unroll
      for (int i = 0; i < kWords; i++) {
        copy_or_zero<16>(to + i * 128, from + i * between + max(column, 0), column >= 0 && kRowsBetween * i < there);
      }
      if constexpr (!Kept) {
        for (int p = warp; p < Pairs; p += kWarps) {
          copy_block<Transposed>(weights + (next_slot * Pairs + p) * kBlock, call, inputs + 4 * next_step, outputs + 4 * p);
        }
      }
      if (++next_slot == kStages) next_slot = 0;
      if (++next_step == steps) {
        next_step = 0;
        next += ctas;
        first += int64_t(ctas) * kRows;
        from += int64_t(ctas) * kRows * call.x_stride;
        there = rows_behind(call.rows, first);
      }
    }
    copy_commit();
  };
  if constexpr (Kept) {
    for (int at = warp; at < steps * Pairs; at += kWarps) {
      copy_block<Transposed>(weights + at * kBlock, call, inputs + 4 * (at / Pairs), outputs + 4 * (at % Pairs));
    }
    copy_commit();
  }
#pragma unroll 1
  for (int i = 0; i < kStages - 1; i++) begin();
  if constexpr (Kept) {
    wait_for_copies<kStages - 1>();
    for (int at = warp; at < steps * Pairs; at += kWarps) round_block<Transposed>(weights + at * kBlock);
    __syncthreads();
  }
  int slot = 0;
#pragma unroll 1
  for (int64_t tile = place; tile < tiles; tile += ctas) {
    float sums[kTiles][2 * Pairs][4] = {};
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
      wait_for_words<kStages - 2, S>();
      if constexpr (!Kept) __syncthreads();
      float4 x[2 * kTiles];
#pragma unroll
      for (int i = 0; i < 2 * kTiles; i++) x[i] = read_columns<S>(own + slot * kStep + i * 32 * int(sizeof(S)), call.x_dtype);
      begin();
#pragma unroll
      for (int i = 0; i < 2 * kTiles; i++) x[i] = as_factor<S>(x[i]);
      const float *const of_step = weights + (Kept ? step : slot) * Pairs * kBlock;
#pragma unroll
      for (int p = 0; p < Pairs; p++) {
        float b[2][4];
        read_block<Transposed>(b, of_step + p * kBlock);
#pragma unroll
        for (int j = 0; j < 2; j++) {
          if constexpr (!Kept) {
#pragma unroll
            for (int i = 0; i < 4; i++) b[j][i] = rounded(b[j][i]);
          }
          const float first_half[2] = {b[j][0], b[j][1]}, second_half[2] = {b[j][2], b[j][3]};
#pragma unroll
          for (int m = 0; m < kTiles; m++) {
            const float4 low = x[2 * m], high = x[2 * m + 1];
            multiply(sums[m][2 * p + j], {low.x, high.x, low.y, high.y}, first_half);
            multiply(sums[m][2 * p + j], {low.z, high.z, low.w, high.w}, second_half);
          }
        }
      }
      if (++slot == kStages) slot = 0;
    }
    const int64_t row = tile * kRows + warp * kOwn + g;
    const int rest = rows_behind(call.rows, row);
    Out *const to = static_cast<Out *>(call.out) + row * call.out_stride;
#pragma unroll
    for (int p = 0; p < Pairs; p++) {
      const int column = outputs[4 * p + t];
      const float4 more = read4(bias + p * kPair + 4 * t);
#pragma unroll
      for (int m = 0; m < kTiles; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const float *const even = sums[m][2 * p] + 2 * half, *const odd = sums[m][2 * p + 1] + 2 * half;
          const float4 value = added(make_float4(even[0], odd[0], even[1], odd[1]), more);
          const bool there = column >= 0 && 16 * m + 8 * half < rest;
          write_columns(to + (16 * m + 8 * half) * call.out_stride + column, value, there, call.out_dtype);
        }
      }
    }
  }
}

template <class S, class Out, bool Transposed>
__global__ void __launch_bounds__(kThreads, kCtas) product_kernel(const __grid_constant__ Product product) {
  const fc_block_sparse &call = product.call;
  const int group = group_of(product.parts, int(blockIdx.x));
  const int first = product.parts.begin[group], ctas = product.parts.begin[group + 1] - first, place = int(blockIdx.x) - first;
  const Part &part = product.parts.parts[group];
  const int pairs = (part.output_count + 1) / 2, steps = max(1, (part.input_count + 1) / 2);
  float *const rows = shared, *const weights = rows + kOfRows, *const bias = weights + kOfWeights;
  int *const outputs = reinterpret_cast<int *>(bias + kOfBias), *const inputs = outputs + kOfOutputs;
  for (int at = int(threadIdx.x); at < 4 * steps; at += kThreads) {
    inputs[at] = four_columns(call.groups.units + part.inputs, part.input_count, at);
  }
  const int at = min(int(threadIdx.x), kOfOutputs - 1), column = four_columns(call.groups.units + part.outputs, part.output_count, at);
  // Tables of units are older than the kernels before this one.
  take_turn();
  if (threadIdx.x < kOfOutputs) {
    outputs[at] = column;
    const bool biased = call.bias != nullptr && column >= 0;
    keep4(bias + 4 * at, biased ? *reinterpret_cast<const float4 *>(call.bias + column) : make_float4(0, 0, 0, 0));
  }
  __syncthreads();
  const auto go = [&](auto count) {
    constexpr int Pairs = decltype(count)::value;
    if (steps * Pairs <= kKept) {
      go_through_rows<S, Out, Pairs, Transposed, true>(call, steps, place, ctas, rows, weights, bias, outputs, inputs);
    } else {
      go_through_rows<S, Out, Pairs, Transposed, false>(call, steps, place, ctas, rows, weights, bias, outputs, inputs);
    }
  };
  switch (pairs) {
    case 1: go(std::integral_constant<int, 1>()); break;
    case 2: go(std::integral_constant<int, 2>()); break;
    case 3: go(std::integral_constant<int, 3>()); break;
    default: go(std::integral_constant<int, 4>()); break;
  }
  static_assert(kPairs == 4, "all numbers of pairs have a case");
}

// ---- the gradients of the matrix and of the bias ----
//
// A warp has some rows and all columns of a group: column 8 j + g of a tile of 16 or 8 columns is the number 4 g + j of 32, and index t of
// a step is row t of 8, t + 4 is row t + 4.

constexpr int kSum = 32;  // neighbouring columns of the words of a thread
constexpr int kSumUnits = kSum / kUnit;
static_assert(kInputs == kSumUnits && kUnits == 2 * kSumUnits, "a thread has one word of a row's inputs, and one or two of its outputs");
constexpr int kDepth = kInputs * kUnit;
constexpr int kColumns = kUnits * kUnit;
constexpr int kNumbers = kDepth * kColumns;  // of a group's part of the gradient
constexpr int kRowsOfStep = 8;
constexpr int kRowsAtOnce = kWarps * kRowsOfStep;
constexpr int kWeightStages = 4;
constexpr int kWeightCtasOfOne = 2;  // of a multiprocessor
constexpr int kWeightCtas = 264;     // of a launch; partial sums are the same on every GPU
constexpr int kAcross = kColumns + 4;

struct Weights {
  fc_block_sparse_gradient call;
  Parts parts;
};

// How a warp copies 32 columns of 8 rows, and how a lane reads its four columns of row t and of row t + 4.
template <class S>
struct EightRows {
  int g, t, row;
  int columns;  // the place of the columns that the lane copies, by four
  FC_INLINE EightRows(int own_g, int own_t, int lane)
      : g(own_g), t(own_t), row(kIsWide<S> ? own_t : lane / 4), columns(kIsWide<S> ? own_g : lane % 4 * 2) {}
  // In f32, lanes of equal t copy neighbouring words, and lanes of two g read at once; in 16 bits the units of every other two rows change
  // places. So lanes wait for no banks, neither to copy nor to read.
  FC_INLINE int place_of_unit(int of_row, int unit) const { return of_row * 16 + (unit ^ (of_row & 2)) * 4; }
  FC_INLINE int place(int k) const {
    if constexpr (kIsWide<S>) return k * 128 + (8 * t + (g ^ 2 * t)) * 4;
    return place_of_unit(4 * k + t, g / 2) + g % 2 * 2;
  }
  FC_INLINE void copy(float *to, const S *from, int64_t stride, int64_t first, int64_t rows, int column) const {
    constexpr int kCopies = kIsWide<S> ? 2 : 1;
#pragma unroll
    for (int k = 0; k < kCopies; k++) {
      const int64_t own = first + 4 * k + row;
      float *const word = to + (kIsWide<S> ? place(k) : place_of_unit(row, columns / 2));
      copy_or_zero<16>(word, from + own * stride + max(column, 0), own < rows && column >= 0);
    }
  }
};

// Words: the words of outputs that a thread has of a row. X, G: the types of rows and of gradients.
template <class X, class G, int Words>
FC_INLINE void sum_rows(const fc_block_sparse_gradient &call, const Part &part, int place, int ctas, float *partial, float *of_bias_to) {
  constexpr int kStepNumbers = 2 * (1 + Words) * 128;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
  const EightRows<X> of_x(g, t, lane);
  const EightRows<G> of_g(g, t, lane);
  const int input = four_columns(call.groups.units + part.inputs, part.input_count, of_x.columns);
  int outputs[Words];
#pragma unroll
  for (int i = 0; i < Words; i++) outputs[i] = four_columns(call.groups.units + part.outputs, part.output_count, 8 * i + of_g.columns);
  // Tables of units are older than the kernels before this one.
  take_turn();
  float *const own = shared + warp * kWeightStages * kStepNumbers;
  const int64_t start = int64_t(place) * kRowsAtOnce + warp * kRowsOfStep, turn = int64_t(ctas) * kRowsAtOnce;
  int64_t next = start;
  int next_slot = 0;
  const auto begin = [&] {
    float *const at = own + next_slot * kStepNumbers;
    if (next < call.rows) {
      of_x.copy(at, static_cast<const X *>(call.x), call.x_stride, next, call.rows, input);
#pragma unroll
      for (int i = 0; i < Words; i++) {
        of_g.copy(at + 2 * (1 + i) * 128, static_cast<const G *>(call.gradient), call.gradient_stride, next, call.rows, outputs[i]);
      }
      next += turn;
      if (++next_slot == kWeightStages) next_slot = 0;
    }
    copy_commit();
  };
  float sums[2][4 * Words][4] = {};
  float4 of_bias[Words];
#pragma unroll
  for (int i = 0; i < Words; i++) of_bias[i] = make_float4(0, 0, 0, 0);
  const bool has_bias = call.of_bias != nullptr && part.leads != 0;
#pragma unroll 1
  for (int i = 0; i < kWeightStages - 1; i++) begin();
  int slot = 0;
#pragma unroll 1
  for (int64_t row = start; row < call.rows; row += turn) {
    wait_for_words<kWeightStages - 2, std::conditional_t<kIsWide<X>, G, X>>();
    const float *const at = own + slot * kStepNumbers;
    float4 words[1 + Words][2];
#pragma unroll
    for (int k = 0; k < 2; k++) {
      words[0][k] = read_columns<X>(at + of_x.place(k), call.x_dtype);
#pragma unroll
      for (int i = 1; i < 1 + Words; i++) words[i][k] = read_columns<G>(at + 2 * i * 128 + of_g.place(k), call.gradient_dtype);
    }
    begin();
    if (++slot == kWeightStages) slot = 0;
    const float4 above = as_factor<X>(words[0][0]), below = as_factor<X>(words[0][1]);
    const float left[2][4] = {{above.x, above.y, below.x, below.y}, {above.z, above.w, below.z, below.w}};
#pragma unroll
    for (int i = 0; i < Words; i++) {
      if (has_bias) of_bias[i] = added(of_bias[i], added(words[1 + i][0], words[1 + i][1]));
      const float4 low = as_factor<G>(words[1 + i][0]), high = as_factor<G>(words[1 + i][1]);
      const float right[4][2] = {{low.x, high.x}, {low.y, high.y}, {low.z, high.z}, {low.w, high.w}};
#pragma unroll
      for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int m = 0; m < 2; m++) multiply(sums[m][4 * i + j], left[m], right[j]);
      }
    }
  }
  wait_for_copies<0>();
  __syncthreads();
  // The sums of all warps, in order. Row 16 m + 8 half + g of a fragment is input 4 g + 2 m + half.
#pragma unroll 1
  for (int other = 0; other < kWarps; other++) {
    if (warp == other) {
#pragma unroll
      for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          float *const to = shared + (4 * g + 2 * m + half) * kAcross + 8 * t;
#pragma unroll
          for (int i = 0; i < Words; i++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
              const int n = 4 * i, c = 2 * half + e;
              float4 sum = make_float4(sums[m][n][c], sums[m][n + 1][c], sums[m][n + 2][c], sums[m][n + 3][c]);
              float *const word = to + i * kSum + 4 * e;
              if (other > 0) sum = added(read4(word), sum);
              keep4(word, sum);
            }
          }
        }
      }
    }
    __syncthreads();
  }
  const int words = part.output_count * kUnit / 4, count = part.input_count * kUnit * words;
  for (int at = int(threadIdx.x); at < count; at += kThreads) {
    const int row = at / words, word = at - row * words;
    write4(partial + row * kColumns + 4 * word, read4(shared + row * kAcross + 4 * word));
  }
  if (!has_bias) return;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Words; i++) {
#pragma unroll
    for (int other = 1; other < 4; other *= 2) {
      const float4 mine = of_bias[i];
      of_bias[i] = added(mine, make_float4(__shfl_xor_sync(~0u, mine.x, other), __shfl_xor_sync(~0u, mine.y, other),
                                           __shfl_xor_sync(~0u, mine.z, other), __shfl_xor_sync(~0u, mine.w, other)));
    }
    if (t == 0) keep4(shared + warp * kColumns + i * kSum + 4 * g, of_bias[i]);
  }
  __syncthreads();
  if (int(threadIdx.x) < part.output_count * kUnit) {
    float sum = 0;
    for (int other = 0; other < kWarps; other++) sum += shared[other * kColumns + threadIdx.x];
    of_bias_to[threadIdx.x] = sum;
  }
}

template <class X, class G>
__global__ void __launch_bounds__(kThreads, kWeightCtasOfOne) weights_kernel(const __grid_constant__ Weights weights) {
  const fc_block_sparse_gradient &call = weights.call;
  const int group = group_of(weights.parts, int(blockIdx.x));
  const int first = weights.parts.begin[group], ctas = weights.parts.begin[group + 1] - first, place = int(blockIdx.x) - first;
  const Part &part = weights.parts.parts[group];
  float *const partial = call.partials + int64_t(blockIdx.x) * kNumbers;
  float *const of_bias = call.partials + int64_t(gridDim.x) * kNumbers + int64_t(blockIdx.x) * kColumns;
  if (part.output_count > kSumUnits) {
    sum_rows<X, G, 2>(call, part, place, ctas, partial, of_bias);
  } else {
    sum_rows<X, G, 1>(call, part, place, ctas, partial, of_bias);
  }
}

// The sums of all parts of the rows, in order.
__global__ void __launch_bounds__(kThreads) sums_kernel(const __grid_constant__ Weights weights) {
  take_turn();
  const fc_block_sparse_gradient &call = weights.call;
  const int group = int(blockIdx.x), first = weights.parts.begin[group], last = weights.parts.begin[group + 1];
  const Part &part = weights.parts.parts[group];
  const int32_t *const inputs = call.groups.units + part.inputs, *const outputs = call.groups.units + part.outputs;
  if (call.of_bias != nullptr && part.leads != 0 && blockIdx.y == 0 && int(threadIdx.x) < part.output_count * kUnit) {
    const int column = int(threadIdx.x);
    const float *from = call.partials + int64_t(weights.parts.begin[weights.parts.count]) * kNumbers + first * kColumns + column;
    float sum = 0;
#pragma unroll 8
    for (int cta = first; cta < last; cta++, from += kColumns) sum += *from;
    call.of_bias[outputs[column / kUnit] * kUnit + column % kUnit] = sum;
  }
  const int words = part.output_count * kUnit / 4, at = int(blockIdx.y) * kThreads + int(threadIdx.x);
  const int row = at / max(words, 1), word = at - row * words;
  if (row >= part.input_count * kUnit) return;
  const float *from = call.partials + int64_t(first) * kNumbers + row * kColumns + 4 * word;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
  for (int cta = first; cta < last; cta++, from += kNumbers) sum = added(sum, *reinterpret_cast<const float4 *>(from));
  const int64_t to_row = inputs[row / kUnit] * kUnit + row % kUnit;
  write4(call.to + to_row * call.to_stride + four_columns(outputs, part.output_count, word), sum);
}

// ---- launches ----

bool good(const fc_block_groups &groups) {
  return groups.count >= 0 && groups.count <= 65535 &&
         (groups.count == 0 || (groups.groups != nullptr && groups.sizes != nullptr && groups.units != nullptr));
}

// Whether rows can be read by 16 bytes.
bool good(const void *rows, int64_t stride, fc_dtype dtype = FC_F32) {
  const bool lie_well = reinterpret_cast<uintptr_t>(rows) % 16 == 0 && stride % (dtype == FC_F32 ? 4 : 8) == 0;
  return dtype != FC_F64 && rows != nullptr && stride >= 0 && lie_well;
}

// Whether the kernels for few rows serve a call of some types.
bool are_few(int64_t rows, fc_dtype a, fc_dtype b) { return rows <= kFewRows && a == FC_F32 && b == FC_F32; }

template <class Kernel, class Arguments>
int run(Kernel *kernel, dim3 ctas, size_t bytes, void *stream, const Arguments &arguments) {
  if (bytes > 48 * 1024) {
    const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
    if (error != cudaSuccess) return cudaGetLastError(), int(FC_ERROR_TOO_LARGE);
  }
  return int(launch_in_turn(kernel, ctas, dim3(kThreads), bytes, stream, arguments));
}

int multiprocessors(int &count) {
  int device = 0;
  const auto error = cudaGetDevice(&device);
  return int(error != cudaSuccess ? error : cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
}

template <class S, class Out, bool Transposed>
int product_of(const fc_block_sparse &call, void *stream) {
  Product product;
  product.call = call;
  int count = 0;
  if (const int error = multiprocessors(count); error != 0) return error;
  const int64_t tiles = (call.rows + kRows - 1) / kRows;
  for (int64_t first = 0; first < call.groups.count; first += kMostGroups) {
    int steps = 1;
    const int ctas = share(product.parts, call.groups, first, tiles, kCtas * count, [&](const Part &part) {
      steps = std::max(steps, (part.input_count + 1) / 2);
      const double inputs = part.input_count, outputs = part.output_count;
      return inputs + outputs + inputs * outputs / 6 + 6;
    });
    const int error = run(product_kernel<S, Out, Transposed>, dim3(unsigned(ctas)), product_bytes(steps), stream, product);
    if (error != 0) return error;
  }
  return 0;
}

template <class S, class Out>
int product(const fc_block_sparse &call, void *stream) {
  return call.transposed ? product_of<S, Out, true>(call, stream) : product_of<S, Out, false>(call, stream);
}

template <class X, class G>
int gradients(const fc_block_sparse_gradient &call, void *stream) {
  Weights weights;
  weights.call = call;
  const int64_t tiles = (call.rows + kRowsAtOnce - 1) / kRowsAtOnce;
  constexpr size_t kBytes = std::max(kWarps * kWeightStages * 2 * 3 * 128, kDepth * kAcross) * sizeof(float);
  constexpr unsigned kTurns = kNumbers / (4 * kThreads);
  for (int64_t first = 0; first < call.groups.count; first += kMostGroups) {
    const int ctas = share(weights.parts, call.groups, first, tiles, kWeightCtas, [](const Part &part) {
      return part.input_count + part.output_count + 2.0;
    });
    int error = run(weights_kernel<X, G>, dim3(unsigned(ctas)), kBytes, stream, weights);
    if (error == 0) error = run(sums_kernel, dim3(unsigned(weights.parts.count), kTurns), 0, stream, weights);
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace
}  // namespace fc

extern "C" int fc_block_sparse_product(const fc_block_sparse *call, void *stream) {
  if (call == nullptr || call->rows < 0 || !fc::good(call->groups)) return FC_ERROR_BAD_CALL;
  if (call->rows == 0 || call->groups.count == 0) return 0;
  if (!fc::good(call->x, call->x_stride, call->x_dtype) || !fc::good(call->weights, call->weights_stride) ||
      !fc::good(call->out, call->out_stride, call->out_dtype) ||
      (call->bias != nullptr && !fc::good(call->bias, 0))) {
    return FC_ERROR_BAD_CALL;
  }
  if (fc::are_few(call->rows, call->x_dtype, call->out_dtype)) return fc::few_rows_product(*call, stream);
  const bool wide_x = call->x_dtype == FC_F32, wide_out = call->out_dtype == FC_F32;
  if (wide_x) return wide_out ? fc::product<float, float>(*call, stream) : fc::product<float, fc::Bits16>(*call, stream);
  return wide_out ? fc::product<fc::Bits16, float>(*call, stream) : fc::product<fc::Bits16, fc::Bits16>(*call, stream);
}

extern "C" int64_t fc_block_sparse_partials(int64_t rows, int64_t groups) {
  if (rows <= fc::kFewRows) return 0;
  return groups == 0 ? 0 : int64_t(fc::kWeightCtas) * (fc::kNumbers + fc::kColumns);
}

extern "C" int fc_block_sparse_weights(const fc_block_sparse_gradient *call, void *stream) {
  if (call == nullptr || call->rows < 0 || !fc::good(call->groups)) return FC_ERROR_BAD_CALL;
  if (call->groups.count == 0) return 0;
  if (!fc::good(call->to, call->to_stride)) return FC_ERROR_BAD_CALL;
  if (call->of_bias != nullptr && !fc::good(call->of_bias, 0)) return FC_ERROR_BAD_CALL;
  if (call->rows > 0 && (!fc::good(call->x, call->x_stride, call->x_dtype) || !fc::good(call->gradient, call->gradient_stride, call->gradient_dtype))) {
    return FC_ERROR_BAD_CALL;
  }
  if (fc::are_few(call->rows, call->x_dtype, call->gradient_dtype)) return fc::few_rows_weights(*call, stream);
  if (!fc::good(call->partials, 0)) return FC_ERROR_BAD_CALL;
  const bool wide_x = call->x_dtype == FC_F32, wide_gradient = call->gradient_dtype == FC_F32;
  if (wide_x) return wide_gradient ? fc::gradients<float, float>(*call, stream) : fc::gradients<float, fc::Bits16>(*call, stream);
  return wide_gradient ? fc::gradients<fc::Bits16, float>(*call, stream) : fc::gradients<fc::Bits16, fc::Bits16>(*call, stream);
}
