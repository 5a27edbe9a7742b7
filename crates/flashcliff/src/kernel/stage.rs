//! Stages: generated functions over the channels of one row.

use crate::Gate;
use crate::simd::{Tier, Vector};

/// A row of a tensor. Component `k`, channel `c` lies at `ptr + k stride + c`, unless it is packed.
#[derive(Debug)]
pub(crate) struct Lanes<T> {
    pub(crate) ptr: *mut T,
    pub(crate) stride: usize,
    /// From this row to the one worth fetching meanwhile; 0 if the row lies in a cache already.
    pub(crate) ahead: usize,
}

impl<T> Clone for Lanes<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Lanes<T> {}

impl<T> Lanes<T> {
    /// Of nothing.
    pub(crate) const NONE: Self = Self {
        ptr: std::ptr::null_mut(),
        stride: 0,
        ahead: 0,
    };

    /// Asks for a later row of the first `COMPONENTS` components: so many streams are more than
    /// the prefetchers of the CPU follow.
    #[inline(always)]
    pub(crate) fn prefetch<const COMPONENTS: usize>(self, channel: usize) {
        for component in 0..COMPONENTS {
            let offset = component * self.stride + channel + self.ahead;
            let address = self.ptr.wrapping_add(offset);
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a prefetch is a hint; its address need not be valid.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(address.cast());
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = address;
        }
    }

    /// The address of a component at a channel.
    ///
    /// # Safety
    /// It lies in the tensor.
    #[inline(always)]
    pub(crate) unsafe fn at(self, component: usize, channel: usize) -> *mut T {
        // SAFETY: the caller's.
        unsafe { self.ptr.add(component * self.stride + channel) }
    }

    /// Of a tensor in scratch memory with `COUNT` vectors for each group of channels, one behind the
    /// other: those of one group.
    ///
    /// # Safety
    /// The tensor has the group.
    #[inline(always)]
    pub(crate) unsafe fn packed<V: Vector<Elem = T>, const COUNT: usize>(
        self,
        group: usize,
    ) -> Packed<V> {
        // SAFETY: the caller's.
        Packed(unsafe { self.ptr.add(group * COUNT * V::LANES) })
    }
}

/// The vectors of a group of channels of a packed tensor. Their distances are constants, which costs
/// no registers for addresses.
pub(crate) struct Packed<V: Vector>(*mut V::Elem);

impl<V: Vector> Packed<V> {
    /// The address of a vector.
    ///
    /// # Safety
    /// The tensor has it.
    #[inline(always)]
    pub(crate) unsafe fn at(&self, index: usize) -> *mut V::Elem {
        // SAFETY: the caller's.
        unsafe { self.0.add(index * V::LANES) }
    }
}

/// What a stage works on. The slots mean what the [`StageCall`](super::program::StageCall) says.
///
/// # Contract
/// Every lane tensor, parameter and parameter gradient holds `groups` whole vectors of the tier
/// for each of the components the stage names; cuts, parameters and their gradients are packed;
/// outputs and parameter gradients overlap nothing else; `rows` and `sums` have an element for each
/// row slot.
pub(crate) struct StageArgs<'a, T> {
    pub(crate) inputs: &'a [Lanes<T>],
    pub(crate) outputs: &'a [Lanes<T>],
    pub(crate) params: &'a [Lanes<T>],
    pub(crate) param_grads: &'a [Lanes<T>],
    pub(crate) rows: &'a [T],
    pub(crate) sums: &'a mut [T],
    /// How many vectors the channels of a row fill, the last perhaps in part.
    pub(crate) groups: usize,
    pub(crate) channels: usize,
    pub(crate) gate: Gate,
    pub(crate) eps: T,
    pub(crate) inv_channels: T,
}

impl<T> StageArgs<'_, T> {
    /// How many lanes of a group are channels; the others are padding and count in no sum.
    #[inline(always)]
    pub(crate) fn valid_lanes(&self, group: usize, lanes: usize) -> usize {
        (self.channels - group * lanes).min(lanes)
    }
}

/// A stage, compiled for one tier and element type.
///
/// # Safety
/// The contract of [`StageArgs`], and the CPU supports the tier.
pub(crate) type StageFn<T> = unsafe fn(&mut StageArgs<'_, T>);

/// A stage, compiled for every tier of the target and both element types.
pub(crate) struct Stage {
    pub(crate) f32: Tiers<f32>,
    pub(crate) f64: Tiers<f64>,
}

/// One function per tier.
pub(crate) struct Tiers<T: 'static> {
    pub(crate) scalar: StageFn<T>,
    #[cfg(target_arch = "x86_64")]
    pub(crate) avx2: StageFn<T>,
    #[cfg(target_arch = "x86_64")]
    pub(crate) avx512: StageFn<T>,
    #[cfg(target_arch = "aarch64")]
    pub(crate) neon: StageFn<T>,
}

impl<T> Tiers<T> {
    /// The function of a tier; that of the scalar tier if the target does not have it.
    pub(crate) fn get(&self, tier: Tier) -> StageFn<T> {
        match tier {
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => self.avx2,
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512 => self.avx512,
            #[cfg(target_arch = "aarch64")]
            Tier::Neon => self.neon,
            _ => self.scalar,
        }
    }
}

/// The [`Stage`] of a function that is generic over the vector: a shim per tier and element type.
///
/// `f64` uses 256-bit vectors on the AVX-512 tier too: its kernels serve gradient checks more than
/// training, and a sixth of all kernels is not worth their compile time.
macro_rules! stage {
    ($body:ident) => {{
        use $crate::kernel::stage::{Stage, StageArgs, Tiers};

        macro_rules! shims {
                                ($elem:ty, $avx2:ident, $avx512:tt, $neon:ident) => {{
                                    unsafe fn scalar(args: &mut StageArgs<'_, $elem>) {
                                        // SAFETY: the caller's.
                                        unsafe { $body::<$crate::simd::Scalar<$elem>>(args) }
                                    }
                                    #[cfg(target_arch = "x86_64")]
                                    #[target_feature(enable = "avx2,fma")]
                                    unsafe fn avx2(args: &mut StageArgs<'_, $elem>) {
                                        // SAFETY: the caller's.
                                        unsafe { $body::<$crate::simd::avx2::$avx2>(args) }
                                    }
                                    #[cfg(target_arch = "aarch64")]
                                    #[target_feature(enable = "neon")]
                                    unsafe fn neon(args: &mut StageArgs<'_, $elem>) {
                                        // SAFETY: the caller's.
                                        unsafe { $body::<$crate::simd::neon::$neon>(args) }
                                    }
                                    Tiers {
                                        scalar,
                                        #[cfg(target_arch = "x86_64")]
                                        avx2,
                                        #[cfg(target_arch = "x86_64")]
                                        avx512: shims!(@avx512 $elem, $avx512, avx2),
                                        #[cfg(target_arch = "aarch64")]
                                        neon,
                                    }
                                }};
                                (@avx512 $elem:ty, none, $avx2:ident) => {
                                    $avx2
                                };
                                (@avx512 $elem:ty, $avx512:ident, $avx2:ident) => {{
                                    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                                    unsafe fn avx512(args: &mut StageArgs<'_, $elem>) {
                                        // SAFETY: the caller's.
                                        unsafe { $body::<$crate::simd::avx512::$avx512>(args) }
                                    }
                                    avx512
                                }};
                            }
        Stage {
            f32: shims!(f32, F32x8, F32x16, F32x4),
            f64: shims!(f64, F64x4, none, F64x2),
        }
    }};
}
pub(crate) use stage;
