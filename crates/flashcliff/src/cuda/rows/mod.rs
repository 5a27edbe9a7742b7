//! Functions of rows of numbers that steps of transformers have between the kernels of a build: factors of columns,
//! the softmax of scores, positions.
//!
//! They are compiled by NVRTC when they are first used, so they need the feature `jit`; `functions` does that.
//! `packs` has sums in many tensors, `frames` products with matrices of rows. `jets` has derivatives along directions:
//! `norms` of norms of columns, `points` of features of distances.

mod frames;
mod functions;
mod jets;
mod norms;
mod packs;
mod points;

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::result;

use super::device::Device;
use super::items::Target;
use super::launches;
use crate::cuda::Address;
use crate::{Dtype, Error};
pub use frames::RowFrames;
use functions::{Function, Kernel, Kernels};
pub use jets::{RowJets, RowTables};
use norms::RawNorms;
pub use norms::RowNorms;
use packs::RawTensors;
pub use packs::{Pack, Packs};
use points::RawPoints;
pub use points::RowPoints;

/// The threads of a block.
const THREADS: usize = 256;
/// The most blocks of a launch; threads walk further.
const MOST_BLOCKS: usize = 1 << 20;
/// The threads of a row, where it has a warp.
const WARP: usize = 32;

/// Functions of rows of `f32` or `f64` on a device.
///
/// Nothing waits, nothing is allocated, and calls can be captured into a CUDA graph. Results are the same bit for bit every time.
///
/// # Safety of all functions
/// Addresses are of memory on the device of the call that holds what the sizes reach, aligned to an element, until
/// the work on the stream is done. Memory that is written overlaps no other, unless a function says so.
///
/// # Errors of all functions
/// [`Error::Cuda`].
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    functions: Kernels<Function>,
}

/// Scores of attention, `[groups, queries, keys]`, and what hides keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowScores {
    /// The groups: samples and their heads, or samples.
    pub groups: usize,
    /// The queries of a group; where groups are samples, the heads of an item are neighbours.
    pub queries: usize,
    /// The keys of a group.
    pub keys: usize,
    /// The heads.
    pub heads: usize,
    /// Whether groups are samples.
    pub heads_are_queries: bool,
    /// The address of a mask that is added to scores, `[samples, heads, items, keys]`; 0 for none.
    pub mask: Address,
    /// The elements from a sample, a head and an item of the mask to the next; 0 where all have the same.
    pub mask_strides: [usize; 3],
    /// The addresses of the bounds of the sequences of items and of the sequences of keys, `[sequences + 1]` `i32`:
    /// items see the keys of their sequence; 0 if they see all.
    pub bounds: [Address; 2],
    /// The sequences.
    pub sequences: usize,
    /// The factor of scores.
    pub scale: f64,
}

/// The pairs of columns of a matrix that are turned by angles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowTurns {
    /// The address of the other column of each column's pair, or -1, `[width]` `i32`.
    pub partners: Address,
    /// The address of the number of each column's frequency, `[width]` `i32`.
    pub pairs: Address,
    /// The address of the factor of each column's sine, `[width]`.
    pub signs: Address,
    /// The address of the frequencies, `f64`.
    pub frequencies: Address,
    /// The rows of a sample, whose positions begin at 0.
    pub items: usize,
    /// Whether pairs are turned back.
    pub back: bool,
}

/// The numbers of [`RowScores`], as the kernel takes them.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawScores {
    sizes: [i64; 8],
    bounds: [Address; 2],
    sequences: i64,
    scale: f64,
}

/// The parts of a whole, as the kernel takes them.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawParts {
    at: [Address; Rows::MOST_PARTS],
    ends: [i64; Rows::MOST_PARTS],
}

/// The arguments of a kernel, in order.
struct Arguments<'a, const N: usize>([Argument<'a>; N]);

enum Argument<'a> {
    Address(Address),
    Count(i64),
    Real(f64),
    Scores(&'a mut RawScores),
    Parts(&'a mut RawParts),
    Tensors(&'a mut RawTensors),
    Norms(&'a mut RawNorms),
    Points(&'a mut RawPoints),
}

impl Argument<'_> {
    fn count(count: usize) -> Self {
        Self::Count(i64::try_from(count).unwrap_or(i64::MAX))
    }

    fn pointer(&mut self) -> *mut c_void {
        match self {
            Self::Address(address) => ptr::from_mut(address).cast(),
            Self::Count(count) => ptr::from_mut(count).cast(),
            Self::Real(real) => ptr::from_mut(real).cast(),
            Self::Scores(scores) => ptr::from_mut(*scores).cast(),
            Self::Parts(parts) => ptr::from_mut(*parts).cast(),
            Self::Tensors(tensors) => ptr::from_mut(*tensors).cast(),
            Self::Norms(norms) => ptr::from_mut(*norms).cast(),
            Self::Points(points) => ptr::from_mut(*points).cast(),
        }
    }
}

impl Rows {
    /// The most parts of [`Self::join`].
    pub const MOST_PARTS: usize = 24;

    /// The functions for a type, compiled now if no one did before.
    ///
    /// # Errors
    /// [`Error::UnsupportedOnCuda`] for 16-bit types, and without the feature `jit`; [`Error::CudaLibrary`] without
    /// NVRTC, [`Error::CudaCompilation`], [`Error::Cuda`].
    pub fn new(device: &Device, dtype: Dtype) -> Result<Self, Error> {
        let scalar = scalar(dtype)?;
        device.make_current()?;
        let functions = Kernels::new(device, scalar)?;
        Ok(Self { functions })
    }

    /// `to = x` times a factor of each column, `[rows, width]`. `to` may be `x`.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn scale(
        &self,
        target: Target<'_>,
        [rows, width]: [usize; 2],
        x: Address,
        factors: Address,
        to: Address,
    ) -> Result<(), Error> {
        let [x, factors, to] = [x, factors, to].map(Argument::Address);
        let [of_rows, of_width] = [rows, width].map(Argument::count);
        let arguments = [x, factors, to, of_rows, of_width];
        // SAFETY: the caller promises it.
        unsafe { self.launch(target, Function::Scale, rows * width, Arguments(arguments)) }
    }

    /// `to = x y`, element by element. `to` may be one of them.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn multiply(
        &self,
        target: Target<'_>,
        count: usize,
        [x, y]: [Address; 2],
        to: Address,
    ) -> Result<(), Error> {
        let [x, y, to] = [x, y, to].map(Argument::Address);
        let arguments = [x, y, to, Argument::count(count)];
        // SAFETY: the caller promises it.
        unsafe { self.launch(target, Function::Multiply, count, Arguments(arguments)) }
    }

    /// The sums over heads of `[rows, heads, width]`: `[rows, width]`.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn head_sums(
        &self,
        target: Target<'_>,
        [rows, heads, width]: [usize; 3],
        x: Address,
        to: Address,
    ) -> Result<(), Error> {
        let [x, to] = [x, to].map(Argument::Address);
        let [of_rows, of_heads, of_width] = [rows, heads, width].map(Argument::count);
        let arguments = [x, to, of_rows, of_heads, of_width];
        // SAFETY: the caller promises it.
        unsafe {
            self.launch(
                target,
                Function::HeadSums,
                rows * width,
                Arguments(arguments),
            )
        }
    }

    /// `[outer, first, second, width]` as `[outer, second, first, width]`.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn swap_axes(
        &self,
        target: Target<'_>,
        sizes: [usize; 4],
        x: Address,
        to: Address,
    ) -> Result<(), Error> {
        let [x, to] = [x, to].map(Argument::Address);
        let [outer, first, second, width] = sizes.map(Argument::count);
        let arguments = [x, to, outer, first, second, width];
        let count = sizes.iter().product();
        // SAFETY: the caller promises it.
        unsafe { self.launch(target, Function::SwapAxes, count, Arguments(arguments)) }
    }

    /// Rows `[rows, width]` of columns of two matrices of these widths. A place, an `i32`, is the column of the
    /// first, or -1 less that of the second.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds, and each place is the place of a column. A matrix that no place names may have any address.
    pub unsafe fn take_columns(
        &self,
        target: Target<'_>,
        [rows, width]: [usize; 2],
        [x, y]: [(Address, usize); 2],
        places: Address,
        to: Address,
    ) -> Result<(), Error> {
        let [of_x, of_y] = [x.1, y.1].map(Argument::count);
        let [x, y, places, to] = [x.0, y.0, places, to].map(Argument::Address);
        let [of_rows, of_width] = [rows, width].map(Argument::count);
        let arguments = [x, y, places, to, of_rows, of_width, of_x, of_y];
        // SAFETY: the caller promises it.
        unsafe {
            self.launch(
                target,
                Function::TakeColumns,
                rows * width,
                Arguments(arguments),
            )
        }
    }

    /// `[rows, width]` with pairs of columns turned.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn turn(
        &self,
        target: Target<'_>,
        [rows, width]: [usize; 2],
        x: Address,
        turns: RowTurns,
        to: Address,
    ) -> Result<(), Error> {
        let RowTurns {
            partners,
            pairs,
            signs,
            frequencies,
            items,
            back,
        } = turns;
        let addresses = [x, partners, pairs, signs, frequencies, to];
        let [x, partners, pairs, signs, frequencies, to] = addresses.map(Argument::Address);
        let [of_rows, of_width, items] = [rows, width, items.max(1)].map(Argument::count);
        let way = Argument::Real(if back { -1.0 } else { 1.0 });
        let of_columns = [partners, pairs, signs, frequencies];
        let [partners, pairs, signs, frequencies] = of_columns;
        let arguments = [
            x,
            partners,
            pairs,
            signs,
            frequencies,
            to,
            of_rows,
            of_width,
            items,
            way,
        ];
        // SAFETY: the caller promises it.
        unsafe { self.launch(target, Function::Turn, rows * width, Arguments(arguments)) }
    }

    /// Turns scores into the shares of keys in each query, where they lie: the softmax of scores times a factor plus
    /// a mask. A query that sees no key has shares of 0.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds, and bounds ascend from 0 to the numbers of items and of keys.
    pub unsafe fn softmax(
        &self,
        target: Target<'_>,
        scores: RowScores,
        at: Address,
    ) -> Result<(), Error> {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let [sample, head, query] = scores.mask_strides;
        let sizes = [
            scores.groups,
            scores.queries,
            scores.keys,
            scores.heads,
            usize::from(scores.heads_are_queries),
            sample,
            head,
            query,
        ];
        let mut raw = RawScores {
            sizes: sizes.map(count),
            bounds: scores.bounds,
            sequences: count(scores.sequences),
            scale: scores.scale,
        };
        let [at, mask] = [at, scores.mask].map(Argument::Address);
        let threads = scores.groups * scores.queries * WARP;
        let arguments = Arguments([at, mask, Argument::Scores(&mut raw)]);
        // SAFETY: the caller promises it.
        unsafe { self.launch(target, Function::Softmax, threads, arguments) }
    }

    /// The gradient of scores `[rows, keys]`, after their factor and their mask, from the gradient of the shares of
    /// [`Self::softmax`], which it replaces.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn softmax_gradient(
        &self,
        target: Target<'_>,
        [rows, keys]: [usize; 2],
        shares: Address,
        gradients: Address,
    ) -> Result<(), Error> {
        let [shares, gradients] = [shares, gradients].map(Argument::Address);
        let [of_rows, of_keys] = [rows, keys].map(Argument::count);
        let arguments = [shares, gradients, of_rows, of_keys];
        let threads = rows * WARP;
        // SAFETY: the caller promises it.
        unsafe {
            self.launch(
                target,
                Function::SoftmaxGradient,
                threads,
                Arguments(arguments),
            )
        }
    }

    /// Copies parts of so many elements into the whole that they lie in one after another, or back. A part at address 0 is left out.
    ///
    /// # Errors
    /// The errors of the type; [`Error::TensorCount`] for more parts than [`Self::MOST_PARTS`].
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn join(
        &self,
        target: Target<'_>,
        parts: &[(Address, usize)],
        whole: Address,
        back: bool,
    ) -> Result<(), Error> {
        if parts.len() > Self::MOST_PARTS {
            return Err(Error::TensorCount {
                operator: "rows".to_owned(),
                what: "parts",
                expected: Self::MOST_PARTS,
                names: "or fewer".to_owned(),
                got: parts.len(),
            });
        }
        let mut raw = RawParts {
            at: [0; Self::MOST_PARTS],
            ends: [0; Self::MOST_PARTS],
        };
        let mut count = 0;
        for (at, &(address, len)) in parts.iter().enumerate() {
            count += len;
            raw.at[at] = address;
            raw.ends[at] = i64::try_from(count).unwrap_or(i64::MAX);
        }
        let whole = Argument::Address(whole);
        let [of_count, back] = [count, usize::from(back)].map(Argument::count);
        let arguments = Arguments([Argument::Parts(&mut raw), whole, of_count, back]);
        // SAFETY: the caller promises it.
        unsafe { self.launch(target, Function::Join, count, arguments) }
    }

    /// # Safety
    /// The contract of the type holds for the arguments, which match the function.
    unsafe fn launch<const N: usize>(
        &self,
        target: Target<'_>,
        function: Function,
        threads: usize,
        arguments: Arguments<'_, N>,
    ) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe { launch(target, self.functions.get(function), threads, arguments) }
    }
}

/// The name of a type in the texts of kernels.
fn scalar(dtype: Dtype) -> Result<&'static str, Error> {
    match dtype {
        Dtype::F32 => Ok("float"),
        Dtype::F64 => Ok("double"),
        other => Err(Error::UnsupportedOnCuda {
            operator: "rows".to_owned(),
            reason: format!("expected f32 or f64, got {other}"),
        }),
    }
}

/// Launches a kernel on so many threads.
///
/// # Safety
/// The contract of [`Rows`] holds for the arguments, which match the kernel.
unsafe fn launch<const N: usize>(
    target: Target<'_>,
    kernel: Kernel,
    threads: usize,
    mut arguments: Arguments<'_, N>,
) -> Result<(), Error> {
    if threads == 0 {
        return Ok(());
    }
    target.device.make_current()?;
    let blocks = threads.div_ceil(THREADS).min(MOST_BLOCKS) as u32;
    let mut pointers = arguments.0.each_mut().map(Argument::pointer);
    // SAFETY: the caller promises it; the arguments live during the call, which copies them.
    let run = || unsafe {
        result::launch_kernel(
            kernel.function,
            (blocks, 1, 1),
            (THREADS as u32, 1, 1),
            0,
            target.stream,
            &mut pointers,
        )
    };
    let name = || format!("rows::{}", kernel.name);
    launches::driver(name, "cuLaunchKernel", run)
}
