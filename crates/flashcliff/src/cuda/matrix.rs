//! Products of matrices in device memory.

use super::device::Device;
use super::items::Target;
use super::launches;
use super::matmul::{BIAS_ALIGNMENT, Form, MatmulPrecision, ONE, Product};
use crate::cuda::Address;
use crate::{Dtype, Error};

/// The largest number of rows of a product. Some versions of cuBLASLt fail for a few million.
const MAX_ROWS: usize = 1 << 20;

/// The operands of a product as they lie in memory, row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixForm {
    /// `[rows, summands]` times `[summands, columns]`.
    Plain,
    /// `[rows, summands]` times the transpose of `[columns, summands]`.
    RightTransposed,
    /// The transpose of `[summands, rows]` times `[summands, columns]`.
    LeftTransposed,
}

/// A product of two matrices, or several of the same sizes, by cuBLASLt: `to = scale left right`, plus a bias or what
/// is there. Matrices lie row by row without gaps.
///
/// Nothing waits, nothing is allocated, and calls can be captured into a CUDA graph once [`Self::prepare`] and one
/// call have run. Results are the same bit for bit every time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatrixProduct {
    /// The operands in memory.
    pub form: MatrixForm,
    /// The rows of a result.
    pub rows: usize,
    /// The columns of a result.
    pub columns: usize,
    /// The products of numbers in an element of a result.
    pub summands: usize,
    /// The products at once. They lie one after another.
    pub count: usize,
    /// The factor of the products.
    pub scale: f64,
    /// Whether the product is added to what the result's memory holds.
    pub adds: bool,
    /// The type of all elements: `f32` or `f64`.
    pub dtype: Dtype,
    /// The numbers that products of `f32` take.
    pub precision: MatmulPrecision,
}

/// The places of the matrices of a [`MatrixProduct`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatrixPlaces {
    /// The address of the left operands.
    pub left: Address,
    /// The address of the right operands.
    pub right: Address,
    /// The address of the results.
    pub to: Address,
    /// The address of the bias `[columns]`, aligned to [`MatrixProduct::BIAS_ALIGNMENT`] bytes; 0 for none.
    pub bias: Address,
    /// The address of a workspace of [`MatrixProduct::workspace_bytes`], aligned to 256 bytes.
    pub workspace: Address,
}

impl MatrixProduct {
    /// The alignment of a bias in bytes.
    pub const BIAS_ALIGNMENT: usize = BIAS_ALIGNMENT as usize;

    /// One product, with a factor of 1, that replaces what is there. `sizes` are rows, columns and summands.
    pub fn new(
        form: MatrixForm,
        sizes: [usize; 3],
        dtype: Dtype,
        precision: MatmulPrecision,
    ) -> Self {
        let [rows, columns, summands] = sizes;
        Self {
            form,
            rows,
            columns,
            summands,
            count: 1,
            scale: 1.0,
            adds: false,
            dtype,
            precision,
        }
    }

    /// The bytes of workspace. They depend on the sizes alone.
    pub fn workspace_bytes(&self) -> usize {
        let parts = self.parts(MatrixPlaces::default());
        let bytes = parts.iter().map(|part| part.problem.workspace_bytes());
        bytes.max().unwrap_or(0)
    }

    /// Chooses the algorithm for matrices with the alignment of allocations.
    ///
    /// # Errors
    /// [`Error::CudaLibrary`] without cuBLASLt, [`Error::Cuda`].
    pub fn prepare(&self, device: &Device) -> Result<(), Error> {
        device.make_current()?;
        let blas = device.blas()?;
        let parts = self.parts(MatrixPlaces::default());
        parts
            .iter()
            .try_for_each(|part| blas.plan(&part.problem).map(drop))
    }

    /// Launches the product. Without summands the result is 0, and has no bias.
    ///
    /// # Errors
    /// [`Error::CudaLibrary`] without cuBLASLt, [`Error::Cuda`].
    ///
    /// # Safety
    /// Addresses are of memory on the device of the call that holds all matrices, until the work on the stream is
    /// done. The result and the workspace overlap no other.
    pub unsafe fn run(&self, target: Target<'_>, places: MatrixPlaces) -> Result<(), Error> {
        let elements = self.count * self.rows * self.columns;
        target.device.make_current()?;
        if elements == 0 || (self.summands == 0 && self.adds) {
            return Ok(());
        }
        if self.summands == 0 {
            let bytes = elements * self.dtype.bytes();
            // SAFETY: the caller promises it.
            return unsafe { launches::clear(places.to, bytes, target.stream) };
        }
        let blas = target.device.blas()?;
        for part in self.parts(places) {
            // SAFETY: the caller promises it, and the context is current.
            unsafe { blas.run(&part, places.workspace, target.stream) }?;
        }
        Ok(())
    }

    /// The product as cuBLASLt sees it, which takes row-major matrices for their transposes: in blocks of rows, if there are many.
    fn parts(&self, places: MatrixPlaces) -> Vec<Product> {
        if self.rows * self.columns * self.summands * self.count == 0 {
            return Vec::new();
        }
        let of_rows = self.form != MatrixForm::LeftTransposed && self.count == 1;
        let most = if of_rows { MAX_ROWS } else { self.rows };
        let starts = (0..self.rows).step_by(most);
        starts
            .map(|start| self.part(places, start, most.min(self.rows - start)))
            .collect()
    }

    /// Some neighbouring rows of the product.
    fn part(&self, places: MatrixPlaces, start: usize, rows: usize) -> Product {
        let Self {
            columns, summands, ..
        } = *self;
        let after = |address: Address, width: usize| {
            address + (start * width * self.dtype.bytes()) as Address
        };
        let form = match self.form {
            MatrixForm::Plain => Form::Times,
            MatrixForm::RightTransposed => Form::TimesTranspose,
            MatrixForm::LeftTransposed => Form::TransposeTimes,
        };
        let parts = match self.count {
            1 => ONE,
            count => {
                let strides = [
                    columns * summands,
                    self.rows * summands,
                    self.rows * columns,
                ];
                (count, strides)
            }
        };
        let left = after(places.left, summands);
        let to = after(places.to, columns);
        let product = Product::new(
            form,
            (columns, rows, summands),
            parts,
            [self.dtype; 2],
            [places.right, left, to],
            self.precision,
        );
        let bias = (places.bias != 0).then_some((places.bias, 0));
        Product {
            scale: self.scale,
            accumulate: self.adds,
            ..product
        }
        .with_bias(bias)
    }
}
