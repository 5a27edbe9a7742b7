// Packing of weights, broadcasting of biases and column sums, for the grade-wise linear map.
#include "linear.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "skeleton/launch.cuh"
#include "skeleton/transpose.cuh"

namespace fc {
namespace {

// ---- element types ----

// The element type behind a pointer type.
template <class P> struct Pointee;
template <class T> struct Pointee<T *> { using Type = T; };

// The type in which elements are added up.
template <class T> struct Accumulator { using Type = float; };
template <> struct Accumulator<double> { using Type = double; };

__device__ float widen(float a) { return a; }
__device__ double widen(double a) { return a; }
__device__ float widen(__nv_bfloat16 a) { return __bfloat162float(a); }
__device__ float widen(__half a) { return __half2float(a); }

__device__ void narrow(float a, float *to) { *to = a; }
__device__ void narrow(double a, double *to) { *to = a; }
__device__ void narrow(float a, __nv_bfloat16 *to) { *to = __float2bfloat16_rn(a); }
__device__ void narrow(float a, __half *to) { *to = __float2half_rn(a); }

constexpr int kThreads = 256;
// The blocks of a grid that fills any GPU. Threads walk on from there.
constexpr int64_t kMostBlocks = 1 << 16;

// ---- packing ----

// Copies the bias of every blade, by CTAs side by side.
template <class From, class To>
__device__ void pack_bias(const fc_linear_bias &bias) {
  const int64_t step = int64_t(gridDim.x) * kThreads;
  for (int64_t c = int64_t(blockIdx.x) * kThreads + threadIdx.x; c < bias.channels; c += step) {
    To value, none;
    narrow(widen(static_cast<const From *>(bias.bias)[c]), &value);
    narrow(widen(From(0.0f)), &none);
    To *to = static_cast<To *>(bias.packed) + c;
    for (int blade = 0; blade < bias.blades; blade++, to += bias.stride) *to = blade < bias.biased ? value : none;
  }
}

// The index of element `i` of the matrix of grade `g` in the weights.
__device__ int64_t place(const fc_linear_weights &shape, int64_t i, int g) {
  return shape.order == FC_LINEAR_GRADES_FIRST ? g * shape.rows * shape.columns + i : i * shape.grades + g;
}

// The weights of a kernel. A single one takes less to launch.
template <int N>
struct Packings {
  fc_linear_packing of[N];
};

// Packs a grade: each thread copies an element to all of its matrices.
template <class From, class To>
__device__ void pack_grade(const fc_linear_packing &own, int g) {
  const fc_linear_weights &shape = own.shape;
  const From *weight = static_cast<const From *>(own.from);
  To *packed = static_cast<To *>(own.to);
  const int first = g == 0 ? 0 : own.matrices.end[g - 1], last = own.matrices.end[g];
  const int64_t step = int64_t(gridDim.x) * kThreads, elements = shape.rows * shape.columns;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < elements; i += step) {
    To value;
    narrow(widen(weight[place(shape, i, g)]), &value);
    for (int copy = first; copy < last; copy++) packed[copy * shape.stride + i] = value;
  }
}

// Packs a grade transposed, in small squares: weights of few channels are only a few of them. A write is a loop over copies.
using Squares = TransposedSquares<32, kThreads>;
template <class From, class To>
__device__ void pack_grade_transposed(const fc_linear_packing &own, int g) {
  const fc_linear_weights &shape = own.shape;
  const int first = g == 0 ? 0 : own.matrices.end[g - 1], last = own.matrices.end[g];
  Squares::walk<To>(
      shape.rows, shape.columns,
      [&](int64_t row, int64_t column) {
        To value;
        narrow(widen(static_cast<const From *>(own.from)[place(shape, row * shape.columns + column, g)]), &value);
        return value;
      },
      [&](int64_t column, int64_t row, To value) {
        To *to = static_cast<To *>(own.to) + column * shape.rows + row;
        for (int copy = first; copy < last; copy++) to[copy * shape.stride] = value;
      });
}

// Packs a grade of some weights by the CTAs of a row of the grid. The bias comes after the grades.
template <class From, class To, int N>
__global__ void __launch_bounds__(kThreads) pack(const __grid_constant__ Packings<N> all) {
  const fc_linear_packing &own = all.of[N == 1 ? 0 : blockIdx.z];
  const int g = int(blockIdx.y);
  if (g > own.shape.grades) return;
  if (g == own.shape.grades) return pack_bias<From, To>(own.bias);
  if (own.shape.transposed) return pack_grade_transposed<From, To>(own, g);
  pack_grade<From, To>(own, g);
}

// Unpacks gradients: each thread adds the parts of an element of one grade.
template <class From, class To, int N>
__global__ void __launch_bounds__(kThreads) unpack(const __grid_constant__ Packings<N> all) {
  const fc_linear_packing &own = all.of[N == 1 ? 0 : blockIdx.z];
  const fc_linear_weights &shape = own.shape;
  const int g = int(blockIdx.y);
  if (g >= shape.grades) return;
  const From *packed = static_cast<const From *>(own.from);
  const int first = g == 0 ? 0 : own.matrices.end[g - 1], last = own.matrices.end[g];
  const int64_t step = int64_t(gridDim.x) * kThreads, elements = shape.rows * shape.columns;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < elements; i += step) {
    typename Accumulator<From>::Type sum = widen(packed[first * shape.stride + i]);
#pragma unroll 8
    for (int part = first + 1; part < last; part++) sum += widen(packed[part * shape.stride + i]);
    narrow(sum, static_cast<To *>(own.to) + place(shape, i, g));
  }
}

template <class From, class To>
__global__ void __launch_bounds__(kThreads) broadcast(const From *bias, To *rows, int64_t elements, int64_t channels) {
  const int64_t step = int64_t(gridDim.x) * kThreads;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < elements; i += step) {
    narrow(widen(bias[i % channels]), rows + i);
  }
}

// ---- column sums ----

constexpr int kColumns = 32;
constexpr int kParts = 16;
// The smallest number of rows of a chunk, and the largest number of chunks.
constexpr int64_t kChunkRows = 256;
constexpr int64_t kMostChunks = 512;

// The chunks of rows. They depend on the shape alone, so that sums do not depend on the GPU.
struct Chunks {
  int64_t rows;
  int64_t count;

  explicit Chunks(int64_t all) {
    const int64_t wanted = ceil_div(all, kChunkRows);
    rows = ceil_div(all, wanted < 1 ? 1 : (wanted > kMostChunks ? kMostChunks : wanted));
    count = rows < 1 ? 1 : ceil_div(all, rows);
  }
};

// The sum over every kParts-th row of a chunk.
template <class A, class From>
__device__ A sum_of_part(const From *rows, int64_t chunk, int64_t chunk_rows, int64_t row_count, int64_t channels, int64_t column) {
  const int64_t first = chunk * chunk_rows;
  const int64_t end = first + chunk_rows < row_count ? first + chunk_rows : row_count;
  A sum = 0;
#pragma unroll 4
  for (int64_t r = first + threadIdx.y; r < end; r += kParts) sum += A(widen(rows[r * channels + column]));
  return sum;
}

// The column sums of each chunk of rows: [chunks, channels]. Each of kParts rows of threads adds every kParts-th row of a
// chunk; then these sums are added in order.
template <class A, class From, class To>
__global__ void __launch_bounds__(kColumns *kParts)
    sum_columns(const From *rows, To *sums, int64_t row_count, int64_t chunk_rows, int64_t channels) {
  __shared__ A parts[kParts][kColumns + 1];
  const int64_t column = int64_t(blockIdx.x) * kColumns + threadIdx.x;
  A sum = column < channels ? sum_of_part<A>(rows, blockIdx.y, chunk_rows, row_count, channels, column) : A(0);
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= channels) return;
#pragma unroll
  for (int part = 1; part < kParts; part++) sum += parts[part][threadIdx.x];
  narrow(sum, sums + blockIdx.y * channels + column);
}

// The chunks that one CTA adds, and its columns: a sector of the memory of each row in f32.
constexpr int kFewChunks = 8;
constexpr int kFewColumns = 8;

// The column sums of few chunks of rows, each by a layer of the threads. Numbers are added in the order of sum_columns for the
// chunks, and then for their sums.
template <class A, class From, class To>
__global__ void __launch_bounds__(kFewColumns *kParts *kFewChunks)
    sum_few(const From *rows, To *sums, int64_t row_count, int64_t chunk_rows, int64_t channels) {
  __shared__ A parts[kFewChunks][kParts][kFewColumns + 1];
  const int64_t column = int64_t(blockIdx.x) * kFewColumns + threadIdx.x;
  A sum = column < channels ? sum_of_part<A>(rows, threadIdx.z, chunk_rows, row_count, channels, column) : A(0);
  parts[threadIdx.z][threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0) {
#pragma unroll
    for (int part = 1; part < kParts; part++) sum += parts[threadIdx.z][part][threadIdx.x];
    parts[threadIdx.z][0][threadIdx.x] = sum;
  }
  __syncthreads();
  if (threadIdx.y != 0 || threadIdx.z != 0 || column >= channels) return;
  for (int chunk = 1; chunk < int(blockDim.z); chunk++) sum += parts[chunk][0][threadIdx.x];
  narrow(sum, sums + column);
}

// ---- launches ----

// Whether the sizes make sense and every grade has a matrix.
bool valid(const fc_linear_weights &shape, const fc_linear_parts &parts) {
  if (shape.rows < 0 || shape.columns < 0 || shape.stride < shape.rows * shape.columns) return false;
  if (shape.grades < 0 || shape.grades > FC_LINEAR_MAX_GRADES) return false;
  for (int64_t g = 0; g < shape.grades; g++) {
    if (parts.end[g] <= (g == 0 ? 0 : parts.end[g - 1])) return false;
  }
  return true;
}

bool is_empty(const fc_linear_weights &shape) { return shape.rows * shape.columns * shape.grades == 0; }

dim3 walk(int64_t elements) { return grid_of(elements, kThreads, kMostBlocks); }

// Calls f with null pointers of both element types, if the one may be rounded to the other.
template <class F>
int with_rounding(fc_dtype from, fc_dtype to, F &&f) {
  const auto same = [&](auto *type) { return f(type, type); };
  float *const f32 = nullptr;
  __nv_bfloat16 *const bf16 = nullptr;
  __half *const f16 = nullptr;
  if (from == FC_F32 && to == FC_BF16) return f(f32, bf16);
  if (from == FC_F32 && to == FC_F16) return f(f32, f16);
  if (from != to) return FC_ERROR_BAD_CALL;
  switch (from) {
    case FC_F32: return same(f32);
    case FC_F64: return same(static_cast<double *>(nullptr));
    case FC_BF16: return same(bf16);
    case FC_F16: return same(f16);
    default: return FC_ERROR_BAD_CALL;
  }
}

// Calls f with lists of at most FC_LINEAR_MOST_AT_ONCE of the weights that are not empty, and their grids, in order. CTAs of the grid
// go through the elements (x) of the grades, and of the bias if there is one (y), of the weights (z).
template <class F>
int in_lists(const fc_linear_packing *all, int32_t count, F &&f) {
  if (count < 0 || (count > 0 && all == nullptr)) return FC_ERROR_BAD_CALL;
  for (int32_t i = 0; i < count; i++) {
    const fc_linear_bias &bias = all[i].bias;
    if (!valid(all[i].shape, all[i].matrices) || bias.channels < 0 || bias.stride < bias.channels) return FC_ERROR_BAD_CALL;
  }
  for (int32_t next = 0; next < count;) {
    Packings<FC_LINEAR_MOST_AT_ONCE> list = {};
    dim3 grid(1);
    int32_t taken = 0;
    for (; next < count && taken < FC_LINEAR_MOST_AT_ONCE; next++) {
      const fc_linear_weights &shape = all[next].shape;
      if (is_empty(shape)) continue;
      const dim3 own = shape.transposed ? Squares::grid(shape.rows, shape.columns, kMostBlocks) : walk(shape.rows * shape.columns);
      const unsigned grades = unsigned(shape.grades) + (all[next].bias.channels > 0);
      grid = dim3(grid.x > own.x ? grid.x : own.x, grid.y > grades ? grid.y : grades);
      list.of[taken++] = all[next];
    }
    if (taken == 0) break;
    grid.z = unsigned(taken);
    if (const int error = f(list, grid)) return error;
  }
  return 0;
}

// Launches a kernel of single weights or one of many.
template <class One, class Many>
int launch_list(One *one, Many *many, const Packings<FC_LINEAR_MOST_AT_ONCE> &list, dim3 grid, void *stream) {
  if (grid.z == 1) return launch(one, grid, dim3(kThreads), stream, Packings<1>{{list.of[0]}});
  return launch(many, grid, dim3(kThreads), stream, list);
}

template <class A, class From, class To>
int launch_column_sums(const void *rows, void *sums, void *workspace, int64_t row_count, int64_t channels,
                       void *stream) {
  const Chunks chunks(row_count);
  const From *from = static_cast<const From *>(rows);
  if (chunks.count <= kFewChunks) {
    return launch(sum_few<A, From, To>, dim3(unsigned(ceil_div(channels, kFewColumns))),
                  dim3(kFewColumns, kParts, unsigned(chunks.count)), stream, from, static_cast<To *>(sums), row_count, chunks.rows,
                  channels);
  }
  const dim3 block(kColumns, kParts);
  const unsigned columns = unsigned(ceil_div(channels, kColumns));
  A *partial = static_cast<A *>(workspace);
  const cudaError_t error = launch(sum_columns<A, From, A>, dim3(columns, unsigned(chunks.count)), block, stream, from,
                                   partial, row_count, chunks.rows, channels);
  if (error != cudaSuccess) return error;
  return launch(sum_columns<A, A, To>, dim3(columns), block, stream, partial, static_cast<To *>(sums), chunks.count,
                chunks.count, channels);
}

}  // namespace
}  // namespace fc

extern "C" int fc_linear_pack(const fc_linear_packing *all, int32_t count, fc_dtype from, fc_dtype to, void *stream) {
  return fc::with_rounding(from, to, [&](auto *s, auto *t) -> int {
    using From = typename fc::Pointee<decltype(s)>::Type;
    using To = typename fc::Pointee<decltype(t)>::Type;
    return fc::in_lists(all, count, [&](const auto &list, dim3 grid) -> int {
      return fc::launch_list(fc::pack<From, To, 1>, fc::pack<From, To, FC_LINEAR_MOST_AT_ONCE>, list, grid, stream);
    });
  });
}

extern "C" int fc_linear_unpack(const fc_linear_packing *all, int32_t count, fc_dtype from, fc_dtype to, void *stream) {
  for (int32_t i = 0; i < count; i++) {
    if (all[i].shape.transposed) return FC_ERROR_BAD_CALL;
  }
  return fc::with_rounding(from, to, [&](auto *s, auto *t) -> int {
    using From = typename fc::Pointee<decltype(s)>::Type;
    using To = typename fc::Pointee<decltype(t)>::Type;
    return fc::in_lists(all, count, [&](const auto &list, dim3 grid) -> int {
      return fc::launch_list(fc::unpack<From, To, 1>, fc::unpack<From, To, FC_LINEAR_MOST_AT_ONCE>, list, grid, stream);
    });
  });
}

extern "C" int fc_linear_broadcast(const void *bias, void *rows, int64_t row_count, int64_t channels, fc_dtype from,
                                   fc_dtype to, void *stream) {
  if (row_count < 0 || channels < 0) return FC_ERROR_BAD_CALL;
  const int64_t elements = row_count * channels;
  if (elements == 0) return 0;
  return fc::with_rounding(from, to, [&](auto *s, auto *t) -> int {
    using From = typename fc::Pointee<decltype(s)>::Type;
    using To = typename fc::Pointee<decltype(t)>::Type;
    return fc::launch(fc::broadcast<From, To>, fc::walk(elements), dim3(fc::kThreads), stream,
                      static_cast<const From *>(bias), static_cast<To *>(rows), elements, channels);
  });
}

extern "C" size_t fc_linear_column_sums_workspace(int64_t rows, int64_t channels, fc_dtype from) {
  if (rows < 0 || channels < 0) return 0;
  return size_t(fc::Chunks(rows).count) * size_t(channels) * (from == FC_F64 ? sizeof(double) : sizeof(float));
}

extern "C" int fc_linear_column_sums(const void *rows, void *sums, void *workspace, int64_t row_count, int64_t channels,
                                     fc_dtype from, fc_dtype to, void *stream) {
  if (row_count < 0 || channels < 0) return FC_ERROR_BAD_CALL;
  if (channels == 0) return 0;
  // The sums may be wider than the summands: the converse of what with_rounding allows.
  return fc::with_rounding(to, from, [&](auto *t, auto *s) -> int {
    using From = typename fc::Pointee<decltype(s)>::Type;
    using To = typename fc::Pointee<decltype(t)>::Type;
    using A = typename fc::Accumulator<From>::Type;
    return fc::launch_column_sums<A, From, To>(rows, sums, workspace, row_count, channels, stream);
  });
}

extern "C" int fc_runtime_version(void) { return CUDART_VERSION; }
