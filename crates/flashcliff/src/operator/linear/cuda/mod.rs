//! The grade-wise linear map: matrix products of cuBLASLt.
//!
//! The blades of a grade lie one after the other, so one product `[blades * batch, in]` by `[in, out]` does a whole
//! grade. If that would leave most of a GPU idle, one batched product does all blades, each with a copy of its
//! matrix. Weights are first packed into one matrix for each grade or blade, unless they are already stored as
//! products read them. Their gradients are summed over parts and unpacked at the end. `few` has maps of few channels,
//! which a packing takes for themselves.

pub(crate) mod few;
mod kept;
mod pack;
mod workspace;

use std::ops::Range;
use std::sync::Arc;

use crate::cuda::OnCuda;
use crate::cuda::call::{Call, Gradients, Kept, NO_GRADIENTS};
use crate::cuda::device::Device;
use crate::cuda::dtype::Dtypes;
use crate::cuda::matmul::{BlasLt, Form, MANY_TILES, MatmulPrecision, ONE, Product, offset, tiles};
use crate::operator::{self, Dims, Operator, Pass};
use flashcliff_sys as sys;

use crate::{Bias, Dtype, Error, WeightLayout};
pub(crate) use kept::Places;
pub(crate) use pack::{pack, unpack};
use workspace::{Workspace, bias_stride, stride};

/// The largest number of rows of a product. Some versions of cuBLASLt fail for a few million.
const MAX_ROWS: usize = 1 << 20;

/// The largest number of rows that a gradient of a weight sums over in one product. cuBLASLt counts in 32 bits.
const MAX_SUMMED_ROWS: usize = 1 << 30;

/// The number of tiles up to which weights are cheap to copy for every blade.
const FEW_TILES: usize = 4;
/// The number of tiles up to which weights are cheap to copy if the batch is at least as large as both numbers of
/// channels.
const MODEST_TILES: usize = 16;
/// The smallest number of rows that is worth a part of a sum over rows.
const PART_ROWS: usize = 64;
/// The largest number of parts of a blade. Each part takes memory.
const MOST_PARTS: usize = 16;
/// The rows of a part of a weight of one tile from which more parts are worth their memory: each product of long sums waits for its own
/// rows, and so few at once leave the memory of a GPU idle.
const MANY_PART_ROWS: usize = 1 << 11;
/// The largest number of parts of a blade with so many rows each.
const MOST_LONG_PARTS: usize = 64;
/// The number of rows up to which equal parts are worth fewer parts.
const LONG_PART_ROWS: usize = 1280;
/// The rows of a part of a weight of one tile if parts are not equal. The products of matrices run one after another then, and each waits
/// for the rows of one part.
const UNEQUAL_PART_ROWS: usize = 512;
/// The largest number of such parts of a blade.
const MOST_UNEQUAL_PARTS: usize = 128;
/// The largest number of parts of a blade that are not equal and have [`MANY_PART_ROWS`] rows each, of weights of few elements.
const MOST_LONG_UNEQUAL_PARTS: usize = 512;
/// The elements of a weight of few elements.
const FEW_ELEMENTS: usize = 1 << 11;

/// The linear map on a device.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    /// The blades that each matrix acts on.
    matrices: Vec<Range<usize>>,
    bias: Bias,
    layout: WeightLayout,
    blas: Arc<BlasLt>,
    pub(crate) precision: MatmulPrecision,
}

impl operator::Linear {
    /// The blades that each matrix acts on.
    fn matrices(&self) -> Vec<Range<usize>> {
        match self.per_grade {
            true => self.grades.clone(),
            false => std::iter::once(0..self.blades()).collect(),
        }
    }

    pub(crate) fn on_cuda(&self, _: &Operator, device: &Device) -> Result<Linear, Error> {
        Ok(Linear {
            matrices: self.matrices(),
            bias: self.bias,
            layout: self.layout,
            blas: device.blas()?,
            precision: MatmulPrecision::default(),
        })
    }
}

/// Sums over rows that are products of one call.
struct Sum {
    /// The first row, of all rows of all blades.
    first: usize,
    /// The rows of each sum.
    rows: usize,
    /// How many sums there are, one after the other.
    count: usize,
    /// Which sum of all the first one is.
    to: usize,
    /// Whether they are added to what is there.
    accumulate: bool,
}

impl Linear {
    // ---- products ----

    /// The products of `x`, `weight`, `bias` and `o`; the weight is packed, the bias usable.
    fn outputs(
        &self,
        dims: &Dims,
        dtypes: Dtypes,
        [x, weight, bias, o]: [u64; 4],
        run: &mut dyn FnMut(&Product) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (k, n, bytes) = (dims.in_channels, dims.out_channels, dtypes.lanes.bytes());
        let types = [dtypes.lanes; 2];
        let (form, biased) = (self.form(dtypes, Pass::Forward), self.biased_blades());
        if self.at_once(dims) {
            let strides = [stride(dims, bytes), dims.batch * k, dims.batch * n];
            let (size, parts) = ((n, dims.batch, k), (self.blades(), strides));
            let bias = self.has_bias().then(|| {
                let stride = bias_stride(dims, bytes);
                (bias, if self.packs_bias(dims) { stride } else { 0 })
            });
            return run(&self.product(form, size, parts, types, [weight, x, o], bias));
        }
        for (index, blades) in self.matrices.iter().enumerate() {
            // If one matrix serves all blades and only the first ones have a bias, there are two products.
            let cut = biased.clamp(blades.start, blades.end);
            let biased = Some((bias, 0));
            for (blades, bias) in [(blades.start..cut, biased), (cut..blades.end, None)] {
                for rows in chunks(&blades, dims, MAX_ROWS) {
                    let d = offset(o, rows.start, n, bytes);
                    let stride = self.weight_stride(dims, dtypes, Pass::Forward);
                    let a = offset(weight, index, stride, bytes);
                    let b = offset(x, rows.start, k, bytes);
                    let size = (n, rows.len(), k);
                    run(&self.product(form, size, ONE, types, [a, b, d], bias))?;
                }
            }
        }
        Ok(())
    }

    /// The products of the packed weight, `grad_o` and `grad_x`.
    fn x_gradients(
        &self,
        dims: &Dims,
        dtypes: Dtypes,
        [weight, grad_o, grad_x]: [u64; 3],
        run: &mut dyn FnMut(&Product) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (k, n, bytes) = (dims.in_channels, dims.out_channels, dtypes.lanes.bytes());
        let (form, types) = (self.form(dtypes, Pass::Backward), [dtypes.lanes; 2]);
        if self.at_once(dims) {
            let strides = [stride(dims, bytes), dims.batch * n, dims.batch * k];
            let (size, parts) = ((k, dims.batch, n), (self.blades(), strides));
            let addresses = [weight, grad_o, grad_x];
            return run(&self.product(form, size, parts, types, addresses, None));
        }
        for (index, blades) in self.matrices.iter().enumerate() {
            for rows in chunks(blades, dims, MAX_ROWS) {
                let d = offset(grad_x, rows.start, k, bytes);
                let stride = self.weight_stride(dims, dtypes, Pass::Backward);
                let a = offset(weight, index, stride, bytes);
                let b = offset(grad_o, rows.start, n, bytes);
                let size = (k, rows.len(), n);
                run(&self.product(form, size, ONE, types, [a, b, d], None))?;
            }
        }
        Ok(())
    }

    /// The products of `x`, `grad_o` and the packed gradient of the weight: none where [`Self::adds_up_few`].
    fn weight_gradients(
        &self,
        dims: &Dims,
        dtypes: Dtypes,
        [x, grad_o, grad_weight]: [u64; 3],
        run: &mut dyn FnMut(&Product) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.adds_up_few(dims, dtypes) {
            return Ok(());
        }
        let (k, n, bytes) = (dims.in_channels, dims.out_channels, dtypes.lanes.bytes());
        let types = [dtypes.lanes, self.gradient_type(dims, dtypes)];
        let grad_bytes = types[1].bytes();
        // The left operand is the tensor that the columns of the weight belong to.
        let ([left, right], [m, n]) = match self.layout {
            WeightLayout::OutInGrade => ([x, grad_o], [k, n]),
            WeightLayout::GradeInOut => ([grad_o, x], [n, k]),
        };
        let stride = match self.unpacks_gradients(dims) {
            true => stride(dims, grad_bytes),
            false => m * n,
        };
        if let Some(parts) = self.parts(dims) {
            let addresses = [left, right, grad_weight];
            return self.in_parts(dims, parts, &mut |sum: &Sum| {
                let strides = [sum.rows * m, sum.rows * n, stride];
                let [left, right, to] = addresses;
                let addresses = [
                    offset(left, sum.first, m, bytes),
                    offset(right, sum.first, n, bytes),
                    offset(to, sum.to, stride, grad_bytes),
                ];
                let (size, parts) = ((m, n, sum.rows), (sum.count, strides));
                let product =
                    self.product(Form::TransposeTimes, size, parts, types, addresses, None);
                run(&Product {
                    accumulate: sum.accumulate,
                    ..product
                })
            });
        }
        for (index, blades) in self.matrices.iter().enumerate() {
            let d = offset(grad_weight, index, stride, grad_bytes);
            for (chunk, rows) in chunks(blades, dims, MAX_SUMMED_ROWS).enumerate() {
                let a = offset(left, rows.start, m, bytes);
                let b = offset(right, rows.start, n, bytes);
                let size = (m, n, rows.len());
                let product = self.product(Form::TransposeTimes, size, ONE, types, [a, b, d], None);
                run(&Product {
                    accumulate: chunk > 0,
                    ..product
                })?;
            }
        }
        Ok(())
    }

    /// Calls a function with the sums that are the gradient of the weight, so many for each blade. If their lengths are
    /// not equal, each matrix has its own sums, over the rows of all of its blades, and the last one gets the rows that
    /// are left.
    fn in_parts(
        &self,
        dims: &Dims,
        parts: usize,
        run: &mut dyn FnMut(&Sum) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if dims.batch.is_multiple_of(parts) {
            return run(&Sum {
                first: 0,
                rows: dims.batch / parts,
                count: self.blades() * parts,
                to: 0,
                accumulate: false,
            });
        }
        for blades in &self.matrices {
            let (first, all) = (blades.start * dims.batch, blades.len() * dims.batch);
            let (to, count) = (blades.start * parts, blades.len() * parts);
            let (rows, left) = (all / count, all % count);
            run(&Sum {
                first,
                rows,
                count,
                to,
                accumulate: false,
            })?;
            if left > 0 {
                run(&Sum {
                    first: first + all - left,
                    rows: left,
                    count: 1,
                    to: to + count - 1,
                    accumulate: true,
                })?;
            }
        }
        Ok(())
    }

    fn product(
        &self,
        form: Form,
        size: (usize, usize, usize),
        parts: (usize, [usize; 3]),
        types: [Dtype; 2],
        addresses: [u64; 3],
        bias: Option<(u64, usize)>,
    ) -> Product {
        Product::new(form, size, parts, types, addresses, self.precision).with_bias(bias)
    }

    // ---- questions ----

    fn blades(&self) -> usize {
        self.matrices.last().map_or(0, |blades| blades.end)
    }

    /// The number of blades, from the first on, that the bias is added to.
    fn biased_blades(&self) -> usize {
        match self.bias {
            Bias::None => 0,
            Bias::Scalar => 1,
            Bias::EveryBlade => self.blades(),
        }
    }

    fn has_bias(&self) -> bool {
        self.bias != Bias::None
    }

    /// Whether all blades are multiplied at once, each by a copy of the matrix of its grade: one grade after the other
    /// would leave most of a GPU idle. It depends on the shape alone.
    fn at_once(&self, dims: &Dims) -> bool {
        let channels = dims.in_channels.max(dims.out_channels);
        let worthwhile =
            weight_tiles(dims) <= MODEST_TILES || tiles(dims.batch, channels) < MANY_TILES;
        let cheap = weight_tiles(dims) <= FEW_TILES || dims.batch >= channels && worthwhile;
        self.matrices.len() > 1 && cheap && dims.batch <= MAX_ROWS
    }

    /// Whether the bias is copied for every blade, as zeros for blades without a bias.
    fn packs_bias(&self, dims: &Dims) -> bool {
        self.at_once(dims) && (1..self.blades()).contains(&self.biased_blades())
    }

    fn packed_biases(&self, dims: &Dims) -> usize {
        match self.packs_bias(dims) {
            true => self.blades(),
            false => 1,
        }
    }

    /// The number of parts in which the gradient of the weight through one blade is computed. All parts of all blades
    /// are computed at once, if they are equal or [`Self::adds_up_few`]. `None` if there is a product for each matrix instead.
    fn parts(&self, dims: &Dims) -> Option<usize> {
        let tiles = weight_tiles(dims).saturating_mul(self.blades()).max(1);
        let small = weight_tiles(dims) <= FEW_TILES || dims.batch >= dims.out_channels;
        if !small || dims.batch > MAX_SUMMED_ROWS {
            return None;
        }
        let wanted = (MANY_TILES / tiles).min(dims.batch / PART_ROWS);
        let long = match weight_tiles(dims) {
            1 => (dims.batch / MANY_PART_ROWS).min(MOST_LONG_PARTS),
            _ => 1,
        };
        let wanted = wanted.clamp(1, MOST_PARTS).max(long);
        let mut parts = (1..=wanted).rev();
        let equal = parts.find(|parts| dims.batch.is_multiple_of(*parts));
        // All equal parts are one product. If others are much shorter, two for each matrix take less time.
        let equal =
            equal.filter(|&parts| dims.batch / parts <= LONG_PART_ROWS || 2 * parts >= wanted);
        let parts = equal.unwrap_or_else(|| match weight_tiles(dims) {
            1 => {
                let short = (dims.batch / UNEQUAL_PART_ROWS).min(MOST_UNEQUAL_PARTS);
                let long = match dims.in_channels * dims.out_channels {
                    ..=FEW_ELEMENTS => (dims.batch / MANY_PART_ROWS).min(MOST_LONG_UNEQUAL_PARTS),
                    _ => 1,
                };
                wanted.max(short).max(long)
            }
            _ => wanted,
        });
        (parts * self.blades() > 1).then_some(parts)
    }

    /// For each matrix, the end of its copies or of the parts of its gradient, if a blade has `of_a_blade` of them.
    fn ends(&self, of_a_blade: Option<usize>) -> sys::fc_linear_parts {
        let mut ends = sys::fc_linear_parts::default();
        for (index, (end, blades)) in ends.end.iter_mut().zip(&self.matrices).enumerate() {
            *end = of_a_blade.map_or(index + 1, |count| blades.end * count) as i32;
        }
        ends
    }

    /// The number of matrices in the packed weight.
    fn packed_matrices(&self, dims: &Dims) -> usize {
        match self.at_once(dims) {
            true => self.blades(),
            false => self.matrices.len(),
        }
    }

    /// The bytes of the weight that a pass packs; 0 if products read it where it is stored.
    pub(crate) fn packed_bytes(&self, dims: &Dims, dtypes: Dtypes, pass: Pass) -> usize {
        let bytes = dtypes.lanes.bytes();
        match self.packs_weights(dims, dtypes, pass) {
            true => self.packed_matrices(dims) * stride(dims, bytes) * bytes,
            false => 0,
        }
    }

    /// The number of matrices in the packed gradient of the weight.
    fn packed_gradients(&self, dims: &Dims) -> usize {
        let parts = self.parts(dims).map(|parts| parts * self.blades());
        parts.unwrap_or(self.matrices.len())
    }

    /// Whether the matrices of the weight lie one after the other.
    fn is_packed(&self) -> bool {
        self.matrices.len() == 1 || self.layout == WeightLayout::GradeInOut
    }

    /// The form in which products read the stored weight.
    fn stored_form(&self, pass: Pass) -> Form {
        match (pass, self.layout) {
            (Pass::Forward, WeightLayout::OutInGrade) => Form::TimesTranspose,
            (Pass::Forward, WeightLayout::GradeInOut) => Form::Times,
            (Pass::Backward, WeightLayout::OutInGrade) => Form::Times,
            (Pass::Backward, WeightLayout::GradeInOut) => Form::TimesTranspose,
        }
    }

    /// Whether packed matrices are transposed. The tensor cores of sm_90 can read TF32 only along the channels that are
    /// summed over.
    fn transposes(&self, dtypes: Dtypes, pass: Pass) -> bool {
        let tf32 = dtypes.lanes == Dtype::F32 && self.precision == MatmulPrecision::Tf32;
        tf32 && self.stored_form(pass) == Form::Times
    }

    /// The form in which products read the weight, packed or stored.
    fn form(&self, dtypes: Dtypes, pass: Pass) -> Form {
        match self.transposes(dtypes, pass) {
            true => Form::TimesTranspose,
            false => self.stored_form(pass),
        }
    }

    fn packs_weights(&self, dims: &Dims, dtypes: Dtypes, pass: Pass) -> bool {
        let as_they_are = self.is_packed() && dtypes.lanes == dtypes.params;
        !as_they_are || self.at_once(dims) || self.transposes(dtypes, pass)
    }

    /// The distance in elements from one matrix of the weight to the next, as products read it.
    fn weight_stride(&self, dims: &Dims, dtypes: Dtypes, pass: Pass) -> usize {
        match self.packs_weights(dims, dtypes, pass) {
            true => stride(dims, dtypes.lanes.bytes()),
            false => dims.in_channels * dims.out_channels,
        }
    }

    fn unpacks_gradients(&self, dims: &Dims) -> bool {
        !self.is_packed() || self.parts(dims).is_some()
    }

    /// The type of the packed gradients: the type of sums if they are unpacked, else that of the parameters.
    pub(crate) fn gradient_type(&self, dims: &Dims, dtypes: Dtypes) -> Dtype {
        match self.unpacks_gradients(dims) {
            true => dtypes.params.arithmetic(),
            false => dtypes.params,
        }
    }

    /// Whether the gradients of `x`, the weight and the bias are wanted.
    fn wanted(&self, grads: &Gradients) -> [bool; 3] {
        let [x, weight, bias, ..] = grads.map(|grad| grad.is_some());
        [x, weight, bias && self.has_bias()]
    }

    /// The addresses of the parts of the workspace.
    fn space(&self, call: &Call, pass: Pass, grads: &Gradients) -> Workspace {
        let Call {
            dims, dtypes, kept, ..
        } = call;
        let space = Workspace::new(self, dims, pass, *dtypes, grads, kept).at(call.workspace);
        match kept.room {
            Some(room) => space.with_weights_at(room),
            None => space,
        }
    }
}

impl OnCuda for Linear {
    /// Chooses the algorithms of both passes, for tensors with the alignment of allocations.
    fn prepare(&self, dims: &Dims, dtypes: Dtypes) -> Result<(), Error> {
        if [dims.batch, dims.in_channels, dims.out_channels].contains(&0) {
            return Ok(());
        }
        let plan = &mut |product: &Product| self.blas.plan(&product.problem).map(drop);
        self.outputs(dims, dtypes, [0; 4], plan)?;
        self.x_gradients(dims, dtypes, [0; 3], plan)?;
        self.weight_gradients(dims, dtypes, [0; 3], plan)
    }

    fn workspace_bytes(
        &self,
        dims: &Dims,
        pass: Pass,
        dtypes: Dtypes,
        grads: &Gradients,
        kept: &Kept,
    ) -> Result<usize, Error> {
        Ok(Workspace::new(self, dims, pass, dtypes, grads, kept).bytes)
    }

    unsafe fn run(&self, call: &Call, results: &Gradients) -> Result<(), Error> {
        let Call { dims, dtypes, .. } = *call;
        let [x, weight, bias, ..] = call.inputs;
        if results[0].is_none() || dims.batch == 0 || dims.out_channels == 0 {
            return Ok(());
        }
        let space = self.space(call, Pass::Forward, &NO_GRADIENTS);
        if dims.in_channels == 0 {
            // SAFETY: the caller promises it.
            return unsafe { self.forward_of_nothing(call, bias) };
        }
        // SAFETY: the caller promises it.
        let (weight, bias) = unsafe { self.operands(call, [weight, bias], &space) }?;
        self.outputs(
            &dims,
            dtypes,
            [x, weight, bias, call.output],
            &mut |product| {
                // SAFETY: the caller promises it; the products stay inside of the tensors.
                unsafe { self.blas.run(product, space.product, call.stream) }
            },
        )
    }

    unsafe fn backward(&self, call: &Call) -> Result<(), Error> {
        let Call {
            dims, dtypes, adds, ..
        } = *call;
        let [x, weight, ..] = call.inputs;
        let [grad_x, grad_weight, grad_bias, ..] = call.grads;
        let (batch, k, n) = (dims.batch, dims.in_channels, dims.out_channels);
        let space = self.space(call, Pass::Backward, &call.grads);
        let mut run = |product: &Product| {
            // SAFETY: the caller promises it; the products stay inside of the tensors.
            unsafe { self.blas.run(product, space.product, call.stream) }
        };
        match grad_x {
            Some(_) if n == 0 && adds => {}
            Some(grad_x) if n == 0 => {
                let bytes = self.blades() * batch * k * dtypes.lanes.bytes();
                // SAFETY: the caller promises it.
                unsafe { call.zero(grad_x, bytes) }?;
            }
            Some(grad_x) if batch > 0 && k > 0 => {
                // SAFETY: the caller promises it.
                let weight =
                    unsafe { self.pack(call, Pass::Backward, weight, space.weights, None) }?;
                let addresses = [weight, call.output, grad_x];
                self.x_gradients(&dims, dtypes, addresses, &mut |product| {
                    run(&Product {
                        accumulate: adds,
                        ..*product
                    })
                })?;
            }
            _ => {}
        }
        match grad_weight {
            Some(grad_weight) if batch == 0 => {
                let bytes = self.matrices.len() * k * n * dtypes.params.bytes();
                // SAFETY: the caller promises it.
                unsafe { call.zero(grad_weight, bytes) }?;
            }
            Some(grad_weight) if k > 0 && n > 0 => {
                let packed = match self.unpacks_gradients(&dims) {
                    true => call.kept.parts.unwrap_or(space.weight_grads),
                    false => grad_weight,
                };
                let addresses = [x, call.output, packed];
                match self.adds_up_few(&dims, dtypes) {
                    // SAFETY: the caller promises it.
                    true => unsafe { self.add_up_few((&dims, dtypes), addresses, call.stream) }?,
                    false => self.weight_gradients(&dims, dtypes, addresses, &mut run)?,
                }
                // SAFETY: the caller promises it.
                unsafe { self.unpack(call, packed, grad_weight) }?;
            }
            _ => {}
        }
        if let Some(grad_bias) = grad_bias {
            // SAFETY: the caller promises it.
            unsafe { self.bias_gradient(call, grad_bias, space.sums) }?;
        }
        Ok(())
    }

    fn with_precision(&self, precision: MatmulPrecision) -> Option<Arc<dyn OnCuda>> {
        Some(Arc::new(Self {
            precision,
            ..self.clone()
        }))
    }

    fn linear(&self) -> Option<&Linear> {
        Some(self)
    }
}

/// The number of tiles of a matrix of weights.
fn weight_tiles(dims: &Dims) -> usize {
    tiles(dims.in_channels, dims.out_channels)
}

/// The rows of some blades, in chunks of at most `most` rows.
fn chunks(
    blades: &Range<usize>,
    dims: &Dims,
    most: usize,
) -> impl Iterator<Item = Range<usize>> + use<> {
    let (start, end) = (blades.start * dims.batch, blades.end * dims.batch);
    let starts = (start..end).step_by(most);
    starts.map(move |first| first..end.min(first + most))
}
