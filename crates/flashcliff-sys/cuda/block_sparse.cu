// Products with block-sparse matrices, on tensor cores (m16n8k8 of TF32), for many rows: gradients of matrices, and launches.
#include "block_sparse_deep.cuh"
#include "block_sparse_product.cuh"

namespace fc {
namespace {

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

// Words: those of outputs that a thread has of a row.
template <int Words>
FC_INLINE void sum_rows(const fc_block_sparse_gradient &call, const Part &part, int place, int ctas, float *partial, float *of_bias_to) {
  constexpr int kStepNumbers = 2 * (1 + Words) * 128;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
  const int input = four_columns(call.groups.units + part.inputs, part.input_count, g);
  int outputs[Words];
#pragma unroll
  for (int i = 0; i < Words; i++) outputs[i] = four_columns(call.groups.units + part.outputs, part.output_count, 8 * i + g);
  // Tables of units are older than the kernels before this one.
  take_turn();
  // Lanes of equal t copy neighbouring words, and those of two g read at once: neither wait for each other's banks.
  float *const own = shared + warp * kWeightStages * kStepNumbers + (8 * t + (g ^ 2 * t)) * 4;
  const int64_t start = int64_t(place) * kRowsAtOnce + warp * kRowsOfStep, turn = int64_t(ctas) * kRowsAtOnce;
  int64_t next = start;
  int next_slot = 0;
  const auto begin = [&] {
    float *const at = own + next_slot * kStepNumbers;
    if (next < call.rows) {
#pragma unroll
      for (int k = 0; k < 2; k++) {
        const int64_t row = next + 4 * k + t;
        const bool there = row < call.rows;
        copy_or_zero<16>(at + k * 128, call.x + row * call.x_stride + max(input, 0), there && input >= 0);
        const float *const gradient = call.gradient + row * call.gradient_stride;
#pragma unroll
        for (int i = 0; i < Words; i++) {
          copy_or_zero<16>(at + (2 * (1 + i) + k) * 128, gradient + max(outputs[i], 0), there && outputs[i] >= 0);
        }
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
    wait_for_copies<kWeightStages - 2>();
    const float *const at = own + slot * kStepNumbers;
    float4 words[1 + Words][2];
#pragma unroll
    for (int i = 0; i < 1 + Words; i++) {
#pragma unroll
      for (int k = 0; k < 2; k++) words[i][k] = read4(at + (2 * i + k) * 128);
    }
    begin();
    if (++slot == kWeightStages) slot = 0;
    const float4 above = rounded(words[0][0]), below = rounded(words[0][1]);
    const float left[2][4] = {{above.x, above.y, below.x, below.y}, {above.z, above.w, below.z, below.w}};
#pragma unroll
    for (int i = 0; i < Words; i++) {
      if (has_bias) of_bias[i] = added(of_bias[i], added(words[1 + i][0], words[1 + i][1]));
      const float4 low = rounded(words[1 + i][0]), high = rounded(words[1 + i][1]);
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

__global__ void __launch_bounds__(kThreads, kWeightCtasOfOne) weights_kernel(const __grid_constant__ Weights weights) {
  const fc_block_sparse_gradient &call = weights.call;
  const int group = group_of(weights.parts, int(blockIdx.x));
  const int first = weights.parts.begin[group], ctas = weights.parts.begin[group + 1] - first, place = int(blockIdx.x) - first;
  const Part &part = weights.parts.parts[group];
  float *const partial = call.partials + int64_t(blockIdx.x) * kNumbers;
  float *const of_bias = call.partials + int64_t(gridDim.x) * kNumbers + int64_t(blockIdx.x) * kColumns;
  if (part.output_count > kSumUnits) {
    sum_rows<2>(call, part, place, ctas, partial, of_bias);
  } else {
    sum_rows<1>(call, part, place, ctas, partial, of_bias);
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
bool good(const void *rows, int64_t stride) {
  return rows != nullptr && reinterpret_cast<uintptr_t>(rows) % 16 == 0 && stride >= 0 && stride % 4 == 0;
}

template <class Kernel, class Arguments>
int run(Kernel *kernel, dim3 ctas, size_t bytes, void *stream, const Arguments &arguments) {
  if (bytes > 48 * 1024) {
    const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
    if (error != cudaSuccess) return cudaGetLastError(), int(FC_ERROR_TOO_LARGE);
  }
  return int(launch_in_turn(kernel, ctas, dim3(kThreads), bytes, stream, arguments));
}

// The multiprocessors of the device, and the shared memory of each in bytes.
struct Device {
  int count, bytes;
};

int ask(Device &of) {
  int device = 0;
  auto error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&of.count, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&of.bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
  return int(error);
}

// The products of some groups. Where one of them has many inputs, all are those of `deep`.
template <bool Transposed>
int some_products(Product &product, int64_t first, const Device &device, void *stream) {
  const fc_block_groups &groups = product.call.groups;
  size_t bytes = 0;
  product.steps = 1;
  for (int64_t at = first; at < std::min(groups.count, first + kMostGroups); at++) {
    const int32_t *group = groups.sizes + at * FC_GROUP_NUMBERS;
    product.steps = std::max(product.steps, steps_of(group[1]));
    bytes = std::max(bytes, product_bytes(steps_of(group[1]), (group[3] + 1) / 2));
  }
  bytes += 4 * product.steps * sizeof(float);
  const bool is_deep = product.steps > kMostSteps;
  const int rows = is_deep ? deep::kRows : kRows;
  const int of_one = is_deep ? deep::kCtas : int(std::clamp<size_t>(size_t(device.bytes) / (bytes + kReserved), 1, kCtas));
  const int64_t tiles = (product.call.rows + rows - 1) / rows;
  const int ctas = share(product.parts, groups, first, tiles, of_one * device.count, [](const Part &part) {
    const double inputs = part.input_count, outputs = part.output_count;
    return inputs + outputs + inputs * outputs / 6 + 6;
  });
  if (is_deep) return run(deep::product_kernel<Transposed>, dim3(unsigned(ctas)), deep::product_bytes(product.steps), stream, product);
  return run(product_kernel<Transposed>, dim3(unsigned(ctas)), bytes, stream, product);
}

template <bool Transposed>
int product(const fc_block_sparse &call, void *stream) {
  Product product;
  product.call = call;
  Device device;
  if (const int error = ask(device); error != 0) return error;
  for (int64_t first = 0; first < call.groups.count; first += kMostGroups) {
    if (const int error = some_products<Transposed>(product, first, device, stream); error != 0) return error;
  }
  return 0;
}

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
    int error = run(weights_kernel, dim3(unsigned(ctas)), kBytes, stream, weights);
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
  if (!fc::good(call->x, call->x_stride) || !fc::good(call->weights, call->weights_stride) || !fc::good(call->out, call->out_stride) ||
      (call->bias != nullptr && !fc::good(call->bias, 0))) {
    return FC_ERROR_BAD_CALL;
  }
  if (call->rows <= fc::kFewRows) return fc::few_rows_product(*call, stream);
  return call->transposed ? fc::product<true>(*call, stream) : fc::product<false>(*call, stream);
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
  if (call->rows > 0 && (!fc::good(call->x, call->x_stride) || !fc::good(call->gradient, call->gradient_stride))) {
    return FC_ERROR_BAD_CALL;
  }
  if (call->rows <= fc::kFewRows) return fc::few_rows_weights(*call, stream);
  if (!fc::good(call->partials, 0)) return FC_ERROR_BAD_CALL;
  return fc::gradients(*call, stream);
}
