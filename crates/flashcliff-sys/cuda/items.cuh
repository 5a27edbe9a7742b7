// What the kernels of items share: access to items, checks, and the sums of their norms.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "items.h"
#include "skeleton/memory.cuh"

namespace fc {
namespace {

// Where the elements of a tensor lie, for the threads.
template <class T, class S>
struct Items {
  S *multivectors;
  int64_t blade_stride, row_stride;
  S *scalars;
  int64_t scalar_stride;
  int dtype;

  FC_INLINE Items(const fc_item_tensor &t, int type)
      : multivectors(static_cast<S *>(t.multivectors)),
        blade_stride(t.blade_stride),
        row_stride(t.row_stride),
        scalars(static_cast<S *>(t.scalars)),
        scalar_stride(t.scalar_stride),
        dtype(type) {}

  template <int V>
  FC_INLINE Lanes<T, V> load(int64_t row, int blade, int64_t channel) const {
    return load_lanes<S, T, V>(multivectors + blade * blade_stride + row * row_stride + channel, dtype);
  }
  template <int V>
  FC_INLINE void store(int64_t row, int blade, int64_t channel, const Lanes<T, V> &value) const {
    store_lanes<S, T, V>(multivectors + blade * blade_stride + row * row_stride + channel, value, dtype);
  }
  template <int V>
  FC_INLINE Lanes<T, V> load_scalars(int64_t row, int64_t at) const {
    return load_lanes<S, T, V>(scalars + row * scalar_stride + at, dtype);
  }
  template <int V>
  FC_INLINE void store_scalars(int64_t row, int64_t at, const Lanes<T, V> &value) const {
    store_lanes<S, T, V>(scalars + row * scalar_stride + at, value, dtype);
  }
};

// The dimensions of an algebra of so many blades.
__host__ __device__ constexpr int dimensions(int blades) {
  int dim = 0;
  while ((1 << dim) < blades) dim++;
  return dim;
}

// The blades that are the last of their grade, as a set of bits; blades are in the order of their grades.
template <int Blades>
__host__ __device__ constexpr uint32_t last_of_grades() {
  constexpr int dim = dimensions(Blades);
  uint32_t found = 0;
  for (int grade = 0, count = 1, end = 0; grade <= dim; grade++) {
    end += count;
    found |= uint32_t(1) << (end - 1);
    count = count * (dim - grade) / (grade + 1);
  }
  return found;
}

// The sum over grades of the magnitudes of their squared norms. `norms` are the squared norms of blades, here and below.
template <int Blades, class T>
FC_INLINE T grade_magnitudes(const T (&x)[Blades], const T *norms) {
  constexpr uint32_t kLast = last_of_grades<Blades>();
  T sum = 0, grade = 0;
#pragma unroll
  for (int b = 0; b < Blades; b++) {
    grade += norms[b] * x[b] * x[b];
    if (kLast >> b & 1) {
      sum += grade < 0 ? -grade : grade;
      grade = 0;
    }
  }
  return sum;
}

// The squared norm of all blades together.
template <int Blades, class T>
FC_INLINE T squared_norm(const T (&x)[Blades], const T *norms) {
  T sum = 0;
#pragma unroll
  for (int b = 0; b < Blades; b++) sum += norms[b] * x[b] * x[b];
  return sum;
}

// For each blade its norm times the sign of the squared norm of its grade.
template <int Blades, class T>
FC_INLINE void grade_slopes(const T (&x)[Blades], const T *norms, T (&slopes)[Blades]) {
  constexpr uint32_t kLast = last_of_grades<Blades>();
  T grade = 0;
#pragma unroll
  for (int b = 0; b < Blades; b++) {
    grade += norms[b] * x[b] * x[b];
    slopes[b] = grade;
    if (kLast >> b & 1) grade = 0;
  }
  T sign = 0;
#pragma unroll
  for (int b = Blades - 1; b >= 0; b--) {
    if (kLast >> b & 1) sign = slopes[b] > 0 ? T(1) : (slopes[b] < 0 ? T(-1) : T(0));
    slopes[b] = sign * norms[b];
  }
}

FC_INLINE float reciprocal_root(float x) { return rsqrtf(x); }
FC_INLINE double reciprocal_root(double x) { return ::rsqrt(x); }
FC_INLINE float larger(float a, float b) { return a < b ? b : a; }
FC_INLINE double larger(double a, double b) { return a < b ? b : a; }

// The quotient and the rest, by a division of 32 bits where that is enough.
FC_INLINE int64_t divided(int64_t a, int64_t by, int64_t *rest) {
  const int64_t q = (uint64_t(a) | uint64_t(by)) >> 32 ? a / by : int64_t(uint32_t(a) / uint32_t(by));
  *rest = a - q * by;
  return q;
}

// Whether the sizes are valid for a call, and the launch can count its rows.
inline bool good(const fc_items *items) {
  if (items == nullptr) return false;
  const bool blades = items->blades == 4 || items->blades == 8 || items->blades == 16 || items->blades == 32;
  const bool dtype = items->dtype >= FC_F32 && items->dtype <= FC_F16;
  return blades && dtype && items->rows >= 0 && items->channels >= 0 && items->scalars >= 0;
}

inline bool good(const fc_items &items, const fc_item_tensor *t) {
  if (t == nullptr) return false;
  if (items.rows == 0) return true;
  return (items.channels == 0 || t->multivectors != nullptr) && (items.scalars == 0 || t->scalars != nullptr);
}

// Whether items of a type can have features of another.
inline bool good_features(int items, int features) {
  return features == items || (items == FC_F32 && (features == FC_BF16 || features == FC_F16));
}

inline int element_bytes(int dtype) { return dtype == FC_F64 ? 8 : (dtype == FC_F32 ? 4 : 2); }

// Whether pairs of neighbouring elements of a tensor can be read at once.
inline bool takes_pairs(const fc_items &items, const fc_item_tensor *t) {
  if (t == nullptr) return true;
  const uintptr_t bytes = uintptr_t(2 * element_bytes(items.dtype));
  const auto even = [](int64_t n) { return n % 2 == 0; };
  const auto at = [&](const void *p) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; };
  return even(items.channels) && even(items.scalars) && even(t->blade_stride) && even(t->row_stride) &&
         even(t->scalar_stride) && at(t->multivectors) && at(t->scalars);
}

inline int64_t ceil_quotient(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Calls f with the number of blades and, as a null pointer, the arithmetic type.
template <class F>
int with_types(const fc_items &items, F &&f) {
  const auto blades = [&](auto *type) {
    switch (items.blades) {
      case 4: return f(std::integral_constant<int, 4>{}, type);
      case 8: return f(std::integral_constant<int, 8>{}, type);
      case 16: return f(std::integral_constant<int, 16>{}, type);
      default: return f(std::integral_constant<int, 32>{}, type);
    }
  };
  if (items.dtype == FC_F64) return blades(static_cast<double *>(nullptr));
  return blades(static_cast<float *>(nullptr));
}

}  // namespace
}  // namespace fc
