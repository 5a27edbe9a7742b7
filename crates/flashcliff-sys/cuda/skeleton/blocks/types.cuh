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

// N neighbouring elements that have been read. Elements of a known type of 2 bytes stay as they are in memory until their values are asked
// for: a conversion right after each read would wait for it.
template <int N, class T, int Type, bool Stored = type_bytes(Type) == 2>
struct Elements {
  Lanes<T, N> own;
  FC_INLINE void read(const void *p, int64_t at, int dtype) { own = fc::read<N, T, Type>(p, at, dtype); }
  FC_INLINE Lanes<T, N> values() const { return own; }
};
template <int N, class T, int Type>
struct Elements<N, T, Type, true> {
  using P = Pack<Bits16, N>;
  P pack;
  FC_INLINE void read(const void *p, int64_t at, int) {
    const auto *words = reinterpret_cast<const typename P::W *>(static_cast<const Bits16 *>(p) + at);
    FC_EACH(P::kWords, pack.words[i] = words[i])
  }
  FC_INLINE Lanes<T, N> values() const {
    Bits16 elements[N];
    __builtin_memcpy(elements, &pack, sizeof(elements));
    Lanes<T, N> r;
    FC_EACH(N, r.v[i] = widen(elements[i], Type))
    return r;
  }
};

}  // namespace fc
