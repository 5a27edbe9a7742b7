// What products with block-sparse matrices of many rows share: words of shared memory, which CTA has what, and blocks of weights.
//
// A fragment's indices may stand for any columns, as long as both factors agree. They stand for neighbouring ones, so a thread copies
// and reads words of 16 bytes. Columns are taken in pairs of units: index t of the first step is column 4 t of a pair, t + 4 is 4 t + 1,
// and those of the second step are 4 t + 2 and 4 t + 3. Output g of tile j is column 2 g + j of a pair.
#pragma once

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
FC_INLINE void copy_or_zero(float *to, const float *from, bool there) {
  const int size = there ? Bytes : 0;
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(size) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(shared_address(to)), "l"(from), "r"(size), "n"(Bytes) : "memory");
  }
}
template <int Left>
FC_INLINE void wait_for_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory"); }

// The first of four neighbouring columns of units; -1 where there is no unit.
FC_INLINE int four_columns(const int32_t *units, int count, int at) {
  return at / 2 < count ? units[at / 2] * kUnit + at % 2 * 4 : -1;
}

// The number of rows behind one, as an int.
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

// A launch of products.
struct Product {
  fc_block_sparse call;
  int steps;  // the most of a group
  Parts parts;
};

// ---- blocks of weights ----

// The place of a lane's word of 8 bytes among those of a warp. Lanes of equal t copy neighbouring words, and lanes of equal g read them
// at once: so that neither have to wait for each other's banks.
FC_INLINE int place_of_word2() {
  const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  return (8 * t + (g ^ t / 2 * 4)) * 2;
}

// Copies or rounds the weights of a pair of inputs and a pair of outputs, as fragments want them: those of a lane side by side.
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

}  // namespace
}  // namespace fc
