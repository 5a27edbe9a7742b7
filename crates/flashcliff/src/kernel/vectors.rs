//! Work on vectors, compiled for each tier.

use flashcliff_kernels::simd::{self, Math, Scalar, Tier, Vector};

/// The vectors of a type of elements.
pub(crate) trait Vectors: Copy + Default + Send + 'static {
    type Scalar: Vector<Elem = Self>;
    #[cfg(target_arch = "x86_64")]
    type Avx2: Vector<Elem = Self>;
    #[cfg(target_arch = "x86_64")]
    type Avx512: Vector<Elem = Self>;
    #[cfg(target_arch = "aarch64")]
    type Neon: Vector<Elem = Self>;
}

impl Vectors for f32 {
    type Scalar = Scalar<Self>;
    #[cfg(target_arch = "x86_64")]
    type Avx2 = simd::avx2::F32x8;
    #[cfg(target_arch = "x86_64")]
    type Avx512 = simd::avx512::F32x16;
    #[cfg(target_arch = "aarch64")]
    type Neon = simd::neon::F32x4;
}

impl Vectors for f64 {
    type Scalar = Scalar<Self>;
    #[cfg(target_arch = "x86_64")]
    type Avx2 = simd::avx2::F64x4;
    #[cfg(target_arch = "x86_64")]
    type Avx512 = simd::avx512::F64x8;
    #[cfg(target_arch = "aarch64")]
    type Neon = simd::neon::F64x2;
}

/// Work on the vectors of a tier. Unlike [loops](crate::Loop), which have the same bits on every CPU, it fuses what the tier fuses.
pub(crate) trait VectorLoop<T> {
    /// The result.
    type Output;

    /// Runs the work. It must be inlined with all that it calls: write `#[inline(always)]`.
    ///
    /// # Safety
    /// The CPU has the tier of the vectors, and `registers` of them at a time.
    unsafe fn run<V: Math<Elem = T>>(self, registers: usize) -> Self::Output;
}

/// Runs work with the vectors of the [best](Tier::best) tier.
///
/// # Safety
/// The contract of the work, besides the tier.
pub(crate) unsafe fn run<T: Vectors, W: VectorLoop<T>>(work: W) -> W::Output {
    // SAFETY: the best tier is one of this CPU; the caller promises the rest.
    unsafe {
        match Tier::best() {
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512 => avx512(work),
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => avx2(work),
            #[cfg(target_arch = "aarch64")]
            Tier::Neon => neon(work),
            _ => scalar(work),
        }
    }
}

/// The shim of a tier, with its number of registers.
macro_rules! shim {
    ($(#[$attribute:meta])* $name:ident, $vector:ty, $registers:expr) => {
        /// # Safety
        /// The contract of [`run`] holds, and the CPU has the tier.
        $(#[$attribute])*
        unsafe fn $name<T: Vectors, W: VectorLoop<T>>(work: W) -> W::Output {
            // SAFETY: the caller promises it.
            unsafe { work.run::<$vector>($registers) }
        }
    };
}

shim!(scalar, T::Scalar, 16);
shim!(
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    avx2,
    T::Avx2,
    16
);
shim!(
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    avx512,
    T::Avx512,
    32
);
shim!(
    #[cfg(target_arch = "aarch64")]
    #[target_feature(enable = "neon")]
    neon,
    T::Neon,
    32
);
