// Element types in memory, vector loads and stores, and asynchronous copies to shared memory.
//
// f32, bf16 and f16 are chosen at run time, by branches that are the same for all threads: one kernel
// serves all three. Only the width of an element changes the accesses; the two 2-byte types differ by the conversion.
#pragma once

#include <stdint.h>

#include "../types.h"
#include "arguments.cuh"
#include "lanes.cuh"

namespace fc {

// ---- conversion, by instructions: the headers for 16-bit numbers are large, and are not always there at run time ----

// An element of 2 bytes.
struct Bits16 {
  uint16_t bits;
};

FC_INLINE float widen(float a, int) { return a; }
FC_INLINE double widen(double a, int) { return a; }
FC_INLINE float widen(Bits16 a, int dtype) {
  if (dtype == FC_BF16) return __uint_as_float(uint32_t(a.bits) << 16);
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(a.bits));
  return wide;
}

template <class S, class T> struct Narrow {
  FC_INLINE static S from(T a, int) { return a; }
};
template <> struct Narrow<Bits16, float> {
  FC_INLINE static Bits16 from(float a, int dtype) {
    uint16_t bits;
    if (dtype == FC_BF16) {
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(a));
    } else {
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(a));
    }
    return Bits16{bits};
  }
};

// The element type behind a pointer type.
template <class P> struct Element;
template <class S> struct Element<S *> { using Type = S; };

// Calls f with a null pointer of a type as wide as the elements in memory. Bytes is that width if it is known, else 0.
template <class T, int Bytes = 0, class F>
FC_INLINE void with_storage(int dtype, F &&f) {
  if constexpr (Bytes == 4) {
    f(static_cast<float *>(nullptr));
  } else if constexpr (Bytes == 2) {
    f(static_cast<Bits16 *>(nullptr));
  } else if constexpr (sizeof(T) == 8) {
    f(static_cast<double *>(nullptr));
  } else if (dtype == FC_F32) {
    f(static_cast<float *>(nullptr));
  } else {
    f(static_cast<Bits16 *>(nullptr));
  }
}

// ---- vector access ----

// A word of B bytes.
template <int B> struct Word;
template <> struct Word<2> { using Type = uint16_t; };
template <> struct Word<4> { using Type = uint32_t; };
template <> struct Word<8> { using Type = uint2; };
template <> struct Word<16> { using Type = uint4; };

template <class S, int N>
struct Pack {
  static constexpr int kWordBytes = sizeof(S) * N < 16 ? sizeof(S) * N : 16;
  static constexpr int kWords = sizeof(S) * N / kWordBytes;
  using W = typename Word<kWordBytes>::Type;
  W words[kWords];
};

// Reads N neighbouring elements, aligned to their total size (at most 16 bytes).
template <class S, class T, int N>
FC_INLINE Lanes<T, N> load_lanes(const S *p, int dtype) {
  static_assert(N <= 8, "FC_EACH repeats a statement up to 8 times");
  using P = Pack<S, N>;
  P pack;
  FC_EACH(P::kWords, pack.words[i] = reinterpret_cast<const typename P::W *>(p)[i])
  S elements[N];
  __builtin_memcpy(elements, &pack, sizeof(elements));
  Lanes<T, N> r;
  FC_EACH(N, r.v[i] = widen(elements[i], dtype))
  return r;
}

template <class S, class T, int N>
FC_INLINE void store_lanes(S *p, const Lanes<T, N> &a, int dtype) {
  static_assert(N <= 8, "FC_EACH repeats a statement up to 8 times");
  using P = Pack<S, N>;
  S elements[N];
  FC_EACH(N, elements[i] = Narrow<S, T>::from(a.v[i], dtype))
  P pack;
  __builtin_memcpy(&pack, elements, sizeof(elements));
  FC_EACH(P::kWords, reinterpret_cast<typename P::W *>(p)[i] = pack.words[i])
}

// ---- asynchronous copies ----

FC_INLINE uint32_t shared_address(const void *p) { return uint32_t(__cvta_generic_to_shared(p)); }

template <int Bytes>
FC_INLINE void copy_async(void *to, const void *from) {
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from))
                 : "memory");
  } else if constexpr (Bytes >= 4) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "n"(Bytes)
                 : "memory");
  } else {
    *static_cast<uint16_t *>(to) = *static_cast<const uint16_t *>(from);
  }
}

FC_INLINE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `left` groups of this thread's copies are under way.
FC_INLINE void copy_wait(int left) {
  switch (left) {
    case 0: asm volatile("cp.async.wait_group 0;" ::: "memory"); break;
    case 1: asm volatile("cp.async.wait_group 1;" ::: "memory"); break;
    case 2: asm volatile("cp.async.wait_group 2;" ::: "memory"); break;
    default: asm volatile("cp.async.wait_group 3;" ::: "memory"); break;
  }
}

// ---- sm_90: bulk copies, clusters ----

#if __CUDA_ARCH__ >= 900
#define FC_HOPPER 1

FC_INLINE void barrier_init(uint64_t *barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count));
}

FC_INLINE void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

FC_INLINE void barrier_expect(uint64_t *barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

FC_INLINE void barrier_wait(uint64_t *barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Copies a box of a [components, batch, channels] tensor that starts at these coordinates, and then reports to the barrier.
// Elements outside of the tensor are zero.
FC_INLINE void box_load(void *to, const TensorMap *map, int channel, int row, int component, uint64_t *barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
          shared_address(to)),
      "l"(map), "r"(channel), "r"(row), "r"(component), "r"(shared_address(barrier))
      : "memory");
}

FC_INLINE uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

FC_INLINE void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Lets the next kernel of the stream start, if it was launched for that. The second function waits for the end of the kernel
// before.
FC_INLINE void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
FC_INLINE void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Writes to the same place in the shared memory of another CTA of the cluster, and reports to that CTA's barrier.
FC_INLINE void store_remote(float *place, float value, uint64_t *barrier, uint32_t rank) {
  uint32_t address, remote_barrier;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(place)), "r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_barrier) : "r"(shared_address(barrier)), "r"(rank));
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(address),
               "r"(__float_as_uint(value)), "r"(remote_barrier)
               : "memory");
}
FC_INLINE void store_remote(double *place, double value, uint64_t *barrier, uint32_t rank) {
  uint32_t address, remote_barrier;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(place)), "r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_barrier) : "r"(shared_address(barrier)), "r"(rank));
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(address),
               "l"(__double_as_longlong(value)), "r"(remote_barrier)
               : "memory");
}
#else
#define FC_HOPPER 0
#endif

// Kernels that `launch_in_turn` starts call this before they touch what other kernels write. It waits for the kernels
// before, and lets the next one take the multiprocessors that are free. All CTAs call it: a kernel that has waited
// ends after all before it, so the next one waits for those too.
FC_INLINE void take_turn() {
#if FC_HOPPER
  wait_for_previous();
  launch_dependents();
#endif
}

}  // namespace fc
