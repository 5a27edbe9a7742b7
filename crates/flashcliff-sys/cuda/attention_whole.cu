// Attention within short sequences, forward and backward. A CTA has a sequence and some heads: it copies their
// features to shared memory, and attends on tensor cores (m16n8k8 of TF32).
//
// A warp owns 16 rows of a head at a time: queries, or keys where gradients of keys and values are summed. Rows
// after the last are copies of it, with weights of zero. As in attention.cu a result becomes the factor A of the next
// product without a shuffle. Loops over tiles stay loops, and are the same for any length: a CTA is done before it has
// read a longer kernel.
#include "attention_whole.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "items.cuh"
#include "skeleton/launch.cuh"
#include "tensor_cores.cuh"

namespace fc {
namespace {

constexpr int kEight = 8;  // rows and columns of a fragment
constexpr int kOwn = 16;   // rows of a warp
constexpr float kLog2E = 1.4426950408889634f;
// The columns of sums, of eight features each, that there are kernels for.
constexpr int kNarrow = 5, kWide = 8;

// The threads of a multiprocessor. They belong to two CTAs where there is room for two, so that one waits for memory while the other
// computes, else to one.
constexpr int kThreads = 512;

// The numbers of shared memory for a row of one head.
struct Strides {
  int query, key, value;
};

struct Call {
  fc_attention of;
  fc_items items;
  fc_item_tensor merged;
  fc_attention_tensor gradients[3];
  Strides strides;
  int lanes;       // threads that copy the result of a head
  int most_heads;  // of a CTA
  int numbers;     // of shared memory for rows
  int ctas;        // of a multiprocessor that there is room for: 1 or 2
};

extern __shared__ __align__(16) float numbers[];

// The rows of a sequence among all rows.
struct Rows {
  int64_t sequence, first;  // the sequence, and its first row where there are bounds
  int64_t row;              // its first row among all rows
  int count;
  FC_INLINE Rows(const fc_attention_rows &of, int64_t at) : sequence(at), first(0), row(at * of.longest), count(int(of.longest)) {
    if (of.bounds == nullptr) return;
    row = first = of.bounds[at];
    count = int(of.bounds[at + 1] - first);
    sequence = 0;
  }
  FC_INLINE float *begin(const fc_attention_tensor &tensor, int head) const {
    return static_cast<float *>(tensor.features) + sequence * tensor.sequence_stride + first * tensor.row_stride + head * tensor.head_stride;
  }
};

// The numbers that a row of a head needs: queries have features and, backwards, the gradient of the result, and two
// sums. The result takes the place of queries.
template <bool Backward>
__host__ __device__ inline int of_queries(const Strides &strides) {
  return Backward ? strides.query + strides.value + 2 : strides.query;
}
__host__ __device__ inline int of_keys(const Strides &strides) { return strides.key + strides.value; }

// The heads of a CTA: as many as there is room for, in pairs where there is room for two.
template <bool Backward>
__host__ __device__ inline int heads_of(const Call &call, int64_t queries, int64_t keys) {
  const int64_t each = queries * of_queries<Backward>(call.strides) + keys * of_keys(call.strides);
  const int64_t room = each == 0 ? call.most_heads : call.numbers / each;
  const int heads = room < call.most_heads ? int(room) : call.most_heads;
  return heads < 2 ? heads : heads / 2 * 2;
}

// The rows of one part in shared memory, of all heads of a CTA.
struct Part {
  float *at;
  int rows, stride;
  FC_INLINE Part(float *&next, int heads, int of_head, int of_row) : at(next), rows(of_head), stride(of_row) { next += heads * rows * stride; }
  FC_INLINE float *row(int head, int row) const { return at + (head * rows + row) * stride; }
};

// Four matrices of eight rows of four numbers, each by the addresses of eight lanes; a lane gets the number t of the row g of each.
FC_INLINE void load_matrices(float (&to)[4], const float *row) {
  uint32_t bits[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
               : "r"(shared_address(row)));
  FC_EACH(4, to[i] = __uint_as_float(bits[i]);)
}

// The rows of a warp's own, as a factor A: the row whose address a lane gives.
struct Own {
  const float *row;
  FC_INLINE Own(const Part &part, int head, int start) {
    const int lane = int(threadIdx.x) % 32;
    row = part.row(head, min(start + lane % kOwn, part.rows - 1)) + lane / kOwn * 4;
  }
};

// The rows of a tile of the other side.
template <int Blocks>
struct Others {
  const Part &part;
  int head, first;
  FC_INLINE Others(const Part &of, int of_head, int from) : part(of), head(of_head), first(from) {}
  // Of a pair of blocks: the row whose address a lane gives.
  FC_INLINE const float *pair(int at) const {
    const int lane = int(threadIdx.x) % 32, row = first + (2 * at + lane / 16) * kEight + lane % kEight;
    return part.row(head, min(row, part.rows - 1)) + lane / kEight % 2 * 4;
  }
  // Where sums over rows begin.
  FC_INLINE const float *row(int block, int i) const {
    const Lane lane;
    return part.row(head, min(first + block * kEight + 2 * lane.t + i, part.rows - 1)) + lane.g;
  }
};

// sums[n] = own . others of block n, over all features, a multiple of four. After the last feature come the features of
// the next row, or what follows in shared memory: so the last four are a separate product.
template <bool Exact, int Blocks>
FC_INLINE void dot_products(float (&sums)[Blocks][4], const Own &own, const Others<Blocks> &others, int width) {
  const float *pairs[Blocks / 2];
#pragma unroll
  for (int pair = 0; pair < Blocks / 2; pair++) pairs[pair] = others.pair(pair);
#pragma unroll
  for (int n = 0; n < Blocks; n++) FC_EACH(4, sums[n][i] = 0;)
  const auto step = [&](int k, auto whole) {
    constexpr int kFactors = decltype(whole)::value ? 4 : 2;
    float found[4];
    load_matrices(found, own.row + k);
    Factor<Exact, kFactors> x;
    FC_EACH(kFactors, x.read(i, found[i]);)
#pragma unroll
    for (int n = 0; n < Blocks; n++) {
      if (n % 2 == 0) load_matrices(found, pairs[n / 2] + k);
      Factor<Exact, kFactors / 2> y;
      FC_EACH(kFactors / 2, y.read(i, found[n % 2 * 2 + i]);)
      multiply(sums[n], x, y);
    }
  };
  int k = 0;
#pragma unroll 1
  for (; k + kEight <= width; k += kEight) step(k, std::true_type{});
  if (k < width) step(k, std::false_type{});
}

// sums += weights . others: the features of the others' rows, times one weight for each row. Columns after the features
// get what follows in shared memory, and nobody reads them.
template <bool Exact, int Blocks, int Columns>
FC_INLINE void weighted_sums(float (&sums)[Columns][4], const float (&weights)[Blocks][4], const Others<Blocks> &others) {
#pragma unroll
  for (int n = 0; n < Blocks; n++) {
    Factor<Exact, 4> x;
    x.set(0, weights[n][0]);
    x.set(1, weights[n][2]);
    x.set(2, weights[n][1]);
    x.set(3, weights[n][3]);
    const float *const rows[] = {others.row(n, 0), others.row(n, 1)};
#pragma unroll
    for (int column = 0; column < Columns; column++) {
      Factor<Exact, 2> y;
      FC_EACH(2, y.read(i, rows[i][column * kEight]);)
      multiply(sums[column], x, y);
    }
  }
}

// Writes own rows below `rows`, each times a factor, to the addresses that `at` has for them: multiples of 8 bytes.
template <int Columns, class At>
FC_INLINE void write(int rows, int start, const float (&sums)[Columns][4], const float (&factors)[2], int width, At &&at) {
  const Lane lane;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = start + half * kEight + lane.g;
    if (row >= rows) continue;
    float *const place = at(row) + 2 * lane.t;
#pragma unroll
    for (int column = 0; column < Columns; column++) {
      if (column * kEight + 2 * lane.t >= width) break;
      *reinterpret_cast<float2 *>(place + column * kEight) =
          make_float2(sums[column][2 * half] * factors[half], sums[column][2 * half + 1] * factors[half]);
    }
  }
}

// The addresses of the rows of a head in memory.
FC_INLINE auto rows_of(const fc_attention_tensor &tensor, const Rows &rows, int head) {
  return [begin = rows.begin(tensor, head), stride = tensor.row_stride](int row) { return begin + row * stride; };
}

// Sums over the keys of two rows of queries that grow with each tile, of exponentials below the largest exponent so far.
struct Growing {
  float largest[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0}, kept[2];

  // Makes logits of keys that are there to exponentials. What was summed before is to be multiplied by `kept`.
  template <int Blocks>
  FC_INLINE void add(float (&weights)[Blocks][4], float factor, int there) {
    const Lane lane;
    float most[2] = {largest[0], largest[1]};
#pragma unroll
    for (int n = 0; n < Blocks; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        weights[n][i] = n * kEight + 2 * lane.t + i % 2 < there ? weights[n][i] * factor : -INFINITY;
        most[i / 2] = fmaxf(most[i / 2], weights[n][i]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      most[half] = larger_of_four(most[half]);
      kept[half] = most[half] == largest[half] ? 1.0f : power_of_2(largest[half] - most[half]);
      largest[half] = most[half];
      total[half] *= kept[half];
    }
#pragma unroll
    for (int n = 0; n < Blocks; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        weights[n][i] = power_of_2(weights[n][i] - largest[i / 2]);
        total[i / 2] += weights[n][i];
      }
    }
  }
};

// A CTA: its sequence, and its heads.
template <bool Backward>
struct Cta {
  const Call &call;
  const Rows queries, keys;
  const int heads_at_most, first_head, heads;

  FC_INLINE explicit Cta(const Call &of)
      : call(of),
        queries(of.of.queries, blockIdx.x),
        keys(of.of.keys, blockIdx.x),
        heads_at_most(heads_of<Backward>(of, queries.count, keys.count)),
        first_head(int(blockIdx.y) * heads_at_most),
        heads(min(heads_at_most, of.of.heads - first_head)) {}

  // Calls f with the place in memory and in shared memory of each four features of a part.
  template <class F>
  FC_INLINE void for_words(const fc_attention_tensor &tensor, const Rows &rows, const Part &part, int width, F &&f) const {
    const int of_row = width / 4, words = heads * of_row;
    float *const begin = rows.begin(tensor, first_head);
#pragma unroll 1
    for (int word = int(threadIdx.x) % 32; word < words; word += 32) {
      const int head = word / of_row, column = (word - head * of_row) * 4, warps = int(blockDim.x) / 32;
      float *memory = begin + head * tensor.head_stride + column, *to = part.row(head, 0) + column;
#pragma unroll 4
      for (int row = int(threadIdx.x) / 32; row < part.rows; row += warps) f(memory + row * tensor.row_stride, to + row * part.stride);
    }
  }
  FC_INLINE void read(const fc_attention_tensor &from, const Rows &rows, const Part &to, int width) const {
    for_words(from, rows, to, width, [](const float *memory, float *shared) { copy_async<16>(shared, memory); });
  }
  // Calls f with the places of each number of the result, and of its gradient, in memory and in shared memory.
  template <class F>
  FC_INLINE void for_merged(const Part &part, F &&f) const {
    const int channels = int(call.items.channels), scalars = int(call.items.scalars), blades = call.items.blades;
    const int lanes = call.lanes, lane = int(threadIdx.x) % lanes, step = int(blockDim.x) / lanes;
#pragma unroll 1
    for (int at = int(threadIdx.x) / lanes; at < part.rows * heads; at += step) {
      const int row = at / heads, head = at - row * heads;
      float *features = part.row(head, row);
      float *memory = static_cast<float *>(call.merged.multivectors) + (queries.row + row) * call.merged.row_stride + (first_head + head) * channels;
#pragma unroll 1
      for (int c = lane; c < channels; c += lanes) {
#pragma unroll 4
        for (int b = 0; b < blades; b++) f(memory + b * call.merged.blade_stride + c, features + b * channels + c);
      }
      memory = static_cast<float *>(call.merged.scalars) + (queries.row + row) * call.merged.scalar_stride + (first_head + head) * scalars;
#pragma unroll 2
      for (int s = lane; s < scalars; s += lanes) f(memory + s, features + blades * channels + s);
    }
  }
  // Begins to copy the gradient of the result, and writes zeros after its features.
  FC_INLINE void read_merged(const Part &to) const {
    for_merged(to, [](const float *memory, float *shared) { copy_async<4>(shared, memory); });
    const int features = int(call.items.blades * call.items.channels + call.items.scalars);
    if (features == call.of.value_width) return;
    for (int at = int(threadIdx.x); at < to.rows * heads; at += int(blockDim.x)) {
      for (int i = features; i < call.of.value_width; i++) to.row(0, at)[i] = 0;
    }
  }
  FC_INLINE void write_merged(const Part &from) const {
    for_merged(from, [](float *memory, const float *shared) { *memory = *shared; });
  }
  // Calls f with the head and the first row of each 16 rows, a warp at a time.
  template <class F>
  FC_INLINE void for_tasks(int rows, F &&f) const {
    const int blocks = (rows + kOwn - 1) / kOwn, warps = int(blockDim.x) / 32;
#pragma unroll 1
    for (int task = int(threadIdx.x) / 32; task < blocks * heads; task += warps) f(task / blocks, task % blocks * kOwn);
  }
};

FC_INLINE void wait_for_copies() {
  copy_commit();
  copy_wait(0);
  __syncthreads();
}

// ---- forward ----

template <int Columns, bool Exact>
__global__ void __launch_bounds__(kThreads) whole_forward_kernel(const __grid_constant__ Call call) {
  take_turn();
  constexpr int kBlocks = 4, kTile = kBlocks * kEight;
  const fc_attention &of = call.of;
  const Cta<false> cta(call);
  if (cta.heads <= 0 || cta.queries.count == 0) return;
  float *next = numbers;
  const Part query(next, cta.heads, cta.queries.count, call.strides.query);
  const Part key(next, cta.heads, cta.keys.count, call.strides.key), value(next, cta.heads, cta.keys.count, call.strides.value);
  cta.read(of.query, cta.queries, query, of.width);
  cta.read(of.key, cta.keys, key, of.width);
  cta.read(of.value, cta.keys, value, of.value_width);
  wait_for_copies();
  const float factor = of.scale * kLog2E;
  cta.for_tasks(query.rows, [&](int head, int start) {
    const Own own(query, head, start);
    float sums[Columns][4] = {};
    Growing growing;
#pragma unroll 1
    for (int first = 0; first < key.rows; first += kTile) {
      float weights[kBlocks][4];
      dot_products<Exact>(weights, own, Others<kBlocks>(key, head, first), of.width);
      growing.add(weights, factor, key.rows - first);
#pragma unroll
      for (int column = 0; column < Columns; column++) FC_EACH(4, sums[column][i] *= growing.kept[i / 2];)
      weighted_sums<Exact>(sums, weights, Others<kBlocks>(value, head, first));
    }
    float factors[2];
    // Without keys the result is zero.
    FC_EACH(2, factors[i] = key.rows > 0 ? 1 / sum_of_four(growing.total[i]) : 0.0f;)
    __syncwarp();
    write(query.rows, start, sums, factors, of.value_width, [&](int row) { return query.row(head, row); });
  });
  __syncthreads();
  cta.write_merged(query);
}

// ---- backward ----

// The gradient of 16 queries of a head, and for each the logarithm of its sum of exponentials and the mean of the
// gradients of its weights. What a tile has stays in registers if there is one.
template <int Columns, bool Exact>
FC_INLINE void query_gradient(const Call &call, const Part (&parts)[4], const Rows &rows, const Part &stats, int head, int first_head, int start) {
  constexpr int kBlocks = Columns > kNarrow ? 4 : 8, kTile = kBlocks * kEight;
  const auto &[query, of_result, key, value] = parts;
  const fc_attention &of = call.of;
  const float factor = of.scale * kLog2E;
  const Lane lane;
  const Own own(query, head, start), slope(of_result, head, start);
  const int keys = key.rows;
  Growing growing;
  float mean[2] = {}, total[2], weights[kBlocks][4], slopes[kBlocks][4];
#pragma unroll 1
  for (int first = 0; first < keys; first += kTile) {
    dot_products<Exact>(slopes, slope, Others<kBlocks>(value, head, first), of.value_width);
    dot_products<Exact>(weights, own, Others<kBlocks>(key, head, first), of.width);
    growing.add(weights, factor, keys - first);
    FC_EACH(2, mean[i] *= growing.kept[i];)
#pragma unroll
    for (int n = 0; n < kBlocks; n++) FC_EACH(4, mean[i / 2] += weights[n][i] * slopes[n][i];)
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    total[half] = sum_of_four(growing.total[half]);
    mean[half] = sum_of_four(mean[half]) / total[half];
    const int row = start + half * kEight + lane.g;
    if (lane.t == 0 && row < query.rows) {
      *reinterpret_cast<float2 *>(stats.row(head, row)) = make_float2(growing.largest[half] + log2f(total[half]), mean[half]);
    }
    total[half] = 1 / total[half];
  }
  float sums[Columns][4] = {};
#pragma unroll 1
  for (int first = 0; first < keys; first += kTile) {
    const Others<kBlocks> of_keys(key, head, first);
    if (keys > kTile) {
      dot_products<Exact>(slopes, slope, Others<kBlocks>(value, head, first), of.value_width);
      dot_products<Exact>(weights, own, of_keys, of.width);
#pragma unroll
      for (int n = 0; n < kBlocks; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const bool there = first + n * kEight + 2 * lane.t + i % 2 < keys;
          weights[n][i] = there ? power_of_2(weights[n][i] * factor - growing.largest[i / 2]) : 0.0f;
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kBlocks; n++) FC_EACH(4, slopes[n][i] = weights[n][i] * total[i / 2] * (slopes[n][i] - mean[i / 2]);)
    weighted_sums<Exact>(sums, slopes, of_keys);
  }
  const float factors[2] = {of.scale, of.scale};
  write(rows.count, start, sums, factors, of.width, rows_of(call.gradients[0], rows, first_head + head));
}

// The gradients of 16 keys and values of a head.
template <int Columns, bool Exact>
FC_INLINE void key_gradient(const Call &call, const Part (&parts)[4], const Rows &rows, const Part &stats, int head, int first_head, int start) {
  constexpr int kBlocks = Columns > kNarrow ? 2 : 4, kTile = kBlocks * kEight;
  const auto &[query, of_result, key, value] = parts;
  const fc_attention &of = call.of;
  const float factor = of.scale * kLog2E;
  const Lane lane;
  const Own own(key, head, start), of_value(value, head, start);
  const int queries = query.rows;
  float key_sums[Columns][4] = {}, value_sums[Columns][4] = {};
#pragma unroll 1
  for (int first = 0; first < queries; first += kTile) {
    float weights[kBlocks][4], slopes[kBlocks][4];
    const Others<kBlocks> of_queries(query, head, first), of_results(of_result, head, first);
    dot_products<Exact>(weights, own, of_queries, of.width);
    dot_products<Exact>(slopes, of_value, of_results, of.value_width);
#pragma unroll
    for (int n = 0; n < kBlocks; n++) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int row = first + n * kEight + 2 * lane.t + j;
        const float2 own_stats = *reinterpret_cast<const float2 *>(stats.row(head, min(row, queries - 1)));
#pragma unroll
        for (int i = j; i < 4; i += 2) {
          weights[n][i] = row < queries ? power_of_2(weights[n][i] * factor - own_stats.x) : 0.0f;
          slopes[n][i] = weights[n][i] * (slopes[n][i] - own_stats.y);
        }
      }
    }
    weighted_sums<Exact>(value_sums, weights, of_results);
    weighted_sums<Exact>(key_sums, slopes, of_queries);
  }
  const float factors[2] = {of.scale, of.scale}, ones[2] = {1, 1};
  write(rows.count, start, key_sums, factors, of.width, rows_of(call.gradients[1], rows, first_head + head));
  write(rows.count, start, value_sums, ones, of.value_width, rows_of(call.gradients[2], rows, first_head + head));
}

template <int Columns, bool Exact>
__global__ void __launch_bounds__(kThreads) whole_backward_kernel(const __grid_constant__ Call call) {
  take_turn();
  const fc_attention &of = call.of;
  const Cta<true> cta(call);
  if (cta.heads <= 0) return;
  const Strides &strides = call.strides;
  const int queries = cta.queries.count, keys = cta.keys.count;
  float *next = numbers;
  // Queries, the gradient of the result, keys, values.
  const Part parts[4] = {{next, cta.heads, queries, strides.query},
                         {next, cta.heads, queries, strides.value},
                         {next, cta.heads, keys, strides.key},
                         {next, cta.heads, keys, strides.value}};
  const Part stats(next, cta.heads, queries, 2);
  cta.read(of.query, cta.queries, parts[0], of.width);
  cta.read_merged(parts[1]);
  cta.read(of.key, cta.keys, parts[2], of.width);
  cta.read(of.value, cta.keys, parts[3], of.value_width);
  wait_for_copies();
  cta.for_tasks(queries, [&](int head, int start) { query_gradient<Columns, Exact>(call, parts, cta.queries, stats, head, cta.first_head, start); });
  __syncthreads();
  cta.for_tasks(keys, [&](int head, int start) { key_gradient<Columns, Exact>(call, parts, cta.keys, stats, head, cta.first_head, start); });
}

// ---- launches ----

// A stride is 4 times an odd number, so that no fragment has two elements in one bank.
int stride_of(int width) { return width % 8 == 4 ? width : width + 4; }

// The shared memory of a CTA and of a multiprocessor, in bytes, and the multiprocessors.
bool ask_device(int *most, int *all, int *processors) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  const auto ask = [&](int *to, cudaDeviceAttr what) { return cudaDeviceGetAttribute(to, what, device) == cudaSuccess; };
  return ask(most, cudaDevAttrMaxSharedMemoryPerBlockOptin) && ask(all, cudaDevAttrMaxSharedMemoryPerMultiprocessor) &&
         ask(processors, cudaDevAttrMultiProcessorCount);
}

// Whether strides are whole words.
bool good(const fc_attention_tensor &tensor) { return (tensor.sequence_stride | tensor.row_stride | tensor.head_stride) % 4 == 0; }

// Prepares a call; false for one that is not served.
template <bool Backward>
bool prepare(Call &call) {
  fc_attention &of = call.of;
  const fc_items &items = call.items;
  if (of.dtype != FC_F32 || of.sequences < 0 || of.heads < 1 || of.key_heads != of.heads) return false;
  if (of.width < 4 || of.width % 4 != 0 || of.value_width < 4 || of.value_width % 4 != 0) return false;
  if (std::max(of.width, of.value_width) > kWide * kEight) return false;
  if (items.channels < 0 || items.scalars < 0 || items.blades * items.channels + items.scalars > of.value_width) return false;
  for (const fc_attention_tensor &tensor : {of.query, of.key, of.value}) {
    if (!good(tensor)) return false;
  }
  const int stride = stride_of(of.width), value_stride = stride_of(of.value_width);
  // The result takes the place of queries.
  call.strides = {Backward ? stride : std::max(stride, value_stride), stride, value_stride};
  call.lanes = 1;
  while (call.lanes < 8 && 2 * call.lanes <= items.channels) call.lanes *= 2;
  int most = 0, all = 0, processors = 0;
  if (!ask_device(&most, &all, &processors)) return false;
  const int64_t each = of.queries.longest * of_queries<Backward>(call.strides), of_key = of.keys.longest * of_keys(call.strides);
  const auto needed = [&](int64_t heads) { return heads * (each + of_key); };
  // A CTA reserves a kilobyte, and fragments reach beyond the features.
  const auto room = [&](int bytes) { return bytes / int(sizeof(float)) - kWide * kEight; };
  const int half = room(std::min(most, all / 2 - 1024));
  call.ctas = needed(1) <= half ? 2 : 1;
  call.numbers = call.ctas == 2 ? half : room(most);
  if (needed(1) > call.numbers) return false;
  // Few sequences are shared out.
  const int64_t share = (of.heads * of.sequences + processors - 1) / processors;
  call.most_heads = int(std::min<int64_t>(of.heads, std::max<int64_t>(share, 1)));
  return true;
}

template <bool Backward>
int launch(const Call &call, void *stream) {
  const fc_attention &of = call.of;
  const int64_t longest = std::max(of.queries.longest, of.keys.longest);
  if (of.sequences == 0 || (Backward ? longest : of.queries.longest) == 0) return 0;
  const int64_t heads = heads_of<Backward>(call, of.queries.longest, of.keys.longest), groups = (of.heads + heads - 1) / heads;
  if (of.sequences > INT32_MAX || groups > 65535) return FC_ERROR_TOO_LARGE;
  const int64_t used = heads * (of.queries.longest * of_queries<Backward>(call.strides) + of.keys.longest * of_keys(call.strides));
  // Shorter sequences have more heads in one CTA, up to all that there is room for.
  const size_t bytes = size_t((heads < call.most_heads ? call.numbers : used) + kWide * kEight) * sizeof(float);
  const int64_t blocks = (longest + kOwn - 1) / kOwn;
  // Short sequences wait for memory most of the time: with fewer threads more of them are at work.
  const int64_t wanted = (blocks == 1 ? (heads + 1) / 2 : heads * blocks) * 32;
  const int threads = int(std::min<int64_t>(kThreads / call.ctas, std::max<int64_t>(wanted, 128)));
  const auto run = [&](auto *kernel) {
    if (bytes > 48 * 1024) {
      const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
      if (error != cudaSuccess) return cudaGetLastError(), int(FC_ERROR_TOO_LARGE);
    }
    return int(launch_in_turn(kernel, dim3(unsigned(of.sequences), unsigned(groups)), dim3(unsigned(threads)), bytes, stream, call));
  };
  const auto of_kind = [&](auto columns, auto exact) {
    constexpr int kColumns = decltype(columns)::value;
    constexpr bool kExact = decltype(exact)::value;
    if constexpr (Backward) {
      return run(whole_backward_kernel<kColumns, kExact>);
    } else {
      return run(whole_forward_kernel<kColumns, kExact>);
    }
  };
  const auto of_columns = [&](auto columns) {
    if (of.exact) return of_kind(columns, std::true_type{});
    return of_kind(columns, std::false_type{});
  };
  if (std::max(of.width, of.value_width) <= kNarrow * kEight) return of_columns(std::integral_constant<int, kNarrow>{});
  return of_columns(std::integral_constant<int, kWide>{});
}

// Whether rows of features lie at whole words.
bool aligned(const fc_attention_tensor &tensor, int64_t rows) {
  return rows == 0 || (tensor.features != nullptr && reinterpret_cast<uintptr_t>(tensor.features) % 16 == 0 && good(tensor));
}

template <bool Backward>
int prepared(const fc_attention_whole *attention, const fc_item_tensor *merged, const fc_attention_tensor *gradients, void *stream) {
  if (attention == nullptr || merged == nullptr || (Backward && gradients == nullptr)) return FC_ERROR_BAD_CALL;
  Call call = {};
  call.of = attention->attention;
  call.items = attention->items;
  call.merged = *merged;
  const int64_t queries = call.of.queries.count, keys = call.of.keys.count;
  bool is_good = aligned(call.of.query, queries) && aligned(call.of.key, keys) && aligned(call.of.value, keys);
  if (Backward) {
    for (int i = 0; i < 3; i++) {
      call.gradients[i] = gradients[i];
      is_good = is_good && aligned(gradients[i], i == 0 ? queries : keys);
    }
  }
  fc_items items = call.items;
  items.rows = queries;
  if (!is_good || !good(items, merged) || !prepare<Backward>(call)) return FC_ERROR_BAD_CALL;
  return launch<Backward>(call, stream);
}

}  // namespace
}  // namespace fc

extern "C" int fc_attention_whole_fits(const fc_attention_whole *attention) {
  if (attention == nullptr) return 0;
  fc::Call call = {};
  call.of = attention->attention;
  call.items = attention->items;
  return fc::prepare<false>(call) && fc::prepare<true>(call);
}

extern "C" int fc_attention_whole_forward(const fc_attention_whole *attention, const fc_item_tensor *merged, void *stream) {
  return fc::prepared<false>(attention, merged, nullptr, stream);
}

extern "C" int fc_attention_whole_backward(const fc_attention_whole *attention, const fc_item_tensor *merged, const fc_attention_tensor *gradients,
                                           void *stream) {
  return fc::prepared<true>(attention, merged, gradients, stream);
}
