// The values that a lane function may need besides its operands.
#pragma once

#include "angles.cuh"
#include "arguments.cuh"
#include "gates.cuh"
#include "lanes.cuh"
#include "memory.cuh"
#include "walk.h"

namespace fc {

template <class T>
struct Uniforms {
  T eps;
  T inv_channels;
  T counts[2];  // of channels, and of scalar channels
  int gate;
  int valid;  // how many of the thread's channels exist

  // The constructor for lane functions without rows.
  FC_INLINE explicit Uniforms(int gate_kind) : eps(0), inv_channels(0), counts{}, gate(gate_kind), valid(1) {}

  FC_INLINE explicit Uniforms(const Arguments &a) : counts{T(a.channels), T(0)}, gate(a.gate) { set(a); }
  FC_INLINE explicit Uniforms(const Walk &a) : counts{T(a.channels[0]), T(a.channels[1])}, gate(a.gate) { set(a); }

  template <class A>
  FC_INLINE void set(const A &a) {
    if constexpr (sizeof(T) == 8) {
      eps = a.eps;
      inv_channels = a.inv_channels;
    } else {
      eps = a.eps_f32;
      inv_channels = a.inv_channels_f32;
    }
  }

  // The sum over the thread's channels.
  template <int N>
  FC_INLINE T sum(const Lanes<T, N> &a) const {
    T total = 0;
    FC_EACH(N, total += i < valid ? a.v[i] : T(0))
    return total;
  }
  FC_INLINE T sum(T a) const { return a * T(valid); }
};

}  // namespace fc
