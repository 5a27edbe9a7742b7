// Attention within long sequences, forward and backward, by matrix products of warpgroups (wgmma of TF32).
//
// Two warpgroups of a CTA own 64 rows each: queries, or keys where gradients of keys and values are summed. The rows on the other side of
// the dot products come through shared memory, 64 at a time, for both. Where there are many others, CTAs of a cluster own the same rows and
// share them out; in the end they add up what they have in the order of their ranks. How many CTAs that are depends on the sequence alone.
#include "attention_long.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "attention_warpgroup.cuh"
#include "skeleton/launch.cuh"

namespace fc {
namespace {

struct Call {
  fc_attention of;
  fc_attention_tensor gradient, gradients[3];
  float *means;  // [heads, queries]: the products of the result and its gradient
  int tiles;     // of own rows of a sequence
  int first;     // row of CTAs of a launch: grids have few of these
  int splits;    // CTAs of a cluster
};

extern __shared__ __align__(1024) float numbers[];

// The shared memory of each kernel, in numbers.
template <class F>
struct Room {
  static constexpr int kForward = F::kOwn + 2 * (F::kOther + lined_numbers(F::kTile, F::kWidth) + F::kTurned),
                       kQueries = 2 * F::kOwn + 2 * F::kOther + F::kTurned + F::kOwnRows,
                       kKeys = 2 * F::kOwn + 2 * (F::kOther + F::kTurned) + 4 * F::kTile;
  // What CTAs of a cluster give each other at the end, of a tensor: sums of rows, and two more numbers a row.
  static constexpr int kStride = F::kWidth + 4, kSums = F::kOwnRows * kStride;
  static_assert(std::max({kForward, kQueries, kKeys, 2 * kSums}) * int(sizeof(float)) <= 227 * 1024, "the room of a CTA");
};

// How many CTAs share out so many rows, where so many CTAs own others of the same sequence: 1, 2, 4 or 8. Each has enough rows, and
// together they are no more than large GPUs have multiprocessors for.
constexpr int kMostSplits = 8;
__host__ __device__ inline int splits_of(int64_t rows, int64_t ctas) {
  constexpr int64_t kLeast = 640, kCtas = 128;
  int splits = 1;
  while (splits < kMostSplits && rows >= 2 * splits * kLeast && 2 * splits * ctas <= kCtas) splits *= 2;
  return splits;
}

#if FC_WARPGROUPS

// Two places in shared memory, for tiles by turns.
template <class T>
struct Pair {
  Parts<T> first;
  int gap;
  FC_INLINE Pair(float *&next, const Parts<T> &own) : first(own), gap(int(next - own.whole.at)) { next += gap; }
  FC_INLINE Parts<T> of(int tile) const { return {{first.whole.at + tile % 2 * gap}, {first.rest.at + tile % 2 * gap}}; }
};

// A CTA: the rows of its sequence and head, the first that it owns, and its share of the tiles of the others.
template <class F>
struct Cta {
  int64_t at, sequence;
  int head;
  Span queries, keys;
  int start, rank, splits, begin, end;
  bool works;

  FC_INLINE Cta(const Call &call, bool owns_queries)
      : at(blockIdx.x / call.splits),
        sequence(at / call.tiles),
        head(call.first + int(blockIdx.y)),
        queries(call.of.queries, sequence, head, folded_heads(call.of)),
        keys(call.of.keys, sequence, head, 1),
        start(int(at % call.tiles) * F::kOwnRows),
        rank(call.splits > 1 ? int(cluster_rank()) : 0) {
    const int64_t own = owns_queries ? queries.rows : keys.rows, others = owns_queries ? keys.rows : queries.rows;
    splits = splits_of(others, (own + F::kOwnRows - 1) / F::kOwnRows * call.of.key_heads);
    const int64_t tiles = (others + F::kTile - 1) / F::kTile;
    begin = int(tiles * rank / splits);
    end = int(tiles * (rank + 1) / splits);
    works = is_long(queries.count, keys.count) && start < own && rank < splits;
  }
};

// Sums of rows in the shared memory of each CTA of a cluster.
template <class F>
struct Shared {
  float *at;
  static constexpr int kStride = Room<F>::kStride, kColumns = F::kColumns;
  FC_INLINE float *row(int of) const { return at + of * kStride; }
  FC_INLINE void put(const float (&sums)[kColumns * 4]) const {
    const Lane lane;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float *to = row(own_row(half));
#pragma unroll
      for (int column = 0; column < kColumns; column++) {
        *reinterpret_cast<float2 *>(to + column * kEight + 2 * lane.t) = make_float2(sums[4 * column + 2 * half], sums[4 * column + 2 * half + 1]);
      }
    }
  }
};

// Adds up the rows of all CTAs of a cluster and writes them, times a factor: each CTA has some of the rows. `weigh` makes the factors of
// the ranks from the place of a row.
template <class F, class W>
FC_INLINE void write_together(const Cta<F> &cta, const Shared<F> &shared, const fc_attention_tensor &to, const Span &span, int width, W &&weigh) {
  const int words = width / kAligned, begin = F::kOwnRows * cta.rank / cta.splits, end = F::kOwnRows * (cta.rank + 1) / cta.splits;
  for (int row = begin + int(threadIdx.x) / 8; row < min(end, span.rows - cta.start); row += F::kThreads / 8) {
    float factors[kMostSplits];
    weigh(row, factors);
    float *features = span.at<float>(to, cta.start + row);
    for (int word = int(threadIdx.x) % 8; word < words; word += 8) {
      float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int of = 0; of < kMostSplits; of++) {
        if (of >= cta.splits) break;
        const float4 part = load_remote(reinterpret_cast<const float4 *>(shared.row(row)) + word, of);
        sum.x += factors[of] * part.x, sum.y += factors[of] * part.y, sum.z += factors[of] * part.z, sum.w += factors[of] * part.w;
      }
      *reinterpret_cast<float4 *>(features + word * kAligned) = sum;
    }
  }
}

#endif

// ---- forward ----

template <class F>
__global__ void __launch_bounds__(F::kThreads, 1) long_forward_kernel(const __grid_constant__ Call call) {
#if FC_WARPGROUPS
  const Cta<F> cta(call, true);
  if (!cta.works) return;
  const fc_attention &of = call.of;
  const Span &own = cta.queries, &keys = cta.keys;
  const int start = cta.start;
  constexpr int kColumns = F::kColumns, kOwnRows = F::kOwnRows, kTile = F::kTile, kSums = F::kSums;
  float *next = numbers;
  const auto query = lined_of<F, kOwnRows>(next);
  const Pair key(next, lined_of<F, kTile>(next));
  // Values are factors when they are turned.
  const auto alone = [&] {
    const auto own = lined<kTile, F::kWidth>(next);
    return Parts<Lined<kTile>>{own, own};
  };
  const Pair value(next, alone());
  const Pair turned_value(next, turned_of<F>(next));
  const Source keys_of(of.key, of.width, keys), values_of(of.value, of.value_width, keys);
  const auto begin = [&](int tile) {
    if (tile < cta.end) {
      fill<F>(key.of(tile), keys_of, keys, tile * kTile);
      fill<F>(value.of(tile), values_of, keys, tile * kTile);
    }
    copy_commit();
  };
  fill<F>(query, Source(of.query, of.width, own), own, start);
  begin(cta.begin);
  begin(cta.begin + 1);

  const Lane lane;
  const float factor = of.scale * kLog2E;
  float sums[kColumns * 4] = {}, weights[kSums], coming[kSums], largest[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
  if (cta.begin < cta.end) {
    copy_wait(1);
    write_rests<F>(query);
    write_rests<F>(key.of(cta.begin));
    show_to_products();
    __syncthreads();
    begin_products();
    dot_products<F>(weights, query, key.of(cta.begin));
    end_products();
    turn<F>(turned_value.of(cta.begin), value.of(cta.begin));
    wait_for_products();
  }
  // The dot products of the next tile, and the sums of the one before, are under way while this one's weights are made.
#pragma unroll 1
  for (int tile = cta.begin; tile < cta.end; tile++) {
    const bool more = tile + 1 < cta.end;
    copy_wait(0);
    if (more) write_rests<F>(key.of(tile + 1));
    show_to_products();
    __syncthreads();
    if (more) {
      begin_products();
      dot_products<F>(coming, query, key.of(tile + 1));
      end_products();
    }
    begin(tile + 2);
    float most[2] = {largest[0], largest[1]};
    const int left = keys.rows - tile * kTile;
    if (left < kTile) {
#pragma unroll
      for (int i = 0; i < kSums; i++) {
        if (i / 4 * kEight + 2 * lane.t + i % 2 >= left) weights[i] = -INFINITY;
      }
    }
#pragma unroll
    for (int i = 0; i < kSums; i++) most[i / 2 % 2] = fmaxf(most[i / 2 % 2], weights[i]);
    float shift[2], factors[F::kFactors];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      most[half] = larger_of_four(most[half]);
      const float kept = power_of_2((largest[half] - most[half]) * factor);
      largest[half] = most[half];
      shift[half] = -most[half] * factor;
      total[half] *= kept;
#pragma unroll
      for (int column = 0; column < kColumns; column++) {
        sums[4 * column + 2 * half] *= kept;
        sums[4 * column + 2 * half + 1] *= kept;
      }
    }
#pragma unroll
    for (int i = 0; i < kSums; i++) {
      const float weight = power_of_2(fmaf(weights[i], factor, shift[i / 2 % 2]));
      total[i / 2 % 2] += weight;
      set_factor<F>(factors, i, weight);
    }
    begin_products();
    weighted_sums<F>(sums, factors, turned_value.of(tile));
    end_products();
    if (more) turn<F>(turned_value.of(tile + 1), value.of(tile + 1));
    wait_for_products();
#pragma unroll
    for (int i = 0; i < kSums; i++) weights[i] = coming[i];
  }
  FC_EACH(2, largest[i] *= factor;)
  FC_EACH(2, total[i] = sum_of_four(total[i]);)
  const auto keep = [&](int row, float log_sum) {
    if (start + row < own.rows && of.log_sums != nullptr) *own.sum_at(of, start + row) = log_sum * kLn2;
  };
  if (cta.splits == 1) {
    // Without keys the result is zero.
    const float factors[2] = {keys.rows > 0 ? 1 / total[0] : 0.0f, keys.rows > 0 ? 1 / total[1] : 0.0f};
    if (lane.t == 0) {
      FC_EACH(2, keep(own_row(i), largest[i] + log2f(total[i]));)
    }
    return write_own<kColumns>(sums, factors, of.out, own, start, of.value_width);
  }
  copy_wait(0);
  __syncthreads();
  const Shared<F> shared = {numbers};
  shared.put(sums);
  if (lane.t == 0) {
    FC_EACH(2, *reinterpret_cast<float2 *>(shared.row(own_row(i)) + F::kWidth) = make_float2(largest[i], total[i]);)
  }
  cluster_barrier();
  write_together(cta, shared, of.out, own, of.value_width, [&](int row, float (&factors)[kMostSplits]) {
    float4 found[kMostSplits];
    float most = -INFINITY, all = 0;
#pragma unroll
    for (int i = 0; i < kMostSplits; i++) {
      found[i] = make_float4(-INFINITY, 0, 0, 0);
      if (i < cta.splits) found[i] = load_remote(reinterpret_cast<const float4 *>(shared.row(row) + F::kWidth), i);
      most = fmaxf(most, found[i].x);
    }
#pragma unroll
    for (int i = 0; i < kMostSplits; i++) {
      factors[i] = most == -INFINITY ? 0.0f : power_of_2(found[i].x - most);
      all += found[i].y * factors[i];
    }
#pragma unroll
    for (int i = 0; i < kMostSplits; i++) factors[i] = keys.rows > 0 ? factors[i] / all : 0.0f;
    if (threadIdx.x % 8 == 0) keep(row, most + log2f(all));
  });
  cluster_barrier();
#endif
}

// ---- backward ----

// The gradient of queries, and the products of the result and its gradient.
template <class F>
__global__ void __launch_bounds__(F::kThreads, 1) long_queries_kernel(const __grid_constant__ Call call) {
#if FC_WARPGROUPS
  const Cta<F> cta(call, true);
  if (!cta.works) return;
  const fc_attention &of = call.of;
  const Span &own = cta.queries, &keys = cta.keys;
  const int start = cta.start;
  constexpr int kColumns = F::kColumns, kOwnRows = F::kOwnRows, kTile = F::kTile, kSums = F::kSums;
  float *next = numbers;
  const auto query = lined_of<F, kOwnRows>(next), gradient = lined_of<F, kOwnRows>(next);
  const auto key = lined_of<F, kTile>(next), value = lined_of<F, kTile>(next);
  const auto turned_key = turned_of<F>(next);
  float *const of_rows = next;  // the means of own rows
  const Source keys_of(of.key, of.width, keys), values_of(of.value, of.value_width, keys);
  const auto begin = [&](int tile) {
    if (tile < cta.end) {
      fill<F>(key, keys_of, keys, tile * kTile);
      fill<F>(value, values_of, keys, tile * kTile);
    }
    copy_commit();
  };
  fill<F>(query, Source(of.query, of.width, own), own, start);
  fill<F>(gradient, Source(call.gradient, of.value_width, own), own, start);
  begin(cta.begin);
  for (int row = int(threadIdx.x) / 8; row < kOwnRows; row += F::kThreads / 8) {
    const int at = min(start + row, own.rows - 1);
    const float *out = own.at<const float>(of.out, at), *by = own.at<const float>(call.gradient, at);
    float sum = 0;
    for (int word = int(threadIdx.x) % 8 * kAligned; word < of.value_width; word += 8 * kAligned) {
      const float4 a = *reinterpret_cast<const float4 *>(out + word), b = *reinterpret_cast<const float4 *>(by + word);
      sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
    }
    sum = sum_of_four(sum);
    sum += __shfl_xor_sync(~0u, sum, 4);
    if (threadIdx.x % 8 == 0) {
      of_rows[row] = sum;
      if (start + row < own.rows && cta.rank == 0) call.means[own.sum_at(of, start + row) - of.log_sums] = sum;
    }
  }
  __syncthreads();
  const Lane lane;
  const float factor = of.scale * kLog2E;
  float sums[kColumns * 4] = {}, weights[kSums], slopes[kSums], log_sums[2], means[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    means[half] = of_rows[own_row(half)];
    log_sums[half] = *own.sum_at(of, min(start + own_row(half), own.rows - 1)) * kLog2E;
  }
  copy_wait(0);
  write_rests<F>(query);
  write_rests<F>(gradient);
#pragma unroll 1
  for (int tile = cta.begin; tile < cta.end; tile++) {
    copy_wait(0);
    write_rests<F>(key);
    write_rests<F>(value);
    show_to_products();
    __syncthreads();
    begin_products();
    dot_products<F>(weights, query, key);
    dot_products<F>(slopes, gradient, value);
    end_products();
    turn<F>(turned_key, key);
    show_to_products();
    wait_for_products();
    __syncthreads();
    begin(tile + 1);
    // Keys that are not there are zeros, which add nothing.
    float factors[F::kFactors];
#pragma unroll
    for (int i = 0; i < kSums; i++) {
      set_factor<F>(factors, i, power_of_2(weights[i] * factor - log_sums[i / 2 % 2]) * (slopes[i] - means[i / 2 % 2]));
    }
    begin_products();
    weighted_sums<F>(sums, factors, turned_key);
    end_products();
    wait_for_products();
  }
  if (cta.splits == 1) {
    const float factors[2] = {of.scale, of.scale};
    return write_own<kColumns>(sums, factors, call.gradients[0], own, start, of.width);
  }
  copy_wait(0);
  __syncthreads();
  const Shared<F> shared = {numbers};
  shared.put(sums);
  cluster_barrier();
  write_together(cta, shared, call.gradients[0], own, of.width, [&](int, float (&factors)[kMostSplits]) {
    FC_EACH(kMostSplits, factors[i] = of.scale;)
  });
  cluster_barrier();
#endif
}

// The gradients of keys and values, of all heads that share them.
template <class F>
__global__ void __launch_bounds__(F::kThreads, 1) long_keys_kernel(const __grid_constant__ Call call) {
#if FC_WARPGROUPS
  const Cta<F> cta(call, false);
  if (!cta.works) return;
  const fc_attention &of = call.of;
  const Span &queries = cta.queries, &own = cta.keys;
  const int start = cta.start;
  constexpr int kColumns = F::kColumns, kOwnRows = F::kOwnRows, kTile = F::kTile, kSums = F::kSums;
  float *next = numbers;
  const auto key = lined_of<F, kOwnRows>(next), value = lined_of<F, kOwnRows>(next);
  const auto query = lined_of<F, kTile>(next), gradient = lined_of<F, kTile>(next);
  const auto turned_query = turned_of<F>(next), turned_gradient = turned_of<F>(next);
  float *const of_rows = next;  // two tiles of logarithms of sums, and of means, by turns
  const Source queries_of(of.query, of.width, queries), gradients_of(call.gradient, of.value_width, queries);
  const auto begin = [&](int tile) {
    if (tile < cta.end) {
      fill<F>(query, queries_of, queries, tile * kTile);
      fill<F>(gradient, gradients_of, queries, tile * kTile);
      if (threadIdx.x < kTile) {
        const int row = tile * kTile + int(threadIdx.x);
        const float *sum = queries.sum_at(of, min(row, queries.rows - 1));
        float *place = of_rows + tile % 2 * 2 * kTile + int(threadIdx.x);
        // Queries that are not there have no weights.
        place[0] = row < queries.rows ? *sum * kLog2E : INFINITY;
        place[kTile] = row < queries.rows ? call.means[sum - of.log_sums] : 0.0f;
      }
    }
    copy_commit();
  };
  fill<F>(key, Source(of.key, of.width, own), own, start);
  fill<F>(value, Source(of.value, of.value_width, own), own, start);
  begin(cta.begin);
  const Lane lane;
  const float factor = of.scale * kLog2E;
  float of_key[kColumns * 4] = {}, of_value[kColumns * 4] = {}, weights[kSums], slopes[kSums];
  copy_wait(0);
  write_rests<F>(key);
  write_rests<F>(value);
#pragma unroll 1
  for (int tile = cta.begin; tile < cta.end; tile++) {
    copy_wait(0);
    write_rests<F>(query);
    write_rests<F>(gradient);
    show_to_products();
    __syncthreads();
    begin_products();
    dot_products<F>(weights, key, query);
    dot_products<F>(slopes, value, gradient);
    end_products();
    turn<F>(turned_query, query);
    turn<F>(turned_gradient, gradient);
    show_to_products();
    wait_for_products();
    __syncthreads();
    begin(tile + 1);
    const float *place = of_rows + tile % 2 * 2 * kTile + 2 * lane.t;
    float of_weights[F::kFactors], of_slopes[F::kFactors];
#pragma unroll
    for (int n = 0; n < F::kBlocks; n++) {
      const float2 log_sum = *reinterpret_cast<const float2 *>(place + n * kEight), mean = *reinterpret_cast<const float2 *>(place + kTile + n * kEight);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float weight = power_of_2(weights[4 * n + i] * factor - (i % 2 == 0 ? log_sum.x : log_sum.y));
        set_factor<F>(of_weights, 4 * n + i, weight);
        set_factor<F>(of_slopes, 4 * n + i, weight * (slopes[4 * n + i] - (i % 2 == 0 ? mean.x : mean.y)));
      }
    }
    begin_products();
    weighted_sums<F>(of_value, of_weights, turned_gradient);
    weighted_sums<F>(of_key, of_slopes, turned_query);
    end_products();
    wait_for_products();
  }
  if (cta.splits == 1) {
    const float factors[2] = {of.scale, of.scale}, ones[2] = {1, 1};
    write_own<kColumns>(of_key, factors, call.gradients[1], own, start, of.width);
    return write_own<kColumns>(of_value, ones, call.gradients[2], own, start, of.value_width);
  }
  copy_wait(0);
  __syncthreads();
  const Shared<F> keys = {numbers}, values = {numbers + Room<F>::kSums};
  keys.put(of_key);
  values.put(of_value);
  cluster_barrier();
  write_together(cta, keys, call.gradients[1], own, of.width, [&](int, float (&factors)[kMostSplits]) {
    FC_EACH(kMostSplits, factors[i] = of.scale;)
  });
  write_together(cta, values, call.gradients[2], own, of.value_width, [&](int, float (&factors)[kMostSplits]) {
    FC_EACH(kMostSplits, factors[i] = 1;)
  });
  cluster_barrier();
#endif
}

// ---- launches ----

// Whether the current device runs code with products of warpgroups: not code that it has compiled from that for other GPUs.
bool has_warpgroups() {
  cudaFuncAttributes found = {};
  const auto error = cudaFuncGetAttributes(&found, reinterpret_cast<const void *>(long_forward_kernel<Form<6, false>>));
  if (error != cudaSuccess) return cudaGetLastError(), false;
  return found.binaryVersion == 90 && found.ptxVersion == 90;
}

template <class F, class K>
int launch_long(K *kernel, Call &call, int64_t rows, int64_t others, int numbers_of_kernel, int sums, void *stream) {
  const fc_attention &of = call.of;
  const int64_t heads = of.key_heads, tiles = ceil_div(rows, F::kOwnRows), ctas = of.sequences * tiles;
  // Among sequences of different lengths one with fewer own rows may have more CTAs for the others.
  const bool ragged = of.queries.bounds != nullptr || of.keys.bounds != nullptr;
  const int splits = splits_of(others, ragged ? 1 : tiles * heads);
  if (ctas * splits > INT32_MAX || heads > INT32_MAX) return FC_ERROR_TOO_LARGE;
  call.tiles = int(tiles);
  call.splits = splits;
  const size_t bytes = size_t(splits > 1 ? std::max(numbers_of_kernel, sums) : numbers_of_kernel) * sizeof(float);
  auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  if (error != cudaSuccess) return cudaGetLastError(), int(FC_ERROR_TOO_LARGE);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {unsigned(splits), 1, 1};
  cudaLaunchConfig_t config = {};
  config.blockDim = dim3(F::kThreads);
  config.dynamicSmemBytes = bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = splits > 1 ? 1 : 0;
  constexpr int64_t kMostHeads = 65535;  // the most CTAs of a grid in its second axis
  for (int64_t first = 0; first < heads; first += kMostHeads) {
    call.first = int(first);
    config.gridDim = dim3(unsigned(ctas * splits), unsigned(std::min(kMostHeads, heads - first)));
    error = cudaLaunchKernelEx(&config, kernel, call);
    if (error != cudaSuccess) return cudaGetLastError(), int(error);
  }
  return 0;
}

// Calls f with the form of the kernels that serve an attention.
template <class F>
int with_form(const fc_attention &of, F &&f) {
  const auto of_columns = [&](auto columns) {
    constexpr int kColumns = decltype(columns)::value;
    if (of.exact) return f(Form<kColumns, true>());
    return f(Form<kColumns, false>());
  };
  const int width = std::max(of.width, of.value_width);
  if (width <= 6 * kEight) return of_columns(std::integral_constant<int, 6>{});
  if (width <= 10 * kEight) return of_columns(std::integral_constant<int, 10>{});
  return of_columns(std::integral_constant<int, FC_ATTENTION_WIDTH / kEight>{});
}

}  // namespace

bool long_serves(const fc_attention &of) {
  const int64_t folded = folded_heads(of);
  if (of.dtype != FC_F32 || !(of.scale > 0) || !is_long(of.queries.longest, of.keys.longest)) return false;
  // Rows are divided by the items of a head with 32 bits, if there are several heads.
  if (folded > 1 && of.queries.longest * folded > INT32_MAX / of.queries.longest) return false;
  return has_warpgroups();
}

int long_forward(const fc_attention &of, void *stream) {
  Call call = {};
  call.of = of;
  return with_form(of, [&](auto form) {
    using F = decltype(form);
    const int64_t queries = of.queries.longest * folded_heads(of);
    return launch_long<F>(long_forward_kernel<F>, call, queries, of.keys.longest, Room<F>::kForward, Room<F>::kSums, stream);
  });
}

int long_backward(const fc_attention &of, const fc_attention_tensor &gradient, const fc_attention_tensor *gradients, float *means,
                  void *stream) {
  Call call = {};
  call.of = of;
  call.gradient = gradient;
  std::copy_n(gradients, 3, call.gradients);
  call.means = means;
  return with_form(of, [&](auto form) {
    using F = decltype(form);
    const int64_t queries = of.queries.longest * folded_heads(of), keys = of.keys.longest;
    const int error = launch_long<F>(long_queries_kernel<F>, call, queries, keys, Room<F>::kQueries, Room<F>::kSums, stream);
    if (error != 0) return error;
    return launch_long<F>(long_keys_kernel<F>, call, keys, queries, Room<F>::kKeys, 2 * Room<F>::kSums, stream);
  });
}

}  // namespace fc
