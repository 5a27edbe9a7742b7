// The fully connected product in blocks of rows: norms, weights in the order of the matrix products, launches.
#include "fully_connected.h"

#include <cuda_runtime.h>
#include <string.h>

#include "skeleton/blocks/entry.h"
#include "skeleton/launch.cuh"
#include "skeleton/memory.cuh"
#include "skeleton/tf32.cuh"
#include "skeleton/transpose.cuh"

namespace fc {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// Neighbouring elements in memory, aligned to all of them.
// Bytes: of an element, if that is known.
template <int N, class T, int Bytes = 0>
FC_INLINE Lanes<T, N> read(const void *p, int64_t at, int dtype) {
  Lanes<T, N> values;
  with_storage<T, Bytes>(dtype, [&](auto *type) {
    using S = typename Element<decltype(type)>::Type;
    values = load_lanes<S, T, N>(static_cast<const S *>(p) + at, dtype);
  });
  return values;
}
template <int N, class T, int Bytes = 0>
FC_INLINE void write(void *p, int64_t at, const Lanes<T, N> &values, int dtype) {
  with_storage<T, Bytes>(dtype, [&](auto *type) {
    using S = typename Element<decltype(type)>::Type;
    store_lanes<S, T, N>(static_cast<S *>(p) + at, values, dtype);
  });
}

// ---- norms ----

template <class T>
FC_INLINE T warp_sum(T value) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(~0u, value, mask);
  return value;
}

// The grades of the output, in order.
struct Grades {
  int count;
  int first[FC_MAX_GRADES], blades[FC_MAX_GRADES];  // of the tensor
};

// The place of a row in its block and in the tensors of the call.
struct Row {
  int grade;
  int64_t row, of_batch;

  FC_INLINE Row(const fc_block &a, int own_grade, int64_t own) : grade(own_grade), row(own), of_batch(a.first + own) {}
  FC_INLINE int64_t in_block(const fc_block &a, int blade) const { return (int64_t(blade) * a.rows + row) * a.out; }
  FC_INLINE int64_t in_call(const fc_block &a, int blade) const { return (int64_t(blade) * a.batch + of_batch) * a.out; }
};

// output = product / r, r the root of the mean square over channels and blades of a grade. A warp takes a row of a grade, a thread
// N channels at a time.
template <class T, int N, int Bytes>
__global__ void __launch_bounds__(kThreads) norm_kernel(const __grid_constant__ fc_block a, const __grid_constant__ Grades grades,
                                                        const T *product, void *output, T *saved) {
  const int64_t warp = int64_t(blockIdx.x) * kWarps + threadIdx.x / 32;
  const Row row(a, int(warp % grades.count), warp / grades.count);
  if (row.row >= a.rows) return;
  const int lane = threadIdx.x % 32, first = grades.first[row.grade], last = first + grades.blades[row.grade];
  T scale = 1;
  if (a.norm) {
    T sum = 0;
    for (int blade = first; blade < last; blade++) {
      const T *from = product + row.in_block(a, blade);
#pragma unroll 4
      for (int64_t n = lane * N; n < a.out; n += 32 * N) {
        const Lanes<T, N> o = load_lanes<T, T, N>(from + n, a.dtype);
        FC_EACH(N, sum = fused(o.v[i], o.v[i], sum))
      }
    }
    sum = warp_sum(sum);
    if (lane == 0 && saved != nullptr) saved[row.grade * a.batch + row.of_batch] = sum;
    scale = T(1) / root(sum / T(a.out) + T(a.eps));
  }
  for (int blade = first; blade < last; blade++) {
    const T *from = product + row.in_block(a, blade);
    const int64_t to = row.in_call(a, blade);
#pragma unroll 4
    for (int64_t n = lane * N; n < a.out; n += 32 * N) {
      write<N, T, Bytes>(output, to + n, load_lanes<T, T, N>(from + n, a.dtype) * scale, a.dtype);
    }
  }
}

// The converse for gradients: grad_product = grad_output / r - output (mean of grad_output output) / r.
template <class T>
struct UndoNorm {
  T scale, mean;

  // By a warp.
  template <int N, int Bytes>
  FC_INLINE static UndoNorm of(const fc_block &a, const Grades &grades, const Row &row, const void *output,
                               const void *grad_output, const T *saved) {
    if (!a.norm) return {1, 0};
    T sum = 0;
    for (int i = 0; i < grades.blades[row.grade]; i++) {
      const int64_t from = row.in_call(a, grades.first[row.grade] + i);
#pragma unroll 4
      for (int64_t n = threadIdx.x % 32 * N; n < a.out; n += 32 * N) {
        const auto o = read<N, T, Bytes>(output, from + n, a.dtype), grad = read<N, T, Bytes>(grad_output, from + n, a.dtype);
        FC_EACH(N, sum = fused(o.v[i], grad.v[i], sum))
      }
    }
    const T square = saved[row.grade * a.batch + row.of_batch];
    return {T(1) / root(square / T(a.out) + T(a.eps)), warp_sum(sum) / T(a.out)};
  }

  template <int N, int Bytes>
  FC_INLINE Lanes<T, N> gradient(const fc_block &a, const void *output, const void *grad_output, int64_t at) const {
    Lanes<T, N> grad = read<N, T, Bytes>(grad_output, at, a.dtype);
    if (a.norm) grad = (grad - read<N, T, Bytes>(output, at, a.dtype) * mean) * scale;
    return rounded_to_tf32_if(a.tf32, grad);
  }
};

template <class T, int N, int Bytes>
__global__ void __launch_bounds__(kThreads)
    undo_norm_kernel(const __grid_constant__ fc_block a, const __grid_constant__ Grades grades, const void *output,
                     const void *grad_output, const T *saved, void *grad_product) {
  const int64_t warp = int64_t(blockIdx.x) * kWarps + threadIdx.x / 32;
  const Row row(a, int(warp % grades.count), warp / grades.count);
  if (row.row >= a.rows) return;
  const auto undo = UndoNorm<T>::template of<N, Bytes>(a, grades, row, output, grad_output, saved);
  for (int i = 0; i < grades.blades[row.grade]; i++) {
    const int blade = grades.first[row.grade] + i;
    const int64_t from = row.in_call(a, blade), to = row.in_block(a, blade);
#pragma unroll 4
    for (int64_t n = threadIdx.x % 32 * N; n < a.out; n += 32 * N) {
      write<N, T, Bytes>(grad_product, to + n, undo.template gradient<N, Bytes>(a, output, grad_output, from + n), a.dtype);
    }
  }
}

using Squares = TransposedSquares<64, kThreads, true>;

// The grid of those for some matrices.
dim3 squares_of(int64_t rows, int64_t columns, int matrices) {
  dim3 grid = Squares::grid(rows, columns, 1 << 12);
  grid.y = unsigned(matrices);
  return grid;
}

// The gradient of the product [blades, rows, out] as [out, blades, rows] for each grade.
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(const __grid_constant__ fc_block a, const __grid_constant__ Grades grades, const float *from, float *to) {
  int grade = 0, blade = blockIdx.y;
  for (; blade >= grades.blades[grade]; grade++) blade -= grades.blades[grade];
  const int64_t size = a.rows * a.out, pitch = grades.blades[grade] * a.rows;
  from += (grades.first[grade] + blade) * size;
  to += grades.first[grade] * size + blade * a.rows;
  Squares::walk<float>(
      a.rows, a.out, [&](int64_t row, int64_t column) { return from[row * a.out + column]; },
      [&](int64_t column, int64_t row, float value) { to[column * pitch + row] = value; });
}

// ---- weights ----

template <int N, class T>
FC_INLINE Lanes<T, N> packed(const fc_block_weights &w, const void *from, int64_t at, int from_type) {
  return rounded_to_tf32_if(w.tf32, read<N, T>(from, at, from_type));
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    pack_kernel(const __grid_constant__ fc_block_weights w, const void *from, void *to, int from_type, int to_type) {
  const int64_t elements = w.in * w.out, start = w.order[blockIdx.y] * elements, end = blockIdx.y * elements;
  const int64_t step = int64_t(gridDim.x) * kThreads * N;
  for (int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * N; i < elements; i += step) {
    write<N, T>(to, end + i, packed<N, T>(w, from, start + i, from_type), to_type);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    pack_transposed_kernel(const __grid_constant__ fc_block_weights w, const void *from, void *to, int from_type, int to_type) {
  const int matrix = blockIdx.y, first = w.first[matrix];
  const int64_t elements = w.in * w.out, start = w.order[matrix] * elements;
  const int64_t pitch = w.count[matrix] * w.in, end = first * elements + (matrix - first) * w.in;
  Squares::walk<Lanes<T, 1>>(
      w.in, w.out,
      [&](int64_t row, int64_t column) { return packed<1, T>(w, from, start + row * w.out + column, from_type); },
      [&](int64_t column, int64_t row, const Lanes<T, 1> &value) {
        write<1, T>(to, end + column * pitch + row, value, to_type);
      });
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    unpack_kernel(const __grid_constant__ fc_block_weights w, const T *from, void *to, int first, int parts, int to_type) {
  const int64_t elements = w.in * w.out, start = blockIdx.y * elements, end = w.order[first + blockIdx.y] * elements;
  const int64_t part = gridDim.y * elements, step = int64_t(gridDim.x) * kThreads * N;
  for (int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * N; i < elements; i += step) {
    Lanes<T, N> sum = load_lanes<T, T, N>(from + start + i, to_type);
    for (int p = 1; p < parts; p++) sum = sum + load_lanes<T, T, N>(from + p * part + start + i, to_type);
    write<N, T>(to, end + i, sum, to_type);
  }
}

// ---- launches ----

bool known(fc_dtype dtype) { return dtype == FC_F32 || dtype == FC_F64 || dtype == FC_BF16 || dtype == FC_F16; }
fc_dtype arithmetic(fc_dtype dtype) { return dtype == FC_F64 ? FC_F64 : FC_F32; }
int bytes_of(fc_dtype dtype) { return dtype == FC_F64 ? 8 : dtype == FC_F32 ? 4 : 2; }

bool valid(const fc_block &block) {
  const bool sizes = block.rows >= 0 && block.in >= 0 && block.out >= 0 && block.first >= 0;
  return known(block.dtype) && sizes && block.first + block.rows <= block.batch;
}

// Whether rows of so many channels can be read by so many at a time, from all of the tensors.
template <class... Tensors>
bool aligned(fc_dtype dtype, int64_t channels, int at_a_time, Tensors... tensors) {
  const uintptr_t addresses = (0 | ... | reinterpret_cast<uintptr_t>(tensors));
  const int bytes = at_a_time * bytes_of(dtype);
  return channels % at_a_time == 0 && addresses % (bytes < 16 ? bytes : 16) == 0;
}

int launch_ctas(const void *function, int64_t ctas, void **arguments, void *stream) {
  if (ctas == 0) return 0;
  if (ctas > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  return cudaLaunchKernel(function, dim3(unsigned(ctas)), dim3(kBlockThreads), arguments, 0, static_cast<cudaStream_t>(stream));
}

bool has_all_paths(const fc_block_kernels *kernels, const fc_block &block) {
  for (int path = 0; path < kernels->paths; path++) {
    if (block.path[path] < 0) return false;
  }
  return true;
}

// The kernels with as many channels a thread as the tensors allow.
template <class... Tensors>
const BlockFunctions &functions_of(const fc_block_kernels *kernels, const fc_block &block, Tensors... tensors) {
  if (block.dtype == FC_F64) return kernels->f64->any;
  const BlockFunctions &wide = block.dtype == FC_F32 ? kernels->f32->bytes_4 : kernels->f32->bytes_2;
  const bool fits = aligned(block.dtype, block.in, wide.channels, block.x, block.y, tensors...);
  return fits && has_all_paths(kernels, block) ? wide : kernels->f32->any;
}

// Of kernels whose neighbours take neighbouring channels.
int64_t ctas_of(const fc_block &block, int channels) { return ceil_div(block.rows * (block.in / channels), kBlockThreads); }

Grades grades_of(const fc_block &block) {
  Grades grades = {};
  for (int grade = 0; grade < FC_MAX_GRADES; grade++) {
    if (block.result[grade] < 0) continue;
    grades.first[grades.count] = block.result[grade];
    grades.blades[grades.count++] = block.blades[grade];
  }
  return grades;
}

// What a kernel of rows is compiled for: vectors of the arithmetic type, and the bytes of an element; 0: any.
template <class V, int Bytes>
struct RowVariant {
  using T = typename V::Scalar;
  static constexpr int kChannels = V::kCount, kBytes = Bytes;
};

// Calls f with a variant, and the grid of one warp a row and grade.
template <class F, class... Tensors>
int with_rows(const fc_block &block, F &&f, Tensors... tensors) {
  if (!valid(block)) return FC_ERROR_BAD_CALL;
  const Grades grades = grades_of(block);
  const int64_t ctas = ceil_div(block.rows * grades.count, kWarps);
  if (ctas == 0 || block.out == 0) return 0;
  if (ctas > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  const dim3 grid = dim3(unsigned(ctas));
  if (block.dtype == FC_F64) return f(RowVariant<Lanes<double, 1>, 8>(), grades, grid);
  if (!aligned(FC_F32, block.out, 4, tensors...)) return f(RowVariant<Lanes<float, 1>, 0>(), grades, grid);
  if (block.dtype == FC_F32) return f(RowVariant<Lanes<float, 4>, 4>(), grades, grid);
  return f(RowVariant<Lanes<float, 4>, 2>(), grades, grid);
}

// The grid of some matrices.
dim3 walk(int64_t elements, int matrices) {
  dim3 grid = grid_of(elements, kThreads, 1 << 12);
  grid.y = unsigned(matrices);
  return grid;
}

bool valid(const fc_block_weights &w) { return w.in >= 0 && w.out >= 0 && w.matrices >= 0 && w.matrices <= FC_MAX_PATHS; }

}  // namespace
}  // namespace fc

extern "C" const fc_block_kernels *fc_block_find(const char *algebra) {
  for (const fc_block_kernels *const *entry = fc::blocks(); *entry != nullptr; entry++) {
    if (strcmp((*entry)->name, algebra) == 0) return *entry;
  }
  return nullptr;
}

extern "C" int fc_block_prepare(const fc_block_kernels *kernels, fc_dtype dtype) {
  if (!fc::known(dtype)) return FC_ERROR_BAD_CALL;
  const fc::BlockVariants &variants = dtype == FC_F64 ? *kernels->f64 : *kernels->f32;
  // Asking for its attributes loads a kernel.
  cudaFuncAttributes attributes;
  for (const fc::BlockFunctions &own : {variants.any, dtype == FC_F32 ? variants.bytes_4 : variants.bytes_2}) {
    for (const void *function : {own.form, own.form_transposed, own.pull_back}) {
      if (function == nullptr) continue;
      const cudaError_t error = cudaFuncGetAttributes(&attributes, function);
      if (error != cudaSuccess) return error;
    }
  }
  return 0;
}

extern "C" int fc_block_form(const fc_block_kernels *kernels, const fc_block *block, int32_t transposed, void *const *products,
                             void *stream) {
  if (!fc::valid(*block)) return FC_ERROR_BAD_CALL;
  fc::PathProducts to = {};
  for (int grade = 0; grade < FC_MAX_GRADES; grade++) to.of[grade] = products[grade];
  fc_block own = *block;
  void *arguments[] = {&own, &to};
  if (!transposed) {
    // Results of all grades are aligned as the first channels of their rows.
    const fc::BlockFunctions &functions =
        fc::functions_of(kernels, own, to.of[0], to.of[1], to.of[2], to.of[3], to.of[4], to.of[5]);
    return fc::launch_ctas(functions.form, fc::ctas_of(own, functions.channels), arguments, stream);
  }
  if (own.dtype != FC_F32) return FC_ERROR_BAD_CALL;
  const fc::BlockFunctions &functions = fc::functions_of(kernels, own);
  const int64_t tiles = fc::ceil_div(own.in / functions.channels, fc::kTransposedGroups);
  return fc::launch_ctas(functions.form_transposed, fc::ceil_div(own.rows, fc::kTransposedRows) * tiles, arguments, stream);
}

extern "C" int fc_block_pull_back(const fc_block_kernels *kernels, const fc_block *block, const void *const *products,
                                  void *grad_x, void *grad_y, void *stream) {
  if (!fc::valid(*block)) return FC_ERROR_BAD_CALL;
  fc::PathProducts from = {};
  for (int grade = 0; grade < FC_MAX_GRADES; grade++) from.of[grade] = const_cast<void *>(products[grade]);
  fc_block own = *block;
  void *arguments[] = {&own, &from, &grad_x, &grad_y};
  const fc::BlockFunctions &functions = fc::functions_of(kernels, own, grad_x, grad_y, from.of[0], from.of[1], from.of[2],
                                                         from.of[3], from.of[4], from.of[5]);
  return fc::launch_ctas(functions.pull_back, fc::ctas_of(own, functions.channels), arguments, stream);
}

extern "C" int fc_block_norm(const fc_block *block, const void *product, void *output, void *saved, void *stream) {
  const auto run = [&](auto variant, const fc::Grades &grades, dim3 grid) -> int {
    using V = decltype(variant);
    using T = typename V::T;
    return fc::launch(fc::norm_kernel<T, V::kChannels, V::kBytes>, grid, dim3(fc::kThreads), stream, *block, grades,
                      static_cast<const T *>(product), output, static_cast<T *>(saved));
  };
  return fc::with_rows(*block, run, product, output);
}

extern "C" int fc_block_undo_norm(const fc_block *block, const void *output, const void *grad_output, const void *saved,
                                  void *grad_product, void *transposed, void *stream) {
  const auto run = [&](auto variant, const fc::Grades &grades, dim3 grid) -> int {
    using V = decltype(variant);
    using T = typename V::T;
    return fc::launch(fc::undo_norm_kernel<T, V::kChannels, V::kBytes>, grid, dim3(fc::kThreads), stream, *block, grades, output,
                      grad_output, static_cast<const T *>(saved), grad_product);
  };
  const int done = fc::with_rows(*block, run, output, grad_output, grad_product);
  if (done != 0 || transposed == nullptr) return done;
  if (block->dtype != FC_F32) return FC_ERROR_BAD_CALL;
  const fc::Grades grades = fc::grades_of(*block);
  int blades = 0;
  for (int grade = 0; grade < grades.count; grade++) blades += grades.blades[grade];
  if (block->rows * block->out * blades == 0) return 0;
  return fc::launch(fc::transpose_kernel, fc::squares_of(block->rows, block->out, blades), dim3(fc::kThreads), stream, *block, grades,
                    static_cast<const float *>(grad_product), static_cast<float *>(transposed));
}

extern "C" int fc_block_pack(const fc_block_weights *weights, const void *from, void *to, int32_t transposed, fc_dtype from_type,
                             fc_dtype to_type, void *stream) {
  const bool rounds = from_type == FC_F32 && fc::arithmetic(to_type) == FC_F32;
  if (!fc::known(from_type) || !fc::known(to_type) || (from_type != to_type && !rounds)) return FC_ERROR_BAD_CALL;
  if (!fc::valid(*weights)) return FC_ERROR_BAD_CALL;
  const int64_t elements = weights->in * weights->out;
  if (elements == 0 || weights->matrices == 0) return 0;
  const auto run = [&](auto kernel, dim3 grid) -> int {
    return fc::launch(kernel, grid, dim3(fc::kThreads), stream, *weights, from, to, from_type, to_type);
  };
  if (transposed) {
    const auto kernel = to_type == FC_F64 ? fc::pack_transposed_kernel<double> : fc::pack_transposed_kernel<float>;
    return run(kernel, fc::squares_of(weights->in, weights->out, weights->matrices));
  }
  const bool whole = fc::aligned(FC_F32, elements, 4, from, to) && to_type != FC_F64;
  const dim3 grid = fc::walk(whole ? elements / 4 : elements, weights->matrices);
  if (to_type == FC_F64) return run(fc::pack_kernel<double, 1>, grid);
  return whole ? run(fc::pack_kernel<float, 4>, grid) : run(fc::pack_kernel<float, 1>, grid);
}

extern "C" int fc_block_unpack(const fc_block_weights *weights, const void *from, void *to, int32_t first, int32_t last,
                               int32_t parts, fc_dtype from_type, fc_dtype to_type, void *stream) {
  if (!fc::known(to_type) || from_type != fc::arithmetic(to_type)) return FC_ERROR_BAD_CALL;
  if (!fc::valid(*weights) || parts < 1 || first < 0 || last > weights->matrices) return FC_ERROR_BAD_CALL;
  const int64_t elements = weights->in * weights->out;
  if (elements == 0 || first >= last) return 0;
  const auto run = [&](auto kernel, auto *type, int at_a_time) -> int {
    using T = typename fc::Element<decltype(type)>::Type;
    const dim3 grid = fc::walk(fc::ceil_div(elements, at_a_time), last - first);
    return fc::launch(kernel, grid, dim3(fc::kThreads), stream, *weights, static_cast<const T *>(from), to, first, parts,
                      to_type);
  };
  if (to_type == FC_F64) return run(fc::unpack_kernel<double, 1>, static_cast<double *>(nullptr), 1);
  return fc::aligned(FC_F32, elements, 4, from, to) ? run(fc::unpack_kernel<float, 4>, static_cast<float *>(nullptr), 4)
                                                    : run(fc::unpack_kernel<float, 1>, static_cast<float *>(nullptr), 1);
}
