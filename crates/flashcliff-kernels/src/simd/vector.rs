//! The vector trait that generated kernels and the elementary functions are generic over.

use super::math::MathElem;

/// One SIMD register of [`Self::Elem`], lane 0 at the lowest address.
///
/// Arithmetic is IEEE 754 in round-to-nearest, lane by lane. Two tiers may differ in the last bits
/// for two reasons only: [`mul_add`](Self::mul_add) and its relatives round once where the tier has
/// a fused multiply-add and twice in the scalar tier; and [`reduce_add`](Self::reduce_add) pairs as
/// many lanes as the register has.
///
/// # Safety
///
/// There is one contract for every method: the CPU supports the tier of the type (see
/// [`Tier::is_available`](super::Tier::is_available)). For methods that take a pointer, the pointer must also be valid for
/// reading or writing `LANES` elements; only [`stream`](Self::stream) needs alignment.
///
/// Call these methods only from `#[inline(always)]` functions that end up in a `#[target_feature]`
/// function of the tier; anywhere else they are correct but slow.
#[allow(
    clippy::missing_safety_doc,
    reason = "all methods share the contract stated on the trait"
)]
pub trait Vector: Copy {
    /// The element type, `f32` or `f64`.
    type Elem: MathElem;

    /// One truth value for each lane, in the form that the tier's comparisons and selections use.
    type Mask: Copy;

    /// Lanes in the register.
    const LANES: usize;

    /// All lanes `e`.
    unsafe fn splat(e: Self::Elem) -> Self;

    /// All lanes `c`, rounded to the element type: for constants.
    #[inline(always)]
    unsafe fn from_f64(c: f64) -> Self {
        // SAFETY: the contract of the trait.
        unsafe { Self::splat(Self::Elem::from_f64(c)) }
    }

    /// Reads `LANES` elements, at any alignment.
    unsafe fn load(p: *const Self::Elem) -> Self;

    /// Writes `LANES` elements, at any alignment.
    unsafe fn store(self, p: *mut Self::Elem);

    /// Writes `LANES` elements past the caches, or by a plain store if the tier has no such instruction. `p` must be aligned to
    /// `size_of::<Self>()`. Call [`stream_fence`](Self::stream_fence) after the last write, before another thread may read.
    unsafe fn stream(self, p: *mut Self::Elem);

    /// Orders earlier [`stream`](Self::stream)s before later stores.
    unsafe fn stream_fence();

    /// `self + other`.
    unsafe fn add(self, other: Self) -> Self;

    /// `self - other`.
    unsafe fn sub(self, other: Self) -> Self;

    /// `self * other`.
    unsafe fn mul(self, other: Self) -> Self;

    /// `self / other`, correctly rounded.
    unsafe fn div(self, other: Self) -> Self;

    /// `-self`: flips the sign bit, of NaN too.
    unsafe fn neg(self) -> Self;

    /// Clears the sign bit.
    unsafe fn abs(self) -> Self;

    /// The magnitude of `self` with the sign bit of `sign`.
    unsafe fn copysign(self, sign: Self) -> Self;

    /// Square root, correctly rounded.
    unsafe fn sqrt(self) -> Self;

    /// `self < other ? self : other`; so `other` if either is NaN, and `bound.min(x)` passes a NaN
    /// of `x` on.
    unsafe fn min(self, other: Self) -> Self;

    /// `self > other ? self : other`; so `other` if either is NaN, and `bound.max(x)` passes a NaN
    /// of `x` on.
    unsafe fn max(self, other: Self) -> Self;

    /// `self * b + c`, fused where the tier can, rounded twice in the scalar tier.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;

    /// `c - self * b`, rounded like [`mul_add`](Self::mul_add).
    unsafe fn neg_mul_add(self, b: Self, c: Self) -> Self;

    /// `self * b - c`, rounded like [`mul_add`](Self::mul_add).
    unsafe fn mul_sub(self, b: Self, c: Self) -> Self;

    /// The rounded square and its rounding error: `s + e = self²` exactly in every tier, unless
    /// something overflows or underflows.
    unsafe fn two_square(self) -> (Self, Self);

    /// The nearest integer, ties to even. The scalar tier asks that `|self| < 2^22` (f32) or `2^51`
    /// (f64).
    unsafe fn round(self) -> Self;

    /// `self * 2^n` for integral `n`, rounded once: results may be subnormal, zero or infinite.
    /// `|self|` must lie in `[1/4, 2]` (or be NaN) and `|n|` must not exceed 200 (f32) or 2000
    /// (f64).
    unsafe fn ldexp(self, n: Self) -> Self;

    /// Lanes where `self < other`; false for NaN.
    unsafe fn lt(self, other: Self) -> Self::Mask;

    /// Lanes where `self <= other`; false for NaN.
    unsafe fn le(self, other: Self) -> Self::Mask;

    /// Lanes where `self == other`; false for NaN, true for `-0 == 0`.
    unsafe fn eq(self, other: Self) -> Self::Mask;

    /// Lanes of `if_true` where the mask is true, else of `if_false`: bits move unchanged.
    unsafe fn select(mask: Self::Mask, if_true: Self, if_false: Self) -> Self;

    /// Lanes `0..n` unchanged, the others `+0`, bit by bit: a NaN there vanishes. Any `n >= LANES`
    /// keeps all.
    unsafe fn keep_first(self, n: usize) -> Self;

    /// The sum of the lanes in a fixed order: lanes `i` and `i + LANES/2` are added, halving the
    /// register until one lane is left.
    unsafe fn reduce_add(self) -> Self::Elem;

    /// Every lane zero.
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the contract of the trait.
        unsafe { Self::from_f64(0.0) }
    }
}
