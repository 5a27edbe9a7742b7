//! The items of geometric algebra transformers between matrix products.
//!
//! * `heads` - the features of attention.
//! * `sums` - sums of columns, for the gradients of biases.
//! * `pack` - matrices from the parameters of layers.

mod heads;
mod pack;
mod sums;

use std::ffi::c_void;

use flashcliff_sys as sys;

pub use heads::{Distances, Features, HeadNorm, ItemEps, ItemPart, Split};
pub use pack::Pack;
pub use sums::Columns;

use super::device::Device;
use super::dtype::code;
use super::launches;
use super::tensor::pointer;
use crate::cuda::{Address, RawStream};
use crate::{Algebra, Dtype, Error};

/// The number and the type of items: multivector channels and scalar channels, `rows` times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemSizes {
    /// The items.
    pub rows: usize,
    /// The multivector channels of an item, or of one head where items have heads.
    pub channels: usize,
    /// The scalar channels of an item, or of one head where items have heads.
    pub scalars: usize,
    /// The type of all elements. 16-bit elements are computed in `f32`.
    pub dtype: Dtype,
}

/// The place of items in device memory: multivectors `[blades, rows, channels]` and scalars `[rows, scalars]`, whose last axis is
/// contiguous. So items can lie side by side in the rows of a matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemTensor {
    /// The address of the multivectors.
    pub multivectors: Address,
    /// The elements from a blade to the next.
    pub blade_stride: usize,
    /// The elements from an item to the next.
    pub row_stride: usize,
    /// The address of the scalars; 0 if there are none.
    pub scalars: Address,
    /// The elements from the scalars of an item to the scalars of the next.
    pub scalar_stride: usize,
}

impl ItemTensor {
    pub(in crate::cuda) fn raw(self) -> sys::fc_item_tensor {
        sys::fc_item_tensor {
            multivectors: pointer(self.multivectors),
            blade_stride: self.blade_stride as i64,
            row_stride: self.row_stride as i64,
            scalars: pointer(self.scalars),
            scalar_stride: self.scalar_stride as i64,
        }
    }
}

/// The device and the stream that functions of [`Items`] launch on.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The device.
    pub device: &'a Device,
    /// A stream of its primary context.
    pub stream: RawStream,
}

/// Functions of the items of transformers over one algebra, of 2 to 5 dimensions.
///
/// Nothing waits, nothing is allocated, and calls can be captured into a CUDA graph. Results are the same bit for bit every time.
///
/// # Safety of all functions
/// Addresses are of memory on the device of the call that holds what their strides and the sizes reach, aligned to an element, until
/// the work on the stream is done. Memory that is written overlaps no other, except that a result may lie exactly where its input
/// does.
///
/// # Errors of all functions
/// [`Error::Cuda`], with `FC_ERROR_BAD_CALL` for an address that is missing or sizes that do not fit each other.
#[derive(Clone, Debug)]
pub struct Items {
    metric: sys::fc_item_metric,
    blades: i32,
}

impl Items {
    /// The functions of an algebra.
    ///
    /// # Errors
    /// [`Error::UnsupportedOnCuda`] for other than 2 to 5 dimensions.
    pub fn new(algebra: Algebra) -> Result<Self, Error> {
        let cayley = algebra.cayley();
        let norms = (0..cayley.blade_count()).map(|blade| cayley.square_of_blade_norm(blade));
        Self::of_norms(&norms.collect::<Vec<_>>())
    }

    /// The functions of blades with these squared norms, 1, -1 or 0. Functions that tell grades apart take them for
    /// the blades of an algebra.
    ///
    /// # Errors
    /// [`Error::UnsupportedOnCuda`] for other than 4, 8, 16 or 32 blades.
    pub fn of_norms(norms: &[i8]) -> Result<Self, Error> {
        let blades = norms.len();
        if ![4, 8, 16, 32].contains(&blades) {
            return Err(Error::UnsupportedOnCuda {
                operator: "items".to_owned(),
                reason: format!("expected 4, 8, 16 or 32 blades, got {blades}"),
            });
        }
        let mut metric = sys::fc_item_metric::default();
        metric.norms[..blades].copy_from_slice(norms);
        Ok(Self {
            metric,
            blades: blades as i32,
        })
    }

    pub(in crate::cuda) fn sizes(&self, sizes: ItemSizes) -> sys::fc_items {
        sys::fc_items {
            rows: sizes.rows as i64,
            channels: sizes.channels as i64,
            scalars: sizes.scalars as i64,
            blades: self.blades,
            dtype: code(sizes.dtype),
        }
    }
}

impl Target<'_> {
    /// Launches by a function of the kernels with the stream.
    pub(in crate::cuda) fn launch(
        self,
        name: &'static str,
        function: impl FnOnce(*mut c_void) -> std::ffi::c_int,
    ) -> Result<(), Error> {
        self.device.make_current()?;
        launches::kernel(name, || function(self.stream.cast()))
    }
}
