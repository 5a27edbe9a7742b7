//! The grade-wise linear map: one matrix product for each grade.
//!
//! `cuda` runs products of cuBLASLt, and `flashcliff-sys/cuda/linear.cu` around them.

#[cfg(feature = "cuda")]
pub(crate) mod cuda;

use std::ops::Range;
use std::sync::Arc;

use cayley::GradeSet;
use flashcliff_program::spec;

use super::composed::{self, Composed, Graph, Side, ValueId};
use super::gemm::{Matrix, matmul};
use super::shape::{Dim, Dims, TensorSpec};
use super::{Cost, Derivative, Given, Implementation, Kind, Operator, Specs};
use crate::Element;
use crate::kernel::tasks::{self, Chunks};
use crate::ops::LinearOptions;
use crate::tensor::Tensor;
use crate::{Algebra, Bias, Error, Tier, WeightLayout, sizes};

/// The rows of a block: enough to reuse a packed weight, few enough to share among threads.
const BLOCK_ROWS: usize = 256;

#[derive(Clone, Debug)]
pub(crate) struct Linear {
    options: LinearOptions,
    /// The blades of each grade that is present, as ranges of the stored blades.
    grades: Vec<Range<usize>>,
    per_grade: bool,
    bias: Bias,
    layout: WeightLayout,
}

impl Linear {
    pub(crate) fn new(algebra: Algebra, options: &LinearOptions) -> Result<Self, Error> {
        let grades = options.grades.unwrap_or(algebra.full());
        algebra.cayley().check_grades(grades)?;
        if options.bias == Bias::Scalar && !grades.contains(0) {
            return Err(Error::UnsupportedGrades {
                operator: "mv_linear with a scalar bias".to_owned(),
                signature: algebra.signature(),
                left: grades,
                right: grades,
                expected: "sets that contain grade 0",
            });
        }
        let mut start = 0;
        let ranges = grades.iter().map(|grade| {
            let count = GradeSet::single(grade).blade_count(algebra.cayley());
            start += count;
            start - count..start
        });
        Ok(Self {
            options: options.clone(),
            grades: ranges.collect(),
            per_grade: options.per_grade,
            bias: options.bias,
            layout: options.weight_layout,
        })
    }

    /// How many stored blades there are.
    pub(crate) fn blades(&self) -> usize {
        self.grades.last().map_or(0, |range| range.end)
    }

    /// Adds the map to a graph: a bilinear form, and the bias.
    pub(super) fn state(
        &self,
        graph: &mut Graph,
        algebra: Algebra,
        side: Side,
        inputs: &[ValueId],
    ) -> Result<ValueId, Error> {
        let options = LinearOptions {
            bias: Bias::None,
            ..self.options.clone()
        };
        let grades = options.grades.unwrap_or(algebra.full());
        let form = Kind::Linear(Self::new(algebra, &options)?);
        let form = Operator::new("mv_linear", algebra, form);
        let output = graph.form(Arc::new(form), inputs[..2].to_vec());
        let is_everywhere = match self.bias {
            Bias::None => return Ok(output),
            Bias::EveryBlade => true,
            Bias::Scalar => false,
        };
        let biased = composed::lane(algebra, spec::biased(&algebra, grades, is_everywhere));
        Ok(graph.lanes(biased, side, vec![output, inputs[2]])[0])
    }

    /// The number of matrices.
    fn products(&self) -> usize {
        if self.per_grade { self.grades.len() } else { 1 }
    }

    /// The rows (blade, batch element) that a matrix acts on.
    fn rows(&self, index: usize, dims: &Dims) -> Range<usize> {
        let blades = match self.per_grade {
            true => self.grades[index].clone(),
            false => 0..self.blades(),
        };
        blades.start * dims.batch..blades.end * dims.batch
    }

    /// The matrix of a grade as `in x out`.
    fn weight<T>(&self, ptr: *mut T, index: usize, dims: &Dims) -> Matrix<T> {
        let grades = self.products();
        let (k, n) = (dims.in_channels, dims.out_channels);
        match self.layout {
            WeightLayout::OutInGrade => Matrix {
                ptr: ptr.wrapping_add(index),
                row: grades,
                column: grades * k,
            },
            WeightLayout::GradeInOut => Matrix::rows(ptr.wrapping_add(index * k * n), n),
        }
    }

    /// Runs `work(matrix, rows)` for every block of rows, on threads. No block spans two matrices.
    fn for_blocks(&self, dims: &Dims, work: impl Fn(usize, Range<usize>) + Sync) {
        let of = |index: usize| {
            let rows = self.rows(index, dims);
            (rows.start, Chunks::of_rows(rows.len(), block_rows(dims)))
        };
        let count = (0..self.products()).map(|index| of(index).1.count()).sum();
        tasks::run::<u8>(count, &mut [], 0, |_, block| {
            let mut chunk = block;
            for index in 0..self.products() {
                let (start, chunks) = of(index);
                if chunk < chunks.count() {
                    let rows = chunks.range(chunk);
                    return work(index, start + rows.start..start + rows.end);
                }
                chunk -= chunks.count();
            }
        });
    }

    /// `x^T grad_o` for each matrix; tiles of the result are shared among threads, and each is
    /// summed over all rows in order.
    fn weight_gradient<T: Element>(
        &self,
        dims: &Dims,
        x: Matrix<T>,
        grad_o: Matrix<T>,
        grad_weight: &mut [T],
    ) {
        let (k, n) = (dims.in_channels, dims.out_channels);
        let tiles = Chunks::of_rows(n, block_rows(dims).min(64));
        let out = Matrix::rows(grad_weight.as_mut_ptr(), 1);
        let (out, x, grad_o) = (&out, &x, &grad_o);
        let count = self.products() * tiles.count();
        tasks::run::<T>(count, &mut [], 0, |_, task| {
            let index = task / tiles.count();
            let rows = self.rows(index, dims);
            let columns = tiles.range(task % tiles.count());
            let out = self.weight(out.ptr, index, dims);
            // SAFETY: shapes were checked; tiles are disjoint.
            unsafe {
                matmul(
                    (k, rows.len(), columns.len()),
                    out.from(0, columns.start),
                    x.from(rows.start, 0).transposed(),
                    grad_o.from(rows.start, columns.start),
                    false,
                );
            }
        });
    }
}

impl Implementation for Linear {
    fn specs(&self) -> Specs {
        let blades = Dim::Fixed(self.blades());
        let mut weight = vec![Dim::Out, Dim::In];
        if self.per_grade {
            weight.push(Dim::Fixed(self.grades.len()));
        }
        if self.layout == WeightLayout::GradeInOut {
            weight.reverse();
        }
        let mut inputs = vec![
            TensorSpec::new("x", &[blades, Dim::Batch, Dim::In]),
            TensorSpec::new("weight", &weight),
        ];
        if self.bias != Bias::None {
            inputs.push(TensorSpec::new("bias", &[Dim::Out]));
        }
        let output = TensorSpec::new("o", &[blades, Dim::Batch, Dim::Out]);
        (inputs, vec![output])
    }

    fn cost(&self, dims: &Dims) -> Cost {
        let channels = [dims.in_channels, dims.out_channels];
        let forward = sizes::product([2, self.blades(), dims.batch].into_iter().chain(channels));
        Cost {
            forward,
            backward: sizes::product([2, forward]),
        }
    }

    fn derivative(&self, algebra: Algebra, derivative: Derivative) -> Result<Kind, Error> {
        let state =
            |graph: &mut Graph, inputs: &[ValueId]| self.state(graph, algebra, Side::Out, inputs);
        Composed::derivative_of(self, algebra, state, derivative)
    }

    fn run<T: Element>(
        &self,
        _: Tier,
        dims: &Dims,
        inputs: &[Tensor<'_, T>],
        outputs: &mut [Option<&mut [T]>],
        _: &mut [T],
        _: &mut [T],
    ) -> Result<(), Error> {
        let [Some(output)] = outputs else {
            return Ok(());
        };
        let pointer = |index: usize| inputs[index].data().as_ptr().cast_mut();
        let (k, n) = (dims.in_channels, dims.out_channels);
        let x = Matrix::rows(pointer(0), k);
        let out = Matrix::rows(output.as_mut_ptr(), n);
        let weight = Matrix::rows(pointer(1), 1);
        let bias = match self.bias {
            Bias::None => None,
            Bias::Scalar => Some((inputs[2].data(), dims.batch)),
            Bias::EveryBlade => Some((inputs[2].data(), dims.batch * self.blades())),
        };
        let (out, x, weight) = (&out, &x, &weight);
        self.for_blocks(dims, |index, rows| {
            let (start, m) = (rows.start, rows.len());
            // SAFETY: shapes were checked; blocks are disjoint rows of the output.
            unsafe {
                let w = self.weight(weight.ptr, index, dims);
                matmul((m, k, n), out.from(start, 0), x.from(start, 0), w, false);
                if let Some((bias, with_bias)) = bias {
                    for row in rows.start..rows.end.min(with_bias) {
                        let row = std::slice::from_raw_parts_mut(out.from(row, 0).ptr, n);
                        add(row, bias);
                    }
                }
            }
        });
        Ok(())
    }

    fn backward<T: Element>(
        &self,
        _: Tier,
        dims: &Dims,
        given: &Given<'_, T>,
        grads: &mut [Option<&mut [T]>],
        _: &mut [T],
    ) -> Result<(), Error> {
        let (inputs, grad_output) = (given.inputs, given.grad_output.data());
        let (k, n) = (dims.in_channels, dims.out_channels);
        let x = Matrix::rows(inputs[0].data().as_ptr().cast_mut(), k);
        let weight = inputs[1].data().as_ptr().cast_mut();
        let grad_o = Matrix::rows(grad_output.as_ptr().cast_mut(), n);
        if let Some(grad_x) = grads[0].as_deref_mut() {
            let grad_x = Matrix::rows(grad_x.as_mut_ptr(), k);
            let weight = Matrix::rows(weight, 1);
            let (grad_x, grad_o, weight) = (&grad_x, &grad_o, &weight);
            self.for_blocks(dims, |index, rows| {
                let (start, m) = (rows.start, rows.len());
                let w = self.weight(weight.ptr, index, dims).transposed();
                // SAFETY: shapes were checked; blocks are disjoint rows of the gradient.
                unsafe {
                    matmul(
                        (m, n, k),
                        grad_x.from(start, 0),
                        grad_o.from(start, 0),
                        w,
                        given.adds,
                    );
                }
            });
        }
        if let Some(grad_weight) = grads[1].as_deref_mut() {
            self.weight_gradient(dims, x, grad_o, grad_weight);
        }
        if let Some(grad_bias) = grads.get_mut(2).and_then(Option::as_deref_mut) {
            let with_bias = match self.bias {
                Bias::EveryBlade => dims.batch * self.blades(),
                _ => dims.batch,
            };
            grad_bias.fill(T::default());
            for row in grad_output[..with_bias * n].chunks_exact(n.max(1)) {
                add(grad_bias, row);
            }
        }
        Ok(())
    }

    fn has_matrix_products(&self) -> bool {
        true
    }

    fn adds_to_gradient(&self) -> bool {
        true
    }

    fn bias(&self) -> Bias {
        self.bias
    }

    fn tensor_grades(&self, algebra: Algebra) -> Option<(Vec<GradeSet>, GradeSet)> {
        let grades = self.options.grades.unwrap_or(algebra.full());
        Some((vec![grades], grades))
    }
}

/// The rows of a block. A map that is too small to share is one block, and so runs on one thread.
fn block_rows(dims: &Dims) -> usize {
    let worthwhile = (1 << 20) / (dims.in_channels * dims.out_channels).max(1);
    worthwhile.max(BLOCK_ROWS)
}

fn add<T: Element>(to: &mut [T], from: &[T]) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to += from;
    }
}
