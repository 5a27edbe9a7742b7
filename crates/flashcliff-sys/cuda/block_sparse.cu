// Products with block-sparse matrices, on tensor cores (m16n8k8 of TF32).
//
// A CTA has some rows and the output units of one group, and reads only the input units of the group. So a linear map of multivectors
// takes a few multiplications for each number, and its time is that of reading and writing rows.
#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "block_sparse.cuh"
#include "skeleton/memory.cuh"
#include "tensor_cores.cuh"

namespace fc {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kColumns = kUnits * kUnit;
constexpr int kDepth = kInputs * kUnit;
// Strides in shared memory: fragments that are read along rows want 4 times an odd number, those along columns 8 times one.
constexpr int kAlong = kDepth + 4;
constexpr int kAcross = kColumns + 8;
constexpr int kAcrossInputs = kDepth + 8;
constexpr int kWords = kUnit / 4;  // of 16 bytes in a unit

extern __shared__ __align__(16) float shared[];

// Copies units of rows to shared memory: row r and unit u to `to + r * Stride + u * kUnit`; zeros behind the rows and units that there are.
template <int Room, int Stride, int Padded>
struct UnitCopies {
  static constexpr int kOfRow = Room * kWords, kStep = kThreads / kOfRow;
  static_assert(kThreads % kOfRow == 0, "a thread copies one place of all its rows");
  const float *from;
  int64_t stride;
  int first, place;
  bool there;
  FC_INLINE UnitCopies(const float *rows, int64_t row_stride, const int32_t *units, int count) : stride(row_stride) {
    const int word = int(threadIdx.x) % kOfRow, unit = word / kWords;
    first = int(threadIdx.x) / kOfRow;
    place = first * Stride + word * 4;
    there = unit < count;
    from = rows + first * row_stride + (there ? units[unit] * kUnit + word % kWords * 4 : 0);
  }
  // Begins to copy rows from `start` on, of which there are so many.
  FC_INLINE void begin(float *to, int64_t start, int64_t rows) const {
    const float *row = from + start * stride;
#pragma unroll
    for (int i = 0; i < Padded / kStep; i++, row += kStep * stride) {
      float *const own = to + place + i * kStep * Stride;
      if (there && first + i * kStep < rows) {
        copy_async<16>(own, row);
      } else {
        *reinterpret_cast<float4 *>(own) = make_float4(0, 0, 0, 0);
      }
    }
  }
};

// ---- rows times the matrix ----

// The rows of the matrix that belong to a few input units, [kDepth, kColumns]; transposed: [kColumns, kDepth].
template <bool Transposed>
FC_INLINE void copy_weights(float *to, const fc_block_sparse &call, const Group &group, int first, int count) {
  const int32_t *inputs = group.inputs + first;
  constexpr int kRows = Transposed ? kColumns : kDepth, kRoom = Transposed ? kInputs : kUnits;
  constexpr int kStride = Transposed ? kAlong : kAcross;
  const int32_t *of_rows = Transposed ? group.outputs : inputs, *of_columns = Transposed ? inputs : group.outputs;
  const int rows = Transposed ? group.output_count : count, columns = Transposed ? count : group.output_count;
#pragma unroll 4
  for (int at = int(threadIdx.x); at < kRows * kRoom * kWords; at += kThreads) {
    const int row = at / (kRoom * kWords), word = at % (kRoom * kWords), unit = word / kWords;
    float *place = to + row * kStride + word * 4;
    if (row / kUnit < rows && unit < columns) {
      const int64_t from = of_rows[row / kUnit] * kUnit + row % kUnit;
      copy_async<16>(place, call.weights + from * call.weights_stride + of_columns[unit] * kUnit + word % kWords * 4);
    } else {
      *reinterpret_cast<float4 *>(place) = make_float4(0, 0, 0, 0);
    }
  }
}

template <int Tiles, bool Transposed>
__global__ void __launch_bounds__(kThreads) product_kernel(const __grid_constant__ fc_block_sparse call) {
  constexpr int kOwn = Tiles * 16, kRows = kWarps * kOwn;
  constexpr int kOfRows = kRows * kAlong, kOfWeights = Transposed ? kColumns * kAlong : kDepth * kAcross;
  // The groups of the same rows run side by side: together they read whole rows.
  const int64_t tile = blockIdx.x / call.groups.count;
  const Group group(call.groups, blockIdx.x - tile * call.groups.count);
  const int64_t start = tile * kRows, rows = call.rows - start;
  const int warp = int(threadIdx.x) / 32, g = int(threadIdx.x) % 32 / 4, t = int(threadIdx.x) % 4;
  float sums[Tiles][kUnits][4] = {};
  const int turns = (group.input_count + kInputs - 1) / kInputs;
  const auto begin = [&](int turn) {
    if (turn < turns) {
      float *const to = shared + turn % 2 * (kOfRows + kOfWeights);
      const int first = turn * kInputs, count = min(kInputs, group.input_count - first);
      UnitCopies<kInputs, kAlong, kRows>(call.x, call.x_stride, group.inputs + first, count).begin(to, start, rows);
      copy_weights<Transposed>(to + kOfRows, call, group, first, count);
    }
    copy_commit();
  };
  begin(0);
#pragma unroll 1
  for (int turn = 0; turn < turns; turn++) {
    begin(turn + 1);
    copy_wait(1);
    __syncthreads();
    const float *const x = shared + turn % 2 * (kOfRows + kOfWeights), *const weights = x + kOfRows;
#pragma unroll
    for (int k = 0; k < kDepth; k += 8) {
      Factor<false, 4> a[Tiles];
#pragma unroll
      for (int m = 0; m < Tiles; m++) {
        const float *from = x + (warp * kOwn + m * 16 + g) * kAlong + k + t;
        a[m].set(0, from[0]);
        a[m].set(1, from[8 * kAlong]);
        a[m].set(2, from[4]);
        a[m].set(3, from[8 * kAlong + 4]);
      }
#pragma unroll
      for (int n = 0; n < kUnits; n++) {
        Factor<false, 2> b;
        const float *from = Transposed ? weights + (n * 8 + g) * kAlong + k + t : weights + (k + t) * kAcross + n * 8 + g;
        b.set(0, from[0]);
        b.set(1, from[Transposed ? 4 : 4 * kAcross]);
#pragma unroll
        for (int m = 0; m < Tiles; m++) multiply(sums[m][n], a[m], b);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int n = 0; n < kUnits; n++) {
    if (n >= group.output_count) break;
    const int column = group.outputs[n] * kUnit + 2 * t;
    const float2 bias = call.bias == nullptr ? make_float2(0, 0) : *reinterpret_cast<const float2 *>(call.bias + column);
#pragma unroll
    for (int m = 0; m < Tiles; m++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int row = warp * kOwn + m * 16 + g + 8 * half;
        const float2 value = make_float2(sums[m][n][2 * half] + bias.x, sums[m][n][2 * half + 1] + bias.y);
        if (row < rows) *reinterpret_cast<float2 *>(call.out + (start + row) * call.out_stride + column) = value;
      }
    }
  }
}

// ---- the gradient of the matrix ----

constexpr int kRowsAtOnce = 64;
constexpr int kMostSplits = 64;
constexpr int kLeastRows = 256;  // of a part
constexpr int kWantedCtas = 528;
constexpr int kNumbers = kDepth * kColumns;  // of a group's part of the gradient

int64_t splits_of(int64_t rows, int64_t groups) {
  const int64_t wanted = std::max<int64_t>(1, kWantedCtas / std::max<int64_t>(1, groups));
  return std::clamp<int64_t>((rows + kLeastRows - 1) / kLeastRows, 1, std::min<int64_t>(kMostSplits, wanted));
}

__global__ void __launch_bounds__(kThreads, 4) weights_kernel(const __grid_constant__ fc_block_sparse_gradient call, int64_t of_split) {
  constexpr int kOfRows = kRowsAtOnce * kAcrossInputs, kOfGradient = kRowsAtOnce * kAcross;
  constexpr int kTiles = kDepth / 16;
  const Group group(call.groups, blockIdx.x);
  const int64_t first = blockIdx.y * of_split, last = min(first + of_split, call.rows);
  const int warp = int(threadIdx.x) / 32, g = int(threadIdx.x) % 32 / 4, t = int(threadIdx.x) % 4;
  float sums[kTiles][kUnits][4] = {};
  const UnitCopies<kInputs, kAcrossInputs, kRowsAtOnce> inputs(call.x, call.x_stride, group.inputs, group.input_count);
  const UnitCopies<kUnits, kAcross, kRowsAtOnce> outputs(call.gradient, call.gradient_stride, group.outputs, group.output_count);
  const bool has_bias = call.of_bias != nullptr && group.leads;
  const int column = int(threadIdx.x) % kColumns, half = int(threadIdx.x) / kColumns;
  static_assert(kThreads == 2 * kColumns, "two threads a column sum the gradient of the bias");
  float of_bias = 0;
  const auto begin = [&](int64_t row, int buffer) {
    if (row < last) {
      float *const to = shared + buffer * (kOfRows + kOfGradient);
      inputs.begin(to, row, last - row);
      outputs.begin(to + kOfRows, row, last - row);
    }
    copy_commit();
  };
  begin(first, 0);
  int buffer = 0;
#pragma unroll 1
  for (int64_t row = first; row < last; row += kRowsAtOnce, buffer ^= 1) {
    begin(row + kRowsAtOnce, buffer ^ 1);
    copy_wait(1);
    __syncthreads();
    const float *const x = shared + buffer * (kOfRows + kOfGradient), *const gradient = x + kOfRows;
    if (has_bias) {
#pragma unroll 8
      for (int i = 0; i < kRowsAtOnce; i += 2) of_bias += gradient[(i + half) * kAcross + column];
    }
#pragma unroll
    for (int k = 0; k < kRowsAtOnce / kWarps; k += 8) {
      const int at = warp * (kRowsAtOnce / kWarps) + k + t;
      Factor<false, 4> a[kTiles];
#pragma unroll
      for (int m = 0; m < kTiles; m++) {
        const float *from = x + at * kAcrossInputs + m * 16 + g;
        a[m].set(0, from[0]);
        a[m].set(1, from[8]);
        a[m].set(2, from[4 * kAcrossInputs]);
        a[m].set(3, from[4 * kAcrossInputs + 8]);
      }
#pragma unroll
      for (int n = 0; n < kUnits; n++) {
        Factor<false, 2> b;
        const float *from = gradient + at * kAcross + n * 8 + g;
        b.set(0, from[0]);
        b.set(1, from[4 * kAcross]);
#pragma unroll
        for (int m = 0; m < kTiles; m++) multiply(sums[m][n], a[m], b);
      }
    }
    __syncthreads();
  }
  // The sums of all warps, in order.
  copy_wait(0);
#pragma unroll 1
  for (int turn = 0; turn < kWarps; turn++) {
    if (warp == turn) {
#pragma unroll
      for (int m = 0; m < kTiles; m++) {
#pragma unroll
        for (int n = 0; n < kUnits; n++) {
#pragma unroll
          for (int i = 0; i < 4; i++) {
            float *place = shared + (m * 16 + g + i / 2 * 8) * kColumns + n * 8 + 2 * t + i % 2;
            *place = turn == 0 ? sums[m][n][i] : *place + sums[m][n][i];
          }
        }
      }
    }
    __syncthreads();
  }
  const int64_t part = int64_t(blockIdx.y) * gridDim.x + blockIdx.x, parts = int64_t(gridDim.x) * gridDim.y;
  float *const to = call.partials + part * kNumbers;
  for (int at = int(threadIdx.x) * 4; at < kNumbers; at += kThreads * 4) {
    *reinterpret_cast<float4 *>(to + at) = *reinterpret_cast<const float4 *>(shared + at);
  }
  if (!has_bias) return;
  __syncthreads();
  shared[threadIdx.x] = of_bias;
  __syncthreads();
  if (half == 0) call.partials[parts * kNumbers + part * kColumns + column] = of_bias + shared[kColumns + column];
}

// The sums of all parts of the rows, in order.
__global__ void __launch_bounds__(kThreads) sums_kernel(const __grid_constant__ fc_block_sparse_gradient call, int splits) {
  const Group group(call.groups, blockIdx.x);
  const int64_t groups = gridDim.x;
  if (call.of_bias != nullptr && group.leads && blockIdx.y == 0 && int(threadIdx.x) < group.output_count * kUnit) {
    const int column = int(threadIdx.x);
    const float *const from = call.partials + splits * groups * kNumbers + int64_t(blockIdx.x) * kColumns + column;
    float sum = 0;
#pragma unroll 8
    for (int split = 0; split < splits; split++) sum += from[split * groups * kColumns];
    call.of_bias[group.outputs[column / kUnit] * kUnit + column % kUnit] = sum;
  }
  const int at = (int(blockIdx.y) * kThreads + int(threadIdx.x)) * 4;
  const int row = at / kColumns, column = at % kColumns;
  if (row / kUnit >= group.input_count || column / kUnit >= group.output_count) return;
  const float *const from = call.partials + int64_t(blockIdx.x) * kNumbers + at;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
  for (int split = 0; split < splits; split++) {
    sum = added(sum, *reinterpret_cast<const float4 *>(from + split * groups * kNumbers));
  }
  const int64_t to_row = group.inputs[row / kUnit] * kUnit + row % kUnit;
  *reinterpret_cast<float4 *>(call.to + to_row * call.to_stride + group.outputs[column / kUnit] * kUnit + column % kUnit) = sum;
}

// ---- launches ----

bool good(const fc_block_groups &groups) {
  return groups.count >= 0 && groups.count <= 65535 && (groups.count == 0 || (groups.groups != nullptr && groups.units != nullptr));
}

// Whether rows can be read by 16 bytes.
bool good(const void *rows, int64_t stride) {
  return rows != nullptr && reinterpret_cast<uintptr_t>(rows) % 16 == 0 && stride >= 0 && stride % 4 == 0;
}

template <class Kernel, class... Arguments>
int run(Kernel *kernel, dim3 ctas, size_t bytes, void *stream, const Arguments &...arguments) {
  if (bytes > 48 * 1024) {
    const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
    if (error != cudaSuccess) return cudaGetLastError(), int(FC_ERROR_TOO_LARGE);
  }
  kernel<<<ctas, kThreads, bytes, static_cast<cudaStream_t>(stream)>>>(arguments...);
  return int(cudaGetLastError());
}

// From so many rows on a warp has two tiles: then there are CTAs enough.
constexpr int64_t kManyRows = 8192;

template <bool Transposed>
int product(const fc_block_sparse &call, void *stream) {
  const auto with_tiles = [&](auto tiles) {
    constexpr int kTiles = decltype(tiles)::value, kRows = kWarps * kTiles * 16;
    constexpr size_t kNumbers = 2 * (kRows * kAlong + (Transposed ? kColumns * kAlong : kDepth * kAcross));
    const int64_t ctas = (call.rows + kRows - 1) / kRows * call.groups.count;
    if (ctas > INT32_MAX) return int(FC_ERROR_TOO_LARGE);
    return run(product_kernel<kTiles, Transposed>, dim3(unsigned(ctas)), kNumbers * sizeof(float), stream, call);
  };
  if (call.rows >= kManyRows) return with_tiles(std::integral_constant<int, 2>{});
  return with_tiles(std::integral_constant<int, 1>{});
}

}  // namespace
}  // namespace fc

extern "C" int fc_block_sparse_product(const fc_block_sparse *call, void *stream) {
  if (call == nullptr || call->rows < 0 || !fc::good(call->groups)) return FC_ERROR_BAD_CALL;
  if (call->rows == 0 || call->groups.count == 0) return 0;
  if (!fc::good(call->x, call->x_stride) || !fc::good(call->weights, call->weights_stride) || !fc::good(call->out, call->out_stride) ||
      (call->bias != nullptr && !fc::good(call->bias, 0))) {
    return FC_ERROR_BAD_CALL;
  }
  if (call->rows <= fc::kFewRowsOfProducts) return fc::few_rows_product(*call, stream);
  return call->transposed ? fc::product<true>(*call, stream) : fc::product<false>(*call, stream);
}

extern "C" int64_t fc_block_sparse_partials(int64_t rows, int64_t groups) {
  if (rows <= fc::kFewRowsOfWeights) return 0;
  return fc::splits_of(rows, groups) * groups * (fc::kNumbers + fc::kColumns);
}

extern "C" int fc_block_sparse_weights(const fc_block_sparse_gradient *call, void *stream) {
  if (call == nullptr || call->rows < 0 || !fc::good(call->groups)) return FC_ERROR_BAD_CALL;
  if (call->groups.count == 0) return 0;
  if (!fc::good(call->to, call->to_stride)) return FC_ERROR_BAD_CALL;
  if (call->of_bias != nullptr && !fc::good(call->of_bias, 0)) return FC_ERROR_BAD_CALL;
  if (call->rows > 0 && (!fc::good(call->x, call->x_stride) || !fc::good(call->gradient, call->gradient_stride))) {
    return FC_ERROR_BAD_CALL;
  }
  if (call->rows <= fc::kFewRowsOfWeights) return fc::few_rows_weights(*call, stream);
  if (!fc::good(call->partials, 0)) return FC_ERROR_BAD_CALL;
  const int64_t splits = fc::splits_of(call->rows, call->groups.count), least = (call->rows + splits - 1) / splits;
  const int64_t of_split = (least + fc::kRowsAtOnce - 1) / fc::kRowsAtOnce * fc::kRowsAtOnce;
  constexpr size_t kShared = 2 * fc::kRowsAtOnce * (fc::kAcrossInputs + fc::kAcross) * sizeof(float);
  const auto groups = unsigned(call->groups.count);
  const int error =
      fc::run(fc::weights_kernel, dim3(groups, unsigned(splits)), kShared, stream, *call, of_split);
  if (error != 0) return error;
  constexpr unsigned kParts = fc::kNumbers / (4 * fc::kThreads);
  return fc::run(fc::sums_kernel, dim3(groups, kParts), 0, stream, *call, int(splits));
}
