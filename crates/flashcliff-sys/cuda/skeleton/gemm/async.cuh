// Matrix products of four warps of sm_90a: 64 x 64 numbers, the left operand in registers, the right one in shared memory.
//
// The left operand and the sums lie as those of mma.cuh do. The right one is a slab of 8 words of k in blocks of 8 rows by 16 bytes:
// [row / 8][word / 4][row % 8][4 words]. Such blocks are what the tensor cores read without bank conflicts.
#pragma once

#include "mma.cuh"
#include "tiles.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FC_ASYNC_MMA 1
#else
#define FC_ASYNC_MMA 0
#endif

namespace fc {
namespace gemm {

#if FC_ASYNC_MMA
// Where the right operand of 64 columns lies: its address, 128 bytes from block to block along k, 256 along the rows.
FC_INLINE uint64_t slab_descriptor(uint32_t address) {
  return uint64_t(256 >> 4) << 32 | uint64_t((128 >> 4) << 16 | address >> 4);
}

FC_INLINE void async_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FC_INLINE void async_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Left>
FC_INLINE void async_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory"); }
// Makes what this thread copied to shared memory visible to the tensor cores.
FC_INLINE void async_proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <class P>
FC_INLINE void async_mma(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b) {
  if constexpr (P::kNumbers == 1) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1;\n}"
        : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]),
          "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]),
          "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
          "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]),
          "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]),
          "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]),
          "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]),
          "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  } else if constexpr (P::kIsBf16) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"
        : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]),
          "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]),
          "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
          "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]),
          "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]),
          "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]),
          "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]),
          "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  } else {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"
        : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]),
          "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]),
          "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
          "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]),
          "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]),
          "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]),
          "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]),
          "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
}
#endif

// sums of `Count` blocks += left * right: 64 columns of a slab. `right` is where the columns of the warp begin; with
// asynchronous products the last of them are still under way.
template <class P, bool Async, int Count>
FC_INLINE void multiply_slab(float (*sums)[8][4], const typename P::A (&left)[Count], uint32_t right) {
#if FC_ASYNC_MMA
  if constexpr (Async) {
    const uint64_t descriptor = slab_descriptor(right);
    async_fence();
#pragma unroll
    for (int i = 0; i < Count; i++) async_mma<P>(sums[i], left[i].words, descriptor);
    async_commit();
    // What the products before these read may change now.
    async_wait<1>();
    return;
  }
#endif
  // Row g, words 2t and 2t + 1.
  const uint32_t at = right + (threadIdx.x % 32) * 8;
#pragma unroll
  for (int tile = 0; tile < 8; tile++) {
    uint32_t w[2];
    load_shared(at + tile * 8 * kSlabBytes, w);
    const typename P::B b = P::right(w);
#pragma unroll
    for (int i = 0; i < Count; i++) P::mma(sums[i][tile], left[i], b);
  }
}

// Before other work on what the products read, and before their sums are read.
template <bool Async>
FC_INLINE void finish_products() {
#if FC_ASYNC_MMA
  if constexpr (Async) async_wait<0>();
#endif
}

// Between the arrival of this thread's copies and the barrier.
template <bool Async>
FC_INLINE void publish_copies() {
#if FC_ASYNC_MMA
  if constexpr (Async) async_proxy_fence();
#endif
}

}  // namespace gemm
}  // namespace fc
