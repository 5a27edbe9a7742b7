// What a step does to an element, the same for all kernels: Adam, which is AdamW too, and Lion.
//
// A rule is a class of the numbers of a step of one parameter, in its type. It has the name of its rule, whether it needs the mean of
// squares and the count of steps, and the update of an element.
#pragma once

#include "adam.cuh"

namespace fc {
namespace {

// A power by repeated squaring, as the CPU computes it: functions of libraries differ in the last bit.
FC_ADAM double power(double base, uint32_t exponent) {
  double result = 1;
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) result = mul(result, base);
    base = mul(base, base);
  }
  return result;
}

// The coefficients of a parameter at its step, counted from 1, which does not matter to Lion.
FC_ADAM fc_adam_coefficients coefficients_at(fc_adam_rule rule, double beta1, double beta2, double decoupled_decay, double rate,
                                             uint32_t step) {
  const bool corrects = rule == FC_ADAM_RULE_ADAM;
  fc_adam_coefficients own;
  own.step_size = corrects ? quotient(rate, sub(1.0, power(beta1, step))) : rate;
  own.correction2 = corrects ? root(sub(1.0, power(beta2, step))) : 1.0;
  own.keep = sub(1.0, mul(rate, decoupled_decay));
  return own;
}

// D. P. Kingma and J. Ba, ICLR 2015, algorithm 1; I. Loshchilov and F. Hutter, ICLR 2019, algorithm 2.
template <typename T>
struct AdamRule {
  static constexpr fc_adam_rule kRule = FC_ADAM_RULE_ADAM;
  static constexpr bool kSquares = true;

  // The gradient has two factors, since their product may be too small for T.
  T unscale, clip, decay, keep, gain1, beta2, gain2, correction2, eps, step_size;

  FC_ADAM AdamRule of(double beta1, double beta2, double eps, double decay, const fc_adam_coefficients &own, double unscale,
                      double clip) {
    return {T(unscale),         T(clip), T(decay), T(own.keep), T(sub(1.0, beta1)), T(beta2), T(sub(1.0, beta2)),
            T(own.correction2), T(eps),  T(own.step_size)};
  }

  // Changes an element and its moments.
  __device__ __forceinline__ void apply(T &p, T gradient, T &m, T &v) const {
    const T g = add(mul(mul(gradient, unscale), clip), mul(decay, p));
    m = add(m, mul(gain1, sub(g, m)));
    v = add(mul(beta2, v), mul(mul(gain2, g), g));
    p = sub(mul(keep, p), mul(step_size, quotient(m, add(quotient(root(v), correction2), eps))));
  }
};

// X. Chen et al., Symbolic discovery of optimization algorithms, NeurIPS 2023, algorithm 2.
template <typename T>
struct LionRule {
  static constexpr fc_adam_rule kRule = FC_ADAM_RULE_LION;
  static constexpr bool kSquares = false;

  T unscale, clip, decay, keep, beta1, gain1, beta2, gain2, step_size;

  FC_ADAM LionRule of(double beta1, double beta2, double, double decay, const fc_adam_coefficients &own, double unscale,
                      double clip) {
    return {T(unscale), T(clip),  T(decay),           T(own.keep),     T(beta1), T(sub(1.0, beta1)),
            T(beta2),   T(sub(1.0, beta2)), T(own.step_size)};
  }

  // Changes an element and its mean; there is none of squares.
  __device__ __forceinline__ void apply(T &p, T gradient, T &m, T &) const {
    const T g = add(mul(mul(gradient, unscale), clip), mul(decay, p));
    const T c = add(mul(beta1, m), mul(gain1, g));
    // What is not a number passes, and is not taken for a 0.
    const T sign = c > T(0) ? T(1) : (c < T(0) ? T(-1) : c);
    m = add(mul(beta2, m), mul(gain2, g));
    p = sub(mul(keep, p), mul(step_size, sign));
  }
};

}  // namespace
}  // namespace fc
