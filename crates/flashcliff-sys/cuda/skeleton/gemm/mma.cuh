// Matrix products of a warp, 16 x 8 numbers of 32 bytes of k, in three precisions.
//
// In units of words of 4 bytes all are the same: with g = lane / 4 and t = lane % 4, a thread holds of the left operand the
// words (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4), of the right one (t, g), (t + 4, g) and of the sums (g, 2t),
// (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1). A word is one f32 or two 16-bit numbers that follow each other in k.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "fragment.cuh"

namespace fc {
namespace gemm {

FC_INLINE void mma_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// To nearest, ties away from zero.
FC_INLINE uint32_t round_tf32(float a) {
  uint32_t r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(a));
  return r;
}

// Operands rounded to TF32. The tensor cores cut off what lies beyond its 10 bits; a factor of 1 + kLift, 3 / 4 of the last bit
// of 1, turns that into a rounding without bias, off by at most 2 / 3 of the last bit, that keeps what needs no rounding. The
// factor goes with that of the gates.
constexpr float kLift = 0.0003662109375f;
struct Tf32 {
  using Word = float;
  static constexpr int kNumbers = 1;  // a word
  static constexpr float kScale = 1.0f + kLift;
  struct A { uint32_t words[4]; };
  struct B { uint32_t words[2]; };
  using V = Fragment<4>;

  FC_INLINE static A left(const V &v) {
    A a;
    FC_EACH(4, a.words[i] = __float_as_uint(v.v[i]))
    return a;
  }
  FC_INLINE static A left_words(const uint32_t (&w)[4]) { return A{{w[0], w[1], w[2], w[3]}}; }
  FC_INLINE static B right(const uint32_t (&w)[2]) { return B{{w[0], w[1]}}; }
  FC_INLINE static void mma(float (&c)[4], const A &a, const B &b) { mma_tf32(c, a.words, b.words); }
};

// What both 16-bit types share; Self gives the instruction and the conversions.
template <class Self>
struct Half {
  using Word = uint16_t;
  static constexpr int kNumbers = 2;
  static constexpr float kScale = 1.0f;
  struct A { uint32_t words[4]; };
  struct B { uint32_t words[2]; };
  using V = Fragment<8>;

  FC_INLINE static A left(const V &v) {
    A a;
    FC_EACH(4, a.words[i] = Self::pack(v.v[2 * i], v.v[2 * i + 1]))
    return a;
  }
  FC_INLINE static A left_words(const uint32_t (&w)[4]) { return A{{w[0], w[1], w[2], w[3]}}; }
  FC_INLINE static B right(const uint32_t (&w)[2]) { return B{{w[0], w[1]}}; }
  FC_INLINE static void mma(float (&c)[4], const A &a, const B &b) { Self::multiply(c, a.words, b.words); }
};

struct Bf16 : Half<Bf16> {
  static constexpr bool kIsBf16 = true;
  FC_INLINE static uint32_t pack(float lo, float hi) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
  }
  FC_INLINE static float low(uint32_t w) { return __uint_as_float(w << 16); }
  FC_INLINE static float high(uint32_t w) { return __uint_as_float(w & 0xffff0000u); }
  FC_INLINE static void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

struct F16 : Half<F16> {
  static constexpr bool kIsBf16 = false;
  FC_INLINE static uint32_t pack(float lo, float hi) {
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
  }
  FC_INLINE static float low(uint32_t w) { return __half2float(__ushort_as_half(uint16_t(w))); }
  FC_INLINE static float high(uint32_t w) { return __half2float(__ushort_as_half(uint16_t(w >> 16))); }
  FC_INLINE static void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

// ---- elements in memory, by precision ----

template <class P>
FC_INLINE float widen_element(typename P::Word a) {
  if constexpr (P::kNumbers == 1) {
    return a;
  } else {
    return P::low(a);
  }
}

template <class P>
FC_INLINE typename P::Word narrow_element(float a) {
  if constexpr (P::kNumbers == 1) {
    return a;
  } else {
    return uint16_t(P::pack(a, 0.0f));
  }
}

}  // namespace gemm
}  // namespace fc
