//! Launches checked views.

use flashcliff_sys as sys;

use super::Operator;
use crate::Error;
use crate::cuda::call::{Call, Gradients, Kept, MAX_INPUTS, NO_GRADIENTS, only};
use crate::cuda::check::{Label, SAVED};
use crate::cuda::dtype::Dtypes;
use crate::cuda::queue::Queue;
use crate::cuda::spans::Spans;
use crate::cuda::tensor::{Scratch, Tensor, TensorMut};
use crate::operator::{Dims, Pass, TensorSpec};

/// The tensors that a backward pass reads.
pub(crate) struct Given<'a> {
    pub(crate) inputs: &'a [Tensor<'a>],
    pub(crate) output: Tensor<'a>,
    pub(crate) saved: Option<Tensor<'a>>,
    pub(crate) grad_output: Tensor<'a>,
    /// Whether the gradient of the first input is added to what is there.
    pub(crate) adds: bool,
    /// What a packing keeps for the operator, if one does.
    pub(crate) member: Option<Member<'a>>,
}

impl<'a> Given<'a> {
    /// The tensors of a pass that writes its gradients, without a packing.
    pub(crate) fn new(
        inputs: &'a [Tensor<'a>],
        output: Tensor<'a>,
        saved: Option<Tensor<'a>>,
        grad_output: Tensor<'a>,
    ) -> Self {
        Self {
            inputs,
            output,
            saved,
            grad_output,
            adds: false,
            member: None,
        }
    }

    /// The same tensors for a pass that adds the gradient of the first input to what is there.
    pub(crate) fn adding(self) -> Self {
        Self { adds: true, ..self }
    }
}

/// An operator of a packing, whose memory is at an address.
#[derive(Clone, Copy)]
pub(crate) struct Member<'a> {
    pub(crate) dims: &'a Dims,
    pub(crate) dtypes: Dtypes,
    pub(crate) kept: Kept,
}

impl Member<'_> {
    /// Checks that a call has the sizes and types that were packed for.
    pub(crate) fn check(&self, operator: &str, dims: &Dims, dtypes: Dtypes) -> Result<(), Error> {
        if (self.dims, self.dtypes) == (dims, dtypes) {
            return Ok(());
        }
        let of = |dims: &Dims, dtypes: Dtypes| {
            let Dims {
                batch,
                in_channels,
                out_channels,
                // Nothing that is packed has them.
                scalar_channels: _,
            } = dims;
            let Dtypes { lanes, params } = dtypes;
            format!(
                "{batch} x {in_channels} -> {out_channels} of {lanes} with parameters of {params}"
            )
        };
        Err(Error::NotPacked {
            operator: operator.to_owned(),
            expected: of(self.dims, self.dtypes),
            got: of(dims, dtypes),
        })
    }
}

impl Operator {
    /// # Safety
    /// The stream of the queue is valid and belongs to the context of the device.
    pub(crate) unsafe fn forward_on(
        &self,
        queue: &Queue<'_>,
        inputs: &[Tensor<'_>],
        mut output: TensorMut<'_>,
        mut saved: Option<TensorMut<'_>>,
        mut workspace: Option<Scratch<'_>>,
        member: Option<Member<'_>>,
    ) -> Result<(), Error> {
        self.operator.check_one_output()?;
        let checks = self.checks();
        let (dims, dtypes) = checks.inputs(inputs)?;
        if let Some(member) = member {
            member.check(self.operator.name(), &dims, dtypes)?;
        }
        checks.output(&dims, dtypes, output.layout())?;
        if saved.is_some() || self.operator.kept().is_some() {
            let saved = saved.as_ref().map(TensorMut::layout);
            checks.saved(&dims, dtypes, saved)?;
        }
        self.device.make_current()?;
        let kept = member.map(|member| member.kept).unwrap_or_default();
        let implementation = &*self.implementation;
        let needed =
            implementation.workspace_bytes(&dims, Pass::Forward, dtypes, &NO_GRADIENTS, &kept)?;
        checks.workspace(needed, workspace.as_ref())?;

        let mut spans = Spans::new();
        let inputs = add_inputs(&mut spans, queue, self.operator.inputs(), inputs);
        let layout = *output.layout();
        let label = Label::Tensor(self.operator.output().name);
        let output = spans.write(label, output.acquire(queue), &layout);
        let saved = saved.as_mut().map_or(0, |saved| {
            let layout = *saved.layout();
            spans.write(SAVED, saved.acquire(queue), &layout)
        });
        let space = workspace.as_mut().map_or(0, |workspace| {
            spans.workspace(workspace.acquire(queue), needed)
        });
        spans.check(self.operator.name())?;
        let call = Call {
            dims,
            dtypes,
            inputs,
            output,
            result: output,
            saved,
            grads: NO_GRADIENTS,
            adds: false,
            workspace: space,
            workspace_bytes: needed,
            kept,
            stream: queue.raw(),
        };
        // SAFETY: everything was checked, and the context made current; the caller promises the stream.
        unsafe { implementation.run(&call, &only(output)) }
    }

    /// Launches the backward pass. Returns the partial sums of gradients that it left in the memory of a packing: the partial sums of
    /// products by rows.
    ///
    /// # Safety
    /// The contract of [`Self::forward_on`] holds.
    pub(crate) unsafe fn backward_on(
        &self,
        queue: &Queue<'_>,
        given: &Given<'_>,
        grads: &mut [Option<TensorMut<'_>>],
        mut workspace: Option<Scratch<'_>>,
    ) -> Result<sys::fc_partials, Error> {
        self.operator.check_one_output()?;
        let checks = self.checks();
        let (dims, dtypes) = checks.inputs(given.inputs)?;
        if let Some(member) = given.member {
            member.check(self.operator.name(), &dims, dtypes)?;
        }
        checks.output(&dims, dtypes, given.output.layout())?;
        checks.grad_output(&dims, dtypes, given.grad_output.layout())?;
        checks.gradients(&dims, dtypes, grads)?;
        checks.saved(&dims, dtypes, given.saved.as_ref().map(Tensor::layout))?;
        let mut wanted = NO_GRADIENTS;
        for (wanted, grad) in wanted.iter_mut().zip(&*grads) {
            *wanted = grad.as_ref().map(|_| 0);
        }
        self.device.make_current()?;
        let kept = given.member.map(|member| member.kept).unwrap_or_default();
        let implementation = &*self.implementation;
        let needed =
            implementation.workspace_bytes(&dims, Pass::Backward, dtypes, &wanted, &kept)?;
        checks.workspace(needed, workspace.as_ref())?;

        let specs = self.operator.inputs();
        let name = self.operator.output().name;
        let mut spans = Spans::new();
        let inputs = add_inputs(&mut spans, queue, specs, given.inputs);
        let output = &given.output;
        let result = spans.read(Label::Tensor(name), output.acquire(queue), output.layout());
        let saved = given.saved.as_ref().map_or(0, |saved| {
            spans.read(SAVED, saved.acquire(queue), saved.layout())
        });
        let grad_output = &given.grad_output;
        let label = Label::Gradient(name);
        let grad_output = spans.read(label, grad_output.acquire(queue), grad_output.layout());
        let grads = add_outputs(&mut spans, queue, Label::Gradient, specs, grads);
        let space = workspace.as_mut().map_or(0, |workspace| {
            spans.workspace(workspace.acquire(queue), needed)
        });
        spans.check(self.operator.name())?;
        let call = Call {
            dims,
            dtypes,
            inputs,
            output: grad_output,
            result,
            saved,
            grads,
            adds: given.adds,
            workspace: space,
            workspace_bytes: needed,
            kept,
            stream: queue.raw(),
        };
        // SAFETY: everything was checked, and the context made current; the caller promises the stream.
        unsafe {
            match kept.parts {
                Some(parts) => implementation.backward_in_parts(&call, parts),
                None => {
                    implementation.backward(&call)?;
                    Ok(sys::fc_partials::default())
                }
            }
        }
    }
}

/// Adds the inputs to the spans, and returns their addresses.
pub(super) fn add_inputs<'s>(
    spans: &mut Spans<'s>,
    queue: &'s Queue<'_>,
    specs: &[TensorSpec],
    inputs: &'s [Tensor<'_>],
) -> [u64; MAX_INPUTS] {
    let mut addresses = [0; MAX_INPUTS];
    for ((address, input), spec) in addresses.iter_mut().zip(inputs).zip(specs) {
        let label = Label::Tensor(spec.name);
        *address = spans.read(label, input.acquire(queue), input.layout());
    }
    addresses
}

/// Adds the outputs that are wanted to the spans, and returns their addresses.
pub(super) fn add_outputs<'s>(
    spans: &mut Spans<'s>,
    queue: &'s Queue<'_>,
    label: fn(&'static str) -> Label,
    specs: &[TensorSpec],
    outputs: &'s mut [Option<TensorMut<'_>>],
) -> Gradients {
    let mut addresses = NO_GRADIENTS;
    for ((address, output), spec) in addresses.iter_mut().zip(outputs).zip(specs) {
        if let Some(output) = output {
            let layout = *output.layout();
            *address = Some(spans.write(label(spec.name), output.acquire(queue), &layout));
        }
    }
    addresses
}
