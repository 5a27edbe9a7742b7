//! The AVX-512 tier: 512-bit registers. Shims enable `avx512f,avx512bw,avx512dq,avx512vl`, which
//! every 512-bit server core since 2017 has; they imply AVX2 and FMA.

use core::arch::x86_64::*;

use super::avx2::{F32x8, F64x4};
use super::vector::Vector;

/// Sixteen `f32` lanes.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct F32x16(pub __m512);

/// Eight `f64` lanes.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct F64x8(pub __m512d);

/// Truth table for ternary logic on operands a, b, c: b where c is set, else a. Bit `4a + 2b + c`
/// of it is the result.
const TAKE_SECOND_WHERE_THIRD: i32 = 0b1101_1000;

/// Methods that are one intrinsic: `name(self, arguments) = intrinsic(operands)`.
macro_rules! one_intrinsic {
    ($($name:ident($this:ident $(, $arg:ident)*) = $intrinsic:ident($($operand:ident),*);)*) => {$(
        #[inline(always)]
        unsafe fn $name(self $(, $arg: Self)*) -> Self {
            let $this = self;
            // SAFETY: the caller vouches for AVX-512.
            Self(unsafe { $intrinsic($($operand.0),*) })
        }
    )*};
}

impl Vector for F32x16 {
    type Elem = f32;
    type Mask = __mmask16;
    const LANES: usize = 16;

    one_intrinsic! {
        add(a, b) = _mm512_add_ps(a, b);
        sub(a, b) = _mm512_sub_ps(a, b);
        mul(a, b) = _mm512_mul_ps(a, b);
        div(a, b) = _mm512_div_ps(a, b);
        sqrt(a) = _mm512_sqrt_ps(a);
        min(a, b) = _mm512_min_ps(a, b);
        max(a, b) = _mm512_max_ps(a, b);
        mul_add(a, b, c) = _mm512_fmadd_ps(a, b, c);
        neg_mul_add(a, b, c) = _mm512_fnmadd_ps(a, b, c);
        mul_sub(a, b, c) = _mm512_fmsub_ps(a, b, c);
    }

    #[inline(always)]
    unsafe fn splat(e: f32) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        Self(unsafe { _mm512_set1_ps(e) })
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller vouches for the tier and for sixteen readable elements.
        Self(unsafe { _mm512_loadu_ps(p) })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller vouches for the tier and for sixteen writable elements.
        unsafe { _mm512_storeu_ps(p, self.0) }
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut f32) {
        // SAFETY: the caller vouches for the tier, for sixteen writable elements and for alignment.
        unsafe { _mm512_stream_ps(p, self.0) }
    }
    #[inline(always)]
    unsafe fn stream_fence() {
        // SAFETY: SSE is part of AVX-512.
        unsafe { _mm_sfence() }
    }
    #[inline(always)]
    unsafe fn neg(self) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        Self(unsafe {
            _mm512_castsi512_ps(_mm512_xor_si512(
                _mm512_castps_si512(self.0),
                _mm512_set1_epi32(i32::MIN),
            ))
        })
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        Self(unsafe { _mm512_abs_ps(self.0) })
    }
    #[inline(always)]
    unsafe fn copysign(self, sign: Self) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        unsafe {
            let bit = _mm512_set1_epi32(i32::MIN);
            Self(_mm512_castsi512_ps(_mm512_ternarylogic_epi32::<
                TAKE_SECOND_WHERE_THIRD,
            >(
                _mm512_castps_si512(self.0),
                _mm512_castps_si512(sign.0),
                bit,
            )))
        }
    }
    #[inline(always)]
    unsafe fn two_square(self) -> (Self, Self) {
        // SAFETY: the caller vouches for AVX-512.
        unsafe {
            let s = self.mul(self);
            (s, self.mul_sub(self, s))
        }
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        Self(unsafe {
            _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0)
        })
    }
    #[inline(always)]
    unsafe fn ldexp(self, n: Self) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        Self(unsafe { _mm512_scalef_ps(self.0, n.0) })
    }
    #[inline(always)]
    unsafe fn lt(self, other: Self) -> __mmask16 {
        // SAFETY: the caller vouches for AVX-512.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn le(self, other: Self) -> __mmask16 {
        // SAFETY: the caller vouches for AVX-512.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LE_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn eq(self, other: Self) -> __mmask16 {
        // SAFETY: the caller vouches for AVX-512.
        unsafe { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn select(mask: __mmask16, if_true: Self, if_false: Self) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        Self(unsafe { _mm512_mask_blend_ps(mask, if_false.0, if_true.0) })
    }
    #[inline(always)]
    unsafe fn keep_first(self, n: usize) -> Self {
        let keep = ((1_u32 << n.min(Self::LANES)) - 1) as __mmask16;
        // SAFETY: the caller vouches for AVX-512.
        Self(unsafe { _mm512_maskz_mov_ps(keep, self.0) })
    }
    #[inline(always)]
    unsafe fn reduce_add(self) -> f32 {
        // SAFETY: the caller vouches for AVX-512, and AVX2 is part of it.
        unsafe {
            let upper = _mm512_extractf32x8_ps::<1>(self.0);
            F32x8(_mm256_add_ps(_mm512_castps512_ps256(self.0), upper)).reduce_add()
        }
    }
}

impl Vector for F64x8 {
    type Elem = f64;
    type Mask = __mmask8;
    const LANES: usize = 8;

    one_intrinsic! {
        add(a, b) = _mm512_add_pd(a, b);
        sub(a, b) = _mm512_sub_pd(a, b);
        mul(a, b) = _mm512_mul_pd(a, b);
        div(a, b) = _mm512_div_pd(a, b);
        sqrt(a) = _mm512_sqrt_pd(a);
        min(a, b) = _mm512_min_pd(a, b);
        max(a, b) = _mm512_max_pd(a, b);
        mul_add(a, b, c) = _mm512_fmadd_pd(a, b, c);
        neg_mul_add(a, b, c) = _mm512_fnmadd_pd(a, b, c);
        mul_sub(a, b, c) = _mm512_fmsub_pd(a, b, c);
    }

    #[inline(always)]
    unsafe fn splat(e: f64) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        Self(unsafe { _mm512_set1_pd(e) })
    }
    #[inline(always)]
    unsafe fn load(p: *const f64) -> Self {
        // SAFETY: the caller vouches for the tier and for eight readable elements.
        Self(unsafe { _mm512_loadu_pd(p) })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f64) {
        // SAFETY: the caller vouches for the tier and for eight writable elements.
        unsafe { _mm512_storeu_pd(p, self.0) }
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut f64) {
        // SAFETY: the caller vouches for the tier, for eight writable elements and for alignment.
        unsafe { _mm512_stream_pd(p, self.0) }
    }
    #[inline(always)]
    unsafe fn stream_fence() {
        // SAFETY: SSE is part of AVX-512.
        unsafe { _mm_sfence() }
    }
    #[inline(always)]
    unsafe fn neg(self) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        Self(unsafe {
            _mm512_castsi512_pd(_mm512_xor_si512(
                _mm512_castpd_si512(self.0),
                _mm512_set1_epi64(i64::MIN),
            ))
        })
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        Self(unsafe { _mm512_abs_pd(self.0) })
    }
    #[inline(always)]
    unsafe fn copysign(self, sign: Self) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        unsafe {
            let bit = _mm512_set1_epi64(i64::MIN);
            Self(_mm512_castsi512_pd(_mm512_ternarylogic_epi64::<
                TAKE_SECOND_WHERE_THIRD,
            >(
                _mm512_castpd_si512(self.0),
                _mm512_castpd_si512(sign.0),
                bit,
            )))
        }
    }
    #[inline(always)]
    unsafe fn two_square(self) -> (Self, Self) {
        // SAFETY: the caller vouches for AVX-512.
        unsafe {
            let s = self.mul(self);
            (s, self.mul_sub(self, s))
        }
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        Self(unsafe {
            _mm512_roundscale_pd::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0)
        })
    }
    #[inline(always)]
    unsafe fn ldexp(self, n: Self) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        Self(unsafe { _mm512_scalef_pd(self.0, n.0) })
    }
    #[inline(always)]
    unsafe fn lt(self, other: Self) -> __mmask8 {
        // SAFETY: the caller vouches for AVX-512.
        unsafe { _mm512_cmp_pd_mask::<_CMP_LT_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn le(self, other: Self) -> __mmask8 {
        // SAFETY: the caller vouches for AVX-512.
        unsafe { _mm512_cmp_pd_mask::<_CMP_LE_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn eq(self, other: Self) -> __mmask8 {
        // SAFETY: the caller vouches for AVX-512.
        unsafe { _mm512_cmp_pd_mask::<_CMP_EQ_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn select(mask: __mmask8, if_true: Self, if_false: Self) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        Self(unsafe { _mm512_mask_blend_pd(mask, if_false.0, if_true.0) })
    }
    #[inline(always)]
    unsafe fn keep_first(self, n: usize) -> Self {
        let keep = ((1_u32 << n.min(Self::LANES)) - 1) as __mmask8;
        // SAFETY: the caller vouches for AVX-512.
        Self(unsafe { _mm512_maskz_mov_pd(keep, self.0) })
    }
    #[inline(always)]
    unsafe fn reduce_add(self) -> f64 {
        // SAFETY: the caller vouches for AVX-512, and AVX2 is part of it.
        unsafe {
            let upper = _mm512_extractf64x4_pd::<1>(self.0);
            F64x4(_mm256_add_pd(_mm512_castpd512_pd256(self.0), upper)).reduce_add()
        }
    }
}
