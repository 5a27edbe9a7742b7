//! The fully connected product as matrix products whose left operand is formed on the fly.
//!
//! For each path `p = (a, b, c)`: `o_b += A_p w_p`, where row (blade of grade `b`, batch element)
//! and column `n` of `A_p` hold the terms of the path between `x_a[n]` and `y_c[n]`, gated. `A_p`
//! exists for one block of batch elements at a time.
//!
//! The backward pass does not recompute the product: it reads the output, which callers hold
//! anyway, and undoes the norm with the saved sums.
//!
//! `cuda` runs products of cuBLASLt, and `flashcliff-sys/cuda/{fully_connected.cu,skeleton/blocks/}` around them.

mod block;
#[cfg(feature = "cuda")]
mod cuda;
mod layout;
mod scratch;

use std::ops::Range;
use std::sync::Arc;

use cayley::{GradeSet, Path, ProductKind};
use flashcliff_program::spec;

use self::block::Block;
use self::layout::Layout;
use self::scratch::Sizes;
use super::composed::{self, Composed, Graph, Side, ValueId};
use super::gemm::{Matrix, matmul};
use super::shape::{Dim, Dims, TensorSpec};
use super::{Cost, Derivative, Given, Implementation, Kind, Operator, Pass, Specs};
use crate::Element;
use crate::few::Few;
use crate::kernel::lanes::{self, Call, MAX_TENSORS, Operand};
use crate::kernel::tasks::{self, Chunks};
use crate::ops::ProductOptions;
use crate::programs::Known;
use crate::tensor::Tensor;
use crate::{Algebra, Error, Gate, Norm, Tier, sizes};

/// The number of elements of scratch memory that a block aims at: about half of a second-level cache.
const BLOCK_ELEMENTS: usize = 1 << 17;

#[derive(Clone)]
pub(crate) struct FullyConnected {
    options: ProductOptions,
    gate: Gate,
    eps: f64,
    left: Layout,
    right: Layout,
    output: Layout,
    paths: Vec<PathProduct>,
    gates: &'static Known,
    norms: Vec<GradeNorm>,
}

impl std::fmt::Debug for FullyConnected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FullyConnected")
            .field("gate", &self.gate)
            .field("eps", &self.eps)
            .field("paths", &self.paths.len())
            .finish()
    }
}

/// The norm of one output grade.
#[derive(Clone)]
struct GradeNorm {
    blades: Range<usize>,
    program: &'static Known,
    undo: &'static Known,
}

#[derive(Clone)]
struct PathProduct {
    path: Path,
    program: &'static Known,
}

impl PathProduct {
    /// The number of components of the product.
    fn width(&self) -> usize {
        self.program.output_components().sum()
    }
}

impl FullyConnected {
    pub(crate) fn new(algebra: Algebra, options: &ProductOptions) -> Result<Self, Error> {
        let cayley = algebra.cayley();
        let full = algebra.full();
        let left = options.left.unwrap_or(full);
        let right = options.right.unwrap_or(full);
        cayley.check_grades(left)?;
        cayley.check_grades(right)?;
        let output = cayley.reachable(ProductKind::Geometric, left, right);
        let mut paths = Vec::new();
        for path in cayley.paths_between(left, right) {
            let program = algebra.path_program(path)?;
            paths.push(PathProduct { path, program });
        }
        let output_layout = Layout::new(algebra, output);
        let mut norms = Vec::new();
        for grade in output.iter() {
            let form = cayley.invariant_form(grade);
            let (program, undo) = match options.norm {
                Norm::None => continue,
                Norm::Invariant if !form.is_euclidean() => {
                    ("grade_invariant", "undo_grade_invariant")
                }
                Norm::Rms | Norm::Invariant => ("grade_rms", "undo_grade_rms"),
            };
            let single = GradeSet::single(grade);
            norms.push(GradeNorm {
                blades: output_layout.grade(grade),
                program: algebra.program(program, single, single)?,
                undo: algebra.program(undo, single, single)?,
            });
        }
        Ok(Self {
            options: options.clone(),
            gate: options.gate,
            eps: options.eps,
            left: Layout::new(algebra, left),
            right: Layout::new(algebra, right),
            output: output_layout,
            paths,
            gates: algebra.program("gate_pair", full, full)?,
            norms,
        })
    }

    /// The grades of the left operand, the right operand and the output.
    pub(crate) fn grades(&self) -> [GradeSet; 3] {
        [&self.left, &self.right, &self.output].map(Layout::grades)
    }

    /// The paths, in the order of the weights.
    #[cfg(feature = "cuda")]
    pub(crate) fn paths(&self) -> Vec<Path> {
        self.paths.iter().map(|product| product.path).collect()
    }

    /// Adds the product to a graph: gates, a trilinear form, and the norm.
    fn state(
        &self,
        graph: &mut Graph,
        algebra: Algebra,
        [x, y, w]: [ValueId; 3],
    ) -> Result<ValueId, Error> {
        let options = &self.options;
        let full = algebra.full();
        let (left, right) = (options.left.unwrap_or(full), options.right.unwrap_or(full));
        let mut gated = |operand, grades: GradeSet| match options.gate {
            Gate::None => operand,
            gate => {
                let of =
                    composed::lane(algebra, spec::gated_operand(&algebra, grades)).with_gate(gate);
                graph.lanes(of, Side::In, vec![operand])[0]
            }
        };
        let (x, y) = (gated(x, left), gated(y, right));
        let plain = ProductOptions {
            gate: Gate::None,
            norm: Norm::None,
            ..options.clone()
        };
        let kind = Kind::FullyConnected(Box::new(Self::new(algebra, &plain)?));
        let form = Operator::new("fcgp_norm", algebra, kind);
        let output = graph.form(Arc::new(form), vec![x, y, w]);
        let is_invariant = match options.norm {
            Norm::None => return Ok(output),
            Norm::Rms => false,
            _ => true,
        };
        let reached = algebra.reachable(ProductKind::Geometric, left, right);
        let normed = composed::lane(algebra, spec::normed(&algebra, reached, is_invariant));
        Ok(graph.lanes(normed.with_eps(options.eps), Side::Out, vec![output])[0])
    }

    /// The number of batch elements in a block. It depends on the shape alone.
    fn block_rows(&self, dims: &Dims) -> usize {
        let widest = self.widest();
        let row = self.output.blades * dims.out_channels + widest * dims.in_channels;
        (BLOCK_ELEMENTS / row.max(1)).clamp(8, 128)
    }

    fn widest(&self) -> usize {
        let widths = self.paths.iter().map(PathProduct::width);
        widths.max().unwrap_or(0)
    }

    /// The number of elements of the gradient before the norm; 0 without a norm.
    fn grad_product_len(&self, dims: &Dims) -> usize {
        match self.norms.is_empty() {
            true => 0,
            false => self.output.blades * dims.batch * dims.out_channels,
        }
    }

    /// The gradient of the product before its norm.
    fn undo_norm<T: Element>(
        &self,
        tier: Tier,
        dims: &Dims,
        given: &Given<'_, T>,
        grad_product: &mut [T],
        workspace: &mut [T],
    ) {
        let blocks = Chunks::of_rows(dims.batch, self.block_rows(dims));
        let sizes = self.backward_scratch::<T>(tier, dims);
        let target = Pointer(grad_product.as_mut_ptr());
        let target = &target;
        tasks::run(
            blocks.count(),
            workspace,
            sizes.total(),
            |scratch, block| {
                let rows = blocks.range(block);
                let count = rows.len();
                let channels = dims.out_channels;
                let scratch = sizes.split(scratch);
                for (index, norm) in self.norms.iter().enumerate() {
                    let blades = norm.blades.len();
                    let start = (norm.blades.start * dims.batch + rows.start) * channels;
                    let tensor = |ptr: *const T| {
                        let ptr = ptr.cast_mut().wrapping_add(start);
                        Operand::contiguous(ptr, blades, dims.batch, channels)
                    };
                    let product = scratch.product.as_mut_ptr();
                    let product = Operand::contiguous(product, blades, count, channels);
                    let saved = given.saved.as_ptr().cast_mut();
                    let saved = saved.wrapping_add(index * dims.batch + rows.start);
                    let run = |program,
                               inputs: &[Operand<T>],
                               outputs: &[Operand<T>],
                               lanes: &mut [T]| {
                        let call = Call {
                            saved,
                            saved_stride: dims.batch,
                            channels: [channels, 0],
                            ..self.call(tier, program, inputs, outputs, count)
                        };
                        // SAFETY: rows of checked tensors; blocks are disjoint; both plans only read
                        // `saved`.
                        unsafe { lanes::run(&call, lanes) };
                    };
                    let output = tensor(given.output.data().as_ptr());
                    run(norm.undo, &[output], &[product], &mut *scratch.lanes);
                    let inputs = [product, tensor(given.grad_output.data().as_ptr())];
                    let target = [tensor(target.0)];
                    run(
                        norm.program.adjoint(),
                        &inputs,
                        &target,
                        &mut *scratch.lanes,
                    );
                }
            },
        );
    }

    fn operand_gradients<T: Element>(
        &self,
        tier: Tier,
        dims: &Dims,
        given: &Given<'_, T>,
        grad_product: &[T],
        (grad_x, grad_y): (&mut Option<&mut [T]>, &mut Option<&mut [T]>),
        workspace: &mut [T],
    ) {
        let blocks = Chunks::of_rows(dims.batch, self.block_rows(dims));
        let sizes = self.backward_scratch::<T>(tier, dims);
        let pointer = |grad: &mut Option<&mut [T]>| {
            Pointer(
                grad.as_mut()
                    .map_or(std::ptr::null_mut(), |g| g.as_mut_ptr()),
            )
        };
        let (grad_x, grad_y) = (pointer(grad_x), pointer(grad_y));
        let (grad_x, grad_y) = (&grad_x, &grad_y);
        let w = given.inputs[2].data().as_ptr().cast_mut();
        let w = Matrix::rows(w, dims.out_channels);
        let w = &w;
        tasks::run(
            blocks.count(),
            workspace,
            sizes.total(),
            |scratch, block| {
                let rows = blocks.range(block);
                let count = rows.len();
                let mut scratch = sizes.split(scratch);
                let block = Block::new(self, tier, dims, given.inputs, rows);
                block.form_gates(&mut scratch);
                block.gather(grad_product, &mut scratch);
                scratch.grad_x.fill(T::default());
                scratch.grad_y.fill(T::default());
                scratch.grad_gates.fill(T::default());
                for (index, product) in self.paths.iter().enumerate() {
                    let blades = self.output.grade(product.path.output);
                    let grad_o = Matrix::rows(scratch.product.as_mut_ptr(), dims.out_channels);
                    let grad_o = grad_o.from(blades.start * count, 0);
                    let grad_a = Matrix::rows(scratch.formed.as_mut_ptr(), dims.in_channels);
                    let w = w.from(index * dims.in_channels, 0).transposed();
                    let sizes = (blades.len() * count, dims.out_channels, dims.in_channels);
                    // SAFETY: the scratch parts have these sizes; shapes were checked.
                    unsafe { matmul(sizes, grad_a, grad_o, w, false) };
                    block.pull_back_path(product, &mut scratch);
                }
                // SAFETY: blocks are disjoint rows of the gradients.
                unsafe { block.finish_gradients(&mut scratch, grad_x.0, grad_y.0) };
            },
        );
    }

    /// `A_p^T grad` for each path, over the blocks in order.
    fn weight_gradient<T: Element>(
        &self,
        tier: Tier,
        dims: &Dims,
        inputs: &[Tensor<'_, T>],
        grad_product: &[T],
        grad_w: &mut [T],
        workspace: &mut [T],
    ) {
        let blocks = Chunks::of_rows(dims.batch, self.block_rows(dims));
        if blocks.count() == 0 {
            return grad_w.fill(T::default());
        }
        let sizes = self.weight_scratch::<T>(tier, dims);
        let grad_w = Matrix::rows(grad_w.as_mut_ptr(), dims.out_channels);
        let grad_w = &grad_w;
        tasks::run(
            self.paths.len(),
            workspace,
            sizes.total(),
            |scratch, index| {
                let product = &self.paths[index];
                let blades = self.output.grade(product.path.output);
                let mut scratch = sizes.split(scratch);
                let out = grad_w.from(index * dims.in_channels, 0);
                for block_index in 0..blocks.count() {
                    let rows = blocks.range(block_index);
                    let count = rows.len();
                    let block = Block::new(self, tier, dims, inputs, rows.clone());
                    block.form_gates(&mut scratch);
                    block.form_path(product, &mut scratch);
                    for (offset, blade) in blades.clone().enumerate() {
                        let grad_o = grad_product.as_ptr().cast_mut();
                        let grad_o = Matrix::rows(grad_o, dims.out_channels);
                        let grad_o = grad_o.from(blade * dims.batch + rows.start, 0);
                        let a = Matrix::rows(scratch.formed.as_mut_ptr(), dims.in_channels);
                        let a = a.from(offset * count, 0).transposed();
                        let sizes = (dims.in_channels, count, dims.out_channels);
                        let again = block_index > 0 || offset > 0;
                        // SAFETY: the scratch parts have these sizes; paths have disjoint weights.
                        unsafe { matmul(sizes, out, a, grad_o, again) };
                    }
                }
            },
        );
    }

    /// A call over `count` rows of a block without parameters; its channels are the input's.
    fn call<'a, T: Element>(
        &self,
        tier: Tier,
        program: &'static Known,
        inputs: &'a [Operand<T>],
        outputs: &'a [Operand<T>],
        count: usize,
    ) -> Call<'a, T> {
        let program = program.runnable::<T>(tier);
        Call {
            plan: &program.plan,
            inputs,
            outputs,
            params: &[],
            sums: &[],
            row_values: &[],
            totals: &[],
            saved: std::ptr::null_mut(),
            saved_stride: 0,
            batch: count,
            channels: [0, 0],
            // The call has one chunk: a block belongs to one task.
            flops: 0,
            tier,
            gate: self.gate,
            eps: self.eps,
        }
    }

    fn forward_scratch<T: Element>(&self, tier: Tier, dims: &Dims) -> Sizes {
        Sizes {
            product: self.output.blades * self.block_rows(dims) * dims.out_channels,
            ..self.weight_scratch::<T>(tier, dims)
        }
    }

    fn weight_scratch<T: Element>(&self, tier: Tier, dims: &Dims) -> Sizes {
        let lane = self.block_rows(dims) * dims.in_channels;
        Sizes {
            gates: lane,
            zeros: dims.in_channels,
            formed: self.widest() * lane,
            lanes: self.lane_scratch::<T>(tier, dims),
            ..Sizes::default()
        }
    }

    fn backward_scratch<T: Element>(&self, tier: Tier, dims: &Dims) -> Sizes {
        let lane = self.block_rows(dims) * dims.in_channels;
        Sizes {
            grad_x: self.left.blades * lane,
            grad_y: self.right.blades * lane,
            grad_gates: lane,
            path_x: self.widest_operand() * lane,
            path_y: self.widest_operand() * lane,
            path_gates: lane,
            ..self.forward_scratch::<T>(tier, dims)
        }
    }

    fn widest_operand(&self) -> usize {
        let widths = self
            .paths
            .iter()
            .flat_map(|p| p.program.input_components().take(2));
        widths.max().unwrap_or(0)
    }

    /// The most workspace that a lane program needs for a block.
    fn lane_scratch<T: Element>(&self, tier: Tier, dims: &Dims) -> usize {
        // Operands are formed on one side of the matrix product, norms taken on the other.
        let paths = self.paths.iter().map(|path| path.program);
        let formed = paths.chain([self.gates]).map(|p| (p, dims.in_channels));
        let norms = self.norms.iter().flat_map(|norm| [norm.program, norm.undo]);
        let programs = formed.chain(norms.map(|p| (p, dims.out_channels)));
        let rows = self.block_rows(dims);
        let both = programs.flat_map(|(p, channels)| [(p, channels), (p.adjoint(), channels)]);
        let needs = both.map(|(program, channels)| {
            let operand = |components| {
                let null = std::ptr::null_mut::<T>();
                Operand::contiguous(null, components, rows, channels)
            };
            let inputs = program.input_components().map(operand);
            let inputs: Few<_, MAX_TENSORS> = Few::of(operand(0), inputs);
            let outputs = program.output_components().map(operand);
            let outputs: Few<_, MAX_TENSORS> = Few::of(operand(0), outputs);
            lanes::workspace_len(&Call {
                channels: [channels, 0],
                ..self.call(tier, program, &inputs, &outputs, rows)
            })
        });
        needs.max().unwrap_or(0)
    }
}

impl Implementation for FullyConnected {
    fn specs(&self) -> Specs {
        let lanes = |layout: &Layout| [Dim::Fixed(layout.blades), Dim::Batch, Dim::In];
        let inputs = vec![
            TensorSpec::new("x", &lanes(&self.left)),
            TensorSpec::new("y", &lanes(&self.right)),
            TensorSpec::new("w", &[Dim::Fixed(self.paths.len()), Dim::In, Dim::Out]),
        ];
        let output = [Dim::Fixed(self.output.blades), Dim::Batch, Dim::Out];
        (inputs, vec![TensorSpec::new("o", &output)])
    }

    fn cost(&self, dims: &Dims) -> Cost {
        let slices: usize = self.paths.iter().map(PathProduct::width).sum();
        let channels = [dims.in_channels, dims.out_channels];
        let matrix = sizes::product([2, slices, dims.batch].into_iter().chain(channels));
        let of_lanes = |flops| sizes::product([flops, dims.batch, dims.in_channels]);
        let programs = self.paths.iter().map(|path| path.program);
        let formed = of_lanes(programs.clone().map(|p| p.program().flops).sum());
        let pulled_back = of_lanes(programs.map(|p| p.adjoint().program().flops).sum());
        Cost {
            forward: sizes::sum([matrix, formed]),
            backward: sizes::sum([matrix, matrix, formed, pulled_back]),
        }
    }

    fn derivative(&self, algebra: Algebra, derivative: Derivative) -> Result<Kind, Error> {
        let state = |graph: &mut Graph, inputs: &[ValueId]| {
            let [x, y, w] = *inputs else {
                unreachable!("a product has two operands and weights");
            };
            self.state(graph, algebra, [x, y, w])
        };
        Composed::derivative_of(self, algebra, state, derivative)
    }

    fn run<T: Element>(
        &self,
        tier: Tier,
        dims: &Dims,
        inputs: &[Tensor<'_, T>],
        outputs: &mut [Option<&mut [T]>],
        saved: &mut [T],
        workspace: &mut [T],
    ) -> Result<(), Error> {
        let [Some(output)] = outputs else {
            return Ok(());
        };
        if self.paths.is_empty() || dims.in_channels == 0 {
            output.fill(T::default());
            saved.fill(T::default());
            return Ok(());
        }
        let blocks = Chunks::of_rows(dims.batch, self.block_rows(dims));
        let sizes = self.forward_scratch::<T>(tier, dims);
        let w = Matrix::rows(inputs[2].data().as_ptr().cast_mut(), dims.out_channels);
        let output = Pointer(output.as_mut_ptr());
        let saved = Pointer(saved.as_mut_ptr());
        let (output, saved, w) = (&output, &saved, &w);
        tasks::run(
            blocks.count(),
            workspace,
            sizes.total(),
            |scratch, block| {
                let rows = blocks.range(block);
                let mut scratch = sizes.split(scratch);
                let block = Block::new(self, tier, dims, inputs, rows.clone());
                block.form_gates(&mut scratch);
                let count = rows.len();
                let mut started = GradeSet::EMPTY;
                for (index, product) in self.paths.iter().enumerate() {
                    block.form_path(product, &mut scratch);
                    let blades = self.output.grade(product.path.output);
                    let out = scratch.product.as_mut_ptr();
                    let out = Matrix::rows(out, dims.out_channels).from(blades.start * count, 0);
                    let a = Matrix::rows(scratch.formed.as_mut_ptr(), dims.in_channels);
                    let sizes = (blades.len() * count, dims.in_channels, dims.out_channels);
                    let again = started.contains(product.path.output);
                    started = started.union(GradeSet::single(product.path.output));
                    // SAFETY: the scratch parts have these sizes; shapes were checked.
                    unsafe { matmul(sizes, out, a, w.from(index * dims.in_channels, 0), again) };
                }
                // SAFETY: blocks are disjoint rows of the output.
                unsafe { block.finish(&mut scratch, output.0, saved.0) };
            },
        );
        Ok(())
    }

    fn backward<T: Element>(
        &self,
        tier: Tier,
        dims: &Dims,
        given: &Given<'_, T>,
        grads: &mut [Option<&mut [T]>],
        workspace: &mut [T],
    ) -> Result<(), Error> {
        if self.paths.is_empty() || dims.in_channels == 0 || dims.out_channels == 0 {
            for grad in grads.iter_mut().flatten() {
                grad.fill(T::default());
            }
            return Ok(());
        }
        let (grad_product, workspace) = workspace.split_at_mut(self.grad_product_len(dims));
        let grad_product = if self.norms.is_empty() {
            given.grad_output.data()
        } else {
            self.undo_norm(tier, dims, given, grad_product, workspace);
            grad_product
        };
        if grads[0].is_some() || grads[1].is_some() {
            let [x, y, _] = grads else {
                return Ok(());
            };
            self.operand_gradients(tier, dims, given, grad_product, (x, y), workspace);
        }
        if let Some(grad_w) = grads[2].as_deref_mut() {
            self.weight_gradient(tier, dims, given.inputs, grad_product, grad_w, workspace);
        }
        Ok(())
    }

    fn workspace_len<T: Element>(&self, tier: Tier, dims: &Dims, pass: Pass) -> usize {
        let blocks = Chunks::of_rows(dims.batch, self.block_rows(dims)).count();
        match pass {
            Pass::Forward => {
                self.forward_scratch::<T>(tier, dims).total() * tasks::task_count(blocks)
            }
            Pass::Backward => {
                let scratch = self.backward_scratch::<T>(tier, dims).total();
                let weights = self.weight_scratch::<T>(tier, dims).total();
                let by_block = scratch * tasks::task_count(blocks);
                let by_path = weights * tasks::task_count(self.paths.len());
                self.grad_product_len(dims) + by_block.max(by_path)
            }
        }
    }

    fn row_sums(&self) -> usize {
        self.norms.len()
    }

    fn has_matrix_products(&self) -> bool {
        true
    }

    fn norm(&self) -> Norm {
        self.options.norm
    }

    fn tensor_grades(&self, _: Algebra) -> Option<(Vec<GradeSet>, GradeSet)> {
        let [left, right, output] = self.grades();
        Some((vec![left, right], output))
    }
}

/// A pointer that tasks share; each writes its own rows.
struct Pointer<T>(*mut T);

// SAFETY: blocks are disjoint rows.
unsafe impl<T: Send> Sync for Pointer<T> {}
