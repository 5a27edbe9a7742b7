// The kernel of programs whose lanes do not depend on each other. Batch and channels are one axis, unless tensors
// have their own strides, and a thread computes one lane of it. A thread has many components to load, so single
// elements keep the memory busy, whatever the alignment.
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
  int64_t row, channel;  // of the lane, where tensors have strides

  FC_INLINE PointContext(const Arguments &arguments, int64_t own, int64_t lanes)
      : a(arguments), u(arguments), count(lanes), lane(own), row(0), channel(0) {
    u.valid = 1;
    if (a.strided) {
      // A division of 32 bits takes a fraction of the time.
      const bool is_short = (uint64_t(lanes) | uint64_t(a.channels)) >> 32 == 0;
      row = is_short ? int64_t(uint32_t(lane) / uint32_t(a.channels)) : lane / a.channels;
      channel = lane - row * a.channels;
    }
  }

  // The place of the lane in a tensor.
  FC_INLINE int64_t at(const fc_strides &strides) const { return a.strided ? row * strides.batch + channel : lane; }
  FC_INLINE int64_t step(const fc_strides &strides) const { return a.strided ? strides.component : count; }

  FC_INLINE void loaded() {}

  template <int Slot, int K>
  FC_INLINE void load(V (&values)[K]) {
    with_storage<T>(a.lane_dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      const S *p = static_cast<const S *>(a.inputs[Slot]) + at(a.input_strides[Slot]);
      const int64_t next = step(a.input_strides[Slot]);
#pragma unroll
      for (int k = 0; k < K; k++, p += next) values[k] = load_lanes<S, T, 1>(p, a.lane_dtype);
    });
  }

  template <int Slot, int K>
  FC_INLINE void store(const V (&values)[K]) {
    if (a.outputs[Slot] == nullptr) return;
    with_storage<T>(a.lane_dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      S *p = static_cast<S *>(a.outputs[Slot]) + at(a.output_strides[Slot]);
      const int64_t next = step(a.output_strides[Slot]);
#pragma unroll
      for (int k = 0; k < K; k++, p += next) store_lanes<S, T, 1>(p, values[k], a.lane_dtype);
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
