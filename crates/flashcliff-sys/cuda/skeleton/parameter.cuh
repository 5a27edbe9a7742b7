// Parameters that kernels read where they lie, for threads whose channels change.
#pragma once

#include "lanes.cuh"
#include "memory.cuh"

namespace fc {

// A parameter in memory, [channels, count], at a thread's channels.
template <class V>
struct ChannelParameter {
  const void *first;
  int count;
  int dtype;
  FC_INLINE V operator[](int k) const {
    using T = typename V::Scalar;
    V r;
    with_storage<T>(dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      const S *p = static_cast<const S *>(first) + k;
      FC_EACH(V::kCount, r.v[i] = widen(p[i * count], dtype))
    });
    return r;
  }
};

}  // namespace fc
