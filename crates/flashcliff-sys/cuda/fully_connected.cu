// The fully connected product in blocks of rows: norms, weights in the order of the matrix products, launches.
#include "fully_connected.h"

#include <cuda_runtime.h>
#include <string.h>

#include "skeleton/blocks/registry.h"
#include "skeleton/blocks/invariant.cuh"
#include "skeleton/blocks/norm.cuh"
#include "skeleton/launch.cuh"
#include "skeleton/memory.cuh"
#include "skeleton/scale.cuh"
#include "skeleton/totals.cuh"

namespace fc {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// ---- weights ----

// The number of CTAs that look for the largest weight.
constexpr int kLargestCtas = FC_WEIGHT_SCALES - 1;
static_assert(kLargestCtas == kThreads, "each thread that packs reads what one of them has found");

template <int N>
__global__ void __launch_bounds__(kThreads) largest_kernel(const float *weights, int64_t elements, int32_t *scales) {
  Largest largest = {};
#pragma unroll 8
  for (int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * N; i < elements; i += int64_t(kLargestCtas) * kThreads * N) {
    largest.add(load_lanes<float, float, N>(weights + i, FC_F32));
  }
  largest = total_of<kWarps>(largest);
  if (threadIdx.x == 0) scales[1 + blockIdx.x] = largest.order;
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    pack_kernel(const __grid_constant__ fc_block_weights w, const void *from, void *to, int32_t *scales, int from_type, int to_type) {
  const int64_t elements = w.in * w.out, start = w.order[blockIdx.y] * elements, end = blockIdx.y * elements;
  const int64_t step = int64_t(gridDim.x) * kThreads * N;
  T scale = 1;
  if (scales != nullptr) {
    const int exponent = total_of<kWarps>(Largest{scales[1 + threadIdx.x]}).scale();
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) scales[0] = exponent;
    scale = normal_power(exponent);
  }
#pragma unroll 4
  for (int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * N; i < elements; i += step) {
    write<N, T, kAnyType>(to, end + i, read<N, T, kAnyType>(from, start + i, from_type) * scale, to_type);
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    unpack_kernel(const __grid_constant__ fc_block_weights w, const T *from, void *to, int first, int parts, const int32_t *sums,
                  int to_type) {
  const int matrix = first + blockIdx.y;
  const int64_t elements = w.in * w.out, start = blockIdx.y * elements, end = w.order[matrix] * elements;
  const int64_t part = gridDim.y * elements, step = int64_t(gridDim.x) * kThreads * N;
  const TwoPowers unscale = TwoPowers(sums != nullptr ? -sums[w.path[matrix]] : 0);
  for (int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * N; i < elements; i += step) {
    Lanes<T, N> sum = load_lanes<T, T, N>(from + start + i, to_type);
    for (int p = 1; p < parts; p++) sum = sum + load_lanes<T, T, N>(from + p * part + start + i, to_type);
    write<N, T, kAnyType>(to, end + i, unscale.of(sum), to_type);
  }
}

// Brings parts of gradients to lower exponents. Exponents of sums only fall from block to block, so numbers get smaller. Bits
// are lost when an f32 becomes subnormal, below 2^-126, beside terms of up to 2^(2 kScaledBound). These are below 2^30, so a
// sum overflows after 2^98 rows.
template <int N>
__global__ void __launch_bounds__(kThreads)
    rescale_kernel(const __grid_constant__ fc_block_weights w, float *of_parts, int first, const int32_t *sums) {
  const int path = w.path[first + blockIdx.y], change = sums[path] - sums[FC_MAX_PATHS + path];
  if (change == 0) return;
  // Both powers are normal: an infinity stays an infinity, and finite numbers still become 0.
  const TwoPowers scale = TwoPowers(max(change, -252));
  const int64_t elements = w.in * w.out, step = int64_t(gridDim.x) * kThreads * N;
  float *matrix = of_parts + (blockIdx.z * gridDim.y + blockIdx.y) * elements;
#pragma unroll 4
  for (int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * N; i < elements; i += step) {
    store_lanes<float, float, N>(matrix + i, scale.of(load_lanes<float, float, N>(matrix + i, FC_F32)), FC_F32);
  }
}

// ---- launches ----

bool known(fc_dtype dtype) { return dtype == FC_F32 || dtype == FC_F64 || dtype == FC_BF16 || dtype == FC_F16; }
fc_dtype arithmetic(fc_dtype dtype) { return dtype == FC_F64 ? FC_F64 : FC_F32; }
int bytes_of(fc_dtype dtype) { return dtype == FC_F64 ? 8 : dtype == FC_F32 ? 4 : 2; }

// Whether operands of matrix products may have the type `operands`, for tensors of type `dtype`.
bool takes(fc_dtype dtype, fc_dtype operands) {
  return known(dtype) && known(operands) && (operands == dtype || (dtype == FC_F32 && operands == FC_F16));
}

bool valid(const fc_block &block) {
  const bool sizes = block.rows >= 0 && block.in >= 0 && block.out >= 0 && block.first >= 0;
  return takes(block.dtype, block.operands) && sizes && block.first + block.rows <= block.batch;
}

// Whether all tensors can be read `at_a_time` channels at a time, with rows of `channels` channels.
template <class... Tensors>
bool aligned(fc_dtype dtype, int64_t channels, int at_a_time, Tensors... tensors) {
  const uintptr_t addresses = (0 | ... | reinterpret_cast<uintptr_t>(tensors));
  const int bytes = at_a_time * bytes_of(dtype);
  return channels % at_a_time == 0 && addresses % (bytes < 16 ? bytes : 16) == 0;
}

bool has_all_paths(const fc_block_kernels *kernels, const fc_block &block) {
  for (int path = 0; path < kernels->paths; path++) {
    if (block.path[path] < 0) return false;
  }
  return true;
}

bool aligned(fc_dtype dtype, int64_t channels, int at_a_time, const PathProducts &products) {
  bool all = true;
  for (const void *of_grade : products.of) all = all && aligned(dtype, channels, at_a_time, of_grade);
  return all;
}

const BlockFunctions &wide_functions(const BlockVariants &all, fc_dtype dtype, bool scaled) {
  if (scaled) return all.scaled;
  return dtype == FC_F32 ? all.f32 : dtype == FC_BF16 ? all.bf16 : all.f16;
}

// The kernels with as many channels for each thread as the tensors of the call and of path products allow.
const BlockFunctions &functions_of(const fc_block_kernels *kernels, const fc_block &block, const PathProducts &products,
                                   const void *grad_x, const void *grad_y) {
  if (block.dtype == FC_F64) return kernels->f64->any;
  const BlockVariants &all = *kernels->f32;
  const bool scaled = is_scaled(block);
  const BlockFunctions &wide = wide_functions(all, block.dtype, scaled);
  const bool fits = aligned(block.dtype, block.in, wide.channels, block.x, block.y, grad_x, grad_y) &&
                    aligned(block.operands, block.in, wide.channels, products);
  return fits && has_all_paths(kernels, block) ? wide : scaled ? all.scaled_any : all.any;
}

PathProducts all_of(void *const *products) {
  PathProducts all = {};
  for (int grade = 0; products != nullptr && grade < FC_MAX_GRADES; grade++) all.of[grade] = products[grade];
  return all;
}

// by_rows: whether the CTAs of the kernel have whole rows.
int launch_block(const fc_block_kernels *kernels, const fc_block *block, const void *BlockFunctions::*kernel, bool by_rows,
                 void *const *products, void *grad_x, void *grad_y, void *stream) {
  if (!valid(*block)) return FC_ERROR_BAD_CALL;
  PathProducts all = all_of(products);
  const BlockFunctions &functions = functions_of(kernels, *block, all, grad_x, grad_y);
  if (functions.*kernel == nullptr) return FC_ERROR_BAD_CALL;
  const int64_t groups = block->in / functions.channels;
  if (block->rows * groups == 0) return 0;
  if (groups > 0x3fffffff) return FC_ERROR_TOO_LARGE;
  const int64_t ctas = by_rows ? ceil_div(block->rows, rows_of_cta(int(groups))) : ceil_div(block->rows * groups, kBlockThreads);
  if (ctas > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  fc_block own = *block;
  void *arguments[] = {&own, &all, &grad_x, &grad_y};
  return cudaLaunchKernel(functions.*kernel, dim3(unsigned(ctas)), dim3(kBlockThreads), arguments, 0,
                          static_cast<cudaStream_t>(stream));
}

Grades grades_of(const fc_block &block) {
  Grades grades = {};
  for (int grade = 0; grade < FC_MAX_GRADES; grade++) {
    if (block.result[grade] < 0) continue;
    grades.of_algebra[grades.count] = grade;
    grades.first[grades.count] = block.result[grade];
    grades.plus[grades.count] = block.plus[grade];
    grades.minus[grades.count] = block.minus[grade];
    grades.blades[grades.count++] = block.blades[grade];
  }
  return grades;
}

// The parameters of a kernel of rows: vectors of the arithmetic type, the types of tensors and operands, and the threads of a
// row.
template <class V, int Type, int Operands, int Threads>
struct RowVariant {
  using T = typename V::Scalar;
  static constexpr int kChannels = V::kCount, kType = Type, kOperands = Operands, kThreads = Threads;
};

// Calls f with a variant, the grades and the grid.
template <class V, int Type, int Operands, class F>
int with_threads(const fc_block &block, F &&f) {
  const Grades grades = grades_of(block);
  const int64_t rows = block.rows * grades.count;
  if (rows == 0 || block.out == 0) return 0;
  if (rows > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  const auto run = [&](auto variant) {
    constexpr int threads = decltype(variant)::kThreads;
    return f(variant, grades, dim3(unsigned(ceil_div(rows, norm_threads(threads) / threads))));
  };
  // The number of threads leaves each thread a few vectors of a blade. Of three blades it keeps them in registers.
  if (block.out <= 2 * 32 * V::kCount) return run(RowVariant<V, Type, Operands, 32>());
  if (block.out <= 2 * 64 * V::kCount) return run(RowVariant<V, Type, Operands, 64>());
  return run(RowVariant<V, Type, Operands, 128>());
}
template <class F, class... Tensors>
int with_rows(const fc_block &block, F &&f, Tensors... tensors) {
  if (!valid(block)) return FC_ERROR_BAD_CALL;
  if (block.dtype == FC_F64) return with_threads<Lanes<double, 1>, FC_F64, FC_F64>(block, f);
  if (!aligned(FC_F32, block.out, 4, tensors...)) return with_threads<Lanes<float, 1>, kAnyType, kAnyType>(block, f);
  // Rows that are long enough are read by 16 bytes of the tensors.
  if (block.dtype != FC_F32 && block.out % 8 != 0) return with_threads<Lanes<float, 4>, kAnyType, kAnyType>(block, f);
  if (is_scaled(block)) return with_threads<Lanes<float, 4>, FC_F32, FC_F16>(block, f);
  if (block.dtype == FC_F32) return with_threads<Lanes<float, 4>, FC_F32, FC_F32>(block, f);
  if (block.dtype == FC_BF16) return with_threads<Lanes<float, 8>, FC_BF16, FC_BF16>(block, f);
  return with_threads<Lanes<float, 8>, FC_F16, FC_F16>(block, f);
}

// The grid for the elements of some matrices.
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

extern "C" int fc_block_prepare(const fc_block_kernels *kernels, fc_dtype dtype, fc_dtype operands) {
  if (!fc::takes(dtype, operands)) return FC_ERROR_BAD_CALL;
  const fc::BlockVariants &variants = dtype == FC_F64 ? *kernels->f64 : *kernels->f32;
  const bool scaled = operands != dtype;
  const fc::BlockFunctions &wide = fc::wide_functions(variants, dtype, scaled);
  // Asking for the attributes of a kernel loads it.
  cudaFuncAttributes attributes;
  for (const fc::BlockFunctions &own : {scaled ? variants.scaled_any : variants.any, wide}) {
    for (const void *function : {own.form, own.pull_back, own.pull_back_and_form, own.scale_and_form, own.scale_sums,
                                 own.scale_sums_and_pull_back}) {
      if (function == nullptr) continue;
      const cudaError_t error = cudaFuncGetAttributes(&attributes, function);
      if (error != cudaSuccess) return error;
    }
  }
  return 0;
}

extern "C" int fc_block_form(const fc_block_kernels *kernels, const fc_block *block, int32_t balanced, void *const *products,
                             void *stream) {
  const bool scales = fc::is_scaled(*block) && !balanced;
  const auto kernel = scales ? &fc::BlockFunctions::scale_and_form : &fc::BlockFunctions::form;
  return fc::launch_block(kernels, block, kernel, scales, products, nullptr, nullptr, stream);
}

extern "C" int fc_block_scale(const fc_block_kernels *kernels, const fc_block *block, void *stream) {
  return fc::launch_block(kernels, block, &fc::BlockFunctions::scale_sums, false, nullptr, nullptr, nullptr, stream);
}

extern "C" int fc_block_pull_back(const fc_block_kernels *kernels, const fc_block *block, int32_t for_weights, void *const *products,
                                  void *grad_x, void *grad_y, void *stream) {
  using F = fc::BlockFunctions;
  const auto run = [&](const void *F::*kernel) {
    return fc::launch_block(kernels, block, kernel, false, products, grad_x, grad_y, stream);
  };
  if (!for_weights) return run(&F::pull_back);
  if (fc::is_scaled(*block)) return run(&F::scale_sums_and_pull_back);
  const F &functions = fc::functions_of(kernels, *block, fc::all_of(products), grad_x, grad_y);
  if (functions.pull_back_and_form != nullptr) return run(&F::pull_back_and_form);
  const int done = run(&F::pull_back);
  return done != 0 ? done : fc_block_form(kernels, block, 1, products, stream);
}

extern "C" int fc_block_norm(const fc_block *block, const void *product, void *output, void *saved, void *stream) {
  const auto run = [&](auto variant, const fc::Grades &grades, dim3 grid) -> int {
    using V = decltype(variant);
    using T = typename V::T;
    constexpr auto usual = fc::norm_kernel<T, V::kChannels, V::kType, V::kOperands, V::kThreads>;
    constexpr auto invariant = fc::invariant_norm_kernel<T, V::kChannels, V::kType, V::kOperands, V::kThreads>;
    const auto kernel = !block->norm || grades.are_euclidean() ? usual : invariant;
    return fc::launch(kernel, grid, dim3(fc::norm_threads(V::kThreads)), stream, *block, grades, static_cast<const T *>(product), output,
                      static_cast<T *>(saved));
  };
  return fc::with_rows(*block, run, product, output);
}

extern "C" int fc_block_undo_norm(const fc_block *block, const void *output, const void *grad_output, const void *saved,
                                  void *grad_product, void *stream) {
  const auto run = [&](auto variant, const fc::Grades &grades, dim3 grid) -> int {
    using V = decltype(variant);
    using T = typename V::T;
    constexpr auto usual = fc::undo_norm_kernel<T, V::kChannels, V::kType, V::kOperands, V::kThreads>;
    constexpr auto invariant = fc::undo_invariant_norm_kernel<T, V::kChannels, V::kType, V::kOperands, V::kThreads>;
    const auto kernel = !block->norm || grades.are_euclidean() ? usual : invariant;
    return fc::launch(kernel, grid, dim3(fc::norm_threads(V::kThreads)), stream, *block, grades, output, grad_output,
                      static_cast<const T *>(saved), grad_product);
  };
  return fc::with_rows(*block, run, output, grad_output, grad_product);
}

extern "C" int fc_block_pack(const fc_block_weights *weights, const void *from, void *to, int32_t *scales, fc_dtype from_type,
                             fc_dtype to_type, void *stream) {
  const bool rounds = from_type == FC_F32 && fc::arithmetic(to_type) == FC_F32;
  if (!fc::known(from_type) || !fc::known(to_type) || (from_type != to_type && !rounds)) return FC_ERROR_BAD_CALL;
  if (!fc::valid(*weights) || (scales != nullptr && from_type != FC_F32)) return FC_ERROR_BAD_CALL;
  const int64_t elements = weights->in * weights->out, all = elements * weights->matrices;
  if (all == 0) return 0;
  if (to_type == FC_F64) {
    return fc::launch(fc::pack_kernel<double, 1>, fc::walk(elements, weights->matrices), dim3(fc::kThreads), stream, *weights, from, to,
                      static_cast<int32_t *>(nullptr), from_type, to_type);
  }
  const bool whole = fc::aligned(FC_F32, elements, 4, from, to);
  if (scales != nullptr) {
    const int done = fc::launch(whole ? fc::largest_kernel<4> : fc::largest_kernel<1>, dim3(fc::kLargestCtas), dim3(fc::kThreads),
                                stream, static_cast<const float *>(from), all, scales);
    if (done != 0) return done;
  }
  // Each thread has several vectors, since each CTA finds the scale first.
  const dim3 grid = fc::walk(fc::ceil_div(whole ? elements / 4 : elements, 8), weights->matrices);
  return fc::launch(whole ? fc::pack_kernel<float, 4> : fc::pack_kernel<float, 1>, grid, dim3(fc::kThreads), stream, *weights, from, to,
                    scales, from_type, to_type);
}

extern "C" int fc_block_unpack(const fc_block_weights *weights, const void *from, void *to, int32_t first, int32_t last,
                               int32_t parts, const int32_t *sums, fc_dtype from_type, fc_dtype to_type, void *stream) {
  if (!fc::known(to_type) || from_type != fc::arithmetic(to_type)) return FC_ERROR_BAD_CALL;
  if (!fc::valid(*weights) || parts < 1 || first < 0 || last > weights->matrices) return FC_ERROR_BAD_CALL;
  if (sums != nullptr && to_type != FC_F32) return FC_ERROR_BAD_CALL;
  const int64_t elements = weights->in * weights->out;
  if (elements == 0 || first >= last) return 0;
  const auto run = [&](auto kernel, auto *type, int at_a_time) -> int {
    using T = typename fc::Element<decltype(type)>::Type;
    const dim3 grid = fc::walk(fc::ceil_div(elements, at_a_time), last - first);
    return fc::launch(kernel, grid, dim3(fc::kThreads), stream, *weights, static_cast<const T *>(from), to, first, parts,
                      sums, to_type);
  };
  if (to_type == FC_F64) return run(fc::unpack_kernel<double, 1>, static_cast<double *>(nullptr), 1);
  return fc::aligned(FC_F32, elements, 4, from, to) ? run(fc::unpack_kernel<float, 4>, static_cast<float *>(nullptr), 4)
                                                    : run(fc::unpack_kernel<float, 1>, static_cast<float *>(nullptr), 1);
}

extern "C" int fc_block_rescale(const fc_block_weights *weights, float *of_parts, int32_t first, int32_t last, int32_t parts,
                                const int32_t *sums, void *stream) {
  if (!fc::valid(*weights) || parts < 1 || first < 0 || last > weights->matrices) return FC_ERROR_BAD_CALL;
  const int64_t elements = weights->in * weights->out;
  if (elements == 0 || first >= last) return 0;
  const bool whole = fc::aligned(FC_F32, elements, 4, of_parts);
  // Each thread has several vectors, since most of the time there is nothing to do.
  dim3 grid = fc::walk(fc::ceil_div(whole ? elements / 4 : elements, 8), last - first);
  grid.z = unsigned(parts);
  return fc::launch(whole ? fc::rescale_kernel<4> : fc::rescale_kernel<1>, grid, dim3(fc::kThreads), stream, *weights, of_parts, first,
                    sums);
}
