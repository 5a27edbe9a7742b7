// Sines, cosines and exponentials; the formulas of crates/flashcliff-kernels/src/simd/math/trigonometry.rs. The
// functions of the CUDA library take large angles to small ones in local memory.
#pragma once

#include "lanes.cuh"

namespace fc {

// What an angle is for a type: the largest one, and a number of quarters of a turn subtracted from one.
template <class T> struct Angle;

template <> struct Angle<float> {
  static constexpr float kLargest = 65536.0f;
  static FC_INLINE float without(float n, float x) {
    x = fmaf(n, -1.5703125f, x);
    x = fmaf(n, -0.0004825592041015625f, x);
    x = fmaf(n, -1.2665987014770508e-06f, x);
    x = fmaf(n, -9.89530235528946e-10f, x);
    return fmaf(n, -2.5633440682570896e-12f, x);
  }
  static FC_INLINE float nearest(float x) { return rintf(x); }
  static FC_INLINE float sine(float t) {
    float q = 2.755731884462875e-06f;
    q = fmaf(q, t, -0.00019841270113829523f);
    q = fmaf(q, t, 0.008333333767950535f);
    return fmaf(q, t, -0.1666666716337204f);
  }
  static FC_INLINE float cosine(float t) {
    float q = -2.755731998149713e-07f;
    q = fmaf(q, t, 2.4801587642286904e-05f);
    q = fmaf(q, t, -0.0013888889225199819f);
    return fmaf(q, t, 0.0416666679084301f);
  }
};

template <> struct Angle<double> {
  static constexpr double kLargest = 134217728.0;
  static FC_INLINE double without(double n, double x) {
    x = ::fma(n, -1.5707963109016418, x);
    x = ::fma(n, -1.5893254712295857e-08, x);
    return ::fma(n, -6.123233995736766e-17, x);
  }
  static FC_INLINE double nearest(double x) { return ::rint(x); }
  static FC_INLINE double sine(double t) {
    double q = 2.8114572543455206e-15;
    q = ::fma(q, t, -7.647163731819816e-13);
    q = ::fma(q, t, 1.6059043836821613e-10);
    q = ::fma(q, t, -2.505210838544172e-08);
    q = ::fma(q, t, 2.7557319223985893e-06);
    q = ::fma(q, t, -0.0001984126984126984);
    q = ::fma(q, t, 0.008333333333333333);
    return ::fma(q, t, -0.16666666666666666);
  }
  static FC_INLINE double cosine(double t) {
    double q = 4.779477332387385e-14;
    q = ::fma(q, t, -1.1470745597729725e-11);
    q = ::fma(q, t, 2.08767569878681e-09);
    q = ::fma(q, t, -2.755731922398589e-07);
    q = ::fma(q, t, 2.48015873015873e-05);
    q = ::fma(q, t, -0.001388888888888889);
    return ::fma(q, t, 0.041666666666666664);
  }
};

// The sine of x and so many quarters of a turn, NaN for an angle beyond the largest one.
template <class T>
FC_INLINE T turned(T x, T quarters) {
  using A = Angle<T>;
  const T n = A::nearest(x * T(0.63661977236758134));
  const T r = A::without(n, x);
  const T t = r * r;
  const T sine = fused(A::sine(t) * t, r, r);
  const T cosine = fused(A::cosine(t), t * t, fused(t, T(-0.5), T(1)));
  // The number of quarters modulo 4, from -2 to 2.
  const T all = n + quarters;
  const T quarter = fused(A::nearest(all * T(0.25)), T(-4), all);
  const T value = quarter == T(1) || quarter == T(-1) ? cosine : sine;
  const T known = (x < T(0) ? -x : x) <= A::kLargest ? value : T(__longlong_as_double(0x7ff8000000000000ll));
  return quarter < T(0) || quarter == T(2) ? -known : known;
}

FC_INLINE float raised(float x) { return expf(x); }
FC_INLINE double raised(double x) { return ::exp(x); }

template <class A>
FC_INLINE A sine(const A &a) {
  using T = decltype(at(a, 0));
  return each(a, [](T v) { return v == T(0) ? v : turned(v, T(0)); });
}

template <class A>
FC_INLINE A cosine(const A &a) {
  using T = decltype(at(a, 0));
  return each(a, [](T v) { return turned(v, T(1)); });
}

template <class A>
FC_INLINE A exponential(const A &a) {
  return each(a, [](auto v) { return raised(v); });
}

}  // namespace fc
