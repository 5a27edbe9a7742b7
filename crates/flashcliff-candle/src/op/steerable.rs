//! A steerable geometric product layer as one function.
//!
//! Computed node by node, the layer would give candle two inner activations and three separate gradients of its input,
//! and candle would sum each gradient through a fresh zeroed tensor. As one function, the layer keeps the inner
//! activations in pooled buffers and sums the gradients in one pass.

use std::sync::Arc;

use flashcliff::{Operator, Pass};

use super::Scalar;
use super::function::{Array, Function, Slots, part_backward, part_forward};
use super::scratch::Buffer;
use crate::Error;
use crate::timeline::Operation;

/// `r = right(x)`, `l = left(x) + bias`, `o = product(x, r, w, a?, l?)`.
///
/// Inputs: `x`, `right`, `w`, then `a` if the product normalises, then `left` and `bias` if it has
/// a first-order term.
#[derive(Debug)]
pub(crate) struct Steerable {
    /// Grade-wise linear map without bias.
    pub(crate) right: Arc<Operator>,
    /// Grade-wise linear map with bias, for the first-order term.
    pub(crate) left: Option<Arc<Operator>>,
    /// The weighted product, with normalisation and first-order term.
    pub(crate) product: Arc<Operator>,
    /// Whether the product takes `a`.
    pub(crate) normalize: bool,
}

/// The inner activations and saved rows.
pub(crate) struct Saved<T: Scalar> {
    right: Buffer<T>,
    right_rows: Buffer<T>,
    left: Option<(Buffer<T>, Buffer<T>)>,
    product_rows: Buffer<T>,
}

#[cfg(test)]
impl<T: Scalar> Saved<T> {
    /// The number of elements of all buffers.
    pub(crate) fn elements(&self) -> usize {
        let left = self
            .left
            .as_ref()
            .map_or(0, |(l, rows)| l.len() + rows.len());
        self.right.len() + self.right_rows.len() + left + self.product_rows.len()
    }
}

impl Steerable {
    /// The position of `left` among the inputs; `bias` follows.
    pub(crate) fn left_at(&self) -> usize {
        3 + usize::from(self.normalize)
    }

    /// The number of inputs after the first.
    pub(crate) fn parameter_count(&self) -> usize {
        self.left_at() - 1 + if self.left.is_some() { 2 } else { 0 }
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
        1 + self.parameter_count()
    }

    /// `None`: the operators of the layer report themselves.
    fn operation(&self, _: &[Vec<usize>], _: &[usize], _: Pass, _: &[bool]) -> Option<Operation> {
        None
    }

    fn output_shape(&self, inputs: &[Array<T>]) -> Result<Vec<usize>, Error> {
        Function::output_shape(&*self.right, &inputs[..2])
    }

    fn forward(&self, inputs: &[Array<T>], output: &mut [T]) -> Result<Saved<T>, Error> {
        let shape = Function::output_shape(self, inputs)?;
        let mut right = Buffer::take(output.len());
        let right_rows = part_forward(&*self.right, &inputs[..2], &mut right)?;
        let left = match &self.left {
            None => None,
            Some(operator) => {
                let mut left = Buffer::take(output.len());
                let at = self.left_at();
                let arrays = [inputs[0], inputs[at], inputs[at + 1]];
                let rows = part_forward(&**operator, &arrays, &mut left)?;
                Some((left, rows))
            }
        };
        let array = |data| Array {
            data,
            shape: &shape,
        };
        let first_order = left.as_ref().map(|(left, _)| array(left));
        let arrays = self.product_inputs(inputs, array(&right), first_order);
        let product_rows = part_forward(&*self.product, &arrays, output)?;
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
        let len = output.data.len();
        let (inner, slots) = self.product_backward(inputs, output, saved, grad_output, slots)?;
        let mut share = Buffer::take(if slots.x.is_some() { len } else { 0 });
        self.linear_backward(inputs, output.shape, saved, &inner, slots, &mut share)
    }
}

/// The gradients of the inner activations.
pub(crate) struct Inner<T: Scalar> {
    right: Buffer<T>,
    /// The gradient of `left(x) + bias`; empty without a first-order term.
    left: Buffer<T>,
}

/// The gradients that the linear maps write. `x` already holds the product's share.
pub(crate) struct LinearSlots<'a, T> {
    pub(crate) x: Option<&'a mut [T]>,
    right: Option<&'a mut [T]>,
    left: Option<&'a mut [T]>,
    bias: Option<&'a mut [T]>,
}

impl Steerable {
    /// The first half of the backward pass, which is the last to read the gradient of the output. It computes the
    /// product's gradients of its parameters and of both linear maps, and its share of the gradient of `x`.
    pub(crate) fn product_backward<'a, T: Scalar>(
        &self,
        inputs: &[Array<T>],
        output: Array<T>,
        saved: &Saved<T>,
        grad_output: Array<T>,
        slots: Slots<'a, T>,
    ) -> Result<(Inner<T>, LinearSlots<'a, T>), Error> {
        let len = output.data.len();
        let array = |data| Array {
            data,
            shape: output.shape,
        };
        let right = array(&saved.right);
        let left = saved.left.as_ref().map(|(left, _)| array(left));
        let mut slots = slots.into_iter();
        let mut next = || slots.next().flatten();
        let (mut grad_x, grad_right_weight, grad_w) = (next(), next(), next());
        let grad_a = if self.normalize { next() } else { None };
        let (grad_left_weight, grad_bias) = (next(), next());
        let mut inner = Inner {
            right: Buffer::take(len),
            left: Buffer::take(if left.is_some() { len } else { 0 }),
        };
        let mut product = vec![grad_x.as_deref_mut(), Some(&mut *inner.right), grad_w];
        if self.normalize {
            product.push(grad_a);
        }
        if left.is_some() {
            product.push(Some(&mut *inner.left));
        }
        let arrays = self.product_inputs(inputs, right, left);
        let rows = &saved.product_rows;
        part_backward(&*self.product, &arrays, output, rows, grad_output, product)?;
        let slots = LinearSlots {
            x: grad_x,
            right: grad_right_weight,
            left: grad_left_weight,
            bias: grad_bias,
        };
        Ok((inner, slots))
    }

    /// The second half: the linear maps' gradients of their parameters, and their shares of the gradient of `x`.
    /// `share` is as long as `x` if the gradient of `x` is wanted; its contents are lost.
    pub(crate) fn linear_backward<T: Scalar>(
        &self,
        inputs: &[Array<T>],
        shape: &[usize],
        saved: &Saved<T>,
        inner: &Inner<T>,
        slots: LinearSlots<T>,
        share: &mut [T],
    ) -> Result<(), Error> {
        let array = |data| Array { data, shape };
        let mut grad_x = slots.x;
        let wanted = grad_x.is_some();
        let linear = vec![wanted.then_some(&mut *share), slots.right];
        let (right, grad) = (array(&saved.right), array(&inner.right));
        let rows = &saved.right_rows;
        part_backward(&*self.right, &inputs[..2], right, rows, grad, linear)?;
        if let Some(grad_x) = &mut grad_x {
            add(grad_x, share);
        }
        if let (Some(operator), Some((left, rows))) = (&self.left, &saved.left) {
            let at = self.left_at();
            let arrays = [inputs[0], inputs[at], inputs[at + 1]];
            let linear = vec![wanted.then_some(&mut *share), slots.left, slots.bias];
            let (left, grad) = (array(left), array(&inner.left));
            part_backward(&**operator, &arrays, left, rows, grad, linear)?;
            if let Some(grad_x) = &mut grad_x {
                add(grad_x, share);
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
