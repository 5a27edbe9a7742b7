//! Single-register vector arithmetic: one small trait, one implementation a tier, run-time
//! detection and elementary functions.
//!
//! The layout is the dispatch. An algorithm is written once as an `#[inline(always)] unsafe fn`
//! generic over [`Vector`]; a thin shim per tier carries the `#[target_feature]` attribute and
//! instantiates it; the caller picks the shim by [`Tier`], once. Nothing in here checks the CPU, so
//! every method is `unsafe` with a single contract: the CPU that runs it supports the tier.
//!
//! ```
//! use flashcliff_kernels::simd::{Math, Scalar, Tier, Vector};
//!
//! #[inline(always)]
//! unsafe fn sigmoids<V: Vector<Elem = f32>>(x: &mut [f32]) {
//!     for block in x.chunks_exact_mut(V::LANES) {
//!         // SAFETY: the block holds exactly `LANES` elements; the caller vouches for the tier.
//!         unsafe { V::load(block.as_ptr()).sigmoid().store(block.as_mut_ptr()) };
//!     }
//! }
//!
//! #[cfg(target_arch = "x86_64")]
//! #[target_feature(enable = "avx2,fma")]
//! fn sigmoids_avx2(x: &mut [f32]) {
//!     // SAFETY: this function is compiled for AVX2 and FMA.
//!     unsafe { sigmoids::<flashcliff_kernels::simd::avx2::F32x8>(x) };
//! }
//!
//! let mut x = [0.0_f32; 8];
//! match Tier::best() {
//!     #[cfg(target_arch = "x86_64")]
//!     // SAFETY: `best` returns tiers that this CPU supports, and AVX-512 machines have AVX2.
//!     Tier::Avx2 | Tier::Avx512 => unsafe { sigmoids_avx2(&mut x) },
//!     // SAFETY: the scalar tier runs everywhere.
//!     _ => unsafe { sigmoids::<Scalar<f32>>(&mut x) },
//! }
//! assert_eq!(x, [0.5; 8]);
//! ```

mod loops;
mod math;
mod scalar;
mod tier;
mod vector;

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
#[cfg(target_arch = "aarch64")]
pub mod neon;

pub use loops::Loop;
pub use math::{Math, MathElem};
pub use scalar::Scalar;
pub use tier::{Tier, TierError};
pub use vector::Vector;
