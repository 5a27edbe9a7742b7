//! The AVX2 tier: 256-bit registers, with FMA. Shims enable `avx2,fma`.

use core::arch::x86_64::*;

use super::vector::Vector;

/// Eight `f32` lanes.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct F32x8(pub __m256);

/// Four `f64` lanes.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct F64x4(pub __m256d);

/// Methods that are one intrinsic: `name(self, arguments) = intrinsic(operands)`.
macro_rules! one_intrinsic {
    ($($name:ident($this:ident $(, $arg:ident)*) = $intrinsic:ident($($operand:ident),*);)*) => {$(
        #[inline(always)]
        unsafe fn $name(self $(, $arg: Self)*) -> Self {
            let $this = self;
            // SAFETY: the caller vouches for AVX2 and FMA.
            Self(unsafe { $intrinsic($($operand.0),*) })
        }
    )*};
}

impl Vector for F32x8 {
    type Elem = f32;
    type Mask = __m256;
    const LANES: usize = 8;

    one_intrinsic! {
        add(a, b) = _mm256_add_ps(a, b);
        sub(a, b) = _mm256_sub_ps(a, b);
        mul(a, b) = _mm256_mul_ps(a, b);
        div(a, b) = _mm256_div_ps(a, b);
        sqrt(a) = _mm256_sqrt_ps(a);
        min(a, b) = _mm256_min_ps(a, b);
        max(a, b) = _mm256_max_ps(a, b);
        mul_add(a, b, c) = _mm256_fmadd_ps(a, b, c);
        neg_mul_add(a, b, c) = _mm256_fnmadd_ps(a, b, c);
        mul_sub(a, b, c) = _mm256_fmsub_ps(a, b, c);
    }

    #[inline(always)]
    unsafe fn splat(e: f32) -> Self {
        // SAFETY: the caller vouches for AVX2 and FMA.
        Self(unsafe { _mm256_set1_ps(e) })
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller vouches for the tier and for eight readable elements.
        Self(unsafe { _mm256_loadu_ps(p) })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller vouches for the tier and for eight writable elements.
        unsafe { _mm256_storeu_ps(p, self.0) }
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut f32) {
        // SAFETY: the caller vouches for the tier, for eight writable elements and for alignment.
        unsafe { _mm256_stream_ps(p, self.0) }
    }
    #[inline(always)]
    unsafe fn stream_fence() {
        // SAFETY: SSE is part of AVX2.
        unsafe { _mm_sfence() }
    }
    #[inline(always)]
    unsafe fn neg(self) -> Self {
        // SAFETY: the caller vouches for AVX2 and FMA.
        Self(unsafe { _mm256_xor_ps(self.0, _mm256_set1_ps(-0.0)) })
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        // SAFETY: the caller vouches for AVX2 and FMA.
        Self(unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), self.0) })
    }
    #[inline(always)]
    unsafe fn copysign(self, sign: Self) -> Self {
        // SAFETY: the caller vouches for AVX2 and FMA.
        unsafe {
            let bit = _mm256_set1_ps(-0.0);
            Self(_mm256_or_ps(
                _mm256_andnot_ps(bit, self.0),
                _mm256_and_ps(bit, sign.0),
            ))
        }
    }
    #[inline(always)]
    unsafe fn two_square(self) -> (Self, Self) {
        // SAFETY: the caller vouches for AVX2 and FMA.
        unsafe {
            let s = self.mul(self);
            (s, self.mul_sub(self, s))
        }
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        // SAFETY: the caller vouches for AVX2 and FMA.
        Self(unsafe {
            _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0)
        })
    }
    #[inline(always)]
    unsafe fn ldexp(self, n: Self) -> Self {
        // 1.5·2^23 leaves n in the low bits, 2·127 the bias of two factors 2^(n/2); bits above the
        // exponent field are shifted out.
        // SAFETY: the caller vouches for AVX2 and FMA.
        unsafe {
            let biased = _mm256_castps_si256(n.add(Self::splat(12_582_912.0 + 254.0)).0);
            let low = _mm256_srli_epi32::<1>(biased);
            let high = _mm256_sub_epi32(biased, low);
            let low = Self(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(low)));
            let high = Self(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(high)));
            self.mul(low).mul(high)
        }
    }
    #[inline(always)]
    unsafe fn lt(self, other: Self) -> __m256 {
        // SAFETY: the caller vouches for AVX2 and FMA.
        unsafe { _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn le(self, other: Self) -> __m256 {
        // SAFETY: the caller vouches for AVX2 and FMA.
        unsafe { _mm256_cmp_ps::<_CMP_LE_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn eq(self, other: Self) -> __m256 {
        // SAFETY: the caller vouches for AVX2 and FMA.
        unsafe { _mm256_cmp_ps::<_CMP_EQ_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn select(mask: __m256, if_true: Self, if_false: Self) -> Self {
        // SAFETY: the caller vouches for AVX2 and FMA.
        Self(unsafe { _mm256_blendv_ps(if_false.0, if_true.0, mask) })
    }
    #[inline(always)]
    unsafe fn keep_first(self, n: usize) -> Self {
        // SAFETY: the caller vouches for AVX2 and FMA.
        unsafe {
            let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let keep = _mm256_cmpgt_epi32(_mm256_set1_epi32(n.min(Self::LANES) as i32), lane);
            Self(_mm256_and_ps(self.0, _mm256_castsi256_ps(keep)))
        }
    }
    #[inline(always)]
    unsafe fn reduce_add(self) -> f32 {
        // SAFETY: the caller vouches for AVX2 and FMA.
        unsafe {
            let four = _mm_add_ps(
                _mm256_castps256_ps128(self.0),
                _mm256_extractf128_ps::<1>(self.0),
            );
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }
}

impl Vector for F64x4 {
    type Elem = f64;
    type Mask = __m256d;
    const LANES: usize = 4;

    one_intrinsic! {
        add(a, b) = _mm256_add_pd(a, b);
        sub(a, b) = _mm256_sub_pd(a, b);
        mul(a, b) = _mm256_mul_pd(a, b);
        div(a, b) = _mm256_div_pd(a, b);
        sqrt(a) = _mm256_sqrt_pd(a);
        min(a, b) = _mm256_min_pd(a, b);
        max(a, b) = _mm256_max_pd(a, b);
        mul_add(a, b, c) = _mm256_fmadd_pd(a, b, c);
        neg_mul_add(a, b, c) = _mm256_fnmadd_pd(a, b, c);
        mul_sub(a, b, c) = _mm256_fmsub_pd(a, b, c);
    }

    #[inline(always)]
    unsafe fn splat(e: f64) -> Self {
        // SAFETY: the caller vouches for AVX2 and FMA.
        Self(unsafe { _mm256_set1_pd(e) })
    }
    #[inline(always)]
    unsafe fn load(p: *const f64) -> Self {
        // SAFETY: the caller vouches for the tier and for four readable elements.
        Self(unsafe { _mm256_loadu_pd(p) })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f64) {
        // SAFETY: the caller vouches for the tier and for four writable elements.
        unsafe { _mm256_storeu_pd(p, self.0) }
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut f64) {
        // SAFETY: the caller vouches for the tier, for four writable elements and for alignment.
        unsafe { _mm256_stream_pd(p, self.0) }
    }
    #[inline(always)]
    unsafe fn stream_fence() {
        // SAFETY: SSE is part of AVX2.
        unsafe { _mm_sfence() }
    }
    #[inline(always)]
    unsafe fn neg(self) -> Self {
        // SAFETY: the caller vouches for AVX2 and FMA.
        Self(unsafe { _mm256_xor_pd(self.0, _mm256_set1_pd(-0.0)) })
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        // SAFETY: the caller vouches for AVX2 and FMA.
        Self(unsafe { _mm256_andnot_pd(_mm256_set1_pd(-0.0), self.0) })
    }
    #[inline(always)]
    unsafe fn copysign(self, sign: Self) -> Self {
        // SAFETY: the caller vouches for AVX2 and FMA.
        unsafe {
            let bit = _mm256_set1_pd(-0.0);
            Self(_mm256_or_pd(
                _mm256_andnot_pd(bit, self.0),
                _mm256_and_pd(bit, sign.0),
            ))
        }
    }
    #[inline(always)]
    unsafe fn two_square(self) -> (Self, Self) {
        // SAFETY: the caller vouches for AVX2 and FMA.
        unsafe {
            let s = self.mul(self);
            (s, self.mul_sub(self, s))
        }
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        // SAFETY: the caller vouches for AVX2 and FMA.
        Self(unsafe {
            _mm256_round_pd::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0)
        })
    }
    #[inline(always)]
    unsafe fn ldexp(self, n: Self) -> Self {
        // These are the steps for f32 with 1.5·2^52 and 2·1023.
        // SAFETY: the caller vouches for AVX2 and FMA.
        unsafe {
            let biased =
                _mm256_castpd_si256(n.add(Self::splat(6_755_399_441_055_744.0 + 2046.0)).0);
            let low = _mm256_srli_epi64::<1>(biased);
            let high = _mm256_sub_epi64(biased, low);
            let low = Self(_mm256_castsi256_pd(_mm256_slli_epi64::<52>(low)));
            let high = Self(_mm256_castsi256_pd(_mm256_slli_epi64::<52>(high)));
            self.mul(low).mul(high)
        }
    }
    #[inline(always)]
    unsafe fn lt(self, other: Self) -> __m256d {
        // SAFETY: the caller vouches for AVX2 and FMA.
        unsafe { _mm256_cmp_pd::<_CMP_LT_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn le(self, other: Self) -> __m256d {
        // SAFETY: the caller vouches for AVX2 and FMA.
        unsafe { _mm256_cmp_pd::<_CMP_LE_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn eq(self, other: Self) -> __m256d {
        // SAFETY: the caller vouches for AVX2 and FMA.
        unsafe { _mm256_cmp_pd::<_CMP_EQ_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn select(mask: __m256d, if_true: Self, if_false: Self) -> Self {
        // SAFETY: the caller vouches for AVX2 and FMA.
        Self(unsafe { _mm256_blendv_pd(if_false.0, if_true.0, mask) })
    }
    #[inline(always)]
    unsafe fn keep_first(self, n: usize) -> Self {
        // SAFETY: the caller vouches for AVX2 and FMA.
        unsafe {
            let lane = _mm256_setr_epi64x(0, 1, 2, 3);
            let keep = _mm256_cmpgt_epi64(_mm256_set1_epi64x(n.min(Self::LANES) as i64), lane);
            Self(_mm256_and_pd(self.0, _mm256_castsi256_pd(keep)))
        }
    }
    #[inline(always)]
    unsafe fn reduce_add(self) -> f64 {
        // SAFETY: the caller vouches for AVX2 and FMA.
        unsafe {
            let two = _mm_add_pd(
                _mm256_castpd256_pd128(self.0),
                _mm256_extractf128_pd::<1>(self.0),
            );
            _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)))
        }
    }
}
