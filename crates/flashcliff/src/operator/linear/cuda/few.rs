//! Maps of few channels, by kernels of our own: products for cuBLASLt would be too small, and need their weights packed.

use flashcliff_sys as sys;

use super::Linear;
use crate::cuda::Address;
use crate::cuda::call::Call;
use crate::cuda::call::address;
use crate::cuda::dtype::code;
use crate::cuda::fault;
use crate::operator::Dims;
use crate::{Error, WeightLayout};

/// The most elements of a matrix, and the most rows of all blades: products for cuBLASLt are faster with more.
const MOST_WEIGHTS: usize = 2048;
const MOST_ROWS: usize = 1 << 15;

/// Which way channels go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// From the inputs to the results.
    Forth,
    /// From the gradients of the results to those of the inputs.
    Back,
}

impl Linear {
    /// Whether both sides have few channels, and there are few rows. It depends on the shape alone.
    pub(super) fn is_few(&self, dims: &Dims) -> bool {
        let [k, n] = [dims.in_channels, dims.out_channels];
        let most = sys::FC_FEW_CHANNELS as usize;
        k.max(n) <= most && k * n <= MOST_WEIGHTS && self.blades() * dims.batch <= MOST_ROWS
    }

    /// Writes the results of the map, or the gradients of its inputs, or adds these to what is there.
    ///
    /// # Safety
    /// The call is checked, its stream valid, and the context of its tensors current; the addresses are of its tensors.
    pub(super) unsafe fn few(
        &self,
        call: &Call,
        way: Way,
        [from, weight, bias, to]: [Address; 4],
        adds: bool,
    ) -> Result<(), Error> {
        let (k, n) = (call.dims.in_channels as i64, call.dims.out_channels as i64);
        let grades = self.matrices.len() as i64;
        let [of_in, of_out, of_grade] = match self.layout {
            WeightLayout::OutInGrade => [grades, k * grades, 1],
            WeightLayout::GradeInOut => [n, 1, k * n],
        };
        let (strides, [from_channels, to_channels]) = match way {
            Way::Forth => ([of_in, of_out, of_grade], [k, n]),
            Way::Back => ([of_out, of_in, of_grade], [n, k]),
        };
        let has_bias = way == Way::Forth && self.has_bias();
        let raw = sys::fc_few_channels {
            from: address(from),
            weight: address(weight),
            bias: address(if has_bias { bias } else { 0 }),
            to: address(to),
            rows: call.dims.batch as i64,
            strides,
            blades: self.ends(Some(1)),
            grades: grades as i32,
            // At most FC_FEW_CHANNELS, and 2^8 blades.
            from_channels: from_channels as i32,
            to_channels: to_channels as i32,
            biased: if has_bias {
                self.biased_blades() as i32
            } else {
                0
            },
            adds: adds.into(),
        };
        let types = [call.dtypes.lanes, call.dtypes.params].map(code);
        // SAFETY: the caller promises it; the structure lives until the function returns.
        let code =
            unsafe { sys::fc_few_channels_map(&raw, types[0], types[1], call.stream.cast()) };
        fault::kernel("fc_few_channels_map", code)
    }
}
