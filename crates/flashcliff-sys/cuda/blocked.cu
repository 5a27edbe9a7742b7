// The fully connected product in blocks of rows: norms, weights in the order of the matrix products, launches.
#include "blocked.h"

#include <cuda_runtime.h>
#include <string.h>

#include "skeleton/blocks/entry.h"
#include "skeleton/memory.cuh"

namespace fc {
namespace {

constexpr int kThreads = 256;
constexpr int kBlockThreads = 128;  // of the kernels of the algebras

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Elements in memory.
template <class T>
FC_INLINE T read_element(const void *p, int64_t at, int dtype) {
  T value;
  with_storage<T>(dtype, [&](auto *type) {
    using S = typename Element<decltype(type)>::Type;
    value = T(widen(static_cast<const S *>(p)[at], dtype));
  });
  return value;
}
template <class T>
FC_INLINE void write_element(void *p, int64_t at, T value, int dtype) {
  with_storage<T>(dtype, [&](auto *type) {
    using S = typename Element<decltype(type)>::Type;
    static_cast<S *>(p)[at] = Narrow<S, T>::from(value, dtype);
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

// A warp takes a row of a grade.
struct Row {
  int grade, lane;
  int64_t row;  // of the block
  bool exists;

  FC_INLINE Row(const Grades &grades, int64_t rows) : lane(threadIdx.x % 32) {
    const int64_t warp = int64_t(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
    row = warp / grades.count;
    grade = int(warp % grades.count);
    exists = row < rows;
  }
};

// output = product / r, r the root of the mean square over channels and blades of a grade.
template <class T>
__global__ void __launch_bounds__(kThreads) norm_kernel(const __grid_constant__ fc_block a, const __grid_constant__ Grades grades,
                                                        const T *product, void *output, T *saved) {
  const Row w(grades, a.rows);
  if (!w.exists) return;
  T scale = 1;
  if (a.norm) {
    T sum = 0;
    for (int i = 0; i < grades.blades[w.grade]; i++) {
      const T *from = product + (int64_t(grades.first[w.grade] + i) * a.rows + w.row) * a.out;
      for (int64_t n = w.lane; n < a.out; n += 32) sum = fused(from[n], from[n], sum);
    }
    sum = warp_sum(sum);
    if (w.lane == 0 && saved != nullptr) saved[w.grade * a.batch + a.first + w.row] = sum;
    scale = T(1) / root(sum / T(a.out) + T(a.eps));
  }
  for (int i = 0; i < grades.blades[w.grade]; i++) {
    const int64_t blade = grades.first[w.grade] + i;
    const T *from = product + (blade * a.rows + w.row) * a.out;
    const int64_t to = (blade * a.batch + a.first + w.row) * a.out;
    for (int64_t n = w.lane; n < a.out; n += 32) write_element(output, to + n, from[n] * scale, a.dtype);
  }
}

// The converse for gradients: grad_product = grad_output / r - output (mean of grad_output output) / r.
template <class T>
__global__ void __launch_bounds__(kThreads)
    undo_norm_kernel(const __grid_constant__ fc_block a, const __grid_constant__ Grades grades, const void *output,
                     const void *grad_output, const T *saved, void *grad_product) {
  const Row w(grades, a.rows);
  if (!w.exists) return;
  T scale = 1, mean = 0;
  if (a.norm) {
    for (int i = 0; i < grades.blades[w.grade]; i++) {
      const int64_t from = (int64_t(grades.first[w.grade] + i) * a.batch + a.first + w.row) * a.out;
      for (int64_t n = w.lane; n < a.out; n += 32) {
        mean = fused(read_element<T>(output, from + n, a.dtype), read_element<T>(grad_output, from + n, a.dtype), mean);
      }
    }
    mean = warp_sum(mean) / T(a.out);
    scale = T(1) / root(saved[w.grade * a.batch + a.first + w.row] / T(a.out) + T(a.eps));
  }
  for (int i = 0; i < grades.blades[w.grade]; i++) {
    const int64_t blade = grades.first[w.grade] + i;
    const int64_t from = (blade * a.batch + a.first + w.row) * a.out, to = (blade * a.rows + w.row) * a.out;
    for (int64_t n = w.lane; n < a.out; n += 32) {
      T grad = read_element<T>(grad_output, from + n, a.dtype);
      if (a.norm) grad = (grad - read_element<T>(output, from + n, a.dtype) * mean) * scale;
      write_element(grad_product, to + n, grad, a.dtype);
    }
  }
}

// ---- weights ----

struct Order {
  int8_t of[FC_MAX_PATHS];
};

template <class T>
__global__ void __launch_bounds__(kThreads) pack_kernel(const void *from, void *to, int64_t elements,
                                                        const __grid_constant__ Order order, int from_type, int to_type) {
  const int64_t start = order.of[blockIdx.y] * elements, end = blockIdx.y * elements;
  const int64_t step = int64_t(gridDim.x) * kThreads;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < elements; i += step) {
    write_element(to, end + i, read_element<T>(from, start + i, from_type), to_type);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    unpack_kernel(const T *from, void *to, int64_t elements, int parts, const __grid_constant__ Order order, int to_type) {
  const int64_t start = blockIdx.y * elements, end = order.of[blockIdx.y] * elements;
  const int64_t part = gridDim.y * elements, step = int64_t(gridDim.x) * kThreads;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < elements; i += step) {
    T sum = from[start + i];
    for (int p = 1; p < parts; p++) sum += from[p * part + start + i];
    write_element(to, end + i, sum, to_type);
  }
}

// ---- launches ----

bool known(fc_dtype dtype) { return dtype == FC_F32 || dtype == FC_F64 || dtype == FC_BF16 || dtype == FC_F16; }
fc_dtype arithmetic(fc_dtype dtype) { return dtype == FC_F64 ? FC_F64 : FC_F32; }

bool valid(const fc_block &block) {
  const bool sizes = block.rows >= 0 && block.in >= 0 && block.out >= 0 && block.first >= 0;
  return known(block.dtype) && sizes && block.first + block.rows <= block.batch;
}

template <class... Parameters, class... Given>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, void *stream, Given... given) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(stream);
  return cudaLaunchKernelEx(&config, kernel, Parameters(given)...);
}

// One thread a lane of the block.
int launch_lanes(const void *function, const fc_block &block, void **arguments, void *stream) {
  const int64_t lanes = block.rows * block.in, ctas = ceil_div(lanes, kBlockThreads);
  if (lanes == 0) return 0;
  if (ctas > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  return cudaLaunchKernel(function, dim3(unsigned(ctas)), dim3(kBlockThreads), arguments, 0,
                          static_cast<cudaStream_t>(stream));
}

const BlockFunctions &functions_of(const fc_block_kernels *kernels, fc_dtype dtype) {
  return dtype == FC_F64 ? *kernels->f64 : *kernels->f32;
}

Grades grades_of(const fc_block &block) {
  Grades grades = {};
  for (int grade = 0; grade < FC_MAX_GRADES; grade++) {
    if (block.result[grade] < 0) continue;
    grades.first[grades.count] = block.result[grade];
    grades.blades[grades.count++] = block.blades[grade];
  }
  return grades;
}

// Calls f with a null pointer of the arithmetic type, and the grid of one warp a row and grade.
template <class F>
int with_rows(const fc_block &block, F &&f) {
  if (!valid(block)) return FC_ERROR_BAD_CALL;
  const Grades grades = grades_of(block);
  const int64_t ctas = ceil_div(block.rows * grades.count, kThreads / 32);
  if (ctas == 0 || block.out == 0) return 0;
  if (ctas > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  const dim3 grid = dim3(unsigned(ctas));
  return block.dtype == FC_F64 ? f(static_cast<double *>(nullptr), grades, grid)
                               : f(static_cast<float *>(nullptr), grades, grid);
}

// The grid of some matrices; threads walk on from there.
dim3 walk(int64_t elements, int matrices) {
  const int64_t ctas = ceil_div(elements, kThreads), most = 1 << 12;
  return dim3(unsigned(ctas < most ? ctas : most), unsigned(matrices));
}

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
  const fc::BlockFunctions &functions = fc::functions_of(kernels, dtype);
  // Asking for its attributes loads a kernel.
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, functions.pull_back);
  for (int grade = 0; grade < kernels->grades && error == cudaSuccess; grade++) {
    error = cudaFuncGetAttributes(&attributes, functions.form[grade]);
  }
  return error;
}

extern "C" int fc_block_form(const fc_block_kernels *kernels, const fc_block *block, int32_t grade, void *products,
                             void *stream) {
  if (!fc::valid(*block) || grade < 0 || grade >= kernels->grades) return FC_ERROR_BAD_CALL;
  void *arguments[] = {const_cast<fc_block *>(block), &products};
  return fc::launch_lanes(fc::functions_of(kernels, block->dtype).form[grade], *block, arguments, stream);
}

extern "C" int fc_block_pull_back(const fc_block_kernels *kernels, const fc_block *block, const void *const *products,
                                  void *grad_x, void *grad_y, void *stream) {
  if (!fc::valid(*block)) return FC_ERROR_BAD_CALL;
  fc::PullBack tensors = {{}, grad_x, grad_y};
  for (int grade = 0; grade < kernels->grades; grade++) tensors.products[grade] = products[grade];
  void *arguments[] = {const_cast<fc_block *>(block), &tensors};
  return fc::launch_lanes(fc::functions_of(kernels, block->dtype).pull_back, *block, arguments, stream);
}

extern "C" int fc_block_norm(const fc_block *block, const void *product, void *output, void *saved, void *stream) {
  return fc::with_rows(*block, [&](auto *type, const fc::Grades &grades, dim3 grid) -> int {
    using T = typename fc::Element<decltype(type)>::Type;
    return fc::launch(fc::norm_kernel<T>, grid, stream, *block, grades, static_cast<const T *>(product), output,
                      static_cast<T *>(saved));
  });
}

extern "C" int fc_block_undo_norm(const fc_block *block, const void *output, const void *grad_output, const void *saved,
                                  void *grad_product, void *stream) {
  return fc::with_rows(*block, [&](auto *type, const fc::Grades &grades, dim3 grid) -> int {
    using T = typename fc::Element<decltype(type)>::Type;
    return fc::launch(fc::undo_norm_kernel<T>, grid, stream, *block, grades, output, grad_output,
                      static_cast<const T *>(saved), grad_product);
  });
}

extern "C" int fc_block_pack(const void *from, void *to, int64_t elements, int32_t matrices, const int8_t *order,
                             fc_dtype from_type, fc_dtype to_type, void *stream) {
  const bool rounds = from_type == FC_F32 && fc::arithmetic(to_type) == FC_F32;
  if (!fc::known(from_type) || !fc::known(to_type) || (from_type != to_type && !rounds)) return FC_ERROR_BAD_CALL;
  if (elements < 0 || matrices < 0 || matrices > FC_MAX_PATHS) return FC_ERROR_BAD_CALL;
  if (elements == 0 || matrices == 0) return 0;
  fc::Order all = {};
  memcpy(all.of, order, size_t(matrices));
  const auto kernel = to_type == FC_F64 ? fc::pack_kernel<double> : fc::pack_kernel<float>;
  return fc::launch(kernel, fc::walk(elements, matrices), stream, from, to, elements, all, from_type, to_type);
}

extern "C" int fc_block_unpack(const void *from, void *to, int64_t elements, int32_t matrices, int32_t parts,
                               const int8_t *order, fc_dtype from_type, fc_dtype to_type, void *stream) {
  if (!fc::known(to_type) || from_type != fc::arithmetic(to_type)) return FC_ERROR_BAD_CALL;
  if (elements < 0 || parts < 1 || matrices < 0 || matrices > FC_MAX_PATHS) return FC_ERROR_BAD_CALL;
  if (elements == 0 || matrices == 0) return 0;
  fc::Order all = {};
  memcpy(all.of, order, size_t(matrices));
  const dim3 grid = fc::walk(elements, matrices);
  return to_type == FC_F64 ? fc::launch(fc::unpack_kernel<double>, grid, stream, static_cast<const double *>(from), to,
                                        elements, parts, all, to_type)
                           : fc::launch(fc::unpack_kernel<float>, grid, stream, static_cast<const float *>(from), to,
                                        elements, parts, all, to_type);
}
