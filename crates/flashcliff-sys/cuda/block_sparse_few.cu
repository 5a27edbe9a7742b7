// Products with block-sparse matrices for few rows, on tensor cores (m16n8k8 of TF32).
//
// With few rows, time is that of waiting for memory. So a CTA has a small part of the result, [kTile, kTile], and its warps share the
// sum: each reads its part of the factors straight to registers, all at once, and the sums of all warps are added in order.
//
// A fragment's indices may stand for any columns, as long as both factors agree. They stand for neighbouring ones, so
// a thread reads words of 8 or 16 bytes: the row or column 8 j + g of a tile is the number 4 g + j of its 32, and
// index t of a step is 2 t, t + 4 is 2 t + 1.
#include <cuda_runtime.h>

#include "block_sparse.cuh"
#include "skeleton/launch.cuh"
#include "skeleton/memory.cuh"
#include "tensor_cores.cuh"

namespace fc {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kTile = 32;
constexpr int kTileUnits = kTile / kUnit;
constexpr int kParts = kUnits / kTileUnits;  // of a group's outputs
constexpr int kAhead = 2;                    // steps whose factors are read at once
constexpr int kStride = kTile + 4;           // of sums in shared memory

FC_INLINE float4 nothing() { return make_float4(0, 0, 0, 0); }
FC_INLINE float4 read4(const float *from) { return *reinterpret_cast<const float4 *>(from); }
FC_INLINE float2 read2(const float *from) { return *reinterpret_cast<const float2 *>(from); }

// The outputs of a CTA.
struct Outputs {
  const int32_t *units;
  int count;
  FC_INLINE Outputs(const Group &group, int part) {
    units = group.outputs + part * kTileUnits;
    count = min(kTileUnits, group.output_count - part * kTileUnits);
  }
};

// The first of four neighbouring columns of units, of 8 such parts; -1 where there is no unit.
FC_INLINE int four_columns(const int32_t *units, int count, int at) {
  return at / 2 < count ? units[at / 2] * kUnit + at % 2 * 4 : -1;
}

// The sums of a warp, of rows 16 m + g and 16 m + g + 8: `sums[m][j]` has columns j and 4 + j of unit t.
FC_INLINE void keep(float *sums_of_warp, const float (&sums)[2][4][4]) {
  const int g = int(threadIdx.x) % 32 / 4, t = int(threadIdx.x) % 4;
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float *const to = sums_of_warp + (16 * m + 8 * half + g) * kStride + t * kUnit;
      const int first = 2 * half;
      *reinterpret_cast<float4 *>(to) = make_float4(sums[m][0][first], sums[m][1][first], sums[m][2][first], sums[m][3][first]);
      *reinterpret_cast<float4 *>(to + 4) =
          make_float4(sums[m][0][first + 1], sums[m][1][first + 1], sums[m][2][first + 1], sums[m][3][first + 1]);
    }
  }
}

// The sums of all warps, in order.
FC_INLINE float4 total(const float (&sums)[kWarps][kTile * kStride], int warps, int row, int at) {
  float4 sum = nothing();
#pragma unroll
  for (int warp = 0; warp < kWarps; warp++) {
    if (warp < warps) sum = added(sum, read4(sums[warp] + row * kStride + 4 * at));
  }
  return sum;
}

// ---- rows times the matrix ----

template <bool Transposed>
__global__ void __launch_bounds__(kThreads, 2) few_product_kernel(const __grid_constant__ fc_block_sparse call) {
  __shared__ __align__(16) float sums_of_warps[kWarps][kTile * kStride];
  const Group group(call.groups, blockIdx.x / kParts);
  const Outputs outputs(group, blockIdx.x % kParts);
  take_turn();
  if (outputs.count <= 0) return;
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int64_t start = int64_t(blockIdx.y) * kTile;
  const int warps = min(kWarps, group.input_count);
  if (warp < warps) {
    const float *rows[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int64_t row = start + 8 * i + g;
      rows[i] = row < call.rows ? static_cast<const float *>(call.x) + row * call.x_stride + 2 * t : nullptr;
    }
    const int column = four_columns(outputs.units, outputs.count, g);
    const float *const matrix = column < 0 ? nullptr
        : Transposed ? call.weights + column * call.weights_stride + 2 * t
                     : call.weights + 2 * t * call.weights_stride + column;
    float sums[2][4][4] = {};
#pragma unroll 1
    for (int first = warp; first < group.input_count; first += kWarps * kAhead) {
      float2 a[kAhead][4], b[kAhead][4];
#pragma unroll
      for (int ahead = 0; ahead < kAhead; ahead++) {
        const int at = first + ahead * kWarps;
        const bool there = at < group.input_count;
        const int64_t input = there ? group.inputs[at] * kUnit : 0;
#pragma unroll
        for (int i = 0; i < 4; i++) a[ahead][i] = there && rows[i] != nullptr ? read2(rows[i] + input) : make_float2(0, 0);
        if constexpr (Transposed) {
#pragma unroll
          for (int j = 0; j < 4; j++) {
            b[ahead][j] = there && matrix != nullptr ? read2(matrix + j * call.weights_stride + input) : make_float2(0, 0);
          }
        } else {
          float4 even = nothing(), odd = nothing();
          if (there && matrix != nullptr) {
            const float *const from = matrix + input * call.weights_stride;
            even = read4(from);
            odd = read4(from + call.weights_stride);
          }
          b[ahead][0] = make_float2(even.x, odd.x);
          b[ahead][1] = make_float2(even.y, odd.y);
          b[ahead][2] = make_float2(even.z, odd.z);
          b[ahead][3] = make_float2(even.w, odd.w);
        }
      }
#pragma unroll
      for (int ahead = 0; ahead < kAhead; ahead++) {
        Factor<false, 4> left[2];
#pragma unroll
        for (int m = 0; m < 2; m++) {
          left[m].set(0, a[ahead][2 * m].x);
          left[m].set(1, a[ahead][2 * m + 1].x);
          left[m].set(2, a[ahead][2 * m].y);
          left[m].set(3, a[ahead][2 * m + 1].y);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
          Factor<false, 2> right;
          right.set(0, b[ahead][j].x);
          right.set(1, b[ahead][j].y);
#pragma unroll
          for (int m = 0; m < 2; m++) multiply(sums[m][j], left[m], right);
        }
      }
    }
    keep(sums_of_warps[warp], sums);
  }
  __syncthreads();
  const int at = int(threadIdx.x) % 8, row = int(threadIdx.x) / 8;
  const int column = four_columns(outputs.units, outputs.count, at);
  if (column < 0 || start + row >= call.rows) return;
  const float4 bias = call.bias == nullptr ? nothing() : read4(call.bias + column);
  const float4 sum = added(total(sums_of_warps, warps, row, at), bias);
  *reinterpret_cast<float4 *>(static_cast<float *>(call.out) + (start + row) * call.out_stride + column) = sum;
}

// ---- the gradients of the matrix and of the bias ----

__global__ void __launch_bounds__(kThreads, 2) few_weights_kernel(const __grid_constant__ fc_block_sparse_gradient call) {
  __shared__ __align__(16) float sums_of_warps[kWarps][kTile * kStride];
  __shared__ __align__(16) float bias_of_warps[kWarps][kTile];
  static_assert(kInputs == kTileUnits, "a tile has all inputs of a group");
  const Group group(call.groups, blockIdx.x / kParts);
  const Outputs outputs(group, blockIdx.x % kParts);
  take_turn();
  if (outputs.count <= 0) return;
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int row_of_inputs = four_columns(group.inputs, group.input_count, g);
  const int column = four_columns(outputs.units, outputs.count, g);
  const float *const x = row_of_inputs < 0 ? nullptr : static_cast<const float *>(call.x) + row_of_inputs;
  const float *const gradient = column < 0 ? nullptr : static_cast<const float *>(call.gradient) + column;
  float sums[2][4][4] = {};
  float4 of_bias = nothing();
#pragma unroll 1
  for (int64_t first = warp * 8; first < call.rows; first += kWarps * kAhead * 8) {
    float4 a[kAhead][2], b[kAhead][2];
#pragma unroll
    for (int ahead = 0; ahead < kAhead; ahead++) {
#pragma unroll
      for (int k = 0; k < 2; k++) {
        const int64_t row = first + ahead * kWarps * 8 + 4 * k + t;
        const bool there = row < call.rows;
        a[ahead][k] = there && x != nullptr ? read4(x + row * call.x_stride) : nothing();
        b[ahead][k] = there && gradient != nullptr ? read4(gradient + row * call.gradient_stride) : nothing();
      }
    }
#pragma unroll
    for (int ahead = 0; ahead < kAhead; ahead++) {
      const float4 *const from = a[ahead], *const to = b[ahead];
      of_bias = added(of_bias, added(to[0], to[1]));
      Factor<false, 4> left[2];
      const float of_left[2][4] = {{from[0].x, from[0].y, from[1].x, from[1].y}, {from[0].z, from[0].w, from[1].z, from[1].w}};
      const float of_right[4][2] = {{to[0].x, to[1].x}, {to[0].y, to[1].y}, {to[0].z, to[1].z}, {to[0].w, to[1].w}};
#pragma unroll
      for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int i = 0; i < 4; i++) left[m].set(i, of_left[m][i]);
      }
#pragma unroll
      for (int j = 0; j < 4; j++) {
        Factor<false, 2> right;
        right.set(0, of_right[j][0]);
        right.set(1, of_right[j][1]);
#pragma unroll
        for (int m = 0; m < 2; m++) multiply(sums[m][j], left[m], right);
      }
    }
  }
  keep(sums_of_warps[warp], sums);
  const bool has_bias = call.of_bias != nullptr && group.leads;
  if (has_bias) {
#pragma unroll
    for (int other = 1; other < 4; other *= 2) {
      const float4 theirs = make_float4(__shfl_xor_sync(~0u, of_bias.x, other), __shfl_xor_sync(~0u, of_bias.y, other),
                                        __shfl_xor_sync(~0u, of_bias.z, other), __shfl_xor_sync(~0u, of_bias.w, other));
      of_bias = added(of_bias, theirs);
    }
    if (t == 0) *reinterpret_cast<float4 *>(bias_of_warps[warp] + 4 * g) = of_bias;
  }
  __syncthreads();
  const int at = int(threadIdx.x) % 8, row = int(threadIdx.x) / 8;
  const int to_column = four_columns(outputs.units, outputs.count, at);
  if (to_column < 0) return;
  // A row of sums is 16 m + 8 half + g, and stands for the input 4 g + 2 m + half of the group.
  const int input = row % 8 * 4 + row / 8;
  if (input / kUnit < group.input_count) {
    const int64_t to_row = group.inputs[input / kUnit] * kUnit + input % kUnit;
    *reinterpret_cast<float4 *>(call.to + to_row * call.to_stride + to_column) = total(sums_of_warps, kWarps, row, at);
  }
  if (has_bias && row == 0) {
    float4 sum = nothing();
    for (int other = 0; other < kWarps; other++) sum = added(sum, read4(bias_of_warps[other] + 4 * at));
    *reinterpret_cast<float4 *>(call.of_bias + to_column) = sum;
  }
}

}  // namespace

int few_rows_product(const fc_block_sparse &call, void *stream) {
  const dim3 ctas(unsigned(call.groups.count) * kParts, unsigned((call.rows + kTile - 1) / kTile));
  const auto kernel = call.transposed ? few_product_kernel<true> : few_product_kernel<false>;
  return int(launch_in_turn(kernel, ctas, dim3(kThreads), 0, stream, call));
}

int few_rows_weights(const fc_block_sparse_gradient &call, void *stream) {
  return int(launch_in_turn(few_weights_kernel, dim3(unsigned(call.groups.count) * kParts), dim3(kThreads), 0, stream, call));
}

}  // namespace fc
