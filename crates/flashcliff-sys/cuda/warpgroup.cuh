// Matrix products of a warpgroup, four warps, from shared memory: wgmma of TF32, on GPUs of compute capability 9.0.
#pragma once

#include "skeleton/memory.cuh"

// Code for 90a alone has these instructions.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FC_WARPGROUPS 1
#else
#define FC_WARPGROUPS 0
#endif

namespace fc {
namespace {

constexpr int kOfWarpgroup = 64;  // rows of a product

// Rows that are copied to shared memory, as these products read them: 32 neighbouring numbers of a row are a line of 128 bytes, the lines
// of all rows at the same columns follow each other, and the words of a line, 16 bytes each, have the order word ^ (row % 8). So eight
// threads that have neighbouring words of a row, or the same word of neighbouring rows, meet different banks.
constexpr int kLine = 32, kOfLine = 8;  // numbers and words of a line

template <int Count>
struct Lined {
  float *at;  // a multiple of 1024 bytes
  static constexpr int kNext = Count * kLine;  // numbers from a line of a row to its next
  FC_INLINE float4 &word(int of, int row) const {
    return reinterpret_cast<float4 *>(at)[of / kOfLine * (kNext / 4) + row * kOfLine + (of % kOfLine ^ row % 8)];
  }
};

// The numbers of so many rows of a width.
__host__ __device__ constexpr int lined_numbers(int rows, int width) { return (width + kLine - 1) / kLine * kLine * rows; }

template <int Count, int Width>
FC_INLINE Lined<Count> lined(float *&next) {
  const Lined<Count> own = {next};
  next += lined_numbers(Count, Width);
  return own;
}

// Rows that are turned columns: the words of eight rows at the same columns follow each other, and then comes an empty word, so that
// threads that write every fourth row meet different banks.
template <int Count>
struct Turned {
  float *at;
  static constexpr int kEight = 9 * 4, kNext = Count / 8 * kEight;  // numbers from eight rows to the next, and from a word of a row
  FC_INLINE float4 *word(int of, int row) const { return reinterpret_cast<float4 *>(at + of * kNext + row / 8 * kEight + row % 8 * 4); }
};

__host__ __device__ constexpr int turned_numbers(int rows, int words) { return words * (rows / 8 * 9 * 4); }

template <int Count, int Words>
FC_INLINE Turned<Count> turned(float *&next) {
  const Turned<Count> own = {next};
  next += turned_numbers(Count, Words);
  return own;
}

#if FC_WARPGROUPS

// A factor of a product: eight columns of rows from `row` on. Its parts are an address, two distances, and the order of words, in units of
// 16 bytes; the address alone changes from columns to columns.
struct FactorOf {
  uint32_t low, high;
  FC_INLINE FactorOf next(uint32_t units) const { return {low + units, high}; }
};

// In a cluster, more bits of an address say whose shared memory it is.
FC_INLINE uint32_t address_of(const void *place) { return shared_address(place) >> 4 & 0x3fff; }

// Eight lines are 1024 bytes; the next eight columns are 2 units further, and the next line `kNext` numbers.
template <int Count>
FC_INLINE FactorOf factor_of(const Lined<Count> &rows, int row) {
  return {1 << 16 | address_of(rows.at + row * kLine), 64 | 1 << 30};
}
template <int Count>
FC_INLINE constexpr uint32_t units_of(const Lined<Count> &, int step) {
  constexpr int kSteps = kLine / 8;
  return uint32_t(step / kSteps * (Lined<Count>::kNext / 4) + step % kSteps * 2);
}

// The next eight columns are two words further.
template <int Count>
FC_INLINE FactorOf factor_of(const Turned<Count> &rows) {
  return {uint32_t(rows.kNext / 4) << 16 | address_of(rows.at), uint32_t(rows.kEight / 4)};
}
template <int Count>
FC_INLINE constexpr uint32_t units_of(const Turned<Count> &, int step) { return uint32_t(step * (2 * Turned<Count>::kNext / 4)); }

// The number of this warpgroup, as a number that all its threads share.
FC_INLINE int warpgroup() { return __shfl_sync(~0u, int(threadIdx.x) / 128, 0); }

// Registers of sums have other readers and writers before and after the products between these two.
FC_INLINE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FC_INLINE void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
FC_INLINE void wait_for_products() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }

// What threads have written to shared memory is there for products that begin after the next barrier.
FC_INLINE void show_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#define FC_8(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3]), "+f"(x[i + 4]), "+f"(x[i + 5]), "+f"(x[i + 6]), "+f"(x[i + 7])
#define FC_4(a) "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3]))
#define FC_ADD(low, high) "{\n.reg .pred add;\n.reg .b64 b;\nsetp.eq.u32 add, 1, 1;\nmov.b64 b, {" low ", " high "};\n"
#define FC_R0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23"
#define FC_R24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define FC_R32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define FC_R40 ", %40, %41, %42, %43, %44, %45, %46, %47"

// sums = a . b of 64 rows, and 32 or 64 others, or is added to it: a thread has the sums of `fc::multiply`, for the 16 rows of its warp and
// all blocks of eight rows of b.
FC_INLINE void dot_step(float (&sums)[16], FactorOf a, FactorOf b, bool add) {
  asm volatile("{\n.reg .pred add;\n.reg .b64 a, b;\nsetp.ne.b32 add, %20, 0;\nmov.b64 a, {%16, %17};\nmov.b64 b, {%18, %19};\n"
               "wgmma.mma_async.sync.aligned.m64n32k8.f32.tf32.tf32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, a, b, add, 1, 1;\n}"
               : FC_8(sums, 0), FC_8(sums, 8)
               : "r"(a.low), "r"(a.high), "r"(b.low), "r"(b.high), "r"(int(add)));
}
FC_INLINE void dot_step(float (&sums)[32], FactorOf a, FactorOf b, bool add) {
  asm volatile("{\n.reg .pred add;\n.reg .b64 a, b;\nsetp.ne.b32 add, %36, 0;\nmov.b64 a, {%32, %33};\nmov.b64 b, {%34, %35};\n"
               "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {" FC_R0 FC_R24 "}, a, b, add, 1, 1;\n}"
               : FC_8(sums, 0), FC_8(sums, 8), FC_8(sums, 16), FC_8(sums, 24)
               : "r"(a.low), "r"(a.high), "r"(b.low), "r"(b.high), "r"(int(add)));
}

// sums += a . b: eight columns of a, of which a thread has four numbers in the order of a factor A of `fc::multiply`.
FC_INLINE void sum_step(float (&sums)[24], const float *a, FactorOf b) {
  asm volatile(FC_ADD("%28", "%29") "wgmma.mma_async.sync.aligned.m64n48k8.f32.tf32.tf32 {" FC_R0 "}, {%24, %25, %26, %27}, b, add, 1, 1;\n}"
               : FC_8(sums, 0), FC_8(sums, 8), FC_8(sums, 16)
               : FC_4(a), "r"(b.low), "r"(b.high));
}
FC_INLINE void sum_step(float (&sums)[40], const float *a, FactorOf b) {
  asm volatile(FC_ADD("%44", "%45") "wgmma.mma_async.sync.aligned.m64n80k8.f32.tf32.tf32 {" FC_R0 FC_R24 FC_R32 "}, {%40, %41, %42, %43}, b, add, 1, 1;\n}"
               : FC_8(sums, 0), FC_8(sums, 8), FC_8(sums, 16), FC_8(sums, 24), FC_8(sums, 32)
               : FC_4(a), "r"(b.low), "r"(b.high));
}
FC_INLINE void sum_step(float (&sums)[48], const float *a, FactorOf b) {
  asm volatile(FC_ADD("%52", "%53") "wgmma.mma_async.sync.aligned.m64n96k8.f32.tf32.tf32 {" FC_R0 FC_R24 FC_R32 FC_R40 "}, {%48, %49, %50, %51}, b, add, 1, 1;\n}"
               : FC_8(sums, 0), FC_8(sums, 8), FC_8(sums, 16), FC_8(sums, 24), FC_8(sums, 32), FC_8(sums, 40)
               : FC_4(a), "r"(b.low), "r"(b.high));
}

#undef FC_8
#undef FC_4
#undef FC_ADD
#undef FC_R0
#undef FC_R24
#undef FC_R32
#undef FC_R40

// A word at the same place in the shared memory of another CTA of the cluster.
FC_INLINE float4 load_remote(const float4 *place, uint32_t rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(place)), "r"(rank));
  float4 found;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(found.x), "=f"(found.y), "=f"(found.z), "=f"(found.w)
               : "r"(address)
               : "memory");
  return found;
}

#endif

}  // namespace
}  // namespace fc
