//! The fully connected product: matrix products whose left operands are path products of `x` and `y`.
//!
//! A pass goes in blocks of rows. Forward, a kernel writes the path products of a block to the workspace, cuBLASLt
//! multiplies them, and a kernel takes the norm. Backward, a kernel computes the gradient before the norm; the
//! gradients of the path products follow from it, and the gradients of the operands from these. The path products are
//! formed again for the gradients of the weights.

mod blocks;
mod functions;
mod grades;
mod kernels;
mod problem;
mod products;
mod steps;
mod workspace;

use std::ops::Range;
use std::sync::Arc;

use crate::Error;
use crate::cuda::OnCuda;
use crate::cuda::call::{Call, Gradients, Kept};
use crate::cuda::device::Device;
use crate::cuda::dtype::Dtypes;
use crate::cuda::matmul::{BlasLt, MatmulPrecision, offset};
use crate::operator::{self, Dims, Operator, Pass};
use crate::tuning_table::KnobKey;
use grades::OutputGrades;
use kernels::{Kernels, OnRows};
use problem::Problem;
use products::Products;
use steps::Steps;
use workspace::Space;

/// The name of the knob for the size of a block: the most memory that its path products and rows of the output may
/// take, in MiB. Smaller blocks fill a large GPU worse.
const BLOCK_KNOB: &str = "block_mib";
const BLOCK_MIB: i64 = 256;
const BLOCK_CHOICES: [i64; 5] = [32, 64, 128, 256, 512];

/// The product on a device, with its options.
#[derive(Clone, Debug)]
pub(crate) struct FullyConnected {
    precision: MatmulPrecision,
    /// The most bytes that a block may take, if the caller says so.
    block_bytes: Option<usize>,
    kernels: Kernels,
    device: Device,
    grades: OutputGrades,
    /// The number of blades of each operand.
    operand_blades: [usize; 2],
}

impl operator::FullyConnected {
    pub(crate) fn on_cuda(
        &self,
        operator: &Operator,
        device: &Device,
    ) -> Result<FullyConnected, Error> {
        let algebra = operator.algebra();
        let grades = OutputGrades::new(algebra, self);
        let [left, right, _] = self.grades();
        // Nothing works without cuBLASLt; it is better to say so before the first call.
        device.blas()?;
        Ok(FullyConnected {
            precision: MatmulPrecision::default(),
            block_bytes: None,
            kernels: Kernels::find(
                operator.name(),
                algebra,
                self,
                &grades,
                device.compute_capability(),
            )?,
            device: device.clone(),
            grades,
            operand_blades: [left, right].map(|grades| grades.blade_count(algebra.cayley())),
        })
    }
}

impl FullyConnected {
    fn problem<'a>(&'a self, dims: &'a Dims, dtypes: Dtypes, pass: Pass) -> Problem<'a> {
        Problem {
            grades: &self.grades,
            dims,
            dtypes,
            precision: self.precision,
            pass,
            block_bytes: self.block_bytes(dims, dtypes, pass),
        }
    }

    fn block_bytes(&self, dims: &Dims, dtypes: Dtypes, pass: Pass) -> usize {
        if let Some(bytes) = self.block_bytes {
            return bytes;
        }
        let key = KnobKey {
            grades: self.grades.shapes(),
            pass,
            dtype: dtypes.lanes,
            precision: self.precision.of(dtypes.lanes),
            batch: dims.batch,
            in_channels: dims.in_channels,
            out_channels: dims.out_channels,
        };
        let knob = self
            .device
            .knob(&key, BLOCK_KNOB, BLOCK_MIB, &BLOCK_CHOICES);
        // The value is a choice, or the default.
        usize::try_from(knob).map_or(0, |mebibytes| mebibytes << 20)
    }

    /// Brings the weights into the order of the matrix products.
    ///
    /// # Safety
    /// The contract of [`OnCuda::run`] holds, and the space is that of the call.
    unsafe fn pack(&self, call: &Call, problem: &Problem, space: &Space) -> Result<(), Error> {
        let exponent = problem.is_scaled().then_some(space.scales.weights);
        let operands = problem.operands();
        // SAFETY: the caller promises it.
        unsafe { self.kernels.pack(call, space.weights, operands, exponent) }
    }

    /// Adds the part of a block to the gradients of the weights, in the workspace. The path products of the block are
    /// formed, or its scales known. The last block writes the sums to the gradients.
    ///
    /// # Safety
    /// The contract of [`Self::pack`] holds for the call and the space of `steps`, and `kernels` are the kernels of the block.
    unsafe fn add_weights(
        &self,
        call: &Call,
        kernels: &OnRows,
        steps: &Steps,
        rows: &Range<usize>,
        blas: &BlasLt,
    ) -> Result<(), Error> {
        let (problem, space) = (steps.problem, steps.space);
        let is_first = rows.start == 0;
        if problem.is_scaled() {
            if !is_first {
                // SAFETY: the caller promises it.
                unsafe { self.rescale(call, problem, space) }?;
            }
            // SAFETY: the caller promises it.
            unsafe { kernels.form(space.formed(problem, steps.count), true) }?;
        }
        for products in problem.products() {
            for product in steps.weight_gradients(&products, !is_first) {
                // SAFETY: the caller promises it.
                unsafe { blas.run(&product, space.blas, call.stream) }?;
            }
        }
        match rows.end == call.dims.batch {
            // SAFETY: the caller promises it.
            true => unsafe { self.unpack(call, problem, space) },
            false => Ok(()),
        }
    }

    /// Brings the parts of the gradients of the weights to the exponents that their sums have now.
    ///
    /// # Safety
    /// The contract of [`Self::pack`] holds, and the space holds parts of an earlier block.
    unsafe fn rescale(&self, call: &Call, problem: &Problem, space: &Space) -> Result<(), Error> {
        for products in problem.products() {
            for (paths, at) in weight_parts(call, &products, space) {
                let parts = (paths, products.parts());
                // SAFETY: the caller promises it.
                unsafe { self.kernels.rescale(call, parts, space.scales.sums, at) }?;
            }
        }
        Ok(())
    }

    /// Adds up the parts of the gradients of the weights.
    ///
    /// # Safety
    /// The contract of [`Self::pack`] holds, and the space holds the parts of all blocks.
    unsafe fn unpack(&self, call: &Call, problem: &Problem, space: &Space) -> Result<(), Error> {
        let Some(grad) = call.grads[2] else {
            return Ok(());
        };
        let sums = problem.is_scaled().then_some(space.scales.sums);
        for products in problem.products() {
            for (paths, at) in weight_parts(call, &products, space) {
                let parts = (paths, products.parts());
                // SAFETY: the caller promises it.
                unsafe { self.kernels.unpack(call, parts, sums, [at, grad]) }?;
            }
        }
        Ok(())
    }

    // ---- without any products ----

    /// Writes the output of a product of size 0, and its sums of squares: zeros.
    ///
    /// # Safety
    /// The contract of [`OnCuda::run`] holds.
    unsafe fn nothing(&self, call: &Call) -> Result<(), Error> {
        let Call { dims, dtypes, .. } = call;
        let output = self.grades.blades() * dims.batch * dims.out_channels;
        // SAFETY: the caller promises it.
        unsafe { call.zero(call.output, output * dtypes.lanes.bytes()) }?;
        if call.saved == 0 || !self.kernels.has_norm() {
            return Ok(());
        }
        let saved = self.grades.all.len() * dims.batch * dtypes.arithmetic().bytes();
        // SAFETY: the caller promises it.
        unsafe { call.zero(call.saved, saved) }
    }

    /// Writes the gradients of a product of size 0: zeros.
    ///
    /// # Safety
    /// The contract of [`OnCuda::run`] holds.
    unsafe fn no_gradients(&self, call: &Call) -> Result<(), Error> {
        let Call { dims, dtypes, .. } = call;
        let [left, right] = self.operand_blades;
        let lanes = dims.batch * dims.in_channels * dtypes.lanes.bytes();
        let weights = dims.in_channels * dims.out_channels * dtypes.params.bytes();
        let paths = self.grades.order.len();
        let bytes = [left * lanes, right * lanes, paths * weights];
        for (grad, bytes) in call.grads.iter().zip(bytes) {
            if let Some(grad) = *grad {
                // SAFETY: the caller promises it.
                unsafe { call.zero(grad, bytes) }?;
            }
        }
        Ok(())
    }
}

impl OnCuda for FullyConnected {
    /// Loads the kernels, and chooses the algorithms of the products.
    fn prepare(&self, dims: &Dims, dtypes: Dtypes) -> Result<(), Error> {
        let operands = self.problem(dims, dtypes, Pass::Forward).operands();
        self.kernels.prepare(dtypes, operands)?;
        // Workspaces are aligned, so any aligned address gives the same algorithms.
        for pass in [Pass::Forward, Pass::Backward] {
            let problem = self.problem(dims, dtypes, pass);
            if problem.is_nothing() {
                return Ok(());
            }
            let blas = self.device.blas()?;
            let space = Space::new(&problem, [true; 2]);
            for count in problem.blocks().sizes() {
                for product in Steps::new(&problem, &space, count).all([true; 2]) {
                    blas.plan(&product.problem)?;
                }
            }
        }
        Ok(())
    }

    fn workspace_bytes(
        &self,
        dims: &Dims,
        pass: Pass,
        dtypes: Dtypes,
        grads: &Gradients,
        _: &Kept,
    ) -> Result<usize, Error> {
        let problem = self.problem(dims, dtypes, pass);
        Ok(match problem.is_nothing() {
            true => 0,
            false => Space::new(&problem, wanted(grads)).bytes,
        })
    }

    unsafe fn run(&self, call: &Call, results: &Gradients) -> Result<(), Error> {
        if results[0].is_none() {
            return Ok(());
        }
        let problem = self.problem(&call.dims, call.dtypes, Pass::Forward);
        if problem.is_nothing() {
            // SAFETY: the caller promises it.
            return unsafe { self.nothing(call) };
        }
        let blas = self.device.blas()?;
        let space = Space::new(&problem, [false; 2]).at(call.workspace);
        let operands = problem.operands();
        // SAFETY: for all calls here, the caller promises it; parts of the workspace have the sizes that their kernels
        // write.
        unsafe { self.pack(call, &problem, &space) }?;
        for rows in problem.blocks().iter() {
            let steps = Steps::new(&problem, &space, rows.len());
            let kernels = self.kernels.on(call, &rows, operands, space.scales)?;
            // SAFETY: the same holds as above.
            unsafe { kernels.form(space.formed(&problem, rows.len()), false) }?;
            for products in problem.products() {
                // SAFETY: the same holds as above.
                unsafe { blas.run(&steps.output(&products), space.blas, call.stream) }?;
            }
            // SAFETY: the same holds as above.
            unsafe { kernels.norm(space.product) }?;
        }
        Ok(())
    }

    unsafe fn backward(&self, call: &Call) -> Result<(), Error> {
        let problem = self.problem(&call.dims, call.dtypes, Pass::Backward);
        let [of_operands, of_weights] = wanted(&call.grads);
        if !of_operands && !of_weights {
            return Ok(());
        }
        if problem.is_nothing() {
            // SAFETY: the caller promises it.
            return unsafe { self.no_gradients(call) };
        }
        let blas = self.device.blas()?;
        let wanted = [of_operands, of_weights];
        let space = Space::new(&problem, wanted).at(call.workspace);
        let operands = problem.operands();
        if of_operands {
            // SAFETY: the same holds for all calls as in the forward pass.
            unsafe { self.pack(call, &problem, &space) }?;
        }
        for rows in problem.blocks().iter() {
            let kernels = self.kernels.on(call, &rows, operands, space.scales)?;
            // SAFETY: the same holds as above.
            unsafe { kernels.undo_norm(space.product) }?;
            let steps = Steps::new(&problem, &space, rows.len());
            if of_operands {
                for products in problem.products() {
                    // SAFETY: the same holds as above.
                    unsafe { blas.run(&steps.path_gradients(&products), space.blas, call.stream) }?;
                }
                // SAFETY: the same holds as above.
                unsafe { kernels.pull_back(space.formed(&problem, rows.len()), of_weights) }?;
            } else if problem.is_scaled() {
                // SAFETY: the same holds as above.
                unsafe { kernels.scale() }?;
            } else {
                // SAFETY: the same holds as above.
                unsafe { kernels.form(space.formed(&problem, rows.len()), true) }?;
            }
            if of_weights {
                // SAFETY: the same holds as above.
                unsafe { self.add_weights(call, &kernels, &steps, &rows, &blas) }?;
            }
        }
        Ok(())
    }

    fn with_precision(&self, precision: MatmulPrecision) -> Option<Arc<dyn OnCuda>> {
        Some(Arc::new(Self {
            precision,
            ..self.clone()
        }))
    }

    fn with_block_bytes(&self, bytes: usize) -> Option<Arc<dyn OnCuda>> {
        Some(Arc::new(Self {
            block_bytes: Some(bytes),
            ..self.clone()
        }))
    }
}

/// For each grade of some products, the paths to it and the address of the parts of the gradients of their weights.
fn weight_parts<'a>(
    call: &Call,
    products: &'a Products,
    space: &Space,
) -> impl Iterator<Item = (&'a Range<usize>, u64)> {
    let size = products.parts() * call.dims.in_channels * call.dims.out_channels;
    let bytes = call.dtypes.arithmetic().bytes();
    let first = space.weight_grads[products.grade()];
    let paths = products.paths().enumerate();
    paths.map(move |(index, paths)| (paths, offset(first, index, paths.len() * size, bytes)))
}

/// Whether gradients of the operands are wanted, and whether gradients of the weights are.
fn wanted(grads: &Gradients) -> [bool; 2] {
    let [x, y, w, ..] = grads.map(|grad| grad.is_some());
    [x || y, w]
}
