//! Runs of operators with any number of outputs, over memory that Python owns.

use flashcliff::host_memory::Spans;
use flashcliff::{
    Dims, Dtype, Element, Error, Operator, Pass, Tensor, TensorMut, TensorSpec, memory,
};

use crate::convert::{Space, View};
use crate::host::{add_inputs, bind, count, dtype, own_workspace, slice, slice_mut};

/// The tensors of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) inputs: Vec<View>,
    /// The address of each output; `None` if it is not wanted.
    pub(crate) outputs: Vec<Option<usize>>,
    pub(crate) workspace: Space,
}

/// The needs of a run.
#[derive(Debug)]
pub(crate) struct RunPlan {
    pub(crate) outputs: Vec<Vec<usize>>,
    /// The bytes of workspace.
    pub(crate) workspace: usize,
    /// Whether each call must ask anew, because it takes much memory.
    pub(crate) is_large: bool,
}

/// The needs of a run, if there is room for them.
pub(crate) fn plan(operator: &Operator, inputs: &[View]) -> Result<RunPlan, Error> {
    let dims = bind(operator, inputs)?;
    let dtype = dtype(operator, inputs)?;
    let specs = operator.outputs().iter();
    let outputs: Vec<Vec<usize>> = specs.map(|spec| spec.shape(&dims)).collect();
    let elements = workspace_len(operator, &operator.in_long_rows(&dims), dtype);
    let made: usize = outputs.iter().map(|shape| count(shape)).sum();
    let is_large =
        made.saturating_add(elements) as u128 * dtype.bytes() as u128 >= memory::THRESHOLD;
    if is_large {
        operator.check_room(&dims, dtype, Pass::Forward)?;
    }
    Ok(RunPlan {
        outputs,
        workspace: elements * dtype.bytes(),
        is_large,
    })
}

fn workspace_len(operator: &Operator, dims: &Dims, dtype: Dtype) -> usize {
    match dtype {
        Dtype::F64 => operator.run_workspace_len::<f64>(dims),
        _ => operator.run_workspace_len::<f32>(dims),
    }
}

/// # Safety
/// Each address in `run` is that of the elements that the operator needs there, of the type of the inputs. Nobody
/// else uses memory that is written, and nobody else writes memory that is read.
pub(crate) unsafe fn run(operator: &Operator, run: &Run) -> Result<(), Error> {
    // SAFETY: the caller promises it.
    unsafe {
        match dtype(operator, &run.inputs)? {
            Dtype::F64 => run_as::<f64>(operator, run),
            _ => run_as::<f32>(operator, run),
        }
    }
}

/// # Safety
/// The contract of [`run`] holds, with elements of type `T`.
unsafe fn run_as<T: Element>(operator: &Operator, run: &Run) -> Result<(), Error> {
    let dims = operator.in_long_rows(&bind(operator, &run.inputs)?);
    let shapes_of = |specs: &[TensorSpec]| -> Vec<Vec<usize>> {
        specs.iter().map(|spec| spec.shape(&dims)).collect()
    };
    let (given, shapes) = (shapes_of(operator.inputs()), shapes_of(operator.outputs()));
    let mut spans = Spans::new::<T>(operator);
    add_inputs(&mut spans, operator, &run.inputs)?;
    for ((output, shape), spec) in run.outputs.iter().zip(&shapes).zip(operator.outputs()) {
        if let Some(output) = output {
            spans.add(*output, count(shape), spec.name, true)?;
        }
    }
    let workspace = run.workspace.bytes / size_of::<T>();
    spans.add(run.workspace.address, workspace, "workspace", true)?;
    spans.check()?;
    let mut own = own_workspace::<T>(operator.run_workspace_len::<T>(&dims), workspace);
    // SAFETY: the caller promises it; written memory overlaps nothing, as was checked.
    unsafe {
        let inputs = run
            .inputs
            .iter()
            .zip(&given)
            .map(|(input, shape)| Tensor::new(slice(input.address, count(shape)), shape));
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let outputs = run.outputs.iter().zip(&shapes).map(|(output, shape)| {
            let output = output.map(|output| slice_mut(output, count(shape)));
            output
                .map(|output| TensorMut::new(output, shape))
                .transpose()
        });
        let mut outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        let workspace = match &mut own {
            Some(own) => &mut own[..],
            None => slice_mut(run.workspace.address, workspace),
        };
        operator.run(&inputs, &mut outputs, workspace)
    }
}
