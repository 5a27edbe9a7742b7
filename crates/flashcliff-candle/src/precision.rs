//! The precision of matrix products on GPUs.

use std::sync::atomic::{AtomicBool, Ordering};

/// How matrix products of `f32` tensors on GPUs round their operands. Sums are in `f32` in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Precision {
    /// They do not.
    #[default]
    Highest,
    /// To TF32: 8 bits of exponent, 10 of fraction.
    Tf32,
}

static TF32: AtomicBool = AtomicBool::new(false);

/// Sets the precision of the matrix products that this process launches from now on: the products of candle, of operators, of attention,
/// and of an [`Objective`](crate::objective::Objective) that is made from now on. A captured step keeps its precision. The CPU does not
/// round.
///
/// candle has one precision for the process too.
///
/// ```
/// use flashcliff_candle::precision::{self, Precision};
///
/// assert_eq!(precision::current(), Precision::Highest);
/// precision::set(Precision::Tf32);
/// assert_eq!(precision::current(), Precision::Tf32);
/// ```
pub fn set(precision: Precision) {
    let tf32 = precision == Precision::Tf32;
    candle_core::cuda::set_gemm_reduced_precision_f32(tf32);
    TF32.store(tf32, Ordering::Relaxed);
}

/// The precision that was [`set`] last.
pub fn current() -> Precision {
    match TF32.load(Ordering::Relaxed) {
        false => Precision::Highest,
        true => Precision::Tf32,
    }
}

/// The precision for the CUDA library.
#[cfg(feature = "cuda")]
pub(crate) fn of_operators() -> flashcliff::cuda::MatmulPrecision {
    match current() {
        Precision::Highest => flashcliff::cuda::MatmulPrecision::Highest,
        Precision::Tf32 => flashcliff::cuda::MatmulPrecision::Tf32,
    }
}
