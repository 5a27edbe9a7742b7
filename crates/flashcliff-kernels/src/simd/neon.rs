//! The NEON tier: 128-bit registers of AArch64 Advanced SIMD, which every AArch64 CPU with an
//! operating system has. Shims enable `neon`.

use core::arch::aarch64::*;

use super::vector::Vector;

/// Four `f32` lanes.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct F32x4(pub float32x4_t);

/// Two `f64` lanes.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct F64x2(pub float64x2_t);

/// Methods that are one intrinsic: `name(self, arguments) = intrinsic(operands)`.
macro_rules! one_intrinsic {
    ($($name:ident($this:ident $(, $arg:ident)*) = $intrinsic:ident($($operand:ident),*);)*) => {$(
        #[inline(always)]
        unsafe fn $name(self $(, $arg: Self)*) -> Self {
            let $this = self;
            // SAFETY: the caller vouches for NEON.
            Self(unsafe { $intrinsic($($operand.0),*) })
        }
    )*};
}

impl Vector for F32x4 {
    type Elem = f32;
    type Mask = uint32x4_t;
    const LANES: usize = 4;

    one_intrinsic! {
        add(a, b) = vaddq_f32(a, b);
        sub(a, b) = vsubq_f32(a, b);
        mul(a, b) = vmulq_f32(a, b);
        div(a, b) = vdivq_f32(a, b);
        neg(a) = vnegq_f32(a);
        abs(a) = vabsq_f32(a);
        sqrt(a) = vsqrtq_f32(a);
        round(a) = vrndnq_f32(a);
        mul_add(a, b, c) = vfmaq_f32(c, a, b);
        neg_mul_add(a, b, c) = vfmsq_f32(c, a, b);
    }

    #[inline(always)]
    unsafe fn splat(e: f32) -> Self {
        // SAFETY: the caller vouches for NEON.
        Self(unsafe { vdupq_n_f32(e) })
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller vouches for the tier and for four readable elements.
        Self(unsafe { vld1q_f32(p) })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller vouches for the tier and for four writable elements.
        unsafe { vst1q_f32(p, self.0) }
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut f32) {
        // SAFETY: the same holds as for `store`; non-temporal stores have no intrinsic here.
        unsafe { self.store(p) }
    }
    #[inline(always)]
    unsafe fn stream_fence() {}
    #[inline(always)]
    unsafe fn mul_sub(self, b: Self, c: Self) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe { self.mul_add(b, c.neg()) }
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        // The minimum instructions are not used, because they treat NaN differently.
        // SAFETY: the caller vouches for NEON.
        unsafe { Self::select(self.lt(other), self, other) }
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe { Self::select(other.lt(self), self, other) }
    }
    #[inline(always)]
    unsafe fn copysign(self, sign: Self) -> Self {
        // SAFETY: the caller vouches for NEON.
        Self(unsafe { vbslq_f32(vdupq_n_u32(1 << 31), sign.0, self.0) })
    }
    #[inline(always)]
    unsafe fn two_square(self) -> (Self, Self) {
        // SAFETY: the caller vouches for NEON.
        unsafe {
            let s = self.mul(self);
            (s, self.mul_sub(self, s))
        }
    }
    #[inline(always)]
    unsafe fn ldexp(self, n: Self) -> Self {
        // 1.5·2^23 leaves n in the low bits, 2·127 the bias of two factors 2^(n/2); bits above the
        // exponent field are shifted out.
        // SAFETY: the caller vouches for NEON.
        unsafe {
            let biased = vreinterpretq_u32_f32(n.add(Self::splat(12_582_912.0 + 254.0)).0);
            let low = vshrq_n_u32::<1>(biased);
            let high = vsubq_u32(biased, low);
            let low = Self(vreinterpretq_f32_u32(vshlq_n_u32::<23>(low)));
            let high = Self(vreinterpretq_f32_u32(vshlq_n_u32::<23>(high)));
            self.mul(low).mul(high)
        }
    }
    #[inline(always)]
    unsafe fn lt(self, other: Self) -> uint32x4_t {
        // SAFETY: the caller vouches for NEON.
        unsafe { vcltq_f32(self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn le(self, other: Self) -> uint32x4_t {
        // SAFETY: the caller vouches for NEON.
        unsafe { vcleq_f32(self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn eq(self, other: Self) -> uint32x4_t {
        // SAFETY: the caller vouches for NEON.
        unsafe { vceqq_f32(self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn select(mask: uint32x4_t, if_true: Self, if_false: Self) -> Self {
        // SAFETY: the caller vouches for NEON.
        Self(unsafe { vbslq_f32(mask, if_true.0, if_false.0) })
    }
    #[inline(always)]
    unsafe fn keep_first(self, n: usize) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe {
            let lane = vld1q_u32([0, 1, 2, 3].as_ptr());
            let keep = vcltq_u32(lane, vdupq_n_u32(n.min(Self::LANES) as u32));
            Self(vreinterpretq_f32_u32(vandq_u32(
                vreinterpretq_u32_f32(self.0),
                keep,
            )))
        }
    }
    #[inline(always)]
    unsafe fn reduce_add(self) -> f32 {
        // SAFETY: the caller vouches for NEON.
        unsafe {
            let two = vadd_f32(vget_low_f32(self.0), vget_high_f32(self.0));
            vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
        }
    }
}

impl Vector for F64x2 {
    type Elem = f64;
    type Mask = uint64x2_t;
    const LANES: usize = 2;

    one_intrinsic! {
        add(a, b) = vaddq_f64(a, b);
        sub(a, b) = vsubq_f64(a, b);
        mul(a, b) = vmulq_f64(a, b);
        div(a, b) = vdivq_f64(a, b);
        neg(a) = vnegq_f64(a);
        abs(a) = vabsq_f64(a);
        sqrt(a) = vsqrtq_f64(a);
        round(a) = vrndnq_f64(a);
        mul_add(a, b, c) = vfmaq_f64(c, a, b);
        neg_mul_add(a, b, c) = vfmsq_f64(c, a, b);
    }

    #[inline(always)]
    unsafe fn splat(e: f64) -> Self {
        // SAFETY: the caller vouches for NEON.
        Self(unsafe { vdupq_n_f64(e) })
    }
    #[inline(always)]
    unsafe fn load(p: *const f64) -> Self {
        // SAFETY: the caller vouches for the tier and for two readable elements.
        Self(unsafe { vld1q_f64(p) })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f64) {
        // SAFETY: the caller vouches for the tier and for two writable elements.
        unsafe { vst1q_f64(p, self.0) }
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut f64) {
        // SAFETY: the same holds as for `store`; non-temporal stores have no intrinsic here.
        unsafe { self.store(p) }
    }
    #[inline(always)]
    unsafe fn stream_fence() {}
    #[inline(always)]
    unsafe fn mul_sub(self, b: Self, c: Self) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe { self.mul_add(b, c.neg()) }
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        // The minimum instructions are not used, because they treat NaN differently.
        // SAFETY: the caller vouches for NEON.
        unsafe { Self::select(self.lt(other), self, other) }
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe { Self::select(other.lt(self), self, other) }
    }
    #[inline(always)]
    unsafe fn copysign(self, sign: Self) -> Self {
        // SAFETY: the caller vouches for NEON.
        Self(unsafe { vbslq_f64(vdupq_n_u64(1 << 63), sign.0, self.0) })
    }
    #[inline(always)]
    unsafe fn two_square(self) -> (Self, Self) {
        // SAFETY: the caller vouches for NEON.
        unsafe {
            let s = self.mul(self);
            (s, self.mul_sub(self, s))
        }
    }
    #[inline(always)]
    unsafe fn ldexp(self, n: Self) -> Self {
        // These are the steps for f32 with 1.5·2^52 and 2·1023.
        // SAFETY: the caller vouches for NEON.
        unsafe {
            let biased =
                vreinterpretq_u64_f64(n.add(Self::splat(6_755_399_441_055_744.0 + 2046.0)).0);
            let low = vshrq_n_u64::<1>(biased);
            let high = vsubq_u64(biased, low);
            let low = Self(vreinterpretq_f64_u64(vshlq_n_u64::<52>(low)));
            let high = Self(vreinterpretq_f64_u64(vshlq_n_u64::<52>(high)));
            self.mul(low).mul(high)
        }
    }
    #[inline(always)]
    unsafe fn lt(self, other: Self) -> uint64x2_t {
        // SAFETY: the caller vouches for NEON.
        unsafe { vcltq_f64(self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn le(self, other: Self) -> uint64x2_t {
        // SAFETY: the caller vouches for NEON.
        unsafe { vcleq_f64(self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn eq(self, other: Self) -> uint64x2_t {
        // SAFETY: the caller vouches for NEON.
        unsafe { vceqq_f64(self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn select(mask: uint64x2_t, if_true: Self, if_false: Self) -> Self {
        // SAFETY: the caller vouches for NEON.
        Self(unsafe { vbslq_f64(mask, if_true.0, if_false.0) })
    }
    #[inline(always)]
    unsafe fn keep_first(self, n: usize) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe {
            let lane = vld1q_u64([0, 1].as_ptr());
            let keep = vcltq_u64(lane, vdupq_n_u64(n.min(Self::LANES) as u64));
            Self(vreinterpretq_f64_u64(vandq_u64(
                vreinterpretq_u64_f64(self.0),
                keep,
            )))
        }
    }
    #[inline(always)]
    unsafe fn reduce_add(self) -> f64 {
        // SAFETY: the caller vouches for NEON.
        unsafe { vgetq_lane_f64::<0>(self.0) + vgetq_lane_f64::<1>(self.0) }
    }
}
