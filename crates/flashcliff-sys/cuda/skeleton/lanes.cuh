// Lanes: the values of a few neighbouring channels that one thread computes together, and their arithmetic.
//
// Generated code is written over `V = Lanes<T, N>` and scalars `T` (values that all channels of a row share); the two mix freely.
#pragma once

#include <cuda_runtime.h>

#define FC_INLINE __device__ __forceinline__

namespace fc {

// Repeats a statement for i = 0 to count - 1, written out for 1, 2, 4 or 8 channels: loops to unroll cost more compile time
// than everything else together.
#define FC_EACH(count, ...)                       \
  {                                               \
    { constexpr int i = 0; __VA_ARGS__; }           \
    if constexpr (count > 1) { constexpr int i = 1; __VA_ARGS__; } \
    if constexpr (count > 2) { constexpr int i = 2; __VA_ARGS__; } \
    if constexpr (count > 3) { constexpr int i = 3; __VA_ARGS__; } \
    if constexpr (count > 4) {                    \
      { constexpr int i = 4; __VA_ARGS__; }         \
      { constexpr int i = 5; __VA_ARGS__; }         \
      { constexpr int i = 6; __VA_ARGS__; }         \
      { constexpr int i = 7; __VA_ARGS__; }         \
    }                                             \
  }

template <class T, int N>
struct Lanes {
  using Scalar = T;
  static constexpr int kCount = N;
  T v[N];
};

// The i-th channel of a value. A scalar is the same for all channels.
template <class T, int N>
FC_INLINE T at(const Lanes<T, N> &a, int i) { return a.v[i]; }
FC_INLINE float at(float a, int) { return a; }
FC_INLINE double at(double a, int) { return a; }

// The type of a result: lanes if any operand has lanes.
template <class A, class B> struct Wider { using Type = A; };
template <class T, int N> struct Wider<T, Lanes<T, N>> { using Type = Lanes<T, N>; };
template <class A, class B> using wider = typename Wider<A, B>::Type;

template <class A> struct IsLanes { static constexpr bool value = false; };
template <class T, int N> struct IsLanes<Lanes<T, N>> { static constexpr bool value = true; };
template <bool B, class T> struct EnableIf {};
template <class T> struct EnableIf<true, T> { using Type = T; };
template <class A, class B>
using lanes_result = typename EnableIf<IsLanes<A>::value || IsLanes<B>::value, wider<A, B>>::Type;

FC_INLINE float fused(float a, float b, float c) { return fmaf(a, b, c); }
FC_INLINE double fused(double a, double b, double c) { return ::fma(a, b, c); }
FC_INLINE float added(float a, float b) { return __fadd_rn(a, b); }
FC_INLINE double added(double a, double b) { return __dadd_rn(a, b); }
FC_INLINE float root(float a) { return sqrtf(a); }
FC_INLINE double root(double a) { return ::sqrt(a); }

#define FC_BINARY(op)                                                       \
  template <class A, class B>                                               \
  FC_INLINE lanes_result<A, B> operator op(const A &a, const B &b) {        \
    lanes_result<A, B> r;                                                   \
    FC_EACH(decltype(r)::kCount, r.v[i] = at(a, i) op at(b, i))             \
    return r;                                                               \
  }
FC_BINARY(+)
FC_BINARY(-)
FC_BINARY(*)
#undef FC_BINARY

// a / b within 2 ulp. The shorter instruction of __fdividef gives 0 for denominators from 2^126 on.
FC_INLINE float quotient(float a, float b) {
  float c;
  asm("div.full.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}
FC_INLINE double quotient(double a, double b) { return a / b; }

template <class A, class B>
FC_INLINE auto divide(const A &a, const B &b) {
  using R = wider<A, B>;
  if constexpr (IsLanes<R>::value) {
    R r;
    FC_EACH(R::kCount, r.v[i] = quotient(at(a, i), at(b, i)))
    return r;
  } else {
    return quotient(a, b);
  }
}

template <class T, int N>
FC_INLINE Lanes<T, N> operator-(const Lanes<T, N> &a) {
  Lanes<T, N> r;
  FC_EACH(N, r.v[i] = -a.v[i])
  return r;
}

// a b + c, rounded once.
template <class A, class B, class C>
FC_INLINE auto mul_add(const A &a, const B &b, const C &c) {
  using R = wider<wider<A, B>, C>;
  if constexpr (IsLanes<R>::value) {
    R r;
    FC_EACH(R::kCount, r.v[i] = fused(at(a, i), at(b, i), at(c, i)))
    return r;
  } else {
    return fused(a, b, c);
  }
}

// c - a b, rounded once.
template <class A, class B, class C>
FC_INLINE auto neg_mul_add(const A &a, const B &b, const C &c) { return mul_add(-a, b, c); }

// a b - c, rounded once.
template <class A, class B, class C>
FC_INLINE auto mul_sub(const A &a, const B &b, const C &c) { return mul_add(a, b, -c); }

// a + b of rounded operands: the compiler does not make one operation of it and the product that an operand is.
template <class A, class B>
FC_INLINE auto rounded_sum(const A &a, const B &b) {
  using R = wider<A, B>;
  if constexpr (IsLanes<R>::value) {
    R r;
    FC_EACH(R::kCount, r.v[i] = added(at(a, i), at(b, i)))
    return r;
  } else {
    return added(a, b);
  }
}

// a - b of rounded operands, as rounded_sum.
template <class A, class B>
FC_INLINE auto rounded_difference(const A &a, const B &b) { return rounded_sum(a, -b); }

// Applies f to every channel, or to a value that all channels share.
template <class A, class F>
FC_INLINE A each(const A &x, F &&f) {
  if constexpr (IsLanes<A>::value) {
    A r;
    FC_EACH(A::kCount, r.v[i] = f(x.v[i]))
    return r;
  } else {
    return f(x);
  }
}

template <class A>
FC_INLINE A square_root(const A &a) {
  return each(a, [](auto v) { return root(v); });
}

FC_INLINE float inverse_root(float a) { return rsqrtf(a); }
FC_INLINE double inverse_root(double a) { return ::rsqrt(a); }

// 1 / sqrt(a), within 2 ulp.
template <class A>
FC_INLINE A reciprocal_root(const A &a) {
  return each(a, [](auto v) { return inverse_root(v); });
}

// a b, or 0 if a is 0, whatever b is.
template <class A, class B>
FC_INLINE auto damp(const A &a, const B &b) {
  using R = wider<A, B>;
  if constexpr (IsLanes<R>::value) {
    R r;
    FC_EACH(R::kCount, r.v[i] = at(a, i) == 0 ? 0 : at(a, i) * at(b, i))
    return r;
  } else {
    return a == 0 ? R(0) : a * b;
  }
}

// The larger of both; b if they are equal. NaN if one of them is.
template <class A, class B>
FC_INLINE auto larger(const A &a, const B &b) {
  using R = wider<A, B>;
  if constexpr (IsLanes<R>::value) {
    R r;
    FC_EACH(R::kCount, r.v[i] = at(a, i) > at(b, i) || at(a, i) != at(a, i) ? at(a, i) : at(b, i))
    return r;
  } else {
    return a > b || a != a ? a : b;
  }
}

// 1 if a > b, else 0.
template <class A, class B>
FC_INLINE auto greater(const A &a, const B &b) {
  using R = wider<A, B>;
  if constexpr (IsLanes<R>::value) {
    R r;
    FC_EACH(R::kCount, r.v[i] = at(a, i) > at(b, i) ? 1 : 0)
    return r;
  } else {
    return a > b ? R(1) : R(0);
  }
}

// sqrt(a^2 + b^2) without the squares, which could leave the range.
template <class T>
FC_INLINE T scalar_hypotenuse(T a, T b) {
  a = a < 0 ? -a : a;
  b = b < 0 ? -b : b;
  const T ratio = quotient(a, b);
  // From this ratio on, the longer leg is the result.
  return b * T(134217728) <= a ? a : root(fused(ratio, ratio, T(1))) * b;
}
template <class A, class B>
FC_INLINE auto hypotenuse(const A &a, const B &b) {
  using R = wider<A, B>;
  if constexpr (IsLanes<R>::value) {
    R r;
    FC_EACH(R::kCount, r.v[i] = scalar_hypotenuse(at(a, i), at(b, i)))
    return r;
  } else {
    return scalar_hypotenuse(a, b);
  }
}

// Copies a scalar to every channel.
template <class V>
FC_INLINE V splat(typename V::Scalar a) {
  V r;
  FC_EACH(V::kCount, r.v[i] = a)
  return r;
}
template <class V>
FC_INLINE V splat(const V &a) { return a; }

// Hides the origin of a value from the compiler, which must compute the value before.
FC_INLINE void settle(float &a) { asm volatile("" : "+f"(a)); }
FC_INLINE void settle(double &a) { asm volatile("" : "+d"(a)); }
template <int First = 0, class T, int N, int K>
FC_INLINE void settle(Lanes<T, N> (&values)[K]) {
#pragma unroll
  for (int k = First; k < K; k++) {
    FC_EACH(N, settle(values[k].v[i]))
  }
}

// Hides all components but the first, so that the compiler computes again what it would otherwise keep in registers across a
// row sum: a product has many more intermediate values than operands. The first component only feeds the gate.
template <class V, int K>
FC_INLINE void forget(V (&values)[K]) {
  settle<1>(values);
}

}  // namespace fc
