// Rows by their relations. A thread has neighbouring elements of a row, as many as 16 bytes hold where all rows are aligned to them.
#include "segments.h"

#include <cuda_runtime.h>

#include "skeleton/launch.cuh"
#include "skeleton/memory.cuh"

namespace fc {
namespace {

constexpr int kThreads = 256;
// Rows of a target, on average, from which on the threads of a CTA share them.
constexpr int64_t kShared = 64;
// The most neighbouring groups of elements of a target in a CTA whose threads share rows.
constexpr int kLanes = 32;

__device__ float root(float x) { return sqrtf(x); }
__device__ double root(double x) { return sqrt(x); }

template <class T>
__device__ T factor(fc_reduction reduction, uint32_t count) {
  if (reduction == FC_REDUCTION_SUM || count == 0) return T(1);
  return T(1) / (reduction == FC_REDUCTION_MEAN ? T(count) : root(T(count)));
}

// The factor of a target.
template <class T>
__device__ T factor_of(const fc_segments &call, int64_t target) {
  return factor<T>(call.reduction, call.of.starts[target + 1] - call.of.starts[target]);
}

template <class T, class S, int N>
__global__ void __launch_bounds__(kThreads) gather_kernel(const __grid_constant__ fc_segments call) {
  take_turn();
  const int64_t groups = call.inner / N;
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= call.outer * call.rows * groups) return;
  const int64_t group = at % groups, row = at / groups % call.rows, outer = at / groups / call.rows;
  const uint32_t target = call.of.target[row];
  const S *x = static_cast<const S *>(call.x) + outer * call.targets * call.inner + group * N;
  auto lanes = load_lanes<S, T, N>(x + target * call.inner, call.dtype);
  if (call.minus.target != nullptr) {
    const auto other = load_lanes<S, T, N>(x + call.minus.target[row] * call.inner, call.dtype);
    FC_EACH(N, lanes.v[i] -= other.v[i])
  }
  if (call.reduction != FC_REDUCTION_SUM) {
    const T f = factor_of<T>(call, target);
    FC_EACH(N, lanes.v[i] *= f)
  }
  store_lanes<S, T, N>(static_cast<S *>(call.o) + at * N, lanes, call.dtype);
}

// The sum over the rows of a target, from a first one on with a step, less that of the other relation.
template <class T, class S, int N>
__device__ Lanes<T, N> sum(const fc_segments &call, const S *x, int64_t target, uint32_t first, uint32_t step) {
  Lanes<T, N> sums{};
  uint32_t end = call.of.starts[target + 1];
  for (uint32_t at = call.of.starts[target] + first; at < end; at += step) {
    const auto lanes = load_lanes<S, T, N>(x + call.of.order[at] * call.inner, call.dtype);
    FC_EACH(N, sums.v[i] += lanes.v[i])
  }
  if (call.minus.target == nullptr) return sums;
  end = call.minus.starts[target + 1];
  for (uint32_t at = call.minus.starts[target] + first; at < end; at += step) {
    const auto lanes = load_lanes<S, T, N>(x + call.minus.order[at] * call.inner, call.dtype);
    FC_EACH(N, sums.v[i] -= lanes.v[i])
  }
  return sums;
}

template <class T, class S, int N>
__global__ void __launch_bounds__(kThreads) sum_kernel(const __grid_constant__ fc_segments call) {
  take_turn();
  const int64_t groups = call.inner / N;
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= call.outer * call.targets * groups) return;
  const int64_t group = at % groups, target = at / groups % call.targets, outer = at / groups / call.targets;
  const S *x = static_cast<const S *>(call.x) + outer * call.rows * call.inner + group * N;
  auto sums = sum<T, S, N>(call, x, target, 0, 1);
  if (call.reduction != FC_REDUCTION_SUM) {
    const T f = factor_of<T>(call, target);
    FC_EACH(N, sums.v[i] *= f)
  }
  store_lanes<S, T, N>(static_cast<S *>(call.o) + at * N, sums, call.dtype);
}

// The threads of a CTA are `width` groups of elements, a power of two, times the parts of the rows of one target.
// Parts are halved in a fixed order.
template <class T, class S, int N>
__global__ void __launch_bounds__(kThreads) shared_sum_kernel(const __grid_constant__ fc_segments call, int width) {
  take_turn();
  __shared__ Lanes<T, N> sums[kThreads];
  const int64_t groups = call.inner / N, columns = (groups + width - 1) / width;
  const int64_t column = blockIdx.x % columns, target = blockIdx.x / columns % call.targets;
  const int64_t outer = blockIdx.x / columns / call.targets;
  const int lane = threadIdx.x % width, part = threadIdx.x / width;
  int parts = kThreads / width;
  const int64_t group = column * width + lane;
  const S *x = static_cast<const S *>(call.x) + outer * call.rows * call.inner + group * N;
  Lanes<T, N> own{};
  if (group < groups) own = sum<T, S, N>(call, x, target, part, parts);
  sums[threadIdx.x] = own;
  for (parts /= 2; parts > 0; parts /= 2) {
    __syncthreads();
    if (part < parts) {
      const auto other = sums[threadIdx.x + parts * width];
      FC_EACH(N, own.v[i] += other.v[i])
      sums[threadIdx.x] = own;
    }
  }
  if (part != 0 || group >= groups) return;
  if (call.reduction != FC_REDUCTION_SUM) {
    const T f = factor_of<T>(call, target);
    FC_EACH(N, own.v[i] *= f)
  }
  S *o = static_cast<S *>(call.o) + ((outer * call.targets + target) * groups + group) * N;
  store_lanes<S, T, N>(o, own, call.dtype);
}

// The largest value so far, and its row.
template <class T>
struct Best {
  T value;
  uint32_t row;
};

// The better one of two. A NaN is larger than any number, and of equal values that of the lower row is better.
template <class T>
__device__ Best<T> better(const Best<T> &a, const Best<T> &b) {
  if (b.row == FC_NO_ROW) return a;
  if (a.row == FC_NO_ROW) return b;
  const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
  if (nan_a != nan_b) return nan_a ? a : b;
  if (!nan_a && a.value != b.value) return a.value > b.value ? a : b;
  return a.row < b.row ? a : b;
}

// The largest value of a target, of an element that x points to, from a first row on with a step.
template <class T, class S>
__device__ Best<T> largest(const fc_segments &call, const S *x, int64_t target, uint32_t first, uint32_t step) {
  Best<T> best{T(0), FC_NO_ROW};
  const uint32_t end = call.of.starts[target + 1];
  for (uint32_t at = call.of.starts[target] + first; at < end; at += step) {
    const uint32_t row = call.of.order[at];
    best = better(best, Best<T>{widen(x[row * call.inner], call.dtype), row});
  }
  return best;
}

template <class T, class S>
__global__ void __launch_bounds__(kThreads) largest_kernel(const __grid_constant__ fc_segments call, uint32_t *kept) {
  take_turn();
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= call.outer * call.targets * call.inner) return;
  const int64_t c = at % call.inner, target = at / call.inner % call.targets, outer = at / call.inner / call.targets;
  const S *x = static_cast<const S *>(call.x) + outer * call.rows * call.inner + c;
  kept[at] = largest<T, S>(call, x, target, 0, 1).row;
}

// The threads of a CTA are `width` elements, a power of two, times the parts of the rows of one target.
template <class T, class S>
__global__ void __launch_bounds__(kThreads)
    shared_largest_kernel(const __grid_constant__ fc_segments call, uint32_t *kept, int width) {
  take_turn();
  __shared__ Best<T> found[kThreads];
  const int64_t columns = (call.inner + width - 1) / width;
  const int64_t column = blockIdx.x % columns, target = blockIdx.x / columns % call.targets;
  const int64_t outer = blockIdx.x / columns / call.targets;
  const int lane = threadIdx.x % width, part = threadIdx.x / width;
  int parts = kThreads / width;
  const int64_t c = column * width + lane;
  const S *x = static_cast<const S *>(call.x) + outer * call.rows * call.inner + c;
  Best<T> own{T(0), FC_NO_ROW};
  if (c < call.inner) own = largest<T, S>(call, x, target, part, parts);
  found[threadIdx.x] = own;
  for (parts /= 2; parts > 0; parts /= 2) {
    __syncthreads();
    if (part < parts) {
      own = better(own, found[threadIdx.x + parts * width]);
      found[threadIdx.x] = own;
    }
  }
  if (part != 0 || c >= call.inner) return;
  kept[(outer * call.targets + target) * call.inner + c] = own.row;
}

template <class S>
__global__ void __launch_bounds__(kThreads) pick_kernel(const __grid_constant__ fc_segments call, const uint32_t *kept) {
  take_turn();
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= call.outer * call.targets * call.inner) return;
  const int64_t c = at % call.inner, outer = at / call.inner / call.targets;
  const uint32_t row = kept[at];
  const S *x = static_cast<const S *>(call.x) + outer * call.rows * call.inner + c;
  static_cast<S *>(call.o)[at] = row == FC_NO_ROW ? S{} : x[row * call.inner];
}

template <class S>
__global__ void __launch_bounds__(kThreads) place_kernel(const __grid_constant__ fc_segments call, const uint32_t *kept) {
  take_turn();
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= call.outer * call.rows * call.inner) return;
  const int64_t c = at % call.inner, row = at / call.inner % call.rows, outer = at / call.inner / call.rows;
  const int64_t from = (outer * call.targets + call.of.target[row]) * call.inner + c;
  static_cast<S *>(call.o)[at] = kept[from] == row ? static_cast<const S *>(call.x)[from] : S{};
}

// A thread has an element of the whole.
template <class S>
__global__ void __launch_bounds__(kThreads) columns_kernel(const __grid_constant__ fc_columns call, int64_t width) {
  take_turn();
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= call.rows * width) return;
  const int64_t row = at / width;
  int64_t column = at % width;
  int part = 0;
  while (column >= call.widths[part]) column -= call.widths[part++];
  S *own = static_cast<S *>(call.parts[part]), *whole = static_cast<S *>(call.whole);
  if (own != nullptr) own += row * call.widths[part] + column;
  if (call.apart == 0) {
    whole[at] = own != nullptr ? *own : S{};
  } else if (own != nullptr) {
    *own = whole[at];
  }
}

bool good(const fc_segments &call) {
  const int64_t most = int64_t(1) << 32;
  if (call.outer < 0 || call.rows < 0 || call.targets < 0 || call.inner < 0) return false;
  if (call.rows >= most || call.targets >= most || call.dtype < FC_F32 || call.dtype > FC_F16) return false;
  if (call.reduction < FC_REDUCTION_SUM || call.reduction > FC_REDUCTION_ROOT_COUNT) return false;
  return true;
}

// Whether there is memory for what a call reads.
bool is_there(const fc_segments &call) {
  const auto has_lists = [&](const fc_relation &of) {
    return of.starts != nullptr && (call.rows == 0 || (of.target != nullptr && of.order != nullptr));
  };
  const bool subtracts = call.minus.target != nullptr || call.minus.starts != nullptr || call.minus.order != nullptr;
  return (call.rows == 0 || call.x != nullptr) && has_lists(call.of) && (!subtracts || has_lists(call.minus));
}

// The CTAs of so many threads; 0 if there are too many.
unsigned ctas(int64_t threads) {
  const int64_t ctas = (threads + kThreads - 1) / kThreads;
  return ctas > 0x7fffffff ? 0 : unsigned(ctas);
}

template <class T, class S, int N>
int launch_gather(const fc_segments &call, cudaStream_t stream) {
  const unsigned grid = ctas(call.outer * call.rows * (call.inner / N));
  if (grid == 0) return FC_ERROR_TOO_LARGE;
  return launch_in_turn(gather_kernel<T, S, N>, dim3(grid), dim3(kThreads), 0, stream, call);
}

template <class T, class S, int N>
int launch_sum(const fc_segments &call, cudaStream_t stream) {
  const int64_t groups = call.inner / N;
  if (call.rows < kShared * call.targets) {
    const unsigned grid = ctas(call.outer * call.targets * groups);
    if (grid == 0) return FC_ERROR_TOO_LARGE;
    return launch_in_turn(sum_kernel<T, S, N>, dim3(grid), dim3(kThreads), 0, stream, call);
  }
  int width = 1;
  while (width < kLanes && width < groups) width *= 2;
  const int64_t grid = (groups + width - 1) / width * call.targets * call.outer;
  if (grid > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  return launch_in_turn(shared_sum_kernel<T, S, N>, dim3(unsigned(grid)), dim3(kThreads), 0, stream, call, width);
}

// Whether rows are aligned to so many elements.
template <class S>
bool is_aligned(const fc_segments &call, int elements) {
  const auto bytes = elements * sizeof(S);
  const auto addresses = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.o);
  return call.inner % elements == 0 && addresses % bytes == 0;
}

template <class T, class S, bool Sums>
int launch(const fc_segments &call, cudaStream_t stream) {
  constexpr int kMost = 16 / sizeof(S);
  if (is_aligned<S>(call, kMost)) {
    return Sums ? launch_sum<T, S, kMost>(call, stream) : launch_gather<T, S, kMost>(call, stream);
  }
  return Sums ? launch_sum<T, S, 1>(call, stream) : launch_gather<T, S, 1>(call, stream);
}

template <bool Sums>
int run(const fc_segments *call, void *stream) {
  if (call == nullptr || !good(*call)) return FC_ERROR_BAD_CALL;
  if (call->outer * (Sums ? call->targets : call->rows) * call->inner == 0) return 0;
  if (!is_there(*call) || call->o == nullptr) return FC_ERROR_BAD_CALL;
  const auto on = static_cast<cudaStream_t>(stream);
  switch (call->dtype) {
    case FC_F64: return launch<double, double, Sums>(*call, on);
    case FC_F32: return launch<float, float, Sums>(*call, on);
    default: return launch<float, Bits16, Sums>(*call, on);
  }
}

template <class T, class S>
int launch_largest(const fc_segments &call, uint32_t *kept, cudaStream_t stream) {
  if (call.rows < kShared * call.targets) {
    const unsigned grid = ctas(call.outer * call.targets * call.inner);
    if (grid == 0) return FC_ERROR_TOO_LARGE;
    return launch_in_turn(largest_kernel<T, S>, dim3(grid), dim3(kThreads), 0, stream, call, kept);
  }
  int width = 1;
  while (width < kLanes && width < call.inner) width *= 2;
  const int64_t grid = (call.inner + width - 1) / width * call.targets * call.outer;
  if (grid > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  return launch_in_turn(shared_largest_kernel<T, S>, dim3(unsigned(grid)), dim3(kThreads), 0, stream, call, kept, width);
}

// Whether a call is one of largest values, which nothing is subtracted from or divided by.
bool good_largest(const fc_segments *call) {
  if (call == nullptr || !good(*call) || call->reduction != FC_REDUCTION_SUM) return false;
  return call->minus.target == nullptr && call->minus.starts == nullptr && call->minus.order == nullptr;
}

// Runs a kernel with a thread for each of so many results of a row or target.
template <class Kernel>
int run_kept(const fc_segments *call, const uint32_t *kept, int64_t results, void *stream, Kernel *kernel) {
  if (call->outer * results * call->inner == 0) return 0;
  if (!is_there(*call) || call->o == nullptr || kept == nullptr) return FC_ERROR_BAD_CALL;
  const unsigned grid = ctas(call->outer * results * call->inner);
  if (grid == 0) return FC_ERROR_TOO_LARGE;
  return launch_in_turn(kernel, dim3(grid), dim3(kThreads), 0, static_cast<cudaStream_t>(stream), *call, kept);
}

}  // namespace
}  // namespace fc

extern "C" int fc_copy_columns(const fc_columns *call, void *stream) {
  if (call == nullptr || call->count < 0 || call->count > FC_COLUMN_PARTS || call->rows < 0) return FC_ERROR_BAD_CALL;
  if (call->dtype < FC_F32 || call->dtype > FC_F16) return FC_ERROR_BAD_CALL;
  int64_t width = 0;
  for (int part = 0; part < call->count; part++) {
    if (call->widths[part] < 0) return FC_ERROR_BAD_CALL;
    width += call->widths[part];
  }
  if (call->rows * width == 0) return 0;
  if (call->whole == nullptr) return FC_ERROR_BAD_CALL;
  const unsigned grid = fc::ctas(call->rows * width);
  if (grid == 0) return FC_ERROR_TOO_LARGE;
  const auto launch = [&](auto *kernel) { return fc::launch_in_turn(kernel, dim3(grid), dim3(fc::kThreads), 0, stream, *call, width); };
  switch (call->dtype) {
    case FC_F64: return launch(fc::columns_kernel<double>);
    case FC_F32: return launch(fc::columns_kernel<float>);
    default: return launch(fc::columns_kernel<fc::Bits16>);
  }
}

extern "C" int fc_segment_largest(const fc_segments *call, uint32_t *kept, void *stream) {
  if (!fc::good_largest(call)) return FC_ERROR_BAD_CALL;
  if (call->outer * call->targets * call->inner == 0) return 0;
  if (!fc::is_there(*call) || kept == nullptr) return FC_ERROR_BAD_CALL;
  const auto on = static_cast<cudaStream_t>(stream);
  switch (call->dtype) {
    case FC_F64: return fc::launch_largest<double, double>(*call, kept, on);
    case FC_F32: return fc::launch_largest<float, float>(*call, kept, on);
    default: return fc::launch_largest<float, fc::Bits16>(*call, kept, on);
  }
}

extern "C" int fc_segment_pick(const fc_segments *call, const uint32_t *kept, void *stream) {
  if (!fc::good_largest(call)) return FC_ERROR_BAD_CALL;
  switch (call->dtype) {
    case FC_F64: return fc::run_kept(call, kept, call->targets, stream, fc::pick_kernel<double>);
    case FC_F32: return fc::run_kept(call, kept, call->targets, stream, fc::pick_kernel<float>);
    default: return fc::run_kept(call, kept, call->targets, stream, fc::pick_kernel<fc::Bits16>);
  }
}

extern "C" int fc_segment_place(const fc_segments *call, const uint32_t *kept, void *stream) {
  if (!fc::good_largest(call)) return FC_ERROR_BAD_CALL;
  switch (call->dtype) {
    case FC_F64: return fc::run_kept(call, kept, call->rows, stream, fc::place_kernel<double>);
    case FC_F32: return fc::run_kept(call, kept, call->rows, stream, fc::place_kernel<float>);
    default: return fc::run_kept(call, kept, call->rows, stream, fc::place_kernel<fc::Bits16>);
  }
}

extern "C" int fc_segment_gather(const fc_segments *call, void *stream) { return fc::run<false>(call, stream); }

extern "C" int fc_segment_sum(const fc_segments *call, void *stream) { return fc::run<true>(call, stream); }
