// The parts of an invariant network that are not operators.
#include "network.h"

#include <cuda_runtime.h>

namespace fc {
namespace {

constexpr int kThreads = 256;
// The threads of the only CTA of the error.
constexpr int kErrorThreads = 1024;

__device__ float root(float x) { return sqrtf(x); }
__device__ double root(double x) { return sqrt(x); }
__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

// The element of a thread.
__device__ int64_t place() { return int64_t(blockIdx.x) * kThreads + threadIdx.x; }

template <typename T>
__global__ void __launch_bounds__(kThreads)
    points(const T *from, T *to, int64_t rows, int64_t dim) {
  const int64_t at = place();
  if (at >= rows * (dim + 1)) return;
  const int64_t blade = at / rows, row = at % rows;
  to[at] = blade == 0 ? T(0) : from[row * dim + blade - 1];
}

template <typename T>
__global__ void __launch_bounds__(kThreads) norm(const T *x, T *o, int64_t blades, int64_t rows) {
  const int64_t row = place();
  if (row >= rows) return;
  T sum = 0;
  for (int64_t blade = 0; blade < blades; blade++) {
    const T value = x[blade * rows + row];
    sum += value * value;
  }
  o[row] = root(sum);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    norm_backward(const T *x, const T *o, const T *grad_o, T *grad_x, int64_t blades, int64_t rows) {
  const int64_t at = place();
  if (at >= blades * rows) return;
  const int64_t row = at % rows;
  const T norm = o[row];
  grad_x[at] = norm == T(0) ? T(0) : grad_o[row] / norm * x[at];
}

template <typename T>
__global__ void __launch_bounds__(kThreads) activate(const T *x, T *o, int64_t count, fc_activation kind) {
  const int64_t at = place();
  if (at >= count) return;
  const T value = x[at];
  if (kind == FC_ACTIVATION_SILU) {
    o[at] = value * sigmoid(value);
  } else {
    o[at] = value < T(0) ? T(0) : value;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    activate_backward(const T *x, const T *grad_o, T *grad_x, int64_t count, fc_activation kind) {
  const int64_t at = place();
  if (at >= count) return;
  const T value = x[at];
  T slope;
  if (kind == FC_ACTIVATION_SILU) {
    const T s = sigmoid(value);
    slope = s * (T(1) + value * (T(1) - s));
  } else {
    slope = value > T(0) ? T(1) : T(0);
  }
  grad_x[at] = grad_o[at] * slope;
}

// One CTA: a thread adds its elements, then the threads' sums are halved in a fixed order.
template <typename T>
__global__ void __launch_bounds__(kErrorThreads)
    squared_error(const T *y, const T *target, T *loss, T *grad, int64_t count, double scale, int adds) {
  __shared__ double sums[kErrorThreads];
  double sum = 0;
  for (int64_t at = threadIdx.x; at < count; at += kErrorThreads) {
    const T difference = y[at] - target[at];
    grad[at] = T(2 * scale) * difference;
    sum += double(difference) * double(difference);
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kErrorThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *loss = T((adds ? double(*loss) : 0.0) + scale * sums[0]);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) accumulate(T *to, const T *from, int64_t count) {
  const int64_t at = place();
  if (at < count) to[at] += from[at];
}

// The CTAs for a thread an element; 0 if there are too many.
unsigned ctas(int64_t count) {
  const int64_t ctas = (count + kThreads - 1) / kThreads;
  return ctas > 0x7fffffff ? 0 : unsigned(ctas);
}

// Calls `run` with a number of the type.
template <typename Run>
int with(fc_dtype dtype, int64_t count, Run run) {
  if (count < 0 || (dtype != FC_F32 && dtype != FC_F64)) return FC_ERROR_BAD_CALL;
  if (count == 0) return 0;
  if (ctas(count) == 0) return FC_ERROR_TOO_LARGE;
  if (dtype == FC_F64) {
    run(double(0));
  } else {
    run(float(0));
  }
  return cudaGetLastError();
}

}  // namespace
}  // namespace fc

extern "C" int fc_points(const void *from, void *to, int64_t batch, int64_t points, int64_t dim, fc_dtype dtype, void *stream) {
  if (from == nullptr || to == nullptr || batch < 0 || points < 0 || dim < 0) return FC_ERROR_BAD_CALL;
  const int64_t rows = batch * points, count = rows * (dim + 1);
  return fc::with(dtype, count, [&](auto number) {
    using T = decltype(number);
    fc::points<T><<<fc::ctas(count), fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T *>(from), static_cast<T *>(to), rows, dim);
  });
}

extern "C" int fc_blade_norm(const void *x, void *o, int64_t blades, int64_t rows, fc_dtype dtype, void *stream) {
  if (x == nullptr || o == nullptr || blades < 1) return FC_ERROR_BAD_CALL;
  return fc::with(dtype, rows, [&](auto number) {
    using T = decltype(number);
    fc::norm<T><<<fc::ctas(rows), fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T *>(x), static_cast<T *>(o), blades, rows);
  });
}

extern "C" int fc_blade_norm_backward(const void *x, const void *o, const void *grad_o, void *grad_x, int64_t blades,
                                      int64_t rows, fc_dtype dtype, void *stream) {
  if (x == nullptr || o == nullptr || grad_o == nullptr || grad_x == nullptr || blades < 1 || rows < 0) {
    return FC_ERROR_BAD_CALL;
  }
  const int64_t count = blades * rows;
  return fc::with(dtype, count, [&](auto number) {
    using T = decltype(number);
    fc::norm_backward<T><<<fc::ctas(count), fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T *>(x), static_cast<const T *>(o), static_cast<const T *>(grad_o), static_cast<T *>(grad_x),
        blades, rows);
  });
}

extern "C" int fc_activate(const void *x, void *o, int64_t count, fc_activation kind, fc_dtype dtype, void *stream) {
  if (x == nullptr || o == nullptr) return FC_ERROR_BAD_CALL;
  return fc::with(dtype, count, [&](auto number) {
    using T = decltype(number);
    fc::activate<T><<<fc::ctas(count), fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T *>(x), static_cast<T *>(o), count, kind);
  });
}

extern "C" int fc_activate_backward(const void *x, const void *grad_o, void *grad_x, int64_t count, fc_activation kind,
                                    fc_dtype dtype, void *stream) {
  if (x == nullptr || grad_o == nullptr || grad_x == nullptr) return FC_ERROR_BAD_CALL;
  return fc::with(dtype, count, [&](auto number) {
    using T = decltype(number);
    fc::activate_backward<T><<<fc::ctas(count), fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T *>(x), static_cast<const T *>(grad_o), static_cast<T *>(grad_x), count, kind);
  });
}

extern "C" int fc_squared_error(const void *y, const void *target, void *loss, void *grad, int64_t count, double scale,
                                int adds, fc_dtype dtype, void *stream) {
  if (y == nullptr || target == nullptr || loss == nullptr || grad == nullptr) return FC_ERROR_BAD_CALL;
  return fc::with(dtype, count, [&](auto number) {
    using T = decltype(number);
    fc::squared_error<T><<<1, fc::kErrorThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T *>(y), static_cast<const T *>(target), static_cast<T *>(loss), static_cast<T *>(grad), count,
        scale, adds);
  });
}

extern "C" int fc_accumulate(void *to, const void *from, int64_t count, fc_dtype dtype, void *stream) {
  if (to == nullptr || from == nullptr) return FC_ERROR_BAD_CALL;
  return fc::with(dtype, count, [&](auto number) {
    using T = decltype(number);
    fc::accumulate<T><<<fc::ctas(count), fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<T *>(to), static_cast<const T *>(from), count);
  });
}
