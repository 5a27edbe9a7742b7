//! Embedding, steerable layers and blade norm as one function.
//!
//! Between the layers candle would sum each gradient through a fresh zeroed tensor. Here the activations and their
//! gradients stay in pooled buffers from the embedding to the norms.

use std::sync::Arc;

use flashcliff::Pass;

use super::Scalar;
use super::blade_norm::BladeNorm;
use super::embed::EmbedVectors;
use super::function::{Array, Function, Slots, part_backward, part_forward};
use super::scratch::Buffer;
use super::steerable::{Saved as LayerSaved, Steerable};
use crate::Error;
use crate::timeline::Operation;

/// `norm(layer_n(... layer_1(embedding(v, bias))))`.
///
/// Inputs: `v` and `bias`, then the inputs of each layer after its first.
/// Output: `[batch, channels]`.
#[derive(Debug)]
pub(crate) struct Trunk {
    pub(crate) embedding: Arc<EmbedVectors>,
    pub(crate) layers: Vec<Arc<Steerable>>,
}

/// The activations from the embedding on, and the saved values of the layers.
pub(crate) struct Saved<T: Scalar> {
    shape: Vec<usize>,
    activations: Vec<Buffer<T>>,
    layers: Vec<LayerSaved<T>>,
}

impl Trunk {
    /// The number of inputs of the embedding.
    pub(crate) const HEAD: usize = 2;
}

impl<T: Scalar> Function<T> for Trunk {
    type Saved = Saved<T>;

    fn name(&self) -> &str {
        "trunk"
    }

    fn arity(&self) -> usize {
        let layers = self.layers.iter().map(|layer| layer.parameter_count());
        Trunk::HEAD + layers.sum::<usize>()
    }

    /// `None`: the parts of the trunk report themselves.
    fn operation(&self, _: &[Vec<usize>], _: &[usize], _: Pass, _: &[bool]) -> Option<Operation> {
        None
    }

    fn output_shape(&self, inputs: &[Array<T>]) -> Result<Vec<usize>, Error> {
        let shape = self.embedding.output_shape(&inputs[..Trunk::HEAD])?;
        Ok(shape[1..].to_vec())
    }

    fn forward(&self, inputs: &[Array<T>], output: &mut [T]) -> Result<Saved<T>, Error> {
        let shape = self.embedding.output_shape(&inputs[..Trunk::HEAD])?;
        let len = shape.iter().product();
        let mut activation = Buffer::take(len);
        let embedding = &*self.embedding;
        part_forward(embedding, &inputs[..Trunk::HEAD], &mut activation)?;
        let mut saved = Saved {
            shape,
            activations: vec![activation],
            layers: Vec::with_capacity(self.layers.len()),
        };
        let mut at = Trunk::HEAD;
        for (i, layer) in self.layers.iter().enumerate() {
            let count = layer.parameter_count();
            let arrays = layer_inputs(&saved, i, &inputs[at..at + count]);
            let mut activation = Buffer::take(len);
            let layer_saved = layer.forward(&arrays, &mut activation)?;
            saved.layers.push(layer_saved);
            saved.activations.push(activation);
            at += count;
        }
        let last = saved.array(self.layers.len());
        part_forward(&BladeNorm, &[last], output)?;
        Ok(saved)
    }

    fn backward(
        &self,
        inputs: &[Array<T>],
        output: Array<T>,
        saved: &Saved<T>,
        grad_output: Array<T>,
        mut slots: Slots<T>,
    ) -> Result<(), Error> {
        let last = saved.array(self.layers.len());
        let mut grad = Buffer::take(last.data.len());
        let mut grad_before = Buffer::take(last.data.len());
        let slot = vec![Some(&mut *grad)];
        part_backward(&BladeNorm, &[last], output, &(), grad_output, slot)?;
        let shape = &saved.shape[..];
        for (i, layer) in self.layers.iter().enumerate().rev() {
            let count = layer.parameter_count();
            let at = slots.len() - count;
            let mut layer_slots = vec![Some(&mut *grad_before)];
            layer_slots.extend(slots.drain(at..));
            let arrays = layer_inputs(saved, i, &inputs[at..at + count]);
            let data = &grad[..];
            let (output, grad_output) = (saved.array(i + 1), Array { data, shape });
            let kept = &saved.layers[i];
            let (inner, slots) =
                layer.product_backward(&arrays, output, kept, grad_output, layer_slots)?;
            // Nothing reads the gradient of the output after this.
            layer.linear_backward(&arrays, shape, kept, &inner, slots, &mut grad)?;
            std::mem::swap(&mut grad, &mut grad_before);
        }
        let data = &grad[..];
        let (embedded, grad) = (saved.array(0), Array { data, shape });
        let inputs = &inputs[..Trunk::HEAD];
        part_backward(&*self.embedding, inputs, embedded, &(), grad, slots)
    }
}

impl<T: Scalar> Saved<T> {
    /// The number of elements of all buffers.
    #[cfg(test)]
    pub(crate) fn elements(&self) -> usize {
        let activations = self.activations.iter().map(|activation| activation.len());
        let layers = self.layers.iter().map(LayerSaved::elements);
        activations.chain(layers).sum()
    }

    fn array(&self, activation: usize) -> Array<'_, T> {
        Array {
            data: &self.activations[activation],
            shape: &self.shape,
        }
    }
}

/// The inputs of layer `i`.
fn layer_inputs<'a, T: Scalar>(
    saved: &'a Saved<T>,
    i: usize,
    parameters: &[Array<'a, T>],
) -> Vec<Array<'a, T>> {
    let mut arrays = vec![saved.array(i)];
    arrays.extend_from_slice(parameters);
    arrays
}
