//! The passes of operators over the memory of a call.

use flashcliff::{Dtype, Operator, Pass};
use flashcliff_network::scratch::Buffer;

use super::failure::Failure;
use super::frame::Call;
use super::target::{Bound, Target};
use crate::convert::{Gpu, Plan, Space, View};
use crate::host::{self, Given, Gradients};
use crate::runs::{self, Run};

/// A pass of a target over the memory of a call, on a GPU or on the CPU.
///
/// # Safety
/// The memory of the call is as XLA says: arguments are read by nobody who writes them, and results belong to the call.
pub(super) type Compute = unsafe fn(&Target, &Call<'_>, Option<Gpu>) -> Result<(), Failure>;

/// The memory that a pass on the CPU borrows for the call.
struct Borrowed(Buffer<f64>);

impl Borrowed {
    fn bytes(bytes: usize) -> Self {
        Self(Buffer::take(bytes.div_ceil(size_of::<f64>())))
    }

    fn space(&mut self, bytes: usize) -> Space {
        let address = match bytes {
            0 => 0,
            _ => self.0.as_mut_ptr().expose_provenance(),
        };
        Space { address, bytes }
    }
}

/// The workspace of a pass: what XLA lends on a GPU, and on the CPU memory that is borrowed for as long as the first value lives.
fn workspace(gpu: Option<Gpu>, lent: Space, bytes: usize) -> (Option<Borrowed>, Space) {
    if gpu.is_some() {
        return (None, lent);
    }
    let mut borrowed = Borrowed::bytes(bytes);
    let space = borrowed.space(bytes);
    (Some(borrowed), space)
}

/// Forward: inputs to the output, and to what is saved where the target says so.
///
/// # Safety
/// See [`Compute`].
pub(super) unsafe fn forward(
    target: &Target,
    call: &Call<'_>,
    gpu: Option<Gpu>,
) -> Result<(), Failure> {
    let Bound { operator, devices } = &*target.bound;
    let inputs = call.inputs()?;
    let (outputs, lent) = call.outputs()?;
    count("results", outputs.len(), 1 + usize::from(target.pass.saved))?;
    let plan = planned(target, &inputs, Pass::Forward, gpu)?;
    let lanes = lanes(operator, &inputs);
    check("the output", &outputs[0], &plan.output, lanes)?;
    let saved = outputs.get(1);
    if let Some(saved) = saved {
        check_saved(saved, &plan, lanes)?;
    }
    // On the CPU sums need memory even if nobody reads them.
    let missing = saved.is_none() && gpu.is_none();
    let mut sums = Borrowed::bytes(if missing {
        plan.saved * size_of::<f64>()
    } else {
        0
    });
    let (_borrowed, workspace) = workspace(gpu, lent, plan.workspace);
    let given = Given {
        inputs,
        output: outputs[0].address,
        saved: match saved {
            Some(saved) => saved.address,
            None => sums.space(if missing { plan.saved } else { 0 }).address,
        },
        workspace,
    };
    // SAFETY: all memory has the sizes that the pass asks for, and is that of the call or borrowed.
    unsafe {
        match gpu {
            None => host::forward(operator, &given)?,
            Some(gpu) => devices.forward(operator, &given, gpu)?,
        }
    }
    Ok(())
}

/// Backward: inputs, the output if it is read, what was saved, and the gradient of the output, to the gradients that are wanted.
///
/// # Safety
/// See [`Compute`].
pub(super) unsafe fn backward(
    target: &Target,
    call: &Call<'_>,
    gpu: Option<Gpu>,
) -> Result<(), Failure> {
    let Bound { operator, devices } = &*target.bound;
    let pass = &target.pass;
    let mut inputs = call.inputs()?;
    let (outputs, lent) = call.outputs()?;
    let last = |inputs: &mut Vec<View>| {
        let missing = || Failure::refused("expected more arguments".to_owned());
        inputs.pop().ok_or_else(missing)
    };
    let grad = last(&mut inputs)?;
    let saved = pass.saved.then(|| last(&mut inputs)).transpose()?;
    let output = pass.output.then(|| last(&mut inputs)).transpose()?;
    if pass.linear {
        // A linear operator reads its input for its shape alone.
        inputs.push(View {
            address: grad.address,
            shape: grad.shape.clone(),
            dtype: grad.dtype,
        });
    }
    let plan = planned(target, &inputs, Pass::Backward, gpu)?;
    let lanes = lanes(operator, &inputs);
    check("the gradient of the output", &grad, &plan.output, lanes)?;
    if let Some(output) = &output {
        check("the output", output, &plan.output, lanes)?;
    }
    match &saved {
        Some(saved) => check_saved(saved, &plan, lanes)?,
        None => count("saved numbers", 0, plan.saved)?,
    }
    let grads = placed(&pass.wanted, &inputs, &outputs)?;
    let (_borrowed, workspace) = workspace(gpu, lent, plan.workspace);
    let given = Given {
        inputs,
        // A tensor that is not read must still be memory of the right size.
        output: output.as_ref().unwrap_or(&grad).address,
        saved: saved.map_or(0, |saved| saved.address),
        workspace,
    };
    let gradients = Gradients {
        grad_output: grad.address,
        grads,
    };
    // SAFETY: the same holds as in `forward`.
    unsafe {
        match gpu {
            None => host::backward(operator, &given, &gradients)?,
            Some(gpu) => devices.backward(operator, &given, &gradients, gpu)?,
        }
    }
    Ok(())
}

/// A run: inputs to all outputs.
///
/// # Safety
/// See [`Compute`].
pub(super) unsafe fn run(
    target: &Target,
    call: &Call<'_>,
    gpu: Option<Gpu>,
) -> Result<(), Failure> {
    let Bound { operator, devices } = &*target.bound;
    let inputs = call.inputs()?;
    let (outputs, lent) = call.outputs()?;
    let plan = match gpu {
        None => runs::plan(operator, &inputs)?,
        Some(gpu) => devices.plan_run(operator, &inputs, gpu)?,
    };
    count("results", outputs.len(), plan.outputs.len())?;
    for ((output, shape), spec) in outputs.iter().zip(&plan.outputs).zip(operator.outputs()) {
        let dtype = match spec.is_parameter() {
            true => parameters(operator, &inputs),
            false => lanes(operator, &inputs),
        };
        check(spec.name, output, shape, dtype)?;
    }
    let (_borrowed, workspace) = workspace(gpu, lent, plan.workspace);
    let given = Run {
        inputs,
        outputs: outputs.iter().map(|output| Some(output.address)).collect(),
        workspace,
    };
    // SAFETY: the same holds as in `forward`.
    unsafe {
        match gpu {
            None => runs::run(operator, &given)?,
            Some(gpu) => devices.run(operator, &given, gpu)?,
        }
    }
    Ok(())
}

/// The needs of a pass.
pub(super) fn planned(
    target: &Target,
    inputs: &[View],
    pass: Pass,
    gpu: Option<Gpu>,
) -> Result<Plan, Failure> {
    let Bound { operator, devices } = &*target.bound;
    let wanted = match pass {
        Pass::Backward => Some(&target.pass.wanted[..]),
        Pass::Forward => None,
    };
    Ok(match gpu {
        None => host::plan(operator, inputs, pass, wanted)?,
        Some(gpu) => devices.plan(operator, inputs, pass, gpu)?,
    })
}

/// The address of each gradient that is wanted, after a comparison of its shape.
fn placed(
    wanted: &[bool],
    inputs: &[View],
    outputs: &[View],
) -> Result<Vec<Option<usize>>, Failure> {
    count("choices of gradients", wanted.len(), inputs.len())?;
    let expected = wanted.iter().filter(|want| **want).count();
    count("results", outputs.len(), expected)?;
    let mut made = outputs.iter();
    let placed = wanted.iter().zip(inputs).map(|(&want, input)| {
        let grad = if want { made.next() } else { None };
        let checked = grad.map(|grad| {
            check("a gradient", grad, &input.shape, input.dtype)?;
            Ok(grad.address)
        });
        checked.transpose()
    });
    placed.collect()
}

fn count(what: &str, got: usize, expected: usize) -> Result<(), Failure> {
    match got == expected {
        true => Ok(()),
        false => Err(Failure::refused(format!(
            "expected {expected} {what}, got {got}"
        ))),
    }
}

fn check(what: &str, got: &View, shape: &[usize], dtype: Dtype) -> Result<(), Failure> {
    match got.shape == shape && got.dtype == dtype {
        true => Ok(()),
        false => Err(Failure::refused(format!(
            "{what} must be {dtype} {shape:?}, got {} {:?}",
            got.dtype, got.shape
        ))),
    }
}

fn check_saved(got: &View, plan: &Plan, lanes: Dtype) -> Result<(), Failure> {
    let dtype = lanes.arithmetic();
    match host::count(&got.shape) == plan.saved && got.dtype == dtype {
        true => Ok(()),
        false => Err(Failure::refused(format!(
            "what is saved must be {} elements of {dtype}, got {} {:?}",
            plan.saved, got.dtype, got.shape
        ))),
    }
}

/// The element type of tensors with a batch.
fn lanes(operator: &Operator, inputs: &[View]) -> Dtype {
    first(operator, inputs, false).unwrap_or(Dtype::F32)
}

/// The element type of parameters.
fn parameters(operator: &Operator, inputs: &[View]) -> Dtype {
    first(operator, inputs, true).unwrap_or_else(|| lanes(operator, inputs))
}

fn first(operator: &Operator, inputs: &[View], parameter: bool) -> Option<Dtype> {
    let mut pairs = operator.inputs().iter().zip(inputs);
    let found = pairs.find(|(spec, _)| spec.is_parameter() == parameter);
    found.map(|(_, input)| input.dtype)
}
