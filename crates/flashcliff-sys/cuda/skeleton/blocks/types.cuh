// The element types that kernels are compiled for. With a choice between bf16 and f16 at every number, most of the instructions
// of a kernel would be conversions to the type that is not wanted.
#pragma once

#include "../memory.cuh"

namespace fc {

// Any type: it is known when the kernel runs.
constexpr int kAnyType = -1;

// The bytes of an element; 0 for any type.
__host__ __device__ constexpr int type_bytes(int type) { return type == kAnyType ? 0 : type == FC_F64 ? 8 : type == FC_F32 ? 4 : 2; }

// The type if it is known at compile time, else the type of the call.
template <int Type>
__host__ FC_INLINE int type_or(int dtype) {
  return Type == kAnyType ? dtype : Type;
}

// Reads N neighbouring elements in memory, whose address is aligned to all of them.
template <int N, class T, int Type>
FC_INLINE Lanes<T, N> read(const void *p, int64_t at, int dtype) {
  Lanes<T, N> values;
  with_storage<T, type_bytes(Type)>(type_or<Type>(dtype), [&](auto *type) {
    using S = typename Element<decltype(type)>::Type;
    values = load_lanes<S, T, N>(static_cast<const S *>(p) + at, type_or<Type>(dtype));
  });
  return values;
}
template <int N, class T, int Type>
FC_INLINE void write(void *p, int64_t at, const Lanes<T, N> &values, int dtype) {
  with_storage<T, type_bytes(Type)>(type_or<Type>(dtype), [&](auto *type) {
    using S = typename Element<decltype(type)>::Type;
    store_lanes<S, T, N>(static_cast<S *>(p) + at, values, type_or<Type>(dtype));
  });
}

}  // namespace fc
