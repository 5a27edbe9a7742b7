//! A steerable geometric product layer as one function.
//!
//! Computed node by node, the layer would hand candle two inner activations and three separate gradients of its input, each of which candle sums through
//! a fresh zeroed tensor. As one function it keeps the inner activations in pooled buffers and sums the gradients in one pass.

use flashcliff::Operator;

use super::Scalar;
use super::function::{Array, Forward, Function};
use super::operator::{output_shape, run_backward, run_forward};
use super::scratch::Buffer;
use crate::Error;

/// `r = right(x)`, `l = left(x) + bias`, `o = product(x, r, w, a?, l?)`.
///
/// Inputs: `x`, `right`, `w`, then `a` if the product normalises, then `left` and `bias` if it has a first-order term.
pub(crate) struct Steerable {
    /// Grade-wise linear map without bias.
    pub(crate) right: Operator,
    /// Grade-wise linear map with bias, for the first-order term.
    pub(crate) left: Option<Operator>,
    /// The weighted product with everything around it.
    pub(crate) product: Operator,
    /// Whether the product takes `a`.
    pub(crate) normalize: bool,
}

/// Inner activations and saved rows.
pub(crate) struct Saved<T: Scalar> {
    right: Buffer<T>,
    right_rows: Buffer<T>,
    left: Option<(Buffer<T>, Buffer<T>)>,
    product_rows: Buffer<T>,
}

impl Steerable {
    /// Position of `left` among the inputs; `bias` follows.
    fn left_at(&self) -> usize {
        3 + usize::from(self.normalize)
    }

    /// The inputs of the product.
    fn product_inputs<'a, T>(
        &self,
        inputs: &[Array<'a, T>],
        right: Array<'a, T>,
        left: Option<Array<'a, T>>,
    ) -> Vec<Array<'a, T>>
    where
        T: Scalar,
    {
        let mut arrays = vec![inputs[0], right, inputs[2]];
        arrays.extend(self.normalize.then(|| inputs[3]));
        arrays.extend(left);
        arrays
    }
}

impl<T: Scalar> Function<T> for Steerable {
    type Saved = Saved<T>;

    fn name(&self) -> &str {
        self.product.name()
    }

    fn arity(&self) -> usize {
        self.left_at() + if self.left.is_some() { 2 } else { 0 }
    }

    fn forward(&self, inputs: &[Array<T>]) -> Result<Forward<T, Saved<T>>, Error> {
        let shape = output_shape(&self.right, &inputs[..2])?;
        let len = shape.iter().product();
        let mut right = Buffer::take(len);
        let right_rows = run_forward(&self.right, &inputs[..2], &mut right)?;
        let left = match &self.left {
            None => None,
            Some(operator) => {
                let mut left = Buffer::take(len);
                let at = self.left_at();
                let arrays = [inputs[0], inputs[at], inputs[at + 1]];
                let rows = run_forward(operator, &arrays, &mut left)?;
                Some((left, rows))
            }
        };
        let array = |data| Array {
            data,
            shape: &shape,
        };
        let mut output = vec![T::zero(); len];
        let arrays = self.product_inputs(
            inputs,
            array(&right),
            left.as_ref().map(|(left, _)| array(left)),
        );
        let product_rows = run_forward(&self.product, &arrays, &mut output)?;
        Ok(Forward {
            output,
            shape,
            saved: Saved {
                right,
                right_rows,
                left,
                product_rows,
            },
        })
    }

    fn backward(
        &self,
        inputs: &[Array<T>],
        output: Array<T>,
        saved: &Saved<T>,
        grad_output: Array<T>,
        wanted: &[bool],
    ) -> Result<Vec<Option<Vec<T>>>, Error> {
        let shape = output.shape;
        let len = output.data.len();
        let array = |data| Array { data, shape };
        let right = array(&saved.right);
        let left = saved.left.as_ref().map(|(left, _)| array(left));
        let mut grads: Vec<Option<Vec<T>>> = inputs
            .iter()
            .zip(wanted)
            .map(|(input, wanted)| wanted.then(|| vec![T::zero(); input.data.len()]))
            .collect();
        let mut grad_right = Buffer::take(len);
        let mut grad_left = Buffer::take(if left.is_some() { len } else { 0 });

        // The product: gradients of x (its own share), right, w, a, left.
        {
            let (x, rest) = split(&mut grads);
            let (_, rest) = split(rest);
            let (w, rest) = split(rest);
            let mut slots = vec![x, Some(&mut *grad_right), w];
            if self.normalize {
                slots.push(split(rest).0);
            }
            slots.extend(left.is_some().then_some(Some(&mut *grad_left)));
            let arrays = self.product_inputs(inputs, right, left);
            let rows = &saved.product_rows;
            run_backward(&self.product, &arrays, output, rows, grad_output, slots)?;
        }

        // The linear maps: gradients of their parameters, and their shares of the gradient of x.
        let share = if wanted[0] { len } else { 0 };
        let mut share_right = Buffer::take(share);
        let mut share_left = Buffer::take(if left.is_some() { share } else { 0 });
        {
            let slots = vec![
                wanted[0].then_some(&mut *share_right),
                grads[1].as_deref_mut(),
            ];
            let rows = &saved.right_rows;
            let grad = array(&grad_right);
            run_backward(&self.right, &inputs[..2], right, rows, grad, slots)?;
        }
        if let (Some(operator), Some(left), Some((_, rows))) = (&self.left, left, &saved.left) {
            let at = self.left_at();
            let (head, tail) = grads.split_at_mut(at + 1);
            let slots = vec![
                wanted[0].then_some(&mut *share_left),
                head[at].as_deref_mut(),
                tail[0].as_deref_mut(),
            ];
            let arrays = [inputs[0], inputs[at], inputs[at + 1]];
            let grad = array(&grad_left);
            run_backward(operator, &arrays, left, rows, grad, slots)?;
        }
        if let Some(grad) = &mut grads[0] {
            if left.is_some() {
                for ((grad, &right), &left) in grad.iter_mut().zip(&*share_right).zip(&*share_left)
                {
                    *grad += right + left;
                }
            } else {
                for (grad, &right) in grad.iter_mut().zip(&*share_right) {
                    *grad += right;
                }
            }
        }
        Ok(grads)
    }
}

type Slots<T> = [Option<Vec<T>>];

/// The first slot, and the rest.
fn split<T>(slots: &mut Slots<T>) -> (Option<&mut [T]>, &mut Slots<T>) {
    match slots.split_first_mut() {
        Some((first, rest)) => (first.as_deref_mut(), rest),
        None => (None, &mut []),
    }
}
