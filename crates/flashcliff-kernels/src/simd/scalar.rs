//! The scalar tier: one lane, no instruction beyond the baseline of the target.
//!
//! Multiply-adds round twice, because a fused one without hardware support is a slow library call.

use super::vector::Vector;

/// A register of one lane.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Scalar<T>(pub T);

/// `$magic` is 1.5 times 2 to the number of explicit significand bits: adding it leaves a rounded
/// integer in the low bits.
macro_rules! scalar {
    (
        $elem:ident, $bits:ident, bias $bias:literal, explicit $explicit:literal, magic $magic:literal
    ) => {
        impl Vector for Scalar<$elem> {
            type Elem = $elem;
            type Mask = bool;
            const LANES: usize = 1;

            #[inline(always)]
            unsafe fn splat(e: $elem) -> Self {
                Self(e)
            }
            #[inline(always)]
            unsafe fn load(p: *const $elem) -> Self {
                // SAFETY: the caller gives a pointer that is valid for reading one element.
                Self(unsafe { p.read_unaligned() })
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $elem) {
                // SAFETY: the caller gives a pointer that is valid for writing one element.
                unsafe { p.write_unaligned(self.0) }
            }
            #[inline(always)]
            unsafe fn stream(self, p: *mut $elem) {
                // SAFETY: the same holds as for `store`.
                unsafe { self.store(p) }
            }
            #[inline(always)]
            unsafe fn stream_fence() {}
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
            #[inline(always)]
            unsafe fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
            #[inline(always)]
            unsafe fn mul(self, other: Self) -> Self {
                Self(self.0 * other.0)
            }
            #[inline(always)]
            unsafe fn div(self, other: Self) -> Self {
                Self(self.0 / other.0)
            }
            #[inline(always)]
            unsafe fn neg(self) -> Self {
                Self(-self.0)
            }
            #[inline(always)]
            unsafe fn abs(self) -> Self {
                Self(self.0.abs())
            }
            #[inline(always)]
            unsafe fn copysign(self, sign: Self) -> Self {
                Self(self.0.copysign(sign.0))
            }
            #[inline(always)]
            unsafe fn sqrt(self) -> Self {
                Self(self.0.sqrt())
            }
            #[inline(always)]
            unsafe fn min(self, other: Self) -> Self {
                if self.0 < other.0 { self } else { other }
            }
            #[inline(always)]
            unsafe fn max(self, other: Self) -> Self {
                if self.0 > other.0 { self } else { other }
            }
            #[inline(always)]
            unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                Self(self.0 * b.0 + c.0)
            }
            #[inline(always)]
            unsafe fn neg_mul_add(self, b: Self, c: Self) -> Self {
                Self(c.0 - self.0 * b.0)
            }
            #[inline(always)]
            unsafe fn mul_sub(self, b: Self, c: Self) -> Self {
                Self(self.0 * b.0 - c.0)
            }
            #[inline(always)]
            unsafe fn two_square(self) -> (Self, Self) {
                // Dekker: with x = h + l, h rounded to half the significand, the error is ((h² - s)
                // + 2hl) + l², every step exact.
                let x = self.0;
                let s = x * x;
                let cut = $explicit / 2 + 1;
                let h = <$elem>::from_bits(
                    x.to_bits().wrapping_add(1 << (cut - 1)) & (<$bits>::MAX << cut),
                );
                let l = x - h;
                (Self(s), Self(((h * h - s) + 2.0 * h * l) + l * l))
            }
            #[inline(always)]
            unsafe fn round(self) -> Self {
                Self((self.0 + $magic) - $magic)
            }
            #[inline(always)]
            unsafe fn ldexp(self, n: Self) -> Self {
                // 2^n may leave the exponent range, its two halves cannot. Bits above the exponent
                // field are shifted out.
                let biased = (n.0 + ($magic + 2.0 * $bias)).to_bits();
                let low = biased >> 1;
                let high = biased.wrapping_sub(low);
                let pow2 = |half: $bits| <$elem>::from_bits(half << $explicit);
                Self(self.0 * pow2(low) * pow2(high))
            }
            #[inline(always)]
            unsafe fn lt(self, other: Self) -> bool {
                self.0 < other.0
            }
            #[inline(always)]
            unsafe fn le(self, other: Self) -> bool {
                self.0 <= other.0
            }
            #[inline(always)]
            unsafe fn eq(self, other: Self) -> bool {
                self.0 == other.0
            }
            #[inline(always)]
            unsafe fn select(mask: bool, if_true: Self, if_false: Self) -> Self {
                if mask { if_true } else { if_false }
            }
            #[inline(always)]
            unsafe fn keep_first(self, n: usize) -> Self {
                if n == 0 { Self(0.0) } else { self }
            }
            #[inline(always)]
            unsafe fn reduce_add(self) -> $elem {
                self.0
            }
        }
    };
}

scalar!(f32, u32, bias 127.0, explicit 23, magic 12582912.0);
scalar!(f64, u64, bias 1023.0, explicit 52, magic 6755399441055744.0);
