//! The product in blocks of rows: kernels write the path products of a block to the workspace, cuBLASLt
//! multiplies them, and kernels take the norm. Backward the other way round: the gradient before the norm,
//! from it those of the path products, and from these those of the operands; the path products are formed again for
//! the gradients of the weights.

use std::ffi::CString;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use flashcliff_sys as sys;

use super::blocks::Blocks;
use super::products::Products;
use super::tensor_cores::places;
use super::workspace::{ByGrade, Space};
use crate::cuda::call::{Call, Gradients};
use crate::cuda::device::Device;
use crate::cuda::dtype::{Dtypes, code};
use crate::cuda::fault;
use crate::cuda::lane::{address, gate_code};
use crate::cuda::matmul::{BlasLt, MatmulPrecision, Product};
use crate::operator::{self, Dims, Pass};
use crate::{Algebra, Error};

/// The product with its options.
#[derive(Clone, Debug)]
pub(super) struct Blocked {
    kernels: Kernels,
    device: Device,
    /// Those of the output.
    pub(super) grades: Vec<OutputGrade>,
    /// For each path in the order of the products, its place in the weights.
    order: [i8; sys::FC_MAX_PATHS as usize],
    /// The blades of the operands.
    operand_blades: [usize; 2],
    /// What all blocks share.
    options: Options,
}

/// A grade of the output.
#[derive(Clone, Debug)]
pub(super) struct OutputGrade {
    pub(super) grade: usize,
    /// Its blades in the output.
    pub(super) blades: Range<usize>,
    /// Its paths in the order of the products.
    pub(super) paths: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Kernels(NonNull<sys::fc_block_kernels>);

// SAFETY: kernels are static and never changed.
unsafe impl Send for Kernels {}
// SAFETY: as above.
unsafe impl Sync for Kernels {}

/// What kernels are told besides tensors and sizes.
#[derive(Clone, Copy, Debug)]
struct Options {
    gate: sys::fc_gate,
    eps: f64,
    norm: bool,
    left: ByGrade<i8>,
    right: ByGrade<i8>,
    result: ByGrade<i8>,
    blades: ByGrade<i8>,
    path: [i8; sys::FC_MAX_PATHS as usize],
    paths: ByGrade<i8>,
}

impl Blocked {
    pub(super) fn new(
        operator: &str,
        algebra: Algebra,
        product: &operator::FullyConnected,
        device: &Device,
    ) -> Result<Self, Error> {
        let missing = || Error::UnsupportedOnCuda {
            operator: operator.to_owned(),
            reason: format!(
                "no kernel of the fully connected product for {}",
                algebra.name()
            ),
        };
        let name = CString::new(algebra.name()).map_err(|_| missing())?;
        // SAFETY: the string ends in a zero byte.
        let found = unsafe { sys::fc_block_find(name.as_ptr()) };
        let found = NonNull::new(found.cast_mut()).ok_or_else(missing)?;
        let cayley = algebra.cayley();
        let all = 0..cayley.grade_count();
        let [left, right, output] = product.grades();
        let first = |grades| {
            let starts = all.clone().map(|grade| cayley.grade_range(grade).start);
            places(starts.map(|blade| cayley.offset_in(grades, blade)))
        };
        let paths = product.paths();
        let (mut grades, mut order) = (Vec::new(), Vec::new());
        for grade in output.iter() {
            let start = grades.last().map_or(0, |g: &OutputGrade| g.blades.end);
            let to_grade = paths.iter().enumerate().filter(|(_, p)| p.output == grade);
            let from = order.len();
            order.extend(to_grade.map(|(place, _)| Some(place)));
            grades.push(OutputGrade {
                grade,
                blades: start..start + cayley.grade_range(grade).len(),
                paths: from..order.len(),
            });
        }
        let place = |path| {
            let stored = paths.iter().position(|p| p == path)?;
            let place = order.iter().position(|at| *at == Some(stored))?;
            let grade = grades.iter().find(|g| g.paths.contains(&place))?;
            Some(place - grade.paths.start)
        };
        let counts = all.clone().map(|grade| {
            let found = grades.iter().find(|g| g.grade == grade);
            Some(found.map_or(0, |g| g.paths.len()))
        });
        let options = Options {
            gate: gate_code(product.gate()),
            eps: product.eps(),
            norm: product.has_norm(),
            left: first(left),
            right: first(right),
            result: first(output),
            blades: places(all.clone().map(|g| Some(cayley.grade_range(g).len()))),
            path: places(cayley.paths().iter().map(place)),
            paths: places(counts),
        };
        Ok(Self {
            kernels: Kernels(found),
            device: device.clone(),
            order: places(order.into_iter()),
            grades,
            operand_blades: [left, right].map(|grades| grades.blade_count(cayley)),
            options,
        })
    }

    pub(super) fn output_blades(&self) -> usize {
        self.grades.last().map_or(0, |grade| grade.blades.end)
    }

    pub(super) fn path_count(&self) -> usize {
        self.grades.last().map_or(0, |grade| grade.paths.end)
    }

    /// How the batch is cut. Depends on the shape and the types alone.
    pub(super) fn blocks(&self, dims: &Dims, pass: Pass, dtypes: Dtypes) -> Blocks {
        let slices = self.grades.iter().map(|g| g.blades.len() * g.paths.len());
        let (lane, sum) = (dtypes.lanes.bytes(), dtypes.arithmetic().bytes());
        let (formed, product) = match pass {
            Pass::Forward => (slices.max().unwrap_or(0) * lane, sum),
            // The gradients of all path products at once.
            Pass::Backward => (slices.sum::<usize>() * sum, lane),
        };
        let output = self.output_blades() * dims.out_channels * product;
        Blocks::new(dims.batch, formed * dims.in_channels + output)
    }

    /// Loads the kernels, and chooses the algorithms of the products.
    pub(super) fn prepare(
        &self,
        dims: &Dims,
        dtypes: Dtypes,
        precision: MatmulPrecision,
    ) -> Result<(), Error> {
        // SAFETY: kernels of the library.
        let done = unsafe { sys::fc_block_prepare(self.kernels.0.as_ptr(), code(dtypes.lanes)) };
        fault::kernel("fc_block_prepare", done)?;
        if self.is_nothing(dims) {
            return Ok(());
        }
        let blas = self.device.blas()?;
        let plan = |product: Product| blas.plan(&product.problem).map(drop);
        // Workspaces are aligned, so any address that is says which algorithms.
        let [forward, backward] = [Pass::Forward, Pass::Backward].map(|pass| {
            let blocks = self.blocks(dims, pass, dtypes);
            (blocks, Space::new(self, dims, pass, dtypes, [true; 2]))
        });
        for grade in &self.grades {
            let (blocks, space) = forward;
            let products = Products::new(grade, dims, dtypes, blocks, precision);
            for count in blocks.sizes() {
                plan(products.output(count, [space.weights, space.formed, space.product]))?;
            }
            let (blocks, space) = backward;
            let products = Products::new(grade, dims, dtypes, blocks, precision);
            let formed_grads = space.formed_grads[grade.grade];
            let weight_grads = space.weight_grads[grade.grade];
            for count in blocks.sizes() {
                let addresses = [space.weights, space.product, formed_grads];
                plan(products.path_gradients(count, addresses))?;
                let addresses = [space.product, space.formed, weight_grads];
                products
                    .weight_gradients(count, true, addresses)
                    .try_for_each(plan)?;
            }
        }
        Ok(())
    }

    pub(super) fn workspace_bytes(
        &self,
        dims: &Dims,
        pass: Pass,
        dtypes: Dtypes,
        grads: &Gradients,
    ) -> usize {
        match self.is_nothing(dims) {
            true => 0,
            false => Space::new(self, dims, pass, dtypes, wanted(grads)).bytes,
        }
    }

    /// # Safety
    /// The call is checked, its stream valid, and the context of its tensors current.
    pub(super) unsafe fn forward(
        &self,
        call: &Call,
        precision: MatmulPrecision,
    ) -> Result<(), Error> {
        let Call { dims, dtypes, .. } = *call;
        if self.is_nothing(&dims) {
            // SAFETY: the caller's.
            return unsafe { self.nothing(call) };
        }
        let blas = self.device.blas()?;
        let space = Space::new(self, &dims, Pass::Forward, dtypes, [false; 2]).at(call.workspace);
        let blocks = self.blocks(&dims, Pass::Forward, dtypes);
        // SAFETY: of all calls: the caller's; parts of the workspace are as large as their kernels write.
        unsafe { self.pack(call, space.weights) }?;
        for rows in blocks.iter() {
            let block = self.block(call, &rows);
            for grade in &self.grades {
                // SAFETY: as above.
                unsafe { self.form(call, &block, grade, space.formed) }?;
                let products = Products::new(grade, &dims, dtypes, blocks, precision);
                let addresses = [space.weights, space.formed, space.product];
                let product = products.output(rows.len(), addresses);
                // SAFETY: as above.
                unsafe { blas.run(&product, space.blas, call.stream) }?;
            }
            // SAFETY: as above.
            let done = unsafe {
                sys::fc_block_norm(
                    &raw const block,
                    address(space.product),
                    address(call.output),
                    address(call.saved),
                    call.stream.cast(),
                )
            };
            fault::kernel("fc_block_norm", done)?;
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Self::forward`].
    pub(super) unsafe fn backward(
        &self,
        call: &Call,
        precision: MatmulPrecision,
    ) -> Result<(), Error> {
        let Call { dims, dtypes, .. } = *call;
        let [of_operands, of_weights] = wanted(&call.grads);
        if !of_operands && !of_weights {
            return Ok(());
        }
        if self.is_nothing(&dims) {
            // SAFETY: the caller's.
            return unsafe { self.no_gradients(call) };
        }
        let blas = self.device.blas()?;
        let wanted = [of_operands, of_weights];
        let space = Space::new(self, &dims, Pass::Backward, dtypes, wanted).at(call.workspace);
        let blocks = self.blocks(&dims, Pass::Backward, dtypes);
        let products = |grade| Products::new(grade, &dims, dtypes, blocks, precision);
        if of_operands {
            // SAFETY: of all calls: as in the forward pass.
            unsafe { self.pack(call, space.weights) }?;
        }
        for rows in blocks.iter() {
            let block = self.block(call, &rows);
            // SAFETY: as above.
            let done = unsafe {
                sys::fc_block_undo_norm(
                    &raw const block,
                    address(call.result),
                    address(call.output),
                    address(call.saved),
                    address(space.product),
                    call.stream.cast(),
                )
            };
            fault::kernel("fc_block_undo_norm", done)?;
            if of_operands {
                for grade in &self.grades {
                    let formed = space.formed_grads[grade.grade];
                    let addresses = [space.weights, space.product, formed];
                    let product = products(grade).path_gradients(rows.len(), addresses);
                    // SAFETY: as above.
                    unsafe { blas.run(&product, space.blas, call.stream) }?;
                }
                // SAFETY: as above.
                unsafe { self.pull_back(call, &block, &space) }?;
            }
            if of_weights {
                // SAFETY: as above.
                unsafe { self.add_weights(call, &block, &products, &space, &blas) }?;
            }
        }
        match call.grads[2] {
            // SAFETY: as above.
            Some(grad) => unsafe { self.unpack(call, &products, &space, grad) },
            None => Ok(()),
        }
    }

    // ---- steps ----

    /// Adds what a block has for the gradients of the weights.
    unsafe fn add_weights<'a>(
        &'a self,
        call: &Call,
        block: &sys::fc_block,
        products: &dyn Fn(&'a OutputGrade) -> Products<'a>,
        space: &Space,
        blas: &Arc<BlasLt>,
    ) -> Result<(), Error> {
        for grade in &self.grades {
            // SAFETY: the caller's.
            unsafe { self.form(call, block, grade, space.formed) }?;
            let grads = space.weight_grads[grade.grade];
            let addresses = [space.product, space.formed, grads];
            let (count, is_first) = (block.rows as usize, block.first == 0);
            for product in products(grade).weight_gradients(count, is_first, addresses) {
                // SAFETY: the caller's.
                unsafe { blas.run(&product, space.blas, call.stream) }?;
            }
        }
        Ok(())
    }

    unsafe fn form(
        &self,
        call: &Call,
        block: &sys::fc_block,
        grade: &OutputGrade,
        formed: u64,
    ) -> Result<(), Error> {
        // SAFETY: the caller's.
        let done = unsafe {
            sys::fc_block_form(
                self.kernels.0.as_ptr(),
                block,
                grade.grade as i32,
                address(formed),
                call.stream.cast(),
            )
        };
        fault::kernel("fc_block_form", done)
    }

    unsafe fn pull_back(
        &self,
        call: &Call,
        block: &sys::fc_block,
        space: &Space,
    ) -> Result<(), Error> {
        let products = space.formed_grads.map(|at| address(at).cast_const());
        let [grad_x, grad_y, ..] = call.grads.map(|grad| address(grad.unwrap_or(0)));
        // SAFETY: the caller's.
        let done = unsafe {
            sys::fc_block_pull_back(
                self.kernels.0.as_ptr(),
                block,
                products.as_ptr(),
                grad_x,
                grad_y,
                call.stream.cast(),
            )
        };
        fault::kernel("fc_block_pull_back", done)
    }

    /// Brings the weights into the order of the products.
    unsafe fn pack(&self, call: &Call, weights: u64) -> Result<(), Error> {
        let Call { dims, dtypes, .. } = call;
        // SAFETY: the caller's.
        let done = unsafe {
            sys::fc_block_pack(
                address(call.inputs[2]),
                address(weights),
                (dims.in_channels * dims.out_channels) as i64,
                self.path_count() as i32,
                self.order.as_ptr(),
                code(dtypes.params),
                code(dtypes.lanes),
                call.stream.cast(),
            )
        };
        fault::kernel("fc_block_pack", done)
    }

    /// Adds the parts of the gradients of the weights.
    unsafe fn unpack<'a>(
        &'a self,
        call: &Call,
        products: &dyn Fn(&'a OutputGrade) -> Products<'a>,
        space: &Space,
        grad: u64,
    ) -> Result<(), Error> {
        let Call { dims, dtypes, .. } = call;
        for grade in &self.grades {
            // SAFETY: the caller's.
            let done = unsafe {
                sys::fc_block_unpack(
                    address(space.weight_grads[grade.grade]),
                    address(grad),
                    (dims.in_channels * dims.out_channels) as i64,
                    grade.paths.len() as i32,
                    products(grade).parts() as i32,
                    self.order[grade.paths.clone()].as_ptr(),
                    code(dtypes.arithmetic()),
                    code(dtypes.params),
                    call.stream.cast(),
                )
            };
            fault::kernel("fc_block_unpack", done)?;
        }
        Ok(())
    }

    // ---- without any products ----

    /// Whether there is nothing to multiply.
    fn is_nothing(&self, dims: &Dims) -> bool {
        let sizes = [dims.batch, dims.in_channels, dims.out_channels];
        self.path_count() == 0 || sizes.contains(&0)
    }

    /// The output of no products, and its sums of squares.
    unsafe fn nothing(&self, call: &Call) -> Result<(), Error> {
        let Call { dims, dtypes, .. } = call;
        let output = self.output_blades() * dims.batch * dims.out_channels;
        // SAFETY: the caller's.
        unsafe { call.zero(call.output, output * dtypes.lanes.bytes()) }?;
        if call.saved == 0 || !self.options.norm {
            return Ok(());
        }
        let saved = self.grades.len() * dims.batch * dtypes.arithmetic().bytes();
        // SAFETY: the caller's.
        unsafe { call.zero(call.saved, saved) }
    }

    unsafe fn no_gradients(&self, call: &Call) -> Result<(), Error> {
        let Call { dims, dtypes, .. } = call;
        let [left, right] = self.operand_blades;
        let lanes = dims.batch * dims.in_channels * dtypes.lanes.bytes();
        let weights = dims.in_channels * dims.out_channels * dtypes.params.bytes();
        let bytes = [left * lanes, right * lanes, self.path_count() * weights];
        for (grad, bytes) in call.grads.iter().zip(bytes) {
            if let Some(grad) = *grad {
                // SAFETY: the caller's.
                unsafe { call.zero(grad, bytes) }?;
            }
        }
        Ok(())
    }

    /// Some rows of a call.
    fn block(&self, call: &Call, rows: &Range<usize>) -> sys::fc_block {
        let Call { dims, dtypes, .. } = call;
        let Options {
            gate,
            eps,
            norm,
            left,
            right,
            result,
            blades,
            path,
            paths,
        } = self.options;
        sys::fc_block {
            x: address(call.inputs[0]),
            y: address(call.inputs[1]),
            // Sizes are below 2^63: `bind` bounds the elements of every tensor.
            batch: dims.batch as i64,
            first: rows.start as i64,
            rows: rows.len() as i64,
            in_: dims.in_channels as i64,
            out: dims.out_channels as i64,
            eps,
            gate,
            norm: norm.into(),
            dtype: code(dtypes.lanes),
            left,
            right,
            result,
            blades,
            path,
            paths,
        }
    }
}

/// Whether gradients of the operands are wanted, and of the weights.
fn wanted(grads: &Gradients) -> [bool; 2] {
    let [x, y, w, ..] = grads.map(|grad| grad.is_some());
    [x || y, w]
}
