// Rows times a block-sparse matrix, of groups with few inputs.
//
// The kernels of a network take turns, so each begins without its instructions in a cache, and a CTA that does little waits for them most of the time. So
// loops over tiles, steps and pairs stay loops. A CTA has the outputs of one group; each of its warps copies rows of its own to shared memory, and reads
// there what it copied itself. That it waits for its rows is hidden by the CTAs beside it.
#pragma once

#include "block_sparse_parts.cuh"

namespace fc {
namespace {

constexpr int kOwn = 16;              // rows of a warp
constexpr int kRows = kWarps * kOwn;  // rows of a CTA at once
constexpr int kCtas = 8;              // of a multiprocessor, at most
constexpr int kStep = kOwn * kPair;   // numbers that a warp copies in a step
constexpr int kMostSteps = 12;        // of a group
constexpr size_t kReserved = 1024;    // of shared memory for each CTA, besides its own

// Pairs of units of inputs.
__host__ __device__ constexpr int steps_of(int inputs) { return (inputs + 1) / 2; }

// What follows in shared memory: biases, columns of outputs, columns of inputs, weights, rows.
constexpr int kOfBias = kPairs * kPair, kOfOutputs = kPairs * 4;
constexpr size_t product_bytes(int steps, int pairs) {
  return (kOfBias + kOfOutputs + 4 * steps + steps * pairs * kBlock + kWarps * steps * kStep) * sizeof(float);
}

template <bool Transposed>
__global__ void __launch_bounds__(kThreads, kCtas) product_kernel(const __grid_constant__ Product product) {
  const fc_block_sparse &call = product.call;
  const int group = group_of(product.parts, int(blockIdx.x));
  const int first = product.parts.begin[group], ctas = product.parts.begin[group + 1] - first, place = int(blockIdx.x) - first;
  const Part &part = product.parts.parts[group];
  const int pairs = (part.output_count + 1) / 2, steps = steps_of(part.input_count);
  float *const bias = shared;
  int *const outputs = reinterpret_cast<int *>(bias + kOfBias), *const inputs = outputs + kOfOutputs;
  float *const weights = reinterpret_cast<float *>(inputs + 4 * product.steps), *const rows = weights + steps * pairs * kBlock;
  for (int at = int(threadIdx.x); at < 4 * steps; at += kThreads) {
    inputs[at] = four_columns(call.groups.units + part.inputs, part.input_count, at);
  }
  const int at = min(int(threadIdx.x), kOfOutputs - 1), own_column = four_columns(call.groups.units + part.outputs, part.output_count, at);
  // Tables of units are older than the kernels before this one.
  take_turn();
  if (threadIdx.x < kOfOutputs) {
    outputs[at] = own_column;
    const bool biased = call.bias != nullptr && own_column >= 0;
    keep4(bias + 4 * at, biased ? *reinterpret_cast<const float4 *>(call.bias + own_column) : make_float4(0, 0, 0, 0));
  }
  __syncthreads();
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
#pragma unroll 1
  for (int block = warp; block < steps * pairs; block += kWarps) {
    const int step = block / pairs;
    copy_block<Transposed>(weights + block * kBlock, call, inputs + 4 * step, outputs + 4 * (block - step * pairs));
  }
  copy_commit();
  const int64_t tiles = (call.rows + kRows - 1) / kRows, by8 = 8 * call.x_stride;
  float *const x = rows + warp * steps * kStep + lane * 4;
  bool is_first = true;
#pragma unroll 1
  for (int64_t tile = place; tile < tiles; tile += ctas) {
    const int64_t row = tile * kRows + warp * kOwn + g;
    const int rest = rows_behind(call.rows, row);
    const float *const from = call.x + row * call.x_stride;
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
      const int column = inputs[4 * step + t];
#pragma unroll
      for (int i = 0; i < 2; i++) copy_or_zero<16>(x + step * kStep + i * 128, from + i * by8 + max(column, 0), column >= 0 && 8 * i < rest);
    }
    copy_commit();
    wait_for_copies<0>();
    if (is_first) {
#pragma unroll 1
      for (int block = warp; block < steps * pairs; block += kWarps) round_block<Transposed>(weights + block * kBlock);
      __syncthreads();
      is_first = false;
    }
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
#pragma unroll
      for (int i = 0; i < 2; i++) keep4(x + step * kStep + i * 128, rounded(read4(x + step * kStep + i * 128)));
    }
    float *const to = call.out + row * call.out_stride;
#pragma unroll 1
    for (int p = 0; p < pairs; p++) {
      float sums[2][4] = {};
#pragma unroll 1
      for (int step = 0; step < steps; step++) {
        const float4 low = read4(x + step * kStep), high = read4(x + step * kStep + 128);
        float b[2][4];
        read_block<Transposed>(b, weights + (step * pairs + p) * kBlock);
#pragma unroll
        for (int j = 0; j < 2; j++) {
          multiply(sums[j], {low.x, high.x, low.y, high.y}, {b[j][0], b[j][1]});
          multiply(sums[j], {low.z, high.z, low.w, high.w}, {b[j][2], b[j][3]});
        }
      }
      const int column = outputs[4 * p + t];
      const float4 more = read4(bias + p * kPair + 4 * t);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const float4 value = added(make_float4(sums[0][2 * half], sums[1][2 * half], sums[0][2 * half + 1], sums[1][2 * half + 1]), more);
        if (column >= 0 && 8 * half < rest) write4(to + 8 * half * call.out_stride + column, value);
      }
    }
  }
}

}  // namespace
}  // namespace fc
