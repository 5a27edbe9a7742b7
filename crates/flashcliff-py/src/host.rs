//! Passes on the CPU, over memory that Python owns.

use flashcliff::host_memory::Spans;
use flashcliff::{Dims, Dtype, Element, Error, Operator, Pass, Tensor, TensorMut, Tier, memory};
use pyo3::prelude::*;

use crate::convert::{Plan, Space, View};
use crate::error::caught;

/// The SIMD units that operators on the CPU use.
#[pyfunction]
pub(crate) fn tier() -> &'static str {
    Tier::best().name()
}

/// The tensors of a backward pass besides the tensors of the forward pass.
#[derive(Debug)]
pub(crate) struct Gradients {
    pub(crate) grad_output: usize,
    /// For each input, the address of its gradient; `None` if it is not wanted.
    pub(crate) grads: Vec<Option<usize>>,
}

/// The tensors that both passes use.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) inputs: Vec<View>,
    /// The output: the forward pass writes it, the backward pass reads it.
    pub(crate) output: usize,
    pub(crate) saved: usize,
    pub(crate) workspace: Space,
}

/// The needs of a pass, if there is room for them. `wanted` says which gradients a backward pass makes; all if absent.
pub(crate) fn plan(
    operator: &Operator,
    inputs: &[View],
    pass: Pass,
    wanted: Option<&[bool]>,
) -> Result<Plan, Error> {
    let dims = bind(operator, inputs)?;
    let dtype = dtype(operator, inputs)?;
    let elements = workspace_len(operator, &dims, dtype, pass);
    let output = operator.output_shape(&dims);
    let saved = operator.saved_len(&dims);
    let made = match pass {
        Pass::Forward => count(&output) + saved,
        Pass::Backward => inputs.iter().map(|input| count(&input.shape)).sum(),
    };
    // This bound is cheaper than the number that the check compares.
    let most = (made + elements) as u128 * dtype.bytes() as u128;
    let is_large = most >= memory::THRESHOLD;
    if is_large {
        match wanted {
            Some(wanted) if pass == Pass::Backward => {
                operator.check_room_for(&dims, dtype, wanted)?;
            }
            _ => operator.check_room(&dims, dtype, pass)?,
        }
    }
    Ok(Plan {
        output,
        saved,
        workspace: elements * dtype.bytes(),
        is_large,
    })
}

fn workspace_len(operator: &Operator, dims: &Dims, dtype: Dtype, pass: Pass) -> usize {
    match dtype {
        Dtype::F64 => operator.workspace_len::<f64>(dims, pass),
        _ => operator.workspace_len::<f32>(dims, pass),
    }
}

/// Checks that there is room for a number of bytes that a layer takes for some rows.
#[pyfunction]
pub(crate) fn check_room(what: &str, bytes: u128, rows: u128) -> PyResult<()> {
    caught(|| {
        memory::check(what, bytes, |available| match available {
            None => "raise the limit, or make the batch smaller".to_owned(),
            Some(available) => {
                let fitting = available / (bytes / rows.max(1)).max(1);
                format!("the largest number of rows that fits is {fitting}, of {rows}")
            }
        })
    })
}

/// # Safety
/// Each address in `given` is that of the elements that the operator needs there, of the type of the inputs. Nobody
/// else uses memory that is written, and nobody else writes memory that is read.
pub(crate) unsafe fn forward(operator: &Operator, given: &Given) -> Result<(), Error> {
    // SAFETY: the caller promises it.
    unsafe {
        match dtype(operator, &given.inputs)? {
            Dtype::F64 => forward_as::<f64>(operator, given),
            _ => forward_as::<f32>(operator, given),
        }
    }
}

/// # Safety
/// The contract of [`forward`] holds.
pub(crate) unsafe fn backward(
    operator: &Operator,
    given: &Given,
    gradients: &Gradients,
) -> Result<(), Error> {
    // SAFETY: the caller promises it.
    unsafe {
        match dtype(operator, &given.inputs)? {
            Dtype::F64 => backward_as::<f64>(operator, given, gradients),
            _ => backward_as::<f32>(operator, given, gradients),
        }
    }
}

/// # Safety
/// The contract of [`forward`] holds, with elements of type `T`.
unsafe fn forward_as<T: Element>(operator: &Operator, given: &Given) -> Result<(), Error> {
    let dims = bind(operator, &given.inputs)?;
    let shape = operator.output_shape(&dims);
    let mut spans = Spans::new::<T>(operator);
    add_inputs(&mut spans, operator, &given.inputs)?;
    spans.add(given.output, count(&shape), operator.output().name, true)?;
    spans.add(given.saved, operator.saved_len(&dims), "saved", true)?;
    let workspace = given.workspace.bytes / size_of::<T>();
    spans.add(given.workspace.address, workspace, "workspace", true)?;
    spans.check()?;
    let needed = operator.workspace_len::<T>(&dims, Pass::Forward);
    let mut own = own_workspace::<T>(needed, workspace);
    // SAFETY: the caller promises it; written memory overlaps nothing, as was checked.
    unsafe {
        let inputs = tensors::<T>(&given.inputs)?;
        let output = TensorMut::new(slice_mut(given.output, count(&shape)), &shape)?;
        let saved = slice_mut(given.saved, operator.saved_len(&dims));
        let workspace = match &mut own {
            Some(own) => &mut own[..],
            None => slice_mut(given.workspace.address, workspace),
        };
        operator.forward(&inputs, output, saved, workspace)
    }
}

/// # Safety
/// The contract of [`forward`] holds, with elements of type `T`.
unsafe fn backward_as<T: Element>(
    operator: &Operator,
    given: &Given,
    gradients: &Gradients,
) -> Result<(), Error> {
    let dims = bind(operator, &given.inputs)?;
    let shape = operator.output_shape(&dims);
    let name = operator.output().name;
    let mut spans = Spans::new::<T>(operator);
    add_inputs(&mut spans, operator, &given.inputs)?;
    spans.add(given.output, count(&shape), name, false)?;
    spans.add(gradients.grad_output, count(&shape), "grad_o", false)?;
    spans.add(given.saved, operator.saved_len(&dims), "saved", false)?;
    for (grad, input) in gradients.grads.iter().zip(&given.inputs) {
        if let Some(grad) = grad {
            spans.add(*grad, count(&input.shape), "gradients", true)?;
        }
    }
    let workspace = given.workspace.bytes / size_of::<T>();
    spans.add(given.workspace.address, workspace, "workspace", true)?;
    spans.check()?;
    let needed = operator.workspace_len::<T>(&dims, Pass::Backward);
    let mut own = own_workspace::<T>(needed, workspace);
    // SAFETY: the caller promises it; written memory overlaps nothing, as was checked.
    unsafe {
        let inputs = tensors::<T>(&given.inputs)?;
        let output = Tensor::new(slice(given.output, count(&shape)), &shape)?;
        let grad_output = Tensor::new(slice(gradients.grad_output, count(&shape)), &shape)?;
        let saved = slice(given.saved, operator.saved_len(&dims));
        let grads = gradients.grads.iter().zip(&given.inputs);
        let grads = grads.map(|(grad, input)| {
            let grad = grad.map(|grad| slice_mut(grad, count(&input.shape)));
            grad.map(|grad| TensorMut::new(grad, &input.shape))
                .transpose()
        });
        let mut grads = grads.collect::<Result<Vec<_>, _>>()?;
        let workspace = match &mut own {
            Some(own) => &mut own[..],
            None => slice_mut(given.workspace.address, workspace),
        };
        operator.backward(&inputs, output, saved, grad_output, &mut grads, workspace)
    }
}

/// A workspace of our own, if the planned one is too small for the threads that run the pass. Another thread may have
/// changed their number since it was planned.
pub(crate) fn own_workspace<T: Element>(needed: usize, given: usize) -> Option<Vec<T>> {
    (needed > given).then(|| vec![T::default(); needed])
}

pub(crate) fn bind(operator: &Operator, inputs: &[View]) -> Result<Dims, Error> {
    let shapes: Vec<&[usize]> = inputs.iter().map(|input| &input.shape[..]).collect();
    operator.bind(&shapes)
}

/// The common element type of all inputs.
pub(crate) fn dtype(operator: &Operator, inputs: &[View]) -> Result<Dtype, Error> {
    let wanted = inputs.first().map_or(Dtype::F32, |input| input.dtype);
    let wrong = |index: usize, expected: String| Error::DtypeMismatch {
        operator: operator.name().to_owned(),
        tensor: operator.inputs()[index].name.to_owned(),
        expected,
        got: inputs[index].dtype,
    };
    if wanted != wanted.arithmetic() {
        return Err(wrong(0, "f32 or f64 on the CPU".to_owned()));
    }
    let other = inputs.iter().position(|input| input.dtype != wanted);
    match other {
        None => Ok(wanted),
        Some(index) => Err(wrong(index, format!("{wanted}, as the first tensor is"))),
    }
}

pub(crate) fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// # Safety
/// Each address holds the elements of its shape.
pub(crate) unsafe fn tensors<'a, T>(views: &'a [View]) -> Result<Vec<Tensor<'a, T>>, Error> {
    let tensors = views.iter().map(|view| {
        // SAFETY: the caller promises it.
        let data = unsafe { slice(view.address, count(&view.shape)) };
        Tensor::new(data, &view.shape)
    });
    tensors.collect()
}

/// # Safety
/// At the aligned `address` there are `len` elements, which nobody writes during `'a`.
pub(crate) unsafe fn slice<'a, T>(address: usize, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller promises it.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address), len) }
}

/// # Safety
/// At the aligned `address` there are `len` elements, which nobody else uses during `'a`. They need not be initialised: any bits
/// are a number, and the kernels read no element that they have not written.
pub(crate) unsafe fn slice_mut<'a, T>(address: usize, len: usize) -> &'a mut [T] {
    if len == 0 {
        return &mut [];
    }
    let start = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the caller promises it.
    unsafe { std::slice::from_raw_parts_mut(start, len) }
}

pub(crate) fn add_inputs<'a>(
    spans: &mut Spans<'a>,
    operator: &'a Operator,
    inputs: &[View],
) -> Result<(), Error> {
    for (input, spec) in inputs.iter().zip(operator.inputs()) {
        spans.add(input.address, count(&input.shape), spec.name, false)?;
    }
    Ok(())
}
