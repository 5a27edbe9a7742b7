//! A steerable geometric product layer as one function.
//!
//! Computed node by node, the layer would hand candle two inner activations and three separate
//! gradients of its input, each of which candle sums through a fresh zeroed tensor. As one function
//! it keeps the inner activations in pooled buffers and sums the gradients in one pass.

use flashcliff::Operator;

use super::Scalar;
use super::function::{Array, Function, Slots};
use super::operator::{run_backward, run_forward};
use super::scratch::Buffer;
use crate::Error;

/// `r = right(x)`, `l = left(x) + bias`, `o = product(x, r, w, a?, l?)`.
///
/// Inputs: `x`, `right`, `w`, then `a` if the product normalises, then `left` and `bias` if it has
/// a first-order term.
#[derive(Debug)]
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

    fn output_shape(&self, inputs: &[Array<T>]) -> Result<Vec<usize>, Error> {
        Function::output_shape(&self.right, &inputs[..2])
    }

    fn forward(&self, inputs: &[Array<T>], output: &mut [T]) -> Result<Saved<T>, Error> {
        let shape = Function::output_shape(self, inputs)?;
        let mut right = Buffer::take(output.len());
        let right_rows = run_forward(&self.right, &inputs[..2], &mut right)?;
        let left = match &self.left {
            None => None,
            Some(operator) => {
                let mut left = Buffer::take(output.len());
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
        let first_order = left.as_ref().map(|(left, _)| array(left));
        let arrays = self.product_inputs(inputs, array(&right), first_order);
        let product_rows = run_forward(&self.product, &arrays, output)?;
        Ok(Saved {
            right,
            right_rows,
            left,
            product_rows,
        })
    }

    fn backward(
        &self,
        inputs: &[Array<T>],
        output: Array<T>,
        saved: &Saved<T>,
        grad_output: Array<T>,
        slots: Slots<T>,
    ) -> Result<(), Error> {
        let shape = output.shape;
        let len = output.data.len();
        let array = |data| Array { data, shape };
        let right = array(&saved.right);
        let left = saved.left.as_ref().map(|(left, _)| array(left));
        let mut slots = slots.into_iter();
        let mut next = || slots.next().flatten();
        let (mut grad_x, grad_right_weight, grad_w) = (next(), next(), next());
        let grad_a = if self.normalize { next() } else { None };
        let (grad_left_weight, grad_bias) = (next(), next());

        // The product: gradients of its parameters and of both linear maps, its share of that of x.
        let mut grad_right = Buffer::take(len);
        let mut grad_left = Buffer::take(if left.is_some() { len } else { 0 });
        let mut product = vec![grad_x.as_deref_mut(), Some(&mut *grad_right), grad_w];
        if self.normalize {
            product.push(grad_a);
        }
        if left.is_some() {
            product.push(Some(&mut *grad_left));
        }
        let arrays = self.product_inputs(inputs, right, left);
        let rows = &saved.product_rows;
        run_backward(&self.product, &arrays, output, rows, grad_output, product)?;

        // The linear maps: gradients of their parameters, and their shares of the gradient of x.
        let wanted = grad_x.is_some();
        let mut share = Buffer::take(if wanted { len } else { 0 });
        let linear = vec![wanted.then_some(&mut *share), grad_right_weight];
        let (rows, grad) = (&saved.right_rows, array(&grad_right));
        run_backward(&self.right, &inputs[..2], right, rows, grad, linear)?;
        if let Some(grad_x) = &mut grad_x {
            add(grad_x, &share);
        }
        if let (Some(operator), Some(left), Some((_, rows))) = (&self.left, left, &saved.left) {
            let at = self.left_at();
            let arrays = [inputs[0], inputs[at], inputs[at + 1]];
            let share_slot = wanted.then_some(&mut *share);
            let linear = vec![share_slot, grad_left_weight, grad_bias];
            let grad = array(&grad_left);
            run_backward(operator, &arrays, left, rows, grad, linear)?;
            if let Some(grad_x) = &mut grad_x {
                add(grad_x, &share);
            }
        }
        Ok(())
    }
}

fn add<T: Scalar>(sum: &mut [T], share: &[T]) {
    for (sum, &share) in sum.iter_mut().zip(share) {
        *sum += share;
    }
}
