//! Maps of few channels, by kernels of our own: products of so few channels are launches more than they are work, and
//! several maps of the same rows, or all gradients of a map, take one launch.

use flashcliff_sys as sys;

use super::{Linear, Places, stride};
use crate::cuda::call::address;
use crate::cuda::dtype::{Dtypes, code};
use crate::cuda::matmul::MatmulPrecision;
use crate::cuda::{RawStream, launches};
use crate::operator::{self, Dims, Kind, Operator};
use crate::{Dtype, Error, WeightLayout, sizes};

/// The most maps of a launch.
pub const MOST_JOINED: usize = sys::FC_LINEAR_FEW_MAPS as usize;

/// The most channels in `f64`, of which half as many have room.
const MOST_F64: usize = sys::FC_LINEAR_FEW_CHANNELS as usize / 2;
/// The most products: of more, tensor cores and larger tiles are worth a launch for each map and each gradient.
const MOST_PRODUCTS: usize = 1 << 25;
/// The most products of types of 16 bits, which tensor cores multiply faster.
const MOST_PRODUCTS_16: usize = 1 << 24;
/// The most products of a blade of which the kernel adds up the parts of a gradient of a weight that are not equal.
const MOST_SUMMED: usize = 3 << 23;
/// The most such products of a blade where products of cuBLASLt may round to TF32 or 16 bits, and so take less time.
const MOST_SUMMED_ROUNDED: usize = 1 << 23;
/// The channels up to which the kernel does so for any number of rows, where nothing is rounded.
const ALWAYS_SUMMED: usize = 16;
/// The fewest rows of a part of a gradient.
const PART_ROWS: usize = 64;
/// The most parts of a blade.
const MOST_PARTS: usize = 16;

/// Whether all these operators are linear maps that one launch takes: of few channels, and with the same grades. It
/// depends on sizes and types alone.
pub fn join(operators: &[&Operator], dims: &Dims, dtypes: Dtypes) -> bool {
    let own = operators.iter().map(|operator| match operator.kind() {
        Kind::Linear(own) => Some(own),
        _ => None,
    });
    let Some(own) = own.collect::<Option<Vec<_>>>() else {
        return false;
    };
    let of_few = own.iter().all(|own| own.is_of_few(dims, dtypes));
    let same = own
        .windows(2)
        .all(|pair| pair[0].matrices() == pair[1].matrices());
    of_few && same && (1..=MOST_JOINED).contains(&own.len())
}

impl operator::Linear {
    fn is_of_few(&self, dims: &Dims, dtypes: Dtypes) -> bool {
        let products = match dtypes.lanes {
            Dtype::F64 | Dtype::F32 => MOST_PRODUCTS,
            _ => MOST_PRODUCTS_16,
        };
        let sides = [
            self.blades(),
            dims.batch,
            dims.in_channels,
            dims.out_channels,
        ];
        has_few_channels(self.layout, dims, dtypes)
            && (1..=products).contains(&sizes::product(sides))
    }
}

/// Whether kernels of few channels take the rows and the weight.
fn has_few_channels(layout: WeightLayout, dims: &Dims, dtypes: Dtypes) -> bool {
    let most = match dtypes.lanes {
        Dtype::F64 => MOST_F64,
        _ => sys::FC_LINEAR_FEW_CHANNELS as usize,
    };
    let mut channels = [dims.in_channels, dims.out_channels].into_iter();
    layout == WeightLayout::OutInGrade && channels.all(|count| (1..=most).contains(&count))
}

/// The bytes of the parts of the gradients of a weight, and of a bias.
pub(crate) struct FewBytes {
    pub(crate) weight: usize,
    pub(crate) bias: Option<usize>,
}

impl Linear {
    /// The parts of the rows of a blade.
    fn few_parts(dims: &Dims) -> usize {
        dims.batch.div_ceil(PART_ROWS).clamp(1, MOST_PARTS)
    }

    /// The bytes of the parts of gradients.
    pub(crate) fn few_bytes(&self, dims: &Dims, dtypes: Dtypes) -> FewBytes {
        let (parts, bytes) = (Self::few_parts(dims), dtypes.params.arithmetic().bytes());
        let bias = parts * self.biased_blades() * dims.out_channels * bytes;
        FewBytes {
            weight: parts * self.blades() * stride(dims, bytes) * bytes,
            bias: self.has_bias().then_some(bias),
        }
    }

    /// Whether a kernel of few channels computes all parts of the gradient of the weight at once, of any lengths: where parts are not
    /// equal, products would run one after another. Of many products each, they take less time than the kernel.
    pub(super) fn adds_up_few(&self, dims: &Dims, dtypes: Dtypes) -> bool {
        let channels = [dims.in_channels, dims.out_channels];
        let most = match self.precision {
            MatmulPrecision::Highest if channels.iter().all(|&count| count <= ALWAYS_SUMMED) => {
                usize::MAX
            }
            MatmulPrecision::Highest => MOST_SUMMED,
            _ => MOST_SUMMED_ROUNDED,
        };
        dtypes.lanes == Dtype::F32
            && dtypes.params == Dtype::F32
            && has_few_channels(self.layout, dims, dtypes)
            && sizes::product(channels.into_iter().chain([dims.batch])) <= most
            && self
                .parts(dims)
                .is_some_and(|parts| !dims.batch.is_multiple_of(parts))
    }

    /// Computes the parts of the gradient of the weight.
    ///
    /// # Safety
    /// The contract of [`launch`] holds; `parts` has room for the parts of all blades.
    pub(super) unsafe fn add_up_few(
        &self,
        (dims, dtypes): (&Dims, Dtypes),
        [x, grad_o, parts]: [u64; 3],
        stream: RawStream,
    ) -> Result<(), Error> {
        let mut call = self.few(dims, dtypes);
        call.x = address(x);
        call.parts = self.parts(dims).unwrap_or(1) as i32;
        call.count = 1;
        call.maps[0] = sys::fc_linear_few_map {
            o: address(grad_o),
            weight_parts: address(parts),
            ..Default::default()
        };
        // SAFETY: the caller promises it.
        unsafe { launch(&call, true, stream) }
    }

    /// A launch without tensors.
    pub(crate) fn few(&self, dims: &Dims, dtypes: Dtypes) -> sys::fc_linear_few {
        // There are few channels, and at most 2^8 blades.
        sys::fc_linear_few {
            batch: dims.batch as i64,
            in_: dims.in_channels as i64,
            out: dims.out_channels as i64,
            stride: stride(dims, dtypes.params.arithmetic().bytes()) as i64,
            blades: self.blades() as i32,
            grades: self.matrices.len() as i32,
            parts: Self::few_parts(dims) as i32,
            end: self.ends(Some(1)),
            lanes: code(dtypes.lanes),
            params: code(dtypes.params),
            ..Default::default()
        }
    }

    /// A map of a launch, without tensors.
    pub(crate) fn few_map(&self) -> sys::fc_linear_few_map {
        sys::fc_linear_few_map {
            biased: self.biased_blades() as i32,
            ..Default::default()
        }
    }

    /// How the gradient of the weight, or of the bias, is added up from its parts at one address to another.
    pub(crate) fn few_unpacking(
        &self,
        dims: &Dims,
        dtypes: Dtypes,
        is_bias: bool,
        [from, to]: [u64; 2],
    ) -> sys::fc_linear_packing {
        let parts = Self::few_parts(dims);
        let (n, bytes) = (dims.out_channels as i64, dtypes.params.arithmetic().bytes());
        let mut one = sys::fc_linear_parts::default();
        one.end[0] = (parts * self.biased_blades()) as i32;
        let (shape, matrices) = if is_bias {
            let shape = sys::fc_linear_weights {
                rows: 1,
                columns: n,
                grades: 1,
                stride: n,
                order: sys::fc_linear_order::FC_LINEAR_GRADES_FIRST,
                transposed: 0,
            };
            (shape, one)
        } else {
            let shape = self.weights(dims, stride(dims, bytes));
            (shape, self.ends(Some(parts)))
        };
        sys::fc_linear_packing {
            from: address(from),
            to: address(to),
            shape,
            matrices,
            bias: sys::fc_linear_bias::default(),
        }
    }
}

impl Places {
    /// The places of a map of few channels, of which nothing is packed.
    pub(crate) fn of_few(bytes: &FewBytes, add: &mut dyn FnMut(usize) -> u64) -> Self {
        Self {
            parts: Some(add(bytes.weight)),
            bias_parts: bytes.bias.map(add),
            ..Self::default()
        }
    }
}

/// Launches a pass of joined maps.
///
/// # Safety
/// The addresses of the call hold what its sizes say, in the current context, and the stream is valid.
pub(crate) unsafe fn launch(
    call: &sys::fc_linear_few,
    is_backward: bool,
    stream: RawStream,
) -> Result<(), Error> {
    let (name, run): (_, unsafe extern "C" fn(_, _) -> _) = match is_backward {
        false => ("fc_linear_few_forward", sys::fc_linear_few_forward),
        true => ("fc_linear_few_backward", sys::fc_linear_few_backward),
    };
    // SAFETY: the caller promises it.
    launches::kernel(name, || unsafe { run(&raw const *call, stream.cast()) })
}
