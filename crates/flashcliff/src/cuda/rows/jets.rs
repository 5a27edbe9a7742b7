//! Functions of jets in rows: derivatives along directions, and their gradients.

use cudarc::driver::sys::CUdeviceptr;

use super::functions::{JetFunction, Kernels};
use super::{Argument, Arguments, WARP, scalar};
use crate::cuda::device::Device;
use crate::cuda::items::Target;
use crate::{Dtype, Error};

/// Functions of jets in rows of `f32` or `f64` on a device.
///
/// A jet along `n` directions has `2^n` components. Component `s` belongs to the set of directions that are the bits of
/// `s`: the first is the number, and the last of a result is the derivative along all directions.
///
/// Nothing waits, nothing is allocated, and calls can be captured into a CUDA graph. Results are the same bit for bit every time.
///
/// # Safety of all functions
/// The contract of [`Rows`](super::Rows) holds.
///
/// # Errors of all functions
/// [`Error::Cuda`].
#[derive(Clone, Copy, Debug)]
pub struct RowJets {
    functions: Kernels<JetFunction>,
}

/// Tables of rows and keys, one for each component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowTables {
    /// The rows of a table.
    pub rows: usize,
    /// The keys of a row.
    pub keys: usize,
    /// The elements from the start of a table to the next.
    pub apart: usize,
}

impl RowJets {
    /// The functions of jets with so many components for a type, compiled now if no one did before.
    ///
    /// # Errors
    /// The errors of [`Rows::new`](super::Rows::new).
    pub fn new(device: &Device, dtype: Dtype, components: usize) -> Result<Self, Error> {
        let scalar = scalar(dtype)?;
        device.make_current()?;
        let functions = Kernels::new(device, &format!("{scalar}, {components}"))?;
        Ok(Self { functions })
    }

    /// Writes the components of shares after the first from the components of scores after the first. The first
    /// component of shares is what [`Rows::softmax`](super::Rows::softmax) makes.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn softmax(
        &self,
        target: Target<'_>,
        tables: RowTables,
        [shares, scores]: [CUdeviceptr; 2],
    ) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe { self.of_tables(target, JetFunction::Softmax, tables, [shares, scores]) }
    }

    /// The gradients of scores from the gradients of shares, which they replace.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn softmax_gradient(
        &self,
        target: Target<'_>,
        tables: RowTables,
        [shares, slopes]: [CUdeviceptr; 2],
    ) -> Result<(), Error> {
        let function = JetFunction::SoftmaxGradient;
        // SAFETY: the caller promises it.
        unsafe { self.of_tables(target, function, tables, [shares, slopes]) }
    }

    /// # Safety
    /// The contract of the type holds.
    unsafe fn of_tables(
        &self,
        target: Target<'_>,
        function: JetFunction,
        tables: RowTables,
        addresses: [CUdeviceptr; 2],
    ) -> Result<(), Error> {
        let RowTables { rows, keys, apart } = tables;
        let [first, second] = addresses.map(Argument::Address);
        let [of_rows, of_keys, apart] = [rows, keys, apart].map(Argument::count);
        let arguments = Arguments([first, second, of_rows, of_keys, apart]);
        // SAFETY: the caller promises it.
        unsafe { self.launch(target, function, rows * WARP, arguments) }
    }

    /// # Safety
    /// The contract of the type holds for the arguments, which match the function.
    pub(super) unsafe fn launch<const N: usize>(
        &self,
        target: Target<'_>,
        function: JetFunction,
        threads: usize,
        arguments: Arguments<'_, N>,
    ) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe { super::launch(target, self.functions.get(function), threads, arguments) }
    }
}
