//! Layers whose weights are versors.

mod terms;

use super::items::{check_all, run};
use super::{Parity, check_dimensions};
use crate::kept::Kept;
use crate::operator::gemm::{Matrix, matmul};
use crate::{Algebra, Element, Error, GradeSet, Signature, Tensor, TensorMut, threads};
use terms::Pair;

/// A layer whose weights are versors, with a versor for each pair of an output and an input channel.
///
/// ```text
/// o[m] = sum over n of weight[m, n] V[m, n] x[n] reverse(V[m, n])
/// ```
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades of grades, batch, in]` |
/// | `versors` | `[blades of the parity, out, in]` |
/// | `weight` | `[out, in]` |
/// | `o` | `[blades of grades, batch, out]` |
///
/// Versors act as they are: give exponentials of bivectors, or normalised multivectors, to have them rotate without
/// stretching. Under versors of odd grades, odd grades of `x` change their sign beside the action, as in
/// [`ops::sandwich`](crate::ops::sandwich). Parts of other grades, which multivectors that are no versors make, are left out.
///
/// A sandwich is linear in `x`. The layer forms a matrix from channels to channels for each pair of an output and an input
/// blade, and multiplies. Entries of the matrices are summed in `f64` and rounded once. Results do not depend on the number
/// of threads.
///
/// Source: Ruhe et al., "Geometric Clifford algebra networks" (2023, arXiv 2302.06594), section 3.
///
/// ```
/// use flashcliff::rotor::{Action, Parity};
/// use flashcliff::{Algebra, Signature, Tensor, TensorMut};
///
/// let algebra = Algebra::new(Signature::new(2, 0, 0)?)?;
/// let layer = Action::new(algebra, Parity::Even, None)?;
/// // A quarter turn of one multivector: e1 goes to -e2, and e2 to e1.
/// let half = std::f64::consts::FRAC_PI_4;
/// let x = [1.0, 2.0, 3.0, 4.0];
/// let mut workspace = vec![0.0; layer.workspace_len(1, 1)?];
/// let mut out = [0.0; 4];
/// layer.forward(
///     Tensor::new(&x, &[4, 1, 1])?,
///     Tensor::new(&[half.cos(), half.sin()], &[2, 1, 1])?,
///     Tensor::new(&[1.0], &[1, 1])?,
///     &mut workspace,
///     TensorMut::new(&mut out, &[4, 1, 1])?,
/// )?;
/// for (got, wanted) in out.iter().zip([1.0, 3.0, -2.0, 4.0]) {
///     assert!((got - wanted).abs() < 1e-15);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Action {
    /// The blades of a versor.
    versor: usize,
    /// The blades of multivectors.
    blades: usize,
    pairs: &'static [Pair],
    /// The terms of all pairs.
    terms: usize,
}

/// The pairs of an algebra, of versors and of multivectors of some grades, made once in a process.
static PAIRS: Kept<([GradeSet; 2], Signature, Vec<Pair>)> = Kept::new();

/// The gradients of an [`Action`] to write, in the shapes of its tensors; `None` for those that are not wanted.
#[derive(Debug)]
pub struct ActionGradients<'a, T> {
    /// The gradient of `x`.
    pub x: Option<TensorMut<'a, T>>,
    /// The gradient of `versors`.
    pub versors: Option<TensorMut<'a, T>>,
    /// The gradient of `weight`.
    pub weight: Option<TensorMut<'a, T>>,
}

/// The lengths of the axes of a call.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    out: usize,
    input: usize,
}

/// The smallest number of multiplications that is worth handing to a thread.
const MIN_PRODUCTS: usize = 1 << 22;

impl Action {
    /// The layer of an algebra, for multivectors of some grades, all by default.
    ///
    /// # Errors
    /// [`Error::TooManyDimensions`] for more than five dimensions, [`Error::Algebra`] for a grade above the dimension, and
    /// [`Error::UnsupportedGrades`] for no grades.
    pub fn new(algebra: Algebra, parity: Parity, grades: Option<GradeSet>) -> Result<Self, Error> {
        check_dimensions("action", algebra)?;
        let cayley = algebra.cayley();
        let own = match parity {
            Parity::Even => GradeSet::even(algebra.dim()),
            Parity::Odd => GradeSet::odd(algebra.dim()),
        };
        let kept = grades.unwrap_or(GradeSet::full(algebra.dim()));
        cayley.check_grades(kept)?;
        if kept.is_empty() {
            return Err(Error::UnsupportedGrades {
                operator: "action".to_owned(),
                signature: algebra.signature(),
                left: own,
                right: kept,
                expected: "at least one grade of the multivectors",
            });
        }
        let (signature, sets) = (algebra.signature(), [own, kept]);
        let mut known = PAIRS.iter();
        let (.., pairs) = known
            .find(|(other, of, _)| (*other, *of) == (sets, signature))
            .unwrap_or_else(|| PAIRS.add((sets, signature, terms::pairs(cayley, own, kept))));
        Ok(Self {
            versor: own.blade_count(cayley),
            blades: kept.blade_count(cayley),
            terms: pairs.iter().map(|pair| pair.terms.len()).sum(),
            pairs,
        })
    }

    /// The numbers of blades of a versor and of a multivector.
    pub fn blade_counts(&self) -> [usize; 2] {
        [self.versor, self.blades]
    }

    /// The length of the workspace for numbers of channels.
    ///
    /// # Errors
    /// [`Error::ShapeTooLarge`] if it does not fit the address space.
    pub fn workspace_len(&self, out: usize, input: usize) -> Result<usize, Error> {
        let len = self.pairs.len().checked_mul(out);
        let len = len.and_then(|len| len.checked_mul(input));
        len.ok_or_else(|| Error::ShapeTooLarge {
            shape: vec![self.pairs.len(), out, input],
        })
    }

    /// Computes the layer. The workspace has at least [`workspace_len`](Self::workspace_len) elements, of any value.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] for shapes other than the layer's, [`Error::BufferTooSmall`] for a short workspace.
    #[inline]
    pub fn forward<T: Element>(
        &self,
        x: Tensor<'_, T>,
        versors: Tensor<'_, T>,
        weight: Tensor<'_, T>,
        workspace: &mut [T],
        out: TensorMut<'_, T>,
    ) -> Result<(), Error> {
        T::action_forward(self, x, versors, weight, workspace, out)
    }

    pub(super) fn forward_here<T: Element>(
        &self,
        x: Tensor<'_, T>,
        versors: Tensor<'_, T>,
        weight: Tensor<'_, T>,
        workspace: &mut [T],
        mut out: TensorMut<'_, T>,
    ) -> Result<(), Error> {
        let sizes = self.sizes(x.shape(), versors.shape(), weight.shape())?;
        check_shape("out", &[self.blades, sizes.batch, sizes.out], out.shape())?;
        let matrices = self.workspace(sizes, workspace)?;
        self.fill_matrices(sizes, versors, weight, matrices);
        let matrices = &*matrices;
        self.multiply(sizes, Way::Forward, x.data(), matrices, out.data_mut());
        Ok(())
    }

    /// Computes gradients from the gradient of the output. The workspace is as long as that of [`forward`](Self::forward).
    ///
    /// # Errors
    /// The errors of [`forward`](Self::forward).
    #[inline]
    pub fn backward<T: Element>(
        &self,
        x: Tensor<'_, T>,
        versors: Tensor<'_, T>,
        weight: Tensor<'_, T>,
        grad: Tensor<'_, T>,
        workspace: &mut [T],
        outs: ActionGradients<'_, T>,
    ) -> Result<(), Error> {
        T::action_backward(self, x, versors, weight, grad, workspace, outs)
    }

    pub(super) fn backward_here<T: Element>(
        &self,
        x: Tensor<'_, T>,
        versors: Tensor<'_, T>,
        weight: Tensor<'_, T>,
        grad: Tensor<'_, T>,
        workspace: &mut [T],
        outs: ActionGradients<'_, T>,
    ) -> Result<(), Error> {
        let sizes = self.sizes(x.shape(), versors.shape(), weight.shape())?;
        check_shape("grad", &[self.blades, sizes.batch, sizes.out], grad.shape())?;
        let likes = [
            ("gradient of x", &outs.x, x.shape()),
            ("gradient of versors", &outs.versors, versors.shape()),
            ("gradient of weight", &outs.weight, weight.shape()),
        ];
        for (name, out, like) in likes {
            if let Some(out) = out {
                check_shape(name, like, out.shape())?;
            }
        }
        let matrices = self.workspace(sizes, workspace)?;
        if let Some(mut out) = outs.x {
            self.fill_matrices(sizes, versors, weight, matrices);
            self.multiply(sizes, Way::Back, grad.data(), matrices, out.data_mut());
        }
        if outs.versors.is_none() && outs.weight.is_none() {
            return Ok(());
        }
        self.fill_gradients(sizes, x, grad, matrices);
        let (slopes, items) = (&*matrices, sizes.out * sizes.input);
        let value = |item: usize| move |blade: usize| versors.data()[blade * items + item].to_f64();
        if let Some(out) = outs.versors {
            run(out, items, 6 * self.terms, |item, write| {
                let factor = weight.data()[item].to_f64();
                let mut total = [0.0; super::BLADES];
                for (at, pair) in self.pairs.iter().enumerate() {
                    let slope = factor * slopes[at * items + item].to_f64();
                    pair.pull_back(value(item), slope, &mut total);
                }
                for (blade, &slope) in total.iter().enumerate().take(self.versor) {
                    write(blade, slope);
                }
            });
        }
        if let Some(out) = outs.weight {
            run(out, items, 4 * self.terms, |item, write| {
                let entries = self.pairs.iter().enumerate();
                let slopes = entries
                    .map(|(at, pair)| slopes[at * items + item].to_f64() * pair.entry(value(item)));
                write(0, slopes.sum());
            });
        }
        Ok(())
    }

    fn sizes(&self, x: &[usize], versors: &[usize], weight: &[usize]) -> Result<Sizes, Error> {
        check_all("action", ("x", self.blades, x), &[])?;
        let (batch, input) = (x[1], x[2]);
        match *versors {
            [blades, out, columns] if blades == self.versor && columns == input => {
                check_shape("weight", &[out, input], weight)?;
                Ok(Sizes { batch, out, input })
            }
            _ => {
                let expected = format!("[{}, out, in = {input}]", self.versor);
                Err(mismatch("versors", expected, versors))
            }
        }
    }

    fn workspace<'a, T>(&self, sizes: Sizes, workspace: &'a mut [T]) -> Result<&'a mut [T], Error> {
        let expected = self.workspace_len(sizes.out, sizes.input)?;
        let got = workspace.len();
        workspace
            .get_mut(..expected)
            .ok_or_else(|| Error::BufferTooSmall {
                operator: "action".to_owned(),
                buffer: "workspace",
                expected,
                got,
            })
    }

    /// Writes the matrix of each pair, `[pairs, out, in]`.
    fn fill_matrices<T: Element>(
        &self,
        sizes: Sizes,
        versors: Tensor<'_, T>,
        weight: Tensor<'_, T>,
        matrices: &mut [T],
    ) {
        let items = sizes.out * sizes.input;
        // The lengths match the shape.
        let Ok(out) = TensorMut::new(matrices, &[self.pairs.len(), sizes.out, sizes.input]) else {
            return;
        };
        run(out, items, 3 * self.terms, |item, write| {
            let factor = weight.data()[item].to_f64();
            let value = |blade: usize| versors.data()[blade * items + item].to_f64();
            for (at, pair) in self.pairs.iter().enumerate() {
                write(at, factor * pair.entry(value));
            }
        });
    }

    /// Multiplies rows of all blades by the matrices.
    fn multiply<T: Element>(
        &self,
        sizes: Sizes,
        way: Way,
        from: &[T],
        matrices: &[T],
        to: &mut [T],
    ) {
        let (k, n) = match way {
            Way::Forward => (sizes.input, sizes.out),
            Way::Back => (sizes.out, sizes.input),
        };
        if sizes.batch * n == 0 {
            return;
        }
        let per_row = (k * n * self.pairs.len() / self.blades.max(1)).max(1);
        let rows = MIN_PRODUCTS.div_ceil(per_row).clamp(1, sizes.batch);
        let mut parts = Vec::new();
        for (blade, to) in to.chunks_mut(sizes.batch * n).enumerate() {
            for (chunk, to) in to.chunks_mut(rows * n).enumerate() {
                parts.push((blade, chunk * rows, to));
            }
        }
        threads::for_each(parts.into_iter(), |(blade, row, to)| {
            let count = to.len() / n;
            let mut first = true;
            for (at, pair) in self.pairs.iter().enumerate() {
                let (target, source) = match way {
                    Way::Forward => (pair.output, pair.input),
                    Way::Back => (pair.input, pair.output),
                };
                if target != blade {
                    continue;
                }
                let start = (source * sizes.batch + row) * k;
                let from = &from[start..start + count * k];
                let matrix = &matrices[at * k * n..(at + 1) * k * n];
                let matrix = Matrix::rows(matrix.as_ptr().cast_mut(), sizes.input);
                let matrix = match way {
                    Way::Forward => matrix.transposed(),
                    Way::Back => matrix,
                };
                // SAFETY: `to` holds count x n elements, `from` count x k, and the matrix k x n; `to` is borrowed
                // mutably, so it overlaps neither.
                unsafe {
                    matmul(
                        (count, k, n),
                        Matrix::rows(to.as_mut_ptr(), n),
                        Matrix::rows(from.as_ptr().cast_mut(), k),
                        matrix,
                        !first,
                    );
                }
                first = false;
            }
            if first {
                to.fill(T::from_f64(0.0));
            }
        });
    }

    /// Writes the gradient of the matrix of each pair: the sum over the batch of output times input.
    fn fill_gradients<T: Element>(
        &self,
        sizes: Sizes,
        x: Tensor<'_, T>,
        grad: Tensor<'_, T>,
        slopes: &mut [T],
    ) {
        let Sizes { batch, out, input } = sizes;
        if out * input == 0 {
            return;
        }
        let parts = slopes.chunks_mut(out * input).zip(self.pairs);
        threads::for_each(parts, |(slopes, pair)| {
            let x = &x.data()[pair.input * batch * input..][..batch * input];
            let grad = &grad.data()[pair.output * batch * out..][..batch * out];
            // SAFETY: `slopes` holds out x in elements, `x` batch x in, and `grad` batch x out; `slopes` is borrowed
            // mutably, so it overlaps neither.
            unsafe {
                matmul(
                    (out, batch, input),
                    Matrix::rows(slopes.as_mut_ptr(), input),
                    Matrix::rows(grad.as_ptr().cast_mut(), out).transposed(),
                    Matrix::rows(x.as_ptr().cast_mut(), input),
                    false,
                );
            }
        });
    }
}

/// The direction of a pass.
#[derive(Clone, Copy)]
enum Way {
    Forward,
    Back,
}

fn check_shape(tensor: &str, expected: &[usize], got: &[usize]) -> Result<(), Error> {
    if expected == got {
        return Ok(());
    }
    Err(mismatch(tensor, format!("{expected:?}"), got))
}

fn mismatch(tensor: &str, expected: String, got: &[usize]) -> Error {
    Error::ShapeMismatch {
        operator: "action".to_owned(),
        tensor: tensor.to_owned(),
        expected,
        got: got.to_vec(),
    }
}
