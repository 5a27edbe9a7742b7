//! Norms of items, and their gradients.

use std::ptr;

use cudarc::driver::sys::CUdeviceptr;
use flashcliff_sys as sys;

use super::{ItemSizes, ItemTensor, Items, Target};
use crate::Error;
use crate::cuda::tensor::pointer;

/// The smallest numbers below the roots of norms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ItemEps {
    /// The smallest mean norm of multivectors.
    pub multivectors: f64,
    /// The number that is added to the variance of scalars.
    pub scalars: f64,
}

/// The gains of norms: of multivectors `[channels, grades]` and of scalars `[scalars]`, of the type of the items. An address of 0
/// stands for gains of 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemGains {
    /// The address of the gains of multivectors.
    pub multivectors: CUdeviceptr,
    /// The address of the gains of scalars.
    pub scalars: CUdeviceptr,
    /// Gradients only: the address of partial sums of their gradients, [`Items::norm_partials`] times so many numbers as there are
    /// gains, those of multivectors first, in the type of the arithmetic.
    pub partials: CUdeviceptr,
}

impl ItemGains {
    fn raw(self) -> sys::fc_item_gains {
        sys::fc_item_gains {
            multivectors: pointer(self.multivectors),
            scalars: pointer(self.scalars),
            partials: pointer(self.partials),
        }
    }
}

impl Items {
    /// The rows of partial sums that [`Self::norm_gradient`] writes with gains.
    pub fn norm_partials(&self, sizes: ItemSizes) -> usize {
        // SAFETY: the function reads the sizes only.
        let rows = unsafe { sys::fc_item_norm_partials(&self.sizes(sizes)) };
        usize::try_from(rows).unwrap_or(0)
    }

    /// The sum of items and others if there are any, and the invariant norm of the sum, as [`crate::equivariant::InvariantNorm`], with
    /// the layer norm of scalars, both times gains. `residual` has what is added, and where the sum is written.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a tensor or a choice of its own"
    )]
    pub unsafe fn norm(
        &self,
        target: Target<'_>,
        sizes: ItemSizes,
        eps: ItemEps,
        gains: ItemGains,
        x: ItemTensor,
        residual: Option<[ItemTensor; 2]>,
        to: ItemTensor,
    ) -> Result<(), Error> {
        let sizes = self.sizes(sizes);
        let residual = residual.map(|both| both.map(ItemTensor::raw));
        let [added, total] = match &residual {
            Some(both) => both.each_ref().map(ptr::from_ref),
            None => [ptr::null(); 2],
        };
        let (x, to, gains) = (x.raw(), to.raw(), gains.raw());
        target.launch("fc_item_norm", |stream| {
            // SAFETY: the caller promises it; the structures live until the function returns.
            unsafe {
                let (a, b) = (eps.multivectors, eps.scalars);
                sys::fc_item_norm(
                    &sizes,
                    &self.metric,
                    &gains,
                    a,
                    b,
                    &x,
                    added,
                    total,
                    &to,
                    stream,
                )
            }
        })
    }

    /// The gradient of the sum in [`Self::norm`] from that of the norm, plus `through`, a gradient that comes to the sum by another way.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a tensor or a choice of its own"
    )]
    pub unsafe fn norm_gradient(
        &self,
        target: Target<'_>,
        sizes: ItemSizes,
        eps: ItemEps,
        gains: ItemGains,
        x: ItemTensor,
        gradient: ItemTensor,
        through: Option<ItemTensor>,
        to: ItemTensor,
    ) -> Result<(), Error> {
        let sizes = self.sizes(sizes);
        let through = through.map(ItemTensor::raw);
        let other = through.as_ref().map_or(ptr::null(), ptr::from_ref);
        let (x, g, to, gains) = (x.raw(), gradient.raw(), to.raw(), gains.raw());
        target.launch("fc_item_norm_gradient", |stream| {
            // SAFETY: the caller promises it; the structures live until the function returns.
            unsafe {
                let (a, b) = (eps.multivectors, eps.scalars);
                sys::fc_item_norm_gradient(
                    &sizes,
                    &self.metric,
                    &gains,
                    a,
                    b,
                    &x,
                    &g,
                    other,
                    &to,
                    stream,
                )
            }
        })
    }
}
