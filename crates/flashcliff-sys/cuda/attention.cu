// Attention within sequences, forward and backward, on tensor cores (m16n8k8 of TF32).
//
// A warp owns 16 rows: queries, or keys where gradients of keys and values are summed. The rows on the other side of the dot products
// come through shared memory, a tile at a time, for all warps of a CTA. Heads that share keys and values are rows of one CTA. The
// gradient of the logits is computed once for the gradient of queries and once for that of keys and values: that needs no sum over
// CTAs.
//
// A result becomes the factor A of the next product without a shuffle, because a sum does not depend on the order of its terms: its
// columns 2t and 2t + 1 are read as t and t + 4, and so are the rows of B.
#include "attention.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "attention_fragments.cuh"
#include "attention_long.h"

namespace fc {
namespace {

constexpr int kMostWarps = 4;
constexpr int kBlocks = 4;  // of eight rows in a tile, unless there are few keys
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

struct Call {
  fc_attention of;
  fc_attention_tensor gradient, gradients[3];
  int tiles;         // CTAs of a sequence
  int first;         // row of CTAs of a launch: grids have few of these
  int buffers;       // tiles in shared memory at once: 1 or 2
  bool short_alone;  // long sequences have another launch
};

extern __shared__ __align__(16) float shared[];

// ---- forward ----

// The numbers behind a row of values that the columns of the forward kernel reach. In the backward kernel the last
// rows of a buffer are no factors of sums over rows.
__host__ __device__ inline int behind_values(int columns, int value_width) { return columns * kEight - whole_eights(value_width); }

template <int Columns, int Blocks, class S, bool Exact>
__global__ void __launch_bounds__(kMostWarps * 32) forward_kernel(const __grid_constant__ Call call) {
  constexpr int kTile = Blocks * kEight;
  const fc_attention &of = call.of;
  const int64_t sequence = blockIdx.x / call.tiles;
  const int head = call.first + int(blockIdx.y), rows = int(blockDim.x) / 32 * kOwn, start = int(blockIdx.x % call.tiles) * rows;
  const Span own(of.queries, sequence, head, folded_heads(of)), keys(of.keys, sequence, head, 1);
  if (start >= own.rows || (call.short_alone && is_long(own.count, keys.count))) return;
  float *next = shared;
  const Rows query[] = {rows_at(next, rows, of.width)};
  const int behind = behind_values(Columns, of.value_width);
  const Tiles<S, 2> tiles(next, {{&of.key, &of.value}, {of.width, of.value_width}}, keys, kTile, call.buffers, of.dtype, behind);
  fill<S>(query, {{&of.query}, {of.width}}, own, start, rows, of.dtype);

  const Lane lane;
  const float factor = of.scale * kLog2E;
  float sums[Columns][4] = {}, largest[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
  tiles.for_each([&](int first, const Rows (&tile)[2]) {
    float weights[Blocks][4];
    dot_products<Exact>(weights, query[0], tile[0]);
    float most[2] = {largest[0], largest[1]};
#pragma unroll
    for (int n = 0; n < Blocks; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const bool there = first + n * kEight + 2 * lane.t + i % 2 < keys.rows;
        weights[n][i] = there ? weights[n][i] * factor : -INFINITY;
        most[i / 2] = fmaxf(most[i / 2], weights[n][i]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      most[half] = larger_of_four(most[half]);
      const float kept = most[half] == largest[half] ? 1.0f : exp2f(largest[half] - most[half]);
      largest[half] = most[half];
      total[half] *= kept;
#pragma unroll
      for (int column = 0; column < Columns; column++) {
        sums[column][2 * half] *= kept;
        sums[column][2 * half + 1] *= kept;
      }
    }
#pragma unroll
    for (int n = 0; n < Blocks; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        weights[n][i] = exp2f(weights[n][i] - largest[i / 2]);
        total[i / 2] += weights[n][i];
      }
    }
    weighted_sums<Exact>(sums, weights, tile[1]);
  });
  float factors[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    total[half] = sum_of_four(total[half]);
    // Without keys the result is zero.
    factors[half] = keys.rows > 0 ? 1 / total[half] : 0.0f;
    const int row = start + int(threadIdx.x) / 32 * kOwn + lane.g + half * kEight;
    if (lane.t == 0 && row < own.rows && of.log_sums != nullptr) {
      *own.sum_at(of, row) = (largest[half] + log2f(total[half])) * kLn2;
    }
  }
  write<S>(sums, factors, of.out, own, start, of.value_width, of.dtype);
}

// ---- backward ----

// The dot product of the gradient of a row, in shared memory, and its result, for four neighbouring lanes.
template <class S>
FC_INLINE float dot_with_result(const fc_attention &of, const float *gradient, const Span &span, int row) {
  const S *out = span.template at<const S>(of.out, min(row, span.rows - 1));
  float sum = 0;
#pragma unroll 3
  for (int at = kAligned * Lane().t; at < of.value_width; at += 4 * kAligned) {
    const auto found = load_lanes<S, float, kAligned>(out + at, of.dtype);
    FC_EACH(kAligned, sum += found.v[i] * gradient[at + i];)
  }
  return sum_of_four(sum);
}

// The same of two rows in shared memory.
FC_INLINE float dot_of_rows(const float *a, const float *b, int width) {
  float sum = 0;
#pragma unroll 4
  for (int at = Lane().t; at < width; at += 4) sum += a[at] * b[at];
  return sum_of_four(sum);
}

// The gradient of a CTA's queries.
template <int Columns, int Blocks, class S, bool Exact>
FC_INLINE void query_gradient(const Call &call, const Span &own, const Span &keys, int start) {
  constexpr int kTile = Blocks * kEight;
  const fc_attention &of = call.of;
  const int rows = int(blockDim.x) / 32 * kOwn;
  float *next = shared;
  const Rows rows_of[] = {rows_at(next, rows, of.width), rows_at(next, rows, of.value_width)};
  const Rows &query = rows_of[0], &gradient = rows_of[1];
  const Tiles<S, 2> tiles(next, {{&of.key, &of.value}, {of.width, of.value_width}}, keys, kTile, call.buffers, of.dtype);
  fill<S>(rows_of, {{&of.query, &call.gradient}, {of.width, of.value_width}}, own, start, rows, of.dtype);
  const Lane lane;
  const float factor = of.scale * kLog2E;
  float log_sums[2], means[2], sums[Columns][4] = {};
  tiles.for_each([&](int first, const Rows (&tile)[2]) {
    if (first == 0) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int at = int(threadIdx.x) / 32 * kOwn + lane.g + half * kEight, row = min(start + at, own.rows - 1);
        means[half] = dot_with_result<S>(of, gradient.at + at * gradient.stride, own, row);
        log_sums[half] = *own.sum_at(of, row) * kLog2E;
      }
    }
    float weights[Blocks][4], slopes[Blocks][4];
    dot_products<Exact>(weights, query, tile[0]);
    dot_products<Exact>(slopes, gradient, tile[1]);
#pragma unroll
    for (int n = 0; n < Blocks; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const bool there = first + n * kEight + 2 * lane.t + i % 2 < keys.rows;
        const float weight = exp2f(weights[n][i] * factor - log_sums[i / 2]);
        slopes[n][i] = there ? weight * (slopes[n][i] - means[i / 2]) : 0.0f;
      }
    }
    weighted_sums<Exact>(sums, slopes, tile[0]);
  });
  const float factors[2] = {of.scale, of.scale};
  write<S>(sums, factors, call.gradients[0], own, start, of.width, of.dtype);
}

// The gradients of a CTA's keys and values, of all heads that share them.
template <int Columns, class S, bool Exact>
FC_INLINE void key_gradient(const Call &call, const Span &queries, const Span &own, int start) {
  constexpr int kTile = kBlocks * kEight;
  const fc_attention &of = call.of;
  const int rows = int(blockDim.x) / 32 * kOwn;
  float *next = shared;
  const Rows rows_of[] = {rows_at(next, rows, of.width), rows_at(next, rows, of.value_width)};
  const Rows &key = rows_of[0], &value = rows_of[1];
  const Sources sources = {{&of.query, &call.gradient, &of.out}, {of.width, of.value_width, of.value_width}};
  const Tiles<S, 3> tiles(next, sources, queries, kTile, call.buffers, of.dtype);
  fill<S>(rows_of, {{&of.key, &of.value}, {of.width, of.value_width}}, own, start, rows, of.dtype);
  const Lane lane;
  const float factor = of.scale * kLog2E;
  float of_key[Columns][4] = {}, of_value[Columns][4] = {};
  tiles.for_each([&](int first, const Rows (&tile)[3]) {
    // Each quad of lanes has the sums of one row of each block, and gives them to those that need them.
    float weights[kBlocks][4], slopes[kBlocks][4], log_sums[kBlocks], means[kBlocks];
#pragma unroll
    for (int n = 0; n < kBlocks; n++) {
      const int at = n * kEight + lane.g;
      log_sums[n] = *queries.sum_at(of, min(first + at, queries.rows - 1)) * kLog2E;
      means[n] = dot_of_rows(tile[1].at + at * tile[1].stride, tile[2].at + at * tile[2].stride, tile[1].width);
    }
    dot_products<Exact>(weights, key, tile[0]);
    dot_products<Exact>(slopes, value, tile[1]);
#pragma unroll
    for (int n = 0; n < kBlocks; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int at = 2 * lane.t + i % 2, quad = 4 * at;
        const float log_sum = __shfl_sync(~0u, log_sums[n], quad), mean = __shfl_sync(~0u, means[n], quad);
        const bool there = first + n * kEight + at < queries.rows;
        const float weight = there ? exp2f(weights[n][i] * factor - log_sum) : 0.0f;
        weights[n][i] = weight;
        slopes[n][i] = there ? weight * (slopes[n][i] - mean) : 0.0f;
      }
    }
    weighted_sums<Exact>(of_value, weights, tile[1]);
    weighted_sums<Exact>(of_key, slopes, tile[0]);
  });
  const float factors[2] = {of.scale, of.scale}, ones[2] = {1, 1};
  write<S>(of_key, factors, call.gradients[1], own, start, of.width, of.dtype);
  write<S>(of_value, ones, call.gradients[2], own, start, of.value_width, of.dtype);
}

template <int Columns, int Blocks, class S, bool Exact>
__global__ void __launch_bounds__(kMostWarps * 32, (Exact || Columns > 6) ? 2 : Blocks == 1 ? 3 : 4) backward_kernel(const __grid_constant__ Call call) {
  const fc_attention &of = call.of;
  const int64_t sequence = blockIdx.x / call.tiles;
  const int start = int(blockIdx.x % call.tiles) * (int(blockDim.x) / 32 * kOwn);
  const int at = call.first + int(blockIdx.y);
  const bool of_queries = at < of.key_heads;
  const int head = at - (of_queries ? 0 : of.key_heads);
  const Span queries(of.queries, sequence, head, folded_heads(of)), keys(of.keys, sequence, head, 1);
  if (call.short_alone && is_long(queries.count, keys.count)) return;
  const fc_attention_tensor (&gradients)[3] = call.gradients;
  if (of_queries) {
    if (start >= queries.rows) return;
    if (keys.rows > 0) return query_gradient<Columns, Blocks, S, Exact>(call, queries, keys, start);
    const float none[Columns][4] = {}, factors[2] = {};
    write<S>(none, factors, gradients[0], queries, start, of.width, of.dtype);
  } else {
    if (start >= keys.rows) return;
    if (queries.rows > 0) return key_gradient<Columns, S, Exact>(call, queries, keys, start);
    const float none[Columns][4] = {}, factors[2] = {};
    write<S>(none, factors, gradients[1], keys, start, of.width, of.dtype);
    write<S>(none, factors, gradients[2], keys, start, of.value_width, of.dtype);
  }
}

// ---- launches ----

bool good(const fc_attention_tensor &tensor, int64_t rows) {
  const auto whole = [](int64_t stride) { return stride % kAligned == 0; };
  const bool strides = whole(tensor.sequence_stride) && whole(tensor.row_stride) && whole(tensor.head_stride);
  return rows == 0 || (tensor.features != nullptr && strides);
}

bool aligned(const fc_attention_tensor &tensor, int dtype) {
  return reinterpret_cast<uintptr_t>(tensor.features) % uintptr_t(kAligned * (dtype == FC_F32 ? 4 : 2)) == 0;
}

bool good(const fc_attention *of) {
  if (of == nullptr || of->sequences < 0 || of->heads < 1 || (of->key_heads != 1 && of->key_heads != of->heads)) return false;
  if (of->dtype != FC_F32 && of->dtype != FC_BF16 && of->dtype != FC_F16) return false;
  for (const int32_t width : {of->width, of->value_width}) {
    if (width < kAligned || width > FC_ATTENTION_WIDTH || width % kAligned != 0) return false;
  }
  for (const fc_attention_rows &rows : {of->queries, of->keys}) {
    if (rows.count < 0 || rows.longest < 0 || rows.longest > INT32_MAX / 2) return false;
    if (rows.bounds == nullptr && rows.count != rows.longest * of->sequences) return false;
  }
  for (const auto &[tensor, rows] : {std::pair{of->query, of->queries.count}, {of->out, of->queries.count},
                                     {of->key, of->keys.count}, {of->value, of->keys.count}}) {
    if (!good(tensor, rows) || !aligned(tensor, of->dtype)) return false;
  }
  return true;
}

// The shared memory of a multiprocessor of the current device, without what each CTA takes for itself.
size_t shared_memory() {
  int device = 0, bytes = 0;
  const bool found = cudaGetDevice(&device) == cudaSuccess &&
                     cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device) == cudaSuccess;
  constexpr size_t kOfCtas = 4 * 1024;
  return found && size_t(bytes) > kOfCtas ? size_t(bytes) - kOfCtas : 0;
}

// Whether there may be sequences that are not long.
bool has_short(const fc_attention &of) { return of.queries.bounds != nullptr || of.keys.bounds != nullptr; }

// Launches a kernel with as many warps as the longest sequence needs.
template <bool Backward>
int launch(Call &call, void *stream) {
  const fc_attention &of = call.of;
  const int64_t folded = folded_heads(of), rows_of_queries = of.queries.longest * folded;
  const int64_t longest = Backward ? std::max(rows_of_queries, of.keys.longest) : rows_of_queries;
  if (of.sequences == 0 || longest == 0) return 0;
  // Rows are divided by the items of a head with 32 bits, if there are several heads.
  if (folded > 1 && rows_of_queries * of.queries.longest > INT32_MAX) return FC_ERROR_TOO_LARGE;
  const int warps = int(std::min<int64_t>(kMostWarps, (longest + kOwn - 1) / kOwn)), rows = warps * kOwn;
  const int64_t tiles = (longest + rows - 1) / rows, ctas = of.sequences * tiles;
  const int64_t heads = int64_t(of.key_heads) * (Backward ? 2 : 1);
  if (ctas > INT32_MAX || heads > INT32_MAX) return FC_ERROR_TOO_LARGE;
  call.tiles = int(tiles);
  const bool few = of.keys.longest <= kEight;
  const int width = stride_of(of.width), value_width = stride_of(of.value_width);
  const int own = rows * (width + (Backward ? value_width : 0));
  // The gradient of keys has the larger tiles, of queries, gradients and results.
  const int tile = (few && !Backward ? 1 : kBlocks) * kEight * (width + (Backward ? 2 : 1) * value_width);
  constexpr int kNarrow = 48;
  const bool narrow = std::max(of.width, of.value_width) <= kNarrow;
  // Fragments reach beyond the features.
  const int behind = Backward ? 0 : behind_values((narrow ? kNarrow : FC_ATTENTION_WIDTH) / kEight, of.value_width);
  const auto bytes_of = [&](int buffers) {
    return size_t(own + buffers * tile + (buffers - 1) * behind + FC_ATTENTION_WIDTH) * sizeof(float);
  };
  // Registers leave room for so many CTAs on a multiprocessor. A second tile must not take the place of one of them.
  const size_t ctas_at_once = narrow ? 4 : 2;
  call.buffers = bytes_of(2) * ctas_at_once <= shared_memory() ? 2 : 1;
  const size_t bytes = bytes_of(call.buffers);
  const auto run = [&](auto *kernel) {
    if (bytes > 48 * 1024) {
      const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
      if (error != cudaSuccess) return cudaGetLastError(), int(FC_ERROR_TOO_LARGE);
    }
    constexpr int64_t kMostHeads = 65535;  // the most CTAs of a grid in its second axis
    for (int64_t first = 0; first < heads; first += kMostHeads) {
      const dim3 grid(unsigned(ctas), unsigned(std::min(kMostHeads, heads - first)));
      call.first = int(first);
      kernel<<<grid, warps * 32, bytes, static_cast<cudaStream_t>(stream)>>>(call);
      if (const auto error = cudaGetLastError(); error != cudaSuccess) return int(error);
    }
    return 0;
  };
  const auto of_sizes = [&](auto columns, auto blocks) {
    constexpr int kColumns = decltype(columns)::value, kKeyBlocks = decltype(blocks)::value;
    // 16-bit numbers are exact in TF32.
    if constexpr (Backward) {
      if (of.dtype != FC_F32) return run(backward_kernel<kColumns, kKeyBlocks, Bits16, false>);
      if (of.exact) return run(backward_kernel<kColumns, kKeyBlocks, float, true>);
      return run(backward_kernel<kColumns, kKeyBlocks, float, false>);
    } else {
      if (of.dtype != FC_F32) return run(forward_kernel<kColumns, kKeyBlocks, Bits16, false>);
      if (of.exact) return run(forward_kernel<kColumns, kKeyBlocks, float, true>);
      return run(forward_kernel<kColumns, kKeyBlocks, float, false>);
    }
  };
  const auto of_width = [&](auto columns) {
    if (few) return of_sizes(columns, std::integral_constant<int, 1>{});
    return of_sizes(columns, std::integral_constant<int, kBlocks>{});
  };
  if (narrow) return of_width(std::integral_constant<int, kNarrow / kEight>{});
  return of_width(std::integral_constant<int, FC_ATTENTION_WIDTH / kEight>{});
}

}  // namespace
}  // namespace fc

extern "C" int fc_attention_forward(const fc_attention *attention, void *stream) {
  if (!fc::good(attention)) return FC_ERROR_BAD_CALL;
  fc::Call call = {};
  call.of = *attention;
  call.short_alone = fc::long_serves(*attention);
  if (call.short_alone) {
    const int error = fc::long_forward(*attention, stream);
    if (error != 0 || !fc::has_short(*attention)) return error;
  }
  return fc::launch<false>(call, stream);
}

extern "C" int fc_attention_backward(const fc_attention *attention, const fc_attention_tensor *gradient,
                                     const fc_attention_tensor *gradients, float *means, void *stream) {
  if (!fc::good(attention) || gradient == nullptr || gradients == nullptr) return FC_ERROR_BAD_CALL;
  fc::Call call = {};
  call.of = *attention;
  call.gradient = *gradient;
  const int64_t rows[] = {attention->queries.count, attention->keys.count, attention->keys.count};
  bool good = fc::good(*gradient, rows[0]) && fc::aligned(*gradient, attention->dtype);
  good = good && (rows[0] == 0 || attention->log_sums != nullptr);
  for (int i = 0; i < 3; i++) {
    call.gradients[i] = gradients[i];
    good = good && fc::good(gradients[i], rows[i]) && fc::aligned(gradients[i], attention->dtype);
  }
  if (!good || (rows[0] > 0 && means == nullptr)) return FC_ERROR_BAD_CALL;
  call.short_alone = fc::long_serves(*attention);
  if (call.short_alone) {
    const int error = fc::long_backward(*attention, *gradient, gradients, means, stream);
    if (error != 0 || !fc::has_short(*attention)) return error;
  }
  return fc::launch<true>(call, stream);
}
