//! Loops of hosts, compiled for the vectors of a CPU.

use super::Tier;

/// A loop over numbers, for [`Tier::run`].
///
/// [`Loop::run`] must be inlined, with all that it calls, to be compiled with the instructions of a tier: write `#[inline(always)]`.
pub trait Loop {
    /// The result.
    type Output;

    /// Runs the loop.
    fn run(self) -> Self::Output;
}

impl Tier {
    /// Runs a loop with the instructions of this tier, or with the instructions of the least CPU of the architecture if this CPU lacks
    /// them.
    ///
    /// A program is built for the least CPU. The compiler makes the same operations of a loop for all tiers, on more numbers at a time, and
    /// fuses none, so the numbers are the same bit for bit.
    ///
    /// ```
    /// use flashcliff_kernels::simd::{Loop, Tier};
    ///
    /// struct Roots<'a>(&'a mut [f32]);
    ///
    /// impl Loop for Roots<'_> {
    ///     type Output = ();
    ///
    ///     #[inline(always)]
    ///     fn run(self) {
    ///         self.0.iter_mut().for_each(|x| *x = x.sqrt());
    ///     }
    /// }
    ///
    /// let mut numbers = [4.0, 9.0];
    /// Tier::best().run(Roots(&mut numbers));
    /// assert_eq!(numbers, [2.0, 3.0]);
    /// ```
    pub fn run<L: Loop>(self, work: L) -> L::Output {
        match self {
            // SAFETY: the CPU has the instructions.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 if self.is_available() => unsafe { avx512(work) },
            // SAFETY: the same holds here.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 if self.is_available() => unsafe { avx2(work) },
            _ => work.run(),
        }
    }
}

/// Runs a loop.
///
/// # Safety
/// The CPU has AVX-512 F, BW, DQ and VL.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512<L: Loop>(work: L) -> L::Output {
    work.run()
}

/// Runs a loop.
///
/// # Safety
/// The CPU has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<L: Loop>(work: L) -> L::Output {
    work.run()
}
