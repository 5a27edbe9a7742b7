//! A device of which predictions are made: its kind and its memory. Nothing is measured or allocated for it.

#[cfg(feature = "cuda")]
use flashcliff::{Device, cuda::Dtypes};
use flashcliff::{Dims, Dtype, Operator, Pass, Tier, memory};

use crate::grid::Point;
use crate::machine::Kind;
use crate::work::Work;
use crate::{Error, Passes, cpu};

/// A device of which predictions are made.
#[derive(Clone, Debug)]
pub enum Place {
    /// The CPU.
    Cpu,
    /// A GPU.
    #[cfg(feature = "cuda")]
    Gpu(Device),
}

/// The bytes that passes of an operator hold at once, by size.
pub type Peak<'a> = Box<dyn Fn(&Dims) -> u128 + 'a>;

/// The bytes of a page. Planes of blades that lie whole pages apart compete for the same places in the first cache of a CPU.
const PAGE: usize = 4096;

impl Place {
    /// The kind of the machine.
    ///
    /// # Errors
    /// The errors of the library.
    pub fn kind(&self) -> Result<Kind, Error> {
        match self {
            Self::Cpu => Ok(cpu::kind()),
            #[cfg(feature = "cuda")]
            Self::Gpu(device) => crate::cuda::kind(device),
        }
    }

    /// The bytes that the device can give; `None` if the system does not tell.
    ///
    /// # Errors
    /// The errors of the library.
    pub fn available(&self) -> Result<Option<u128>, Error> {
        match self {
            Self::Cpu => Ok(memory::available()),
            #[cfg(feature = "cuda")]
            Self::Gpu(device) => Ok(Some(device.available_memory()?.into())),
        }
    }

    /// A function that counts the bytes that passes hold at once, by size: tensors, saved values, gradients, workspace.
    ///
    /// # Errors
    /// An operator that the device does not have.
    pub fn peak<'a>(
        &self,
        operator: &'a Operator,
        dtype: Dtype,
        passes: Passes,
    ) -> Result<Peak<'a>, Error> {
        let largest = move |peak: &dyn Fn(Pass) -> u128| match passes {
            Passes::Forward => peak(Pass::Forward),
            Passes::Both => peak(Pass::Forward).max(peak(Pass::Backward)),
        };
        match self {
            Self::Cpu => Ok(Box::new(move |dims| {
                largest(&|pass| operator.footprint(dims, dtype, pass).peak())
            })),
            #[cfg(feature = "cuda")]
            Self::Gpu(device) => {
                let operator = operator.on_cuda(device)?;
                let dtypes = Dtypes::uniform(dtype);
                Ok(Box::new(move |dims| {
                    largest(&|pass| operator.footprint(dims, dtypes, pass).peak())
                }))
            }
        }
    }

    /// The sizes that kernels compute: whole vectors of channels on a CPU.
    fn padded(&self, dims: &Dims, dtype: Dtype) -> Dims {
        let lanes = match self {
            Self::Cpu if dtype == Dtype::F64 => Tier::best().lanes_f64(),
            Self::Cpu => Tier::best().lanes_f32(),
            #[cfg(feature = "cuda")]
            Self::Gpu(_) => 1,
        };
        Dims {
            in_channels: dims.in_channels.next_multiple_of(lanes),
            out_channels: dims.out_channels.next_multiple_of(lanes),
            ..*dims
        }
    }

    /// The units of work of a case on the sizes that kernels compute.
    pub(crate) fn units(
        &self,
        operator: &Operator,
        dims: &Dims,
        dtype: Dtype,
        passes: Passes,
    ) -> f64 {
        Work::of(operator, &self.padded(dims, dtype), dtype, passes).units()
    }

    /// The point of a case on the grid of rates.
    pub(crate) fn point(&self, operator: &Operator, dims: &Dims, dtype: Dtype) -> Point {
        // A row has a start of its own, and those of its blocks if it has several kinds of them.
        let of_row = |parts: usize| match self.is_interpreted(operator, dtype) {
            true => 1 + parts,
            false => 1,
        };
        let parts = match (self, dtype) {
            // Products of matrices have no such starts, but are slower with fewer channels too.
            _ if operator.has_matrix_products() => 1,
            (Self::Cpu, Dtype::F64) => of_row(operator.parts_of_row::<f64>(dims)),
            (Self::Cpu, _) => of_row(operator.parts_of_row::<f32>(dims)),
            // Threads of a GPU share rows.
            #[cfg(feature = "cuda")]
            (Self::Gpu(_), _) => 1,
        };
        Point {
            elements: operator.algebra().blade_count() * dims.batch * dims.in_channels,
            channels: dims.in_channels,
            starts: parts as f64 / dims.in_channels.max(1) as f64,
        }
    }

    /// Whether the kernels of an operator are interpreted in a type.
    pub(crate) fn is_interpreted(&self, operator: &Operator, dtype: Dtype) -> bool {
        match (self, dtype) {
            (Self::Cpu, Dtype::F64) => operator.is_interpreted::<f64>(),
            (Self::Cpu, _) => operator.is_interpreted::<f32>(),
            #[cfg(feature = "cuda")]
            (Self::Gpu(_), _) => false,
        }
    }

    /// Whether a CPU writes multivectors of such sizes past its caches.
    pub(crate) fn is_streamed(&self, operator: &Operator, dims: &Dims, dtype: Dtype) -> bool {
        matches!(self, Self::Cpu) && operator.writes_past_caches(dims, dtype)
    }

    /// Whether the planes of blades of the input lie whole pages apart, on a CPU.
    pub(crate) fn is_aligned(&self, dims: &Dims, dtype: Dtype) -> bool {
        let plane = dims.batch.wrapping_mul(dims.in_channels);
        let is_whole = plane.wrapping_mul(dtype.bytes()).is_multiple_of(PAGE);
        matches!(self, Self::Cpu) && is_whole
    }
}
