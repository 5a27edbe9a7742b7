//! Runs operators with buffers that are as awkward as the contract allows.
//!
//! Every buffer is exactly as long as it must be and lies between guard bands. Outputs are full of NaN before. `offset`
//! moves all buffers away from any alignment.

use flashcliff::{Dims, Element, Operator, Pass, Tensor, TensorMut};

use crate::cases::input_shapes;

const GUARD: f64 = 1234.5;
const BAND: usize = 64;

/// A buffer between guard bands.
pub(crate) struct Guarded<T> {
    data: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Element> Guarded<T> {
    fn of(len: usize, offset: usize, value: impl Fn(usize) -> f64) -> Self {
        let start = BAND + offset;
        let mut data = vec![T::from_f64(GUARD); start + len + BAND];
        for (i, slot) in data[start..start + len].iter_mut().enumerate() {
            *slot = T::from_f64(value(i));
        }
        Self { data, start, len }
    }

    pub(crate) fn dirty(len: usize, offset: usize) -> Self {
        Self::of(len, offset, |_| f64::NAN)
    }

    pub(crate) fn filled(values: &[f64], offset: usize) -> Self {
        Self::of(values.len(), offset, |i| values[i])
    }

    pub(crate) fn get(&self) -> &[T] {
        &self.data[self.start..self.start + self.len]
    }

    pub(crate) fn get_mut(&mut self) -> &mut [T] {
        &mut self.data[self.start..self.start + self.len]
    }

    /// Checks that nothing was written outside of the buffer.
    pub(crate) fn check(&self) -> Result<(), String> {
        let outside =
            (0..self.data.len()).filter(|i| !(self.start..self.start + self.len).contains(i));
        for i in outside {
            if self.data[i].to_f64() != GUARD {
                let at = i as isize - self.start as isize;
                return Err(format!("element {at} of {} was written", self.len));
            }
        }
        Ok(())
    }
}

/// An operator at given sizes with its inputs.
pub(crate) struct Call<'a, T> {
    op: &'a Operator,
    dims: Dims,
    shapes: Vec<Vec<usize>>,
    inputs: Vec<Guarded<T>>,
    offset: usize,
}

/// The results of the forward pass.
pub(crate) struct Forward<T> {
    pub(crate) output: Guarded<T>,
    saved: Guarded<T>,
}

impl<'a, T: Element> Call<'a, T> {
    pub(crate) fn new(op: &'a Operator, dims: Dims, inputs: &[Vec<f64>], offset: usize) -> Self {
        Self {
            op,
            dims,
            shapes: input_shapes(op, &dims),
            inputs: inputs
                .iter()
                .map(|values| Guarded::filled(values, offset))
                .collect(),
            offset,
        }
    }

    fn tensors(&self) -> Vec<Tensor<'_, T>> {
        let both = self.inputs.iter().zip(&self.shapes);
        both.map(|(data, shape)| Tensor::new(data.get(), shape).expect("the shape fits"))
            .collect()
    }

    /// Runs the forward pass and checks that it filled its output and nothing else.
    pub(crate) fn forward(&self) -> Forward<T> {
        let (op, dims) = (self.op, &self.dims);
        let shape = op.output_shape(dims);
        let mut output = Guarded::dirty(shape.iter().product(), self.offset);
        let mut saved = Guarded::dirty(op.saved_len(dims), self.offset);
        let len = op.workspace_len::<T>(dims, Pass::Forward);
        let mut workspace = Guarded::dirty(len, self.offset);
        let view = TensorMut::new(output.get_mut(), &shape).expect("the shape fits");
        op.forward(&self.tensors(), view, saved.get_mut(), workspace.get_mut())
            .expect("forward");
        for (what, buffer) in [
            ("output", &output),
            ("saved", &saved),
            ("workspace", &workspace),
        ] {
            if let Err(message) = buffer.check() {
                panic!("{} of {}: {message}", what, op.name());
            }
        }
        Forward { output, saved }
    }

    /// Runs an operator with one output as one with any number of them.
    pub(crate) fn run(&self) -> Guarded<T> {
        let (op, dims) = (self.op, &self.dims);
        let shape = op.output_shape(dims);
        let mut output = Guarded::dirty(shape.iter().product(), self.offset);
        let mut workspace = Guarded::dirty(op.run_workspace_len::<T>(dims), self.offset);
        let view = TensorMut::new(output.get_mut(), &shape).expect("the shape fits");
        op.run(&self.tensors(), &mut [Some(view)], workspace.get_mut())
            .expect("a run");
        for buffer in [&output, &workspace] {
            if let Err(message) = buffer.check() {
                panic!("a run of {}: {message}", op.name());
            }
        }
        output
    }

    /// Runs the backward pass for the `wanted` gradients. The others are returned empty.
    pub(crate) fn backward(
        &self,
        forward: &Forward<T>,
        grad_output: &[f64],
        wanted: &[bool],
    ) -> Vec<Vec<T>> {
        let (op, dims) = (self.op, &self.dims);
        let shape = op.output_shape(dims);
        let grad_output = Guarded::<T>::filled(grad_output, self.offset);
        let len = op.workspace_len::<T>(dims, Pass::Backward);
        let mut workspace = Guarded::dirty(len, self.offset);
        let mut grads: Vec<Option<Guarded<T>>> = wanted
            .iter()
            .zip(&self.inputs)
            .map(|(wanted, input)| wanted.then(|| Guarded::dirty(input.len, self.offset)))
            .collect();
        let mut views = Vec::new();
        for (grad, shape) in grads.iter_mut().zip(&self.shapes) {
            let view =
                |grad| TensorMut::new(Guarded::get_mut(grad), shape).expect("the shape fits");
            views.push(grad.as_mut().map(view));
        }
        op.backward(
            &self.tensors(),
            Tensor::new(forward.output.get(), &shape).expect("the shape fits"),
            forward.saved.get(),
            Tensor::new(grad_output.get(), &shape).expect("the shape fits"),
            &mut views,
            workspace.get_mut(),
        )
        .expect("backward");
        for buffer in grads.iter().flatten().chain([&workspace]) {
            if let Err(message) = buffer.check() {
                panic!("a gradient of {}: {message}", op.name());
            }
        }
        grads
            .iter()
            .map(|g| g.as_ref().map_or(Vec::new(), |g| g.get().to_vec()))
            .collect()
    }
}

#[test]
fn a_guard_band_reports_a_write_on_either_side() {
    for at in [BAND - 1, BAND + 7 + 3] {
        let mut buffer = Guarded::<f32>::dirty(7, 3);
        assert_eq!(buffer.check(), Ok(()));
        let at = if at < BAND { at + 3 } else { at };
        buffer.data[at] = 0.0;
        assert!(buffer.check().is_err(), "element {at}");
    }
}
