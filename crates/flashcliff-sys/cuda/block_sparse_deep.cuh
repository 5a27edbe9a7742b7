// Rows times a block-sparse matrix, of groups with many inputs.
//
// A CTA has the outputs of one group, and goes through rows: its warps each copy their own to shared memory, several steps ahead, and read there what they
// copied themselves. So they wait for copies, and for each other only where a group has so many weights that these come in steps too.
#pragma once

#include "block_sparse_parts.cuh"

namespace fc {
namespace {
namespace deep {

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

// The rows of a CTA, which is one of some of its group. Kept: all weights stay in shared memory; else they come in steps.
template <int Pairs, bool Transposed, bool Kept>
FC_INLINE void go_through_rows(const fc_block_sparse &call, int steps, int place, int ctas, float *rows, float *weights, const float *bias,
                               const int *outputs, const int *inputs) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
  const int64_t tiles = (call.rows + kRows - 1) / kRows, by8 = 8 * call.x_stride;
  float *const own = rows + warp * kStages * kStep + lane * 4;
  // What is copied next.
  int64_t next = place;
  int next_step = 0, next_slot = 0;
  int64_t first = next * kRows + warp * kOwn + g;
  const float *from = call.x + first * call.x_stride;
  int there = rows_behind(call.rows, first);
  const auto begin = [&] {
    if (next < tiles) {
      const int column = inputs[4 * next_step + t];
      float *const to = own + next_slot * kStep;
#pragma unroll
      for (int i = 0; i < 2 * kTiles; i++) copy_or_zero<16>(to + i * 128, from + i * by8 + max(column, 0), column >= 0 && 8 * i < there);
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
      wait_for_copies<kStages - 2>();
      if constexpr (!Kept) __syncthreads();
      float4 x[2 * kTiles];
#pragma unroll
      for (int i = 0; i < 2 * kTiles; i++) x[i] = read4(own + slot * kStep + i * 128);
      begin();
#pragma unroll
      for (int i = 0; i < 2 * kTiles; i++) x[i] = rounded(x[i]);
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
    float *const to = call.out + row * call.out_stride;
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
          if (column >= 0 && 16 * m + 8 * half < rest) write4(to + (16 * m + 8 * half) * call.out_stride + column, value);
        }
      }
    }
  }
}

template <bool Transposed>
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
      go_through_rows<Pairs, Transposed, true>(call, steps, place, ctas, rows, weights, bias, outputs, inputs);
    } else {
      go_through_rows<Pairs, Transposed, false>(call, steps, place, ctas, rows, weights, bias, outputs, inputs);
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

}  // namespace deep
}  // namespace
}  // namespace fc
