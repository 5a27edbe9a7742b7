//! The sizes that the steps of a plan share, and what they launch with.

use flashcliff::cuda::cudarc::driver::sys::{CUdeviceptr, CUstream};
use flashcliff::cuda::items::{Columns, ItemSizes, ItemTensor, Items, Target};
use flashcliff::cuda::matrix::{MatrixForm, MatrixPlaces, MatrixProduct};
use flashcliff::cuda::{MatmulPrecision, launches};
use flashcliff::{Device, Dtype};

use crate::cuda::{Draw, Sequences};
use crate::network::Set;
use crate::tokens::Channels;
use crate::{Error, Rows};

/// The rows and the types of a step in a plan.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda) struct Sizes {
    pub(in crate::cuda) batch: Rows,
    /// The type of the model, which all has but tokens that are not wide.
    pub(in crate::cuda) dtype: Dtype,
    /// The type of tokens that are not wide.
    pub(in crate::cuda) features: Dtype,
    /// Whether the tokens that the step reads, and the tokens that it writes, are wide.
    pub(in crate::cuda) wide: [bool; 2],
    pub(in crate::cuda) precision: MatmulPrecision,
}

impl Sizes {
    pub(super) fn rows(&self) -> usize {
        self.batch.count()
    }

    /// The sizes with the type of the tokens that are read (0), or written (1).
    pub(super) fn end(&self, at: usize) -> Self {
        Self {
            dtype: self.end_dtype(at),
            ..*self
        }
    }

    pub(super) fn end_dtype(&self, at: usize) -> Dtype {
        match self.wide[at] {
            true => self.dtype,
            false => self.features,
        }
    }

    /// The bytes of so many elements.
    pub(super) fn bytes(&self, elements: usize) -> usize {
        elements.saturating_mul(self.dtype.bytes())
    }

    /// The rows of a side of attention: of queries (0), or of keys and values of the context (1).
    pub(super) fn rows_of(&self, side: usize) -> usize {
        match side {
            0 => self.rows(),
            _ => self.batch.of(Set::Context),
        }
    }

    pub(super) fn items(&self, channels: Channels) -> ItemSizes {
        self.items_of(0, channels)
    }

    /// The items of a side.
    pub(super) fn items_of(&self, side: usize, channels: Channels) -> ItemSizes {
        ItemSizes {
            rows: self.rows_of(side),
            channels: channels.multivectors,
            scalars: channels.scalars,
            dtype: self.dtype,
        }
    }

    /// A product of matrices `[rows, columns]` over summands.
    pub(super) fn product(&self, form: MatrixForm, sizes: [usize; 3]) -> MatrixProduct {
        MatrixProduct::new(form, sizes, self.dtype, self.precision)
    }

    /// Packed rows at an address.
    pub(super) fn packed(
        &self,
        blades: usize,
        channels: Channels,
        address: CUdeviceptr,
    ) -> ItemTensor {
        self.part(blades, [channels, channels, Channels::default()], address)
    }

    /// Some channels of packed rows: all channels of the rows, the own ones, and those in front of them.
    pub(super) fn part(
        &self,
        blades: usize,
        [all, own, first]: [Channels; 3],
        address: CUdeviceptr,
    ) -> ItemTensor {
        let scalars = match own.scalars {
            0 => 0,
            _ => self.after(address, blades * all.multivectors + first.scalars),
        };
        ItemTensor {
            multivectors: self.after(address, first.multivectors),
            blade_stride: all.multivectors,
            row_stride: all.width_over(blades),
            scalars,
            scalar_stride: all.width_over(blades),
        }
    }

    /// The address so many elements further.
    pub(super) fn after(&self, address: CUdeviceptr, elements: usize) -> CUdeviceptr {
        address + self.bytes(elements) as CUdeviceptr
    }

    /// A matrix `[rows, width]` without gaps, of whose columns some runs are added up.
    pub(super) fn columns<'r>(
        &self,
        [rows, width]: [usize; 2],
        runs: &'r [(usize, usize)],
        elements: CUdeviceptr,
    ) -> Columns<'r> {
        Columns {
            elements,
            rows,
            width,
            row_stride: width,
            dtype: self.dtype,
            runs,
        }
    }

    /// The bytes of the partial sums of columns.
    pub(super) fn partial_bytes(&self, matrix: [usize; 2], runs: &[(usize, usize)]) -> usize {
        let taken: usize = runs.iter().map(|(start, stop)| stop - start).sum();
        let partials = Items::sum_partials(self.columns(matrix, runs, 0));
        self.bytes(partials * taken)
    }
}

/// The place of a launch: a stream of a device, and what the run lends.
#[derive(Clone, Copy)]
pub(in crate::cuda) struct Site<'a> {
    pub(in crate::cuda) sizes: Sizes,
    pub(in crate::cuda) device: &'a Device,
    pub(in crate::cuda) stream: CUstream,
    /// The address of all tables.
    pub(in crate::cuda) tables: CUdeviceptr,
    /// The sequences of the step's items, and the sequences of their contexts.
    pub(in crate::cuda) sequences: Option<[Sequences<'a>; 2]>,
    pub(in crate::cuda) draw: Option<Draw>,
}

impl Site<'_> {
    pub(super) fn target(&self) -> Target<'_> {
        Target {
            device: self.device,
            stream: self.stream,
        }
    }

    /// Copies elements.
    ///
    /// # Safety
    /// Both addresses are of so many elements on the device.
    pub(super) unsafe fn copy(
        &self,
        from: CUdeviceptr,
        to: CUdeviceptr,
        elements: usize,
    ) -> Result<(), Error> {
        let bytes = self.sizes.bytes(elements);
        // SAFETY: the caller promises it.
        Ok(unsafe { launches::copy(from, to, bytes, self.stream) }?)
    }

    /// Clears elements.
    ///
    /// # Safety
    /// The address is of so many elements on the device.
    pub(super) unsafe fn clear(&self, to: CUdeviceptr, elements: usize) -> Result<(), Error> {
        let bytes = self.sizes.bytes(elements);
        // SAFETY: the caller promises it.
        Ok(unsafe { launches::clear(to, bytes, self.stream) }?)
    }

    /// Launches a product of matrices.
    ///
    /// # Safety
    /// The addresses point to the matrices of the product.
    pub(super) unsafe fn multiply(
        &self,
        product: MatrixProduct,
        [left, right, to, workspace]: [CUdeviceptr; 4],
    ) -> Result<(), Error> {
        let places = MatrixPlaces {
            left,
            right,
            to,
            bias: 0,
            workspace,
        };
        // SAFETY: the caller promises it.
        Ok(unsafe { product.run(self.target(), places) }?)
    }

    /// Writes the sums of runs of columns of a matrix, `[width]`.
    ///
    /// # Safety
    /// The addresses point to the matrix, to [`Sizes::partial_bytes`] of memory, and to the sums.
    pub(super) unsafe fn column_sums(
        &self,
        matrix: [usize; 2],
        runs: &[(usize, usize)],
        [elements, partials, to]: [CUdeviceptr; 3],
    ) -> Result<(), Error> {
        let columns = self.sizes.columns(matrix, runs, elements);
        // SAFETY: the caller promises it.
        Ok(unsafe { Items::column_sums(self.target(), columns, partials, to) }?)
    }
}
