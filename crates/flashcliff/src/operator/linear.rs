//! The grade-wise linear map: one matrix product for each grade.

use std::ops::Range;

use cayley::GradeSet;

use super::gemm::{Matrix, matmul};
use super::shape::{Dim, Dims, TensorSpec};
use super::{Cost, Pass};
use crate::Element;
use crate::kernel::tasks::{self, Chunks};
use crate::ops::LinearOptions;
use crate::tensor::Tensor;
use crate::{Algebra, Bias, Error, WeightLayout, sizes};

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

    /// The stored blades that each matrix acts on, matrix by matrix.
    #[cfg(feature = "cuda")]
    pub(crate) fn matrices(&self) -> Vec<Range<usize>> {
        match self.per_grade {
            true => self.grades.clone(),
            false => std::iter::once(0..self.blades()).collect(),
        }
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn layout(&self) -> WeightLayout {
        self.layout
    }

    pub(crate) fn options(&self) -> LinearOptions {
        self.options.clone()
    }

    pub(crate) fn bias(&self) -> Bias {
        self.bias
    }

    /// How many inputs there are.
    #[cfg(feature = "cuda")]
    pub(crate) fn input_count(&self) -> usize {
        2 + usize::from(self.bias != Bias::None)
    }

    /// How many stored blades there are.
    pub(crate) fn blades(&self) -> usize {
        self.grades.last().map_or(0, |range| range.end)
    }

    pub(super) fn specs(&self) -> (Vec<TensorSpec>, TensorSpec) {
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
        (inputs, output)
    }

    pub(super) fn cost(&self, dims: &Dims) -> Cost {
        let channels = [dims.in_channels, dims.out_channels];
        let forward = sizes::product([2, self.blades(), dims.batch].into_iter().chain(channels));
        Cost {
            forward,
            backward: sizes::product([2, forward]),
        }
    }

    pub(super) fn workspace_len(&self, _: &Dims, _: Pass) -> usize {
        0
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

    pub(super) fn forward<T: Element>(
        &self,
        dims: &Dims,
        inputs: &[Tensor<'_, T>],
        output: &mut [T],
    ) {
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
    }

    /// Computes the gradients. The gradient of `x` is added to the values that are there if `adds_to_x`.
    pub(super) fn backward<T: Element>(
        &self,
        dims: &Dims,
        inputs: &[Tensor<'_, T>],
        grad_output: &[T],
        grads: &mut [Option<&mut [T]>],
        adds_to_x: bool,
    ) {
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
                        adds_to_x,
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
