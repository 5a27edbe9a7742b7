//! A core operator as a [`Function`], by itself or with options.

use flashcliff::{Element, Operator, Pass, TensorMut};
use flashcliff_network::scratch::Buffer;

use super::function::{Array, Derived, Function, Slots};
use super::{GpuOptions, Scalar};
use crate::Error;
use crate::timeline::{Operation, Sizes};

/// A core operator, by itself or with options.
pub(crate) trait Core: Send + Sync + 'static {
    fn operator(&self) -> &Operator;

    /// The gradient as an operator, with the same options.
    fn gradient(&self) -> Option<WithOptions> {
        let gradient = self.operator().gradient().ok()?;
        Some(WithOptions::new(gradient, self.options()))
    }

    /// The options for GPUs.
    fn options(&self) -> GpuOptions {
        GpuOptions::default()
    }
}

impl Core for Operator {
    fn operator(&self) -> &Operator {
        self
    }
}

/// A core operator with options for GPUs.
#[derive(Clone, Debug)]
pub(crate) struct WithOptions {
    operator: Operator,
    pub(crate) options: GpuOptions,
}

impl WithOptions {
    pub(crate) fn new(operator: Operator, options: GpuOptions) -> Self {
        Self { operator, options }
    }
}

impl Core for WithOptions {
    fn operator(&self) -> &Operator {
        &self.operator
    }

    fn options(&self) -> GpuOptions {
        self.options
    }
}

/// The options make no difference on the CPU.
impl<T: Scalar, C: Core> Function<T> for C {
    type Saved = Buffer<T>;

    fn name(&self) -> &str {
        Core::operator(self).name()
    }

    fn arity(&self) -> usize {
        Core::operator(self).inputs().len()
    }

    fn operation(
        &self,
        shapes: &[Vec<usize>],
        _: &[usize],
        pass: Pass,
        wanted: &[bool],
    ) -> Option<Operation> {
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let operator = Core::operator(self);
        // The pass itself reports shapes that do not fit.
        let dims = operator.bind(&shapes).ok()?;
        let sizes = Sizes::of(<T as Element>::DTYPE);
        Some(Operation::of_operator(operator, &dims, sizes, pass, wanted))
    }

    fn derived(&self) -> Option<Derived> {
        Core::gradient(self).map(Derived::Operator)
    }

    fn check_room(&self, inputs: &[Array<T>], _: &[usize]) -> Result<(), Error> {
        let shapes: Vec<&[usize]> = inputs.iter().map(|input| input.shape).collect();
        let operator = Core::operator(self);
        let dims = operator.bind(&shapes)?;
        let dtype = <T as Element>::DTYPE;
        Ok(operator.check_room(&dims, dtype, Pass::Forward)?)
    }

    fn output_shape(&self, inputs: &[Array<T>]) -> Result<Vec<usize>, Error> {
        let shapes: Vec<&[usize]> = inputs.iter().map(|input| input.shape).collect();
        let operator = Core::operator(self);
        Ok(operator.output_shape(&operator.bind(&shapes)?))
    }

    fn forward(
        &self,
        inputs: &[Array<T>],
        output: &mut [T],
        _: &[bool],
    ) -> Result<Buffer<T>, Error> {
        run_forward(Core::operator(self), inputs, output)
    }

    fn backward(
        &self,
        inputs: &[Array<T>],
        output: Array<T>,
        saved: &Buffer<T>,
        grad_output: Array<T>,
        slots: Slots<T>,
    ) -> Result<(), Error> {
        run_backward(
            Core::operator(self),
            inputs,
            output,
            saved,
            grad_output,
            slots,
        )
    }
}

/// Runs the operator forward into `output` and returns the saved rows.
pub(crate) fn run_forward<T: Scalar>(
    operator: &Operator,
    inputs: &[Array<T>],
    output: &mut [T],
) -> Result<Buffer<T>, Error> {
    let shapes: Vec<&[usize]> = inputs.iter().map(|input| input.shape).collect();
    let dims = operator.bind(&shapes)?;
    let shape = operator.output_shape(&dims);
    let tensors = tensors(inputs)?;
    let mut saved = Buffer::take(operator.saved_len(&dims));
    let mut workspace = Buffer::take(operator.workspace_len::<T>(&dims, Pass::Forward));
    let output = TensorMut::new(output, &shape)?;
    operator.forward(&tensors, output, &mut saved, &mut workspace)?;
    Ok(saved)
}

/// Runs the operator backward, writing the gradient of every input that has a slot.
pub(crate) fn run_backward<T: Scalar>(
    operator: &Operator,
    inputs: &[Array<T>],
    output: Array<T>,
    saved: &[T],
    grad_output: Array<T>,
    slots: Slots<T>,
) -> Result<(), Error> {
    let shapes: Vec<&[usize]> = inputs.iter().map(|input| input.shape).collect();
    let dims = operator.bind(&shapes)?;
    let tensors = tensors(inputs)?;
    let mut grads = Vec::with_capacity(slots.len());
    for (slot, input) in slots.into_iter().zip(inputs) {
        grads.push(match slot {
            Some(data) => Some(TensorMut::new(data, input.shape)?),
            None => None,
        });
    }
    let mut workspace = Buffer::take(operator.workspace_len::<T>(&dims, Pass::Backward));
    operator.backward(
        &tensors,
        output.tensor()?,
        saved,
        grad_output.tensor()?,
        &mut grads,
        &mut workspace,
    )?;
    Ok(())
}

fn tensors<'a, T: Scalar>(
    inputs: &[Array<'a, T>],
) -> Result<Vec<flashcliff::Tensor<'a, T>>, Error> {
    inputs.iter().map(|input| input.tensor()).collect()
}
