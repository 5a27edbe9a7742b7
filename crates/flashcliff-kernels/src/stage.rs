//! Stages: generated functions over the channels of one row.

use crate::Gate;
use crate::code::Code;
use crate::simd::{Tier, Vector};

/// A row of a tensor. Component `k`, channel `c` lies at `ptr + k stride + c`, unless the tensor is packed.
#[derive(Debug)]
pub struct Lanes<T> {
    /// The first component of the first channel.
    pub ptr: *mut T,
    /// The distance in elements from one component to the next.
    pub stride: usize,
    /// The distance in elements from this row to the one to prefetch; 0 if rows lie in a cache already.
    pub ahead: usize,
}

impl<T> Clone for Lanes<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Lanes<T> {}

impl<T> Lanes<T> {
    /// The lanes of a tensor that does not exist.
    pub const NONE: Self = Self {
        ptr: std::ptr::null_mut(),
        stride: 0,
        ahead: 0,
    };

    /// Prefetches a later row of the first `COMPONENTS` components. These are more streams than the prefetchers of the CPU can
    /// follow.
    #[inline(always)]
    pub fn prefetch<const COMPONENTS: usize>(self, channel: usize) {
        for component in 0..COMPONENTS {
            let offset = component * self.stride + channel + self.ahead;
            prefetch(self.ptr.wrapping_add(offset));
        }
    }

    /// The address of a component at a channel.
    ///
    /// # Safety
    /// The component and the channel are in the tensor.
    #[inline(always)]
    pub unsafe fn at(self, component: usize, channel: usize) -> *mut T {
        // SAFETY: the caller promises it.
        unsafe { self.ptr.add(component * self.stride + channel) }
    }

    /// The vectors of one group of channels, in a tensor in scratch memory that has `COUNT` vectors for each group, one after the other.
    ///
    /// # Safety
    /// The tensor has the group.
    #[inline(always)]
    pub unsafe fn packed<V: Vector<Elem = T>, const COUNT: usize>(self, group: usize) -> Packed<V> {
        // SAFETY: the caller promises it.
        Packed(unsafe { self.ptr.add(group * COUNT * V::LANES) })
    }
}

/// Prefetches the cache line of an address, which need not be valid.
#[inline(always)]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint; its address need not be valid.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The vectors of a group of channels of a packed tensor. Their distances are constants, so addresses take no registers.
pub struct Packed<V: Vector>(*mut V::Elem);

impl<V: Vector> Packed<V> {
    /// The address of a vector.
    ///
    /// # Safety
    /// The tensor has a vector with this index.
    #[inline(always)]
    pub unsafe fn at(&self, index: usize) -> *mut V::Elem {
        // SAFETY: the caller promises it.
        unsafe { self.0.add(index * V::LANES) }
    }
}

/// The arguments of a stage. [`StageCall`](super::program::StageCall) gives the meaning of the slots.
///
/// # Contract
/// Every lane tensor, parameter and sum over the batch holds `groups` whole vectors of the tier
/// for each of the components the stage names; cuts, parameters and sums over the batch
/// are packed for a compiled stage, and lie as other tensors do for one that is interpreted;
/// outputs and sums over the batch overlap nothing else; `rows` and `row_sums` have an element for each
/// row slot.
pub struct StageArgs<'a, T> {
    /// The tensors that the stage reads.
    pub inputs: &'a [Lanes<T>],
    /// The tensors that the stage writes.
    pub outputs: &'a [Lanes<T>],
    /// The parameters.
    pub params: &'a [Lanes<T>],
    /// The sums over the batch, to which the stage adds.
    pub sums: &'a [Lanes<T>],
    /// The row sums that the stage reads.
    pub rows: &'a [T],
    /// The row sums that the stage computes.
    pub row_sums: &'a mut [T],
    /// The number of vectors that the channels of a row fill; the last one may be partial.
    pub groups: usize,
    /// The number of channels of a row that the stage is about.
    pub channels: usize,
    /// The gate of the operator.
    pub gate: Gate,
    /// The epsilon that norms add under the root.
    pub eps: T,
    /// `1 / channels`.
    pub inv_channels: T,
    /// The number of channels, and of scalar channels.
    pub counts: [T; 2],
    /// The code of a stage that is interpreted.
    pub code: Option<&'a Code>,
}

impl<T> StageArgs<'_, T> {
    /// How many lanes of a group are channels. The other lanes are padding, and count in no sum.
    #[inline(always)]
    pub fn valid_lanes(&self, group: usize, lanes: usize) -> usize {
        (self.channels - group * lanes).min(lanes)
    }
}

/// A stage, compiled for one tier and element type.
///
/// # Safety
/// The contract of [`StageArgs`] holds, and the CPU supports the tier.
pub type StageFn<T> = unsafe fn(&mut StageArgs<'_, T>);

/// A stage: compiled functions, or code that the interpreter runs.
pub struct Stage {
    /// The functions for `f32`.
    pub f32: Tiers<f32>,
    /// The functions for `f64`.
    pub f64: Tiers<f64>,
    /// The code of the stage, if the functions are the interpreter's.
    pub code: Option<&'static Code>,
}

/// One function for each tier; `None` for tiers that were not compiled, where programs are interpreted.
#[derive(Debug)]
pub struct Tiers<T: 'static> {
    /// The function of the scalar tier.
    pub scalar: Option<StageFn<T>>,
    /// The function for AVX2 and FMA.
    pub avx2: Option<StageFn<T>>,
    /// The function for AVX-512.
    pub avx512: Option<StageFn<T>>,
    /// The function for Advanced SIMD.
    pub neon: Option<StageFn<T>>,
}

impl<T> Tiers<T> {
    /// No function.
    pub const NONE: Self = Self {
        scalar: None,
        avx2: None,
        avx512: None,
        neon: None,
    };

    /// The function of a tier.
    pub fn get(&self, tier: Tier) -> Option<StageFn<T>> {
        match tier {
            Tier::Scalar => self.scalar,
            Tier::Avx2 => self.avx2,
            Tier::Avx512 => self.avx512,
            Tier::Neon => self.neon,
        }
    }
}

/// The [`Tiers`] of a function that is generic over the vector, for one element type: a shim for each vector type of the
/// target. `f64` uses 256-bit vectors on the AVX-512 tier too.
#[doc(hidden)]
#[macro_export]
macro_rules! tiers {
    ($body:ident, f32) => {
        $crate::tiers!(@ $body, f32, F32x8, F32x16, F32x4)
    };
    ($body:ident, f64) => {
        $crate::tiers!(@ $body, f64, F64x4, none, F64x2)
    };
    (@ $body:ident, $elem:ty, $avx2:ident, $avx512:ident, $neon:ident) => {{
        use $crate::stage::{StageArgs, Tiers};

        /// # Safety
        /// The contract of [`StageArgs`] holds, and the CPU has AVX2 and FMA.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2(args: &mut StageArgs<'_, $elem>) {
            // SAFETY: the caller promises it.
            unsafe { $body::<$crate::simd::avx2::$avx2>(args) }
        }
        /// # Safety
        /// The contract of [`StageArgs`] holds, and the CPU has NEON.
        #[cfg(target_arch = "aarch64")]
        #[target_feature(enable = "neon")]
        unsafe fn neon(args: &mut StageArgs<'_, $elem>) {
            // SAFETY: the caller promises it.
            unsafe { $body::<$crate::simd::neon::$neon>(args) }
        }
        Tiers {
            #[cfg(target_arch = "x86_64")]
            avx2: Some(avx2),
            #[cfg(target_arch = "x86_64")]
            avx512: Some($crate::tiers!(@avx512 $body, $elem, $avx512, avx2)),
            #[cfg(target_arch = "aarch64")]
            neon: Some(neon),
            ..Tiers::NONE
        }
    }};
    (@avx512 $body:ident, $elem:ty, none, $avx2:ident) => {
        $avx2
    };
    (@avx512 $body:ident, $elem:ty, $avx512:ident, $avx2:ident) => {{
        /// # Safety
        /// The contract of [`StageArgs`] holds, and the CPU has the AVX-512 of the tier.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        unsafe fn avx512(args: &mut StageArgs<'_, $elem>) {
            // SAFETY: the caller promises it.
            unsafe { $body::<$crate::simd::avx512::$avx512>(args) }
        }
        avx512
    }};
}

/// The [`Stage`] of a function that is generic over the vector, for every tier and both element types.
#[doc(hidden)]
#[macro_export]
macro_rules! stage {
    ($body:ident) => {{
        use $crate::stage::{Stage, StageArgs, Tiers};

        /// # Safety
        /// The contract of [`StageArgs`] holds.
        unsafe fn scalar_f32(args: &mut StageArgs<'_, f32>) {
            // SAFETY: the caller promises it.
            unsafe { $body::<$crate::simd::Scalar<f32>>(args) }
        }
        /// # Safety
        /// The contract of [`StageArgs`] holds.
        unsafe fn scalar_f64(args: &mut StageArgs<'_, f64>) {
            // SAFETY: the caller promises it.
            unsafe { $body::<$crate::simd::Scalar<f64>>(args) }
        }
        Stage {
            f32: Tiers {
                scalar: Some(scalar_f32),
                ..$crate::tiers!($body, f32)
            },
            f64: Tiers {
                scalar: Some(scalar_f64),
                ..$crate::tiers!($body, f64)
            },
            code: None,
        }
    }};
}

/// The [`Stage`] of a kernel: for the vector units of the target, in `f32`, and in `f64` if the feature of this crate asks for
/// it. Missing functions are interpreted.
#[cfg(feature = "f64")]
#[doc(hidden)]
#[macro_export]
macro_rules! kernel {
    ($body:ident) => {
        $crate::stage::Stage {
            f32: $crate::tiers!($body, f32),
            f64: $crate::tiers!($body, f64),
            code: None,
        }
    };
}

/// The [`Stage`] of a kernel: for the vector units of the target, in `f32`. Missing functions are interpreted.
#[cfg(not(feature = "f64"))]
#[doc(hidden)]
#[macro_export]
macro_rules! kernel {
    ($body:ident) => {
        $crate::stage::Stage {
            f32: $crate::tiers!($body, f32),
            f64: $crate::stage::Tiers::NONE,
            code: None,
        }
    };
}
