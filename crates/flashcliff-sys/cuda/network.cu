// The parts of an invariant network that are not operators.
#include "network.h"

#include <cuda_runtime.h>

#include <type_traits>

#include "skeleton/memory.cuh"

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

// The type in which elements are computed.
template <class S>
using Wide = std::conditional_t<std::is_same_v<S, double>, double, float>;

// An array of elements in memory, read and written as numbers.
template <class S>
struct Array {
  S *data;
  int dtype;

  __device__ Wide<S> operator[](int64_t at) const { return widen(data[at], dtype); }
  __device__ void put(int64_t at, Wide<S> value) const {
    if constexpr (std::is_same_v<S, Bits16>) {
      data[at] = Narrow<S, float>::from(value, dtype);
    } else {
      data[at] = value;
    }
  }
};

template <class From, class To>
__global__ void __launch_bounds__(kThreads) points(Array<From> from, Array<To> to, int64_t rows, int64_t dim) {
  const int64_t at = place();
  if (at >= rows * (dim + 1)) return;
  const int64_t blade = at / rows, row = at % rows;
  to.put(at, blade == 0 ? Wide<To>(0) : from[row * dim + blade - 1]);
}

template <class X, class O>
__global__ void __launch_bounds__(kThreads) norm(Array<X> x, Array<O> o, int64_t blades, int64_t rows) {
  const int64_t row = place();
  if (row >= rows) return;
  Wide<X> sum = 0;
  for (int64_t blade = 0; blade < blades; blade++) {
    const Wide<X> value = x[blade * rows + row];
    sum += value * value;
  }
  o.put(row, root(sum));
}

template <class X, class O>
__global__ void __launch_bounds__(kThreads)
    norm_backward(Array<X> x, Array<O> o, Array<O> grad_o, Array<X> grad_x, int64_t blades, int64_t rows) {
  using T = Wide<X>;
  const int64_t at = place();
  if (at >= blades * rows) return;
  const int64_t row = at % rows;
  const T norm = o[row];
  grad_x.put(at, norm == T(0) ? T(0) : grad_o[row] / norm * x[at]);
}

template <class X, class O>
__global__ void __launch_bounds__(kThreads) activate(Array<X> x, Array<O> o, int64_t count, fc_activation kind) {
  using T = Wide<X>;
  const int64_t at = place();
  if (at >= count) return;
  const T value = x[at];
  if (kind == FC_ACTIVATION_SILU) {
    o.put(at, value * sigmoid(value));
  } else {
    o.put(at, value < T(0) ? T(0) : value);
  }
}

template <class X, class O>
__global__ void __launch_bounds__(kThreads)
    activate_backward(Array<X> x, Array<O> grad_o, Array<X> grad_x, int64_t count, fc_activation kind) {
  using T = Wide<X>;
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
  grad_x.put(at, grad_o[at] * slope);
}

// One CTA: a thread adds its elements, then the threads' sums are halved in a fixed order.
template <typename T>
__global__ void __launch_bounds__(kErrorThreads)
    squared_error(const T *y, const T *target, T *loss, T *grad, int64_t count, double scale, const double *loss_scale,
                  int adds) {
  __shared__ double sums[kErrorThreads];
  const T slope = T(2 * scale * (loss_scale != nullptr ? *loss_scale : 1.0));
  double sum = 0;
  for (int64_t at = threadIdx.x; at < count; at += kErrorThreads) {
    const T difference = y[at] - target[at];
    grad[at] = slope * difference;
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

// Without a y (null) it is 0.
template <class X, class O>
__global__ void __launch_bounds__(kThreads)
    scaled_sum(Array<X> x, Array<X> y, Array<O> o, int64_t count, Wide<X> scale) {
  const int64_t at = place();
  if (at >= count) return;
  o.put(at, scale * (y.data != nullptr ? x[at] + y[at] : x[at]));
}

template <class X, class O>
__global__ void __launch_bounds__(kThreads) blade(Array<X> x, Array<O> o, int64_t blade, int64_t rows) {
  const int64_t row = place();
  if (row < rows) o.put(row, x[blade * rows + row]);
}

template <class X, class O>
__global__ void __launch_bounds__(kThreads)
    blade_backward(Array<O> grad_o, Array<X> grad_x, int64_t blade, int64_t count, int64_t rows) {
  const int64_t at = place();
  if (at >= count) return;
  grad_x.put(at, at / rows == blade ? Wide<X>(grad_o[at % rows]) : Wide<X>(0));
}

// A thread writes an element, so that writes are contiguous.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    reverse_axes(const T *from, T *to, int64_t first, int64_t middle, int64_t last) {
  const int64_t at = place();
  if (at >= first * middle * last) return;
  const int64_t i = at % first, j = at / first % middle, k = at / first / middle;
  to[at] = from[(i * middle + j) * last + k];
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

bool has_16_bits(fc_dtype dtype) { return dtype == FC_BF16 || dtype == FC_F16; }

// Checks a number of elements.
int checked(int64_t count) {
  if (count < 0) return FC_ERROR_BAD_CALL;
  return count > 0 && ctas(count) == 0 ? FC_ERROR_TOO_LARGE : 0;
}

// Calls `run` with a number of the type.
template <typename Run>
int with(fc_dtype dtype, int64_t count, Run run) {
  if (dtype != FC_F32 && dtype != FC_F64) return FC_ERROR_BAD_CALL;
  if (const int error = checked(count)) return error;
  if (count == 0) return 0;
  if (dtype == FC_F64) {
    run(double(0));
  } else {
    run(float(0));
  }
  return cudaGetLastError();
}

// Calls `run` with an element of each of two types.
template <typename Run>
int with(fc_dtype first, fc_dtype second, int64_t count, Run run) {
  const bool is_f64 = first == FC_F64 && second == FC_F64;
  if (!is_f64 && !((first == FC_F32 || has_16_bits(first)) && (second == FC_F32 || has_16_bits(second)))) {
    return FC_ERROR_BAD_CALL;
  }
  if (has_16_bits(first) && has_16_bits(second) && first != second) return FC_ERROR_BAD_CALL;
  if (const int error = checked(count)) return error;
  if (count == 0) return 0;
  if (is_f64) {
    run(double(0), double(0));
  } else if (first == FC_F32 && second == FC_F32) {
    run(float(0), float(0));
  } else if (first == FC_F32) {
    run(float(0), Bits16{});
  } else if (second == FC_F32) {
    run(Bits16{}, float(0));
  } else {
    run(Bits16{}, Bits16{});
  }
  return cudaGetLastError();
}

// An array that a kernel reads. None of its elements is written.
template <class S>
Array<S> array(const void *data, fc_dtype dtype) {
  return {static_cast<S *>(const_cast<void *>(data)), int(dtype)};
}

}  // namespace
}  // namespace fc

extern "C" int fc_points(const void *from, void *to, int64_t batch, int64_t points, int64_t dim, fc_dtype from_dtype,
                         fc_dtype to_dtype, void *stream) {
  if (from == nullptr || to == nullptr || batch < 0 || points < 0 || dim < 0) return FC_ERROR_BAD_CALL;
  const int64_t rows = batch * points, count = rows * (dim + 1);
  return fc::with(from_dtype, to_dtype, count, [&](auto own, auto other) {
    using From = decltype(own);
    using To = decltype(other);
    fc::points<From, To><<<fc::ctas(count), fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        fc::array<From>(from, from_dtype), fc::array<To>(to, to_dtype), rows, dim);
  });
}

extern "C" int fc_blade_norm(const void *x, void *o, int64_t blades, int64_t rows, fc_dtype x_dtype, fc_dtype o_dtype,
                             void *stream) {
  if (x == nullptr || o == nullptr || blades < 1) return FC_ERROR_BAD_CALL;
  return fc::with(x_dtype, o_dtype, rows, [&](auto own, auto other) {
    using X = decltype(own);
    using O = decltype(other);
    fc::norm<X, O><<<fc::ctas(rows), fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        fc::array<X>(x, x_dtype), fc::array<O>(o, o_dtype), blades, rows);
  });
}

extern "C" int fc_blade_norm_backward(const void *x, const void *o, const void *grad_o, void *grad_x, int64_t blades,
                                      int64_t rows, fc_dtype x_dtype, fc_dtype o_dtype, void *stream) {
  if (x == nullptr || o == nullptr || grad_o == nullptr || grad_x == nullptr || blades < 1 || rows < 0) {
    return FC_ERROR_BAD_CALL;
  }
  const int64_t count = blades * rows;
  return fc::with(x_dtype, o_dtype, count, [&](auto own, auto other) {
    using X = decltype(own);
    using O = decltype(other);
    fc::norm_backward<X, O><<<fc::ctas(count), fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        fc::array<X>(x, x_dtype), fc::array<O>(o, o_dtype), fc::array<O>(grad_o, o_dtype), fc::array<X>(grad_x, x_dtype),
        blades, rows);
  });
}

extern "C" int fc_activate(const void *x, void *o, int64_t count, fc_activation kind, fc_dtype x_dtype, fc_dtype o_dtype,
                           void *stream) {
  if (x == nullptr || o == nullptr) return FC_ERROR_BAD_CALL;
  return fc::with(x_dtype, o_dtype, count, [&](auto own, auto other) {
    using X = decltype(own);
    using O = decltype(other);
    fc::activate<X, O><<<fc::ctas(count), fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        fc::array<X>(x, x_dtype), fc::array<O>(o, o_dtype), count, kind);
  });
}

extern "C" int fc_activate_backward(const void *x, const void *grad_o, void *grad_x, int64_t count, fc_activation kind,
                                    fc_dtype x_dtype, fc_dtype o_dtype, void *stream) {
  if (x == nullptr || grad_o == nullptr || grad_x == nullptr) return FC_ERROR_BAD_CALL;
  return fc::with(x_dtype, o_dtype, count, [&](auto own, auto other) {
    using X = decltype(own);
    using O = decltype(other);
    fc::activate_backward<X, O><<<fc::ctas(count), fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        fc::array<X>(x, x_dtype), fc::array<O>(grad_o, o_dtype), fc::array<X>(grad_x, x_dtype), count, kind);
  });
}

extern "C" int fc_squared_error(const void *y, const void *target, void *loss, void *grad, int64_t count, double scale,
                                const double *loss_scale, int adds, fc_dtype dtype, void *stream) {
  if (y == nullptr || target == nullptr || loss == nullptr || grad == nullptr) return FC_ERROR_BAD_CALL;
  return fc::with(dtype, count, [&](auto number) {
    using T = decltype(number);
    fc::squared_error<T><<<1, fc::kErrorThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T *>(y), static_cast<const T *>(target), static_cast<T *>(loss), static_cast<T *>(grad), count,
        scale, loss_scale, adds);
  });
}

extern "C" int fc_scaled_sum(const void *x, const void *y, void *o, int64_t count, double scale, fc_dtype x_dtype,
                             fc_dtype o_dtype, void *stream) {
  if (x == nullptr || o == nullptr) return FC_ERROR_BAD_CALL;
  return fc::with(x_dtype, o_dtype, count, [&](auto own, auto other) {
    using X = decltype(own);
    using O = decltype(other);
    fc::scaled_sum<X, O><<<fc::ctas(count), fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        fc::array<X>(x, x_dtype), fc::array<X>(y, x_dtype), fc::array<O>(o, o_dtype), count, fc::Wide<X>(scale));
  });
}

extern "C" int fc_blade(const void *x, void *o, int64_t blade, int64_t rows, fc_dtype x_dtype, fc_dtype o_dtype, void *stream) {
  if (x == nullptr || o == nullptr || blade < 0) return FC_ERROR_BAD_CALL;
  return fc::with(x_dtype, o_dtype, rows, [&](auto own, auto other) {
    using X = decltype(own);
    using O = decltype(other);
    fc::blade<X, O><<<fc::ctas(rows), fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        fc::array<X>(x, x_dtype), fc::array<O>(o, o_dtype), blade, rows);
  });
}

extern "C" int fc_blade_backward(const void *grad_o, void *grad_x, int64_t blade, int64_t blades, int64_t rows,
                                 fc_dtype x_dtype, fc_dtype o_dtype, void *stream) {
  if (grad_o == nullptr || grad_x == nullptr || blade < 0 || blade >= blades || rows < 0) return FC_ERROR_BAD_CALL;
  const int64_t count = blades * rows;
  return fc::with(x_dtype, o_dtype, count, [&](auto own, auto other) {
    using X = decltype(own);
    using O = decltype(other);
    fc::blade_backward<X, O><<<fc::ctas(count), fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        fc::array<O>(grad_o, o_dtype), fc::array<X>(grad_x, x_dtype), blade, count, rows);
  });
}

extern "C" int fc_reverse_axes(const void *from, void *to, int64_t first, int64_t middle, int64_t last, fc_dtype dtype,
                               void *stream) {
  if (from == nullptr || to == nullptr || first < 0 || middle < 0 || last < 0) return FC_ERROR_BAD_CALL;
  const int64_t count = first * middle * last;
  const auto run = [&](auto number) {
    using T = decltype(number);
    fc::reverse_axes<T><<<fc::ctas(count), fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T *>(from), static_cast<T *>(to), first, middle, last);
  };
  if (!fc::has_16_bits(dtype)) return fc::with(dtype, count, run);
  if (const int error = fc::checked(count)) return error;
  // Elements are only moved, so both types of 16 bits are one.
  if (count > 0) run(uint16_t(0));
  return cudaGetLastError();
}

extern "C" int fc_accumulate(void *to, const void *from, int64_t count, fc_dtype dtype, void *stream) {
  if (to == nullptr || from == nullptr) return FC_ERROR_BAD_CALL;
  return fc::with(dtype, count, [&](auto number) {
    using T = decltype(number);
    fc::accumulate<T><<<fc::ctas(count), fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<T *>(to), static_cast<const T *>(from), count);
  });
}
