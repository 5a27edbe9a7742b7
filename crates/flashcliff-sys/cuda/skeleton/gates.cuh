// The gates and their slopes; the formulas of crates/flashcliff-kernels/src/gate.rs.
#pragma once

#include "../types.h"
#include "lanes.cuh"

namespace fc {

// The gate that a kernel is compiled for.
constexpr int kAnyGate = -1;
constexpr int kUsualGate = FC_GATE_GELU;

// 2^x and 1 / x by the special function units, within 2 ulp. Results and operands below the normal range are 0.
FC_INLINE float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
FC_INLINE float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// exp(-x^2 / 2). The argument of the exponential is rounded; this only matters if the result is tiny.
FC_INLINE float bell(float x) { return fast_exp2(x * x * -0.72134752044448170f); }
FC_INLINE double bell(double x) { return ::exp(-0.5 * x * x); }

template <class T>
FC_INLINE T normal_pdf(T x) { return T(0.39894228040143268) * bell(x); }

// The tail of the normal distribution beyond |x|, as exp(-x^2 / 2) t q(t) with t = 1 / (1 + 0.43 |x|). The polynomial q has
// degree 9 and a relative error of 1.4e-7 from 0 to infinity. There is no branch and no table, and the slope needs the same
// exponential.
FC_INLINE float normal_tail(float x) {
  const float t = fast_reciprocal(fmaf(0.43f, fabsf(x), 1.0f));
  float q = 0.04441949110786108f;
  q = fmaf(q, t, -0.21195847299617446f);
  q = fmaf(q, t, 0.3809430814705691f);
  q = fmaf(q, t, -0.27125082350655827f);
  q = fmaf(q, t, 0.011236638577424232f);
  q = fmaf(q, t, -0.013949575797782391f);
  q = fmaf(q, t, 0.07771126925960041f);
  q = fmaf(q, t, 0.13975651361392247f);
  q = fmaf(q, t, 0.17154675504882808f);
  q = fmaf(q, t, 0.1715451732409254f);
  return q * t * bell(x);
}

FC_INLINE float normal_cdf(float x) {
  const float tail = normal_tail(x);
  return x < 0.0f ? tail : 1.0f - tail;
}
FC_INLINE double normal_cdf(double x) { return 0.5 * ::erfc(x * -0.70710678118654752); }

FC_INLINE float logistic(float x) { return fast_reciprocal(1.0f + fast_exp2(x * -1.4426950408889634f)); }
FC_INLINE double logistic(double x) { return 1.0 / (1.0 + ::exp(-x)); }

template <class A>
FC_INLINE A sigmoid(const A &a) {
  return each(a, [](auto v) { return logistic(v); });
}

constexpr double kTanhScale = 0.79788456080286536;  // sqrt(2 / pi)
constexpr double kTanhCubic = 0.044715;
constexpr double kSigmoidScale = 1.702;

// The z for which sigmoid(z) is the tanh form of GELU's gate.
template <class T>
FC_INLINE T tanh_argument(T x) {
  return x * fused(x * x, T(kTanhCubic), T(1)) * T(2 * kTanhScale);
}

// The gate at x. The branch is the same for all threads of a launch, and taken once for all channels.
template <class A>
FC_INLINE A gate(int kind, const A &x) {
  using T = decltype(at(x, 0));
  if (kind == FC_GATE_GELU) return each(x, [](T v) { return normal_cdf(v); });
  switch (kind) {
    case FC_GATE_GELU_TANH: return each(x, [](T v) { return logistic(tanh_argument(v)); });
    case FC_GATE_SILU: return each(x, [](T v) { return logistic(v); });
    case FC_GATE_GELU_FAST: return each(x, [](T v) { return logistic(T(kSigmoidScale) * v); });
    default: return each(x, [](T) { return T(1); });
  }
}

// The slope of the logistic function. It is computed from the tail on either side, since 1 - s has no bits left if s is close
// to 1.
template <class T>
FC_INLINE T logistic_slope(T x) {
  const T tail = logistic(x < 0 ? x : -x);
  return tail * (T(1) - tail);
}

template <class A>
FC_INLINE A sigmoid_slope(const A &a) {
  return each(a, [](auto v) { return logistic_slope(v); });
}

// The slope for an argument that has a slope itself, which may be infinite where that of the function is 0.
template <class T>
FC_INLINE T logistic_slope(T argument, T inner) { return damp(logistic_slope(argument), inner); }

// The gate and its derivative.
template <class A>
FC_INLINE void gate_and_slope(int kind, const A &x, A &value, A &slope) {
  using T = decltype(at(x, 0));
  if (kind == FC_GATE_GELU) {
    value = each(x, [](T v) { return normal_cdf(v); });
    slope = each(x, [](T v) { return normal_pdf(v); });
    return;
  }
  switch (kind) {
    case FC_GATE_GELU_TANH:
      value = each(x, [](T v) { return logistic(tanh_argument(v)); });
      slope = each(x, [](T v) {
        return logistic_slope(tanh_argument(v), fused(v * v, T(3 * kTanhCubic), T(1)) * T(2 * kTanhScale));
      });
      break;
    case FC_GATE_SILU:
      value = each(x, [](T v) { return logistic(v); });
      slope = each(x, [](T v) { return logistic_slope(v, T(1)); });
      break;
    case FC_GATE_GELU_FAST:
      value = each(x, [](T v) { return logistic(T(kSigmoidScale) * v); });
      slope = each(x, [](T v) { return logistic_slope(T(kSigmoidScale) * v, T(kSigmoidScale)); });
      break;
    default:
      value = each(x, [](T) { return T(1); });
      slope = each(x, [](T) { return T(0); });
      break;
  }
}

template <class A>
FC_INLINE A gate_slope(int kind, const A &x) {
  A value, slope;
  gate_and_slope(kind, x, value, slope);
  return slope;
}

}  // namespace fc
