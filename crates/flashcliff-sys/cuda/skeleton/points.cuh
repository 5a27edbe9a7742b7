// The kernel of programs whose lanes do not depend on each other. Batch and channels are one axis, and a thread computes one
// lane of it. A thread has many components to load, so single elements keep the memory busy, whatever the alignment.
#pragma once

#include "uniforms.cuh"

namespace fc {

constexpr int kPointThreads = 256;

template <class P, class Scalar>
struct PointContext {
  using T = Scalar;
  using V = Lanes<T, 1>;

  const Arguments &a;
  Uniforms<T> u;
  int64_t count;  // lanes of a component
  int64_t lane;

  FC_INLINE PointContext(const Arguments &arguments, int64_t own, int64_t lanes)
      : a(arguments), u(arguments), count(lanes), lane(own) {
    u.valid = 1;
  }

  FC_INLINE void loaded() {}

  template <int Slot, int K>
  FC_INLINE void load(V (&values)[K]) {
    with_storage<T>(a.lane_dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      const S *p = static_cast<const S *>(a.inputs[Slot]) + lane;
#pragma unroll
      for (int k = 0; k < K; k++, p += count) values[k] = load_lanes<S, T, 1>(p, a.lane_dtype);
    });
  }

  template <int Slot, int K>
  FC_INLINE void store(const V (&values)[K]) {
    if (a.outputs[Slot] == nullptr) return;
    with_storage<T>(a.lane_dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      S *p = static_cast<S *>(a.outputs[Slot]) + lane;
#pragma unroll
      for (int k = 0; k < K; k++, p += count) store_lanes<S, T, 1>(p, values[k], a.lane_dtype);
    });
  }
};

template <class P, class T>
__global__ void __launch_bounds__(kPointThreads) points_kernel(const __grid_constant__ Arguments a) {
  const int64_t count = a.batch * a.channels;
  const int64_t lane = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (lane >= count) return;
  PointContext<P, T> c(a, lane, count);
  P::run(c);
}

}  // namespace fc
