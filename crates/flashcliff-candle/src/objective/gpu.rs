//! A plan on a GPU: its buffers, and the launches of both passes.
//!
//! Weights are packed for matrix products by one kernel before the first part of a batch, and their gradients are added up by one behind
//! the backward pass, or behind the part of it that completes a bucket ([`Packing`]).

use std::ops::Range;
use std::sync::Arc;

use candle_core::backend::BackendDevice;
use candle_core::{CudaDevice, CudaStorage, DType, Storage, Tensor};
use flashcliff::cuda::cudarc::driver::CudaSlice;
use flashcliff::cuda::network;
use flashcliff::cuda::{self, Dtypes, Packed, PackedGradient, Packing, Scratch, TensorMut};
use flashcliff::{Device, Dtype, Pass};

use super::Part;
use super::buckets::Bucket;
use super::operations::Reports;
use super::plan::{Activation, Holder, Node, Operand, Plan, Value, ValueId, Wanted, Work};
use crate::Error;
use crate::op::core_dtype;
use crate::op::gpu::library;
use crate::op::gpu::memory::{self, View, misplaced, with_views, writable};
use crate::op::node;
use crate::optim::LossScale;
use crate::precision;

/// The buffers of a plan, in memory that is taken once and stays where it is, so a captured step uses no other.
#[derive(Debug)]
pub(super) struct OnGpu {
    device: CudaDevice,
    library: Device,
    /// The type of the features, and that of the model: of parameters and of wide values.
    dtypes: [Dtype; 2],
    /// For each node its operator on the device.
    operators: Vec<Option<cuda::Operator>>,
    /// The packing of the weights of all operators.
    packing: Arc<Packing>,
    /// For each node the number of its operator there.
    numbers: Vec<Option<usize>>,
    /// The memory of packed weights and of the parts of their gradients.
    packed: Option<CudaSlice<u8>>,
    /// For each parameter the input whose gradient the backward pass leaves in parts, if it is one.
    left: Vec<Option<Left>>,
    /// For each place of memory of the plan; `None` where a tensor holds the value.
    values: Vec<Option<CudaStorage>>,
    /// For each node the values that its forward pass saves.
    saved: Vec<Option<CudaStorage>>,
    /// The gradients of values, for each buffer of the plan: those of features, and those of wide values if these have another type.
    gradients: Vec<[Option<CudaStorage>; 2]>,
    /// The gradients of parameters.
    sums: Vec<Option<CudaStorage>>,
    /// The gradients of parameters for one part of a batch, if there are several.
    shares: Vec<Option<CudaStorage>>,
    workspace: Option<CudaSlice<u8>>,
    loss: Tensor,
}

/// A function that is called with memory that is complete, and its number of elements.
pub(super) type Ready<'a> = dyn FnMut(&[(&View<'_>, usize)]) -> Result<(), Error> + 'a;

/// An observer of the backward pass.
pub(super) struct Watch<'a> {
    /// The buckets of gradients, in the order of the pass.
    pub(super) buckets: &'a [Bucket],
    pub(super) ready: &'a mut Ready<'a>,
}

impl Watch<'_> {
    /// Whether the backward pass of a node completes the next bucket.
    fn completes(&self, node: usize) -> bool {
        self.buckets
            .first()
            .is_some_and(|bucket| bucket.node == node)
    }
}

/// An input of an operator whose gradient is added up later.
#[derive(Clone, Debug)]
struct Left {
    node: usize,
    /// The number of the operator of the node.
    operator: usize,
    input: usize,
    shape: Vec<usize>,
}

/// The elements of the tensors that a pass reads.
struct Given<'a> {
    batch: &'a [View<'a>],
    parameters: &'a [View<'a>],
}

impl OnGpu {
    /// `dtypes` are the type of the features and that of the model.
    pub(super) fn new(
        plan: &Plan,
        device: &CudaDevice,
        dtypes: [DType; 2],
        parts: usize,
    ) -> Result<Self, Error> {
        let library = library::device(device)?;
        let candle = dtypes;
        let [Some(features), Some(model)] = candle.map(core_dtype) else {
            return Err(misplaced("objective"));
        };
        let dtypes = [features, model];
        // An allocation of no bytes is an error for some drivers.
        let zeros = |len: usize, dtype: DType| -> Result<Option<CudaStorage>, Error> {
            Ok(Some(device.zeros_impl(&len.max(1).into(), dtype)?))
        };
        let mut values = Vec::with_capacity(plan.values.len());
        for (value, &len) in plan.values.iter().zip(plan.blocks.lens()) {
            values.push(match value.holder {
                Holder::Buffer if len > 0 => zeros(len, candle[usize::from(value.wide)])?,
                Holder::Buffer | Holder::Batch(_) | Holder::Parameter(_) => None,
            });
        }
        let (mut operators, mut saved, mut bytes) = (Vec::new(), Vec::new(), 1);
        let (mut numbers, mut members) = (Vec::new(), Vec::new());
        for node in &plan.nodes {
            let Work::Operator(operator, dims) = &node.work else {
                operators.push(None);
                numbers.push(None);
                saved.push(None);
                continue;
            };
            let operator = operator
                .on_cuda(&library)?
                .with_precision(precision::of_operators());
            let dtypes = types(dtypes, plan, node);
            for pass in [Pass::Forward, Pass::Backward] {
                bytes = bytes.max(operator.workspace_bytes(dims, pass, dtypes)?);
            }
            // Row sums are of the type of the arithmetic, which is that of the model.
            saved.push(zeros(operator.saved_len(dims, dtypes), candle[1])?);
            numbers.push(Some(members.len()));
            members.push((operator.clone(), *dims, dtypes));
            operators.push(Some(operator));
        }
        let packing = Arc::new(Packing::new(&library, members)?);
        let left = left(plan, &packing, &numbers);
        let packed = memory::allocate_bytes(device, packing.bytes())?;
        let parameters = |wanted: bool| {
            let parameters = plan.parameters.iter().filter(|_| wanted);
            let zeros = parameters.map(|tensor| zeros(tensor.elem_count(), candle[1]));
            zeros.collect::<Result<Vec<_>, Error>>()
        };
        let mut gradients: Vec<[Option<CudaStorage>; 2]> = Vec::new();
        for lens in plan.gradient_lens(dtypes) {
            let mut own = [None, None];
            for ((own, len), dtype) in own.iter_mut().zip(lens).zip(candle) {
                if len > 0 {
                    *own = zeros(len, dtype)?;
                }
            }
            gradients.push(own);
        }
        let loss = Storage::Cuda(device.zeros_impl(&1.into(), candle[1])?);
        Ok(Self {
            operators,
            packing,
            numbers,
            packed: Some(packed),
            left,
            values,
            saved,
            gradients,
            sums: parameters(true)?,
            shares: parameters(parts > 1)?,
            workspace: Some(memory::allocate_bytes(device, bytes)?),
            loss: node::constant(loss, &[]),
            device: device.clone(),
            library,
            dtypes,
        })
    }

    /// Launches the error of a batch, part by part, and its gradients. Buckets of them are complete in the last part.
    /// Gradients are multiplied by the scale of the loss.
    pub(super) fn run(
        &mut self,
        plan: (&Plan, Reports<'_>),
        parts: &[(Part, [Tensor; 2])],
        loss_scale: Option<&LossScale>,
        watch: Option<Watch<'_>>,
    ) -> Result<(), Error> {
        // The memory is borrowed beside the buffers.
        let mut memory = self.packed.take();
        let done = self.run_in(plan, parts, loss_scale, watch, memory.as_mut());
        self.packed = memory;
        done
    }

    fn run_in(
        &mut self,
        (plan, reports): (&Plan, Reports<'_>),
        parts: &[(Part, [Tensor; 2])],
        loss_scale: Option<&LossScale>,
        mut watch: Option<Watch<'_>>,
        memory: Option<&mut CudaSlice<u8>>,
    ) -> Result<(), Error> {
        let packing = self.packing.clone();
        let memory = Scratch::new(memory.ok_or_else(|| misplaced("objective"))?);
        with_views(&plan.parameters, |parameters| {
            let weights = self.weights(plan, parameters)?;
            let mut packed = packing.pack(&self.device.cuda_stream(), &weights, memory)?;
            for (at, (part, batch)) in parts.iter().enumerate() {
                let watch = watch.take_if(|_| at + 1 == parts.len());
                with_views(batch, |batch| {
                    let given = Given { batch, parameters };
                    let launched = (*part, loss_scale, watch);
                    self.run_part((plan, reports), &given, launched, &mut packed)
                })?;
            }
            Ok(())
        })
    }

    fn run_part(
        &mut self,
        (plan, reports): (&Plan, Reports<'_>),
        given: &Given<'_>,
        (part, loss_scale, mut watch): (Part, Option<&LossScale>, Option<Watch<'_>>),
        packed: &mut Packed<'_>,
    ) -> Result<(), Error> {
        for (at, node) in plan.nodes.iter().enumerate() {
            reports.node(at, Pass::Forward);
            self.forward(plan, given, packed, at, node)?;
        }
        reports.error();
        self.error(plan, given, part, loss_scale)?;
        let mut settled = plan.nodes.len();
        for (at, node) in plan.nodes.iter().enumerate().rev() {
            for &again in plan.blocks.again(at) {
                reports.node(again, Pass::Forward);
                self.forward(plan, given, packed, again, &plan.nodes[again])?;
            }
            reports.node(at, Pass::Backward);
            self.backward(plan, given, packed, at, node, part)?;
            if let Some(watch) = watch.as_mut().filter(|watch| watch.completes(at)) {
                self.settle(plan, packed, at..settled, part)?;
                settled = at;
                self.tell(plan, watch)?;
            }
        }
        reports.end();
        self.settle(plan, packed, 0..settled, part)
    }

    /// For each operator its parameters, if they are packed.
    fn weights<'a>(
        &self,
        plan: &Plan,
        parameters: &'a [View<'a>],
    ) -> Result<Vec<Vec<cuda::Tensor<'a>>>, Error> {
        let mut weights = Vec::new();
        for (node, number) in plan.nodes.iter().zip(&self.numbers) {
            let (Work::Operator(operator, _), Some(number)) = (&node.work, *number) else {
                continue;
            };
            let mut own = Vec::new();
            if self.packing.packs(number) {
                for (input, spec) in node.inputs.iter().zip(operator.inputs()) {
                    if !spec.is_parameter() {
                        continue;
                    }
                    let Holder::Parameter(parameter) = plan.values[input.value.0].holder else {
                        return Err(misplaced("objective"));
                    };
                    own.push(parameters[parameter].tensor(&input.shape)?);
                }
            }
            weights.push(own);
        }
        Ok(weights)
    }

    /// Completes the gradients of the parameters of some nodes, whose backward passes are launched.
    fn settle(
        &mut self,
        plan: &Plan,
        packed: &mut Packed<'_>,
        nodes: Range<usize>,
        part: Part,
    ) -> Result<(), Error> {
        let places = match part.adds {
            true => &mut self.shares,
            false => &mut self.sums,
        };
        let mut views = Vec::new();
        for (place, left) in places.iter_mut().zip(&self.left) {
            let Some(left) = left.as_ref().filter(|left| nodes.contains(&left.node)) else {
                continue;
            };
            let storage = place.as_mut().ok_or_else(|| misplaced("objective"))?;
            views.push((left, writable(storage, left.shape.iter().product())?));
        }
        let mut gradients = Vec::with_capacity(views.len());
        for (left, view) in &mut views {
            gradients.push(PackedGradient {
                operator: left.operator,
                input: left.input,
                gradient: view.tensor(&left.shape)?,
            });
        }
        packed.add_up(&self.device.cuda_stream(), &mut gradients)?;
        if part.adds {
            for node in nodes.rev() {
                self.add_shares(plan, node)?;
            }
        }
        Ok(())
    }

    /// Tells the observer of the next bucket, which is complete.
    fn tell(&self, plan: &Plan, watch: &mut Watch<'_>) -> Result<(), Error> {
        let Some((bucket, later)) = watch.buckets.split_first() else {
            return Ok(());
        };
        watch.buckets = later;
        let mut views = Vec::with_capacity(bucket.parameters.len());
        for &parameter in &bucket.parameters {
            let len = plan.parameters[parameter].elem_count();
            views.push((view(self.gradient(parameter), len)?, len));
        }
        let loss = later.is_empty().then(|| self.loss.clone());
        with_views(loss.as_slice(), |loss| {
            let gradients = views.iter().map(|(view, len)| (view, *len));
            let all: Vec<_> = gradients.chain(loss.iter().map(|view| (view, 1))).collect();
            (watch.ready)(&all)
        })
    }

    /// The sum of the errors of the parts so far.
    pub(super) fn loss(&self) -> &Tensor {
        &self.loss
    }

    /// The gradient of a parameter.
    pub(super) fn gradient(&self, parameter: usize) -> Option<&CudaStorage> {
        self.sums[parameter].as_ref()
    }

    fn forward(
        &mut self,
        plan: &Plan,
        given: &Given<'_>,
        packed: &mut Packed<'_>,
        at: usize,
        node: &Node,
    ) -> Result<(), Error> {
        let place = plan.blocks.memory(node.output.value);
        let mut output = take(&mut self.values[place])?;
        let mut saved = self.saved[at].take();
        let mut workspace = self.workspace.take();
        let done = self.launch_forward(
            (plan, given, packed),
            at,
            node,
            &mut output,
            saved.as_mut(),
            workspace.as_mut(),
        );
        self.values[place] = Some(output);
        self.saved[at] = saved;
        self.workspace = workspace;
        done
    }

    fn launch_forward(
        &self,
        (plan, given, packed): (&Plan, &Given<'_>, &mut Packed<'_>),
        at: usize,
        node: &Node,
        output: &mut CudaStorage,
        saved: Option<&mut CudaStorage>,
        workspace: Option<&mut CudaSlice<u8>>,
    ) -> Result<(), Error> {
        let stream = self.device.cuda_stream();
        let mut output = writable(output, node.output.len())?;
        let output = output.tensor(&node.output.shape)?;
        let views = self.inputs(plan, given, node)?;
        let inputs = tensors(&views, node)?;
        match (&node.work, self.operator(at)) {
            (Work::Points, _) => network::points(&self.library, &stream, inputs[0], output)?,
            (Work::Norm, _) => network::blade_norm(&self.library, &stream, inputs[0], output)?,
            (Work::Activation(kind), _) => {
                network::activate(&self.library, &stream, code(*kind), inputs[0], output)?;
            }
            (Work::ScaledSum(scale), _) => {
                let [x, y] = [inputs[0], inputs[1]];
                network::scaled_sum(&self.library, &stream, x, Some(y), *scale, output)?;
            }
            (Work::Blade(blade), _) => {
                network::blade(&self.library, &stream, inputs[0], *blade, output)?;
            }
            (Work::ReverseAxes, _) => {
                network::reverse_axes(&self.library, &stream, inputs[0], output)?;
            }
            (Work::Operator(_, dims), Some((operator, number))) => {
                let len = operator.saved_len(dims, types(self.dtypes, plan, node));
                let saved = saved.ok_or_else(|| misplaced("objective"))?;
                let mut saved = writable(saved, len)?;
                packed.forward(
                    number,
                    &stream,
                    &inputs,
                    output,
                    Some(saved.tensor(&[len])?),
                    workspace.map(Scratch::new),
                )?;
            }
            (Work::Operator(..), None) => return Err(misplaced("objective")),
        }
        Ok(())
    }

    /// The error of a part, and the gradient of the prediction.
    fn error(
        &mut self,
        plan: &Plan,
        given: &Given<'_>,
        part: Part,
        loss_scale: Option<&LossScale>,
    ) -> Result<(), Error> {
        let stream = self.device.cuda_stream();
        let shape = [plan.rows];
        let prediction = self.values[plan.blocks.memory(plan.prediction)].as_ref();
        let prediction = view(prediction, plan.rows)?;
        let buffer = plan.gradient_of[plan.prediction.0].ok_or_else(|| misplaced("objective"))?;
        let place = plan.values[plan.prediction.0].gradient_place(self.dtypes);
        let grad = self.gradients[buffer][place].as_mut();
        let grad = grad.ok_or_else(|| misplaced("objective"))?;
        let mut grad = writable(grad, plan.rows)?;
        let mut tensors = vec![self.loss.clone()];
        tensors.extend(loss_scale.map(|scale| scale.tensor().clone()));
        with_views(&tensors, |views| {
            #[allow(
                unsafe_code,
                reason = "candle lends the memory of a tensor for reading only"
            )]
            // SAFETY: the tensor is alive and locked for reading, so its memory stays. All work on it is launched on this stream, so
            // the update comes after earlier work and before later work.
            let loss = unsafe {
                let address = views[0].address(&stream);
                TensorMut::from_raw(address, self.dtypes[1], &[1], self.library.ordinal())?
            };
            let scale = views
                .get(1)
                .map(|own| own.tensor(&[cuda::LossScaling::NUMBERS]));
            network::squared_error(
                &self.library,
                &stream,
                [
                    prediction.tensor(&shape)?,
                    given.batch[plan.targets].tensor(&shape)?,
                ],
                (part.scale, part.adds),
                scale.transpose()?,
                loss,
                grad.tensor(&shape)?,
            )?;
            Ok(())
        })
    }

    fn backward(
        &mut self,
        plan: &Plan,
        given: &Given<'_>,
        packed: &mut Packed<'_>,
        at: usize,
        node: &Node,
        part: Part,
    ) -> Result<(), Error> {
        let wanted = &plan.wanted[at];
        let Some(buffer) = plan.gradient_of[node.output.value.0] else {
            return Ok(());
        };
        if wanted.iter().all(|&wanted| wanted == Wanted::No) {
            return Ok(());
        }
        let mut grads = Vec::with_capacity(wanted.len());
        for (&wanted, input) in wanted.iter().zip(&node.inputs) {
            let place = self.place(plan, wanted, input, part);
            grads.push(place.map(take).transpose()?);
        }
        let mut workspace = self.workspace.take();
        let place = plan.values[node.output.value.0].gradient_place(self.dtypes);
        let done = self.launch_backward(
            (plan, given, packed),
            at,
            node,
            self.gradients[buffer][place].as_ref(),
            &mut grads,
            workspace.as_mut(),
        );
        self.workspace = workspace;
        for ((grad, &wanted), input) in grads.into_iter().zip(wanted).zip(&node.inputs) {
            if let Some(place) = self.place(plan, wanted, input, part) {
                *place = grad;
            }
        }
        done
    }

    fn launch_backward(
        &self,
        (plan, given, packed): (&Plan, &Given<'_>, &mut Packed<'_>),
        at: usize,
        node: &Node,
        grad_output: Option<&CudaStorage>,
        grads: &mut [Option<CudaStorage>],
        workspace: Option<&mut CudaSlice<u8>>,
    ) -> Result<(), Error> {
        let stream = self.device.cuda_stream();
        let wanted = &plan.wanted[at];
        let mut slots = Vec::with_capacity(grads.len());
        for ((grad, &wanted), input) in grads.iter_mut().zip(wanted).zip(&node.inputs) {
            if let (Some(grad), Wanted::Written) = (&mut *grad, wanted) {
                let Value { len, .. } = plan.values[input.value.0];
                memory::clear(&self.device, grad, input.len()..len)?;
            }
            let grad = grad.as_mut().map(|grad| writable(grad, input.len()));
            slots.push(grad.transpose()?);
        }
        let mut grads: Vec<Option<TensorMut<'_>>> = Vec::with_capacity(slots.len());
        for (slot, input) in slots.iter_mut().zip(&node.inputs) {
            let grad = slot.as_mut().map(|slot| slot.tensor(&input.shape));
            grads.push(grad.transpose()?);
        }
        let len = node.output.len();
        let output = self.value(plan, node.output.value);
        let (output, grad_output) = (view(output, len)?, view(grad_output, len)?);
        let shape = &node.output.shape;
        let (output, grad_output) = (output.tensor(shape)?, grad_output.tensor(shape)?);
        let views = self.inputs(plan, given, node)?;
        let inputs = tensors(&views, node)?;
        let mut first = || grads[0].take().ok_or_else(|| misplaced("objective"));
        match (&node.work, self.operator(at)) {
            (Work::Points, _) => {}
            (Work::Norm, _) => {
                let given = [inputs[0], output, grad_output];
                network::blade_norm_backward(&self.library, &stream, given, first()?)?;
            }
            (Work::Activation(kind), _) => {
                let given = [inputs[0], grad_output];
                let kind = code(*kind);
                network::activate_backward(&self.library, &stream, kind, given, first()?)?;
            }
            (Work::ScaledSum(scale), _) => {
                for grad in grads.iter_mut().filter_map(Option::take) {
                    let (library, g) = (&self.library, grad_output);
                    network::scaled_sum(library, &stream, g, None, *scale, grad)?;
                }
            }
            (Work::Blade(blade), _) => {
                network::blade_backward(&self.library, &stream, grad_output, *blade, first()?)?;
            }
            (Work::ReverseAxes, _) => {
                network::reverse_axes(&self.library, &stream, grad_output, first()?)?;
            }
            (Work::Operator(_, dims), Some((operator, number))) => {
                let saved_len = operator.saved_len(dims, types(self.dtypes, plan, node));
                let saved = view(self.saved[at].as_ref(), saved_len)?;
                let saved = Some(saved.tensor(&[saved_len])?);
                let workspace = workspace.map(Scratch::new);
                match wanted.contains(&Wanted::Added) {
                    false => packed.backward(
                        number,
                        &stream,
                        &inputs,
                        output,
                        saved,
                        grad_output,
                        &mut grads,
                        workspace,
                    )?,
                    true => packed.backward_adding(
                        number,
                        &stream,
                        &inputs,
                        output,
                        saved,
                        grad_output,
                        &mut grads,
                        workspace,
                    )?,
                }
            }
            (Work::Operator(..), None) => return Err(misplaced("objective")),
        }
        Ok(())
    }

    /// Adds the gradients of the parameters of a node for a part to the sums.
    fn add_shares(&mut self, plan: &Plan, node: usize) -> Result<(), Error> {
        let stream = self.device.cuda_stream();
        for wanted in &plan.wanted[node] {
            let Wanted::Parameter(parameter) = *wanted else {
                continue;
            };
            let len = plan.parameters[parameter].elem_count();
            let sum = self.sums[parameter].as_mut();
            let mut sum = writable(sum.ok_or_else(|| misplaced("objective"))?, len)?;
            let share = view(self.shares[parameter].as_ref(), len)?;
            network::accumulate(
                &self.library,
                &stream,
                sum.tensor(&[len])?,
                share.tensor(&[len])?,
            )?;
        }
        Ok(())
    }

    /// The buffer of the gradient of an input.
    fn place(
        &mut self,
        plan: &Plan,
        wanted: Wanted,
        input: &Operand,
        part: Part,
    ) -> Option<&mut Option<CudaStorage>> {
        match wanted {
            Wanted::No => None,
            Wanted::Written | Wanted::Added => {
                let place = plan.values[input.value.0].gradient_place(self.dtypes);
                Some(&mut self.gradients[plan.gradient_of[input.value.0]?][place])
            }
            Wanted::Parameter(parameter) if part.adds => Some(&mut self.shares[parameter]),
            Wanted::Parameter(parameter) => Some(&mut self.sums[parameter]),
        }
    }

    /// The operator of a node, and its number.
    fn operator(&self, node: usize) -> Option<(&cuda::Operator, usize)> {
        self.operators[node].as_ref().zip(self.numbers[node])
    }

    /// The memory of a value in a buffer.
    fn value(&self, plan: &Plan, value: ValueId) -> Option<&CudaStorage> {
        self.values[plan.blocks.memory(value)].as_ref()
    }

    /// Views of the buffers that inputs of a node are in; `None` for those that tensors hold.
    fn inputs<'a>(
        &'a self,
        plan: &Plan,
        given: &'a Given<'a>,
        node: &Node,
    ) -> Result<Vec<Source<'a>>, Error> {
        let source = |operand: &Operand| match plan.values[operand.value.0].holder {
            Holder::Batch(tensor) => Ok(Source::Lent(&given.batch[tensor])),
            Holder::Parameter(parameter) => Ok(Source::Lent(&given.parameters[parameter])),
            Holder::Buffer => {
                let storage = self.value(plan, operand.value);
                Ok(Source::Own(view(storage, operand.len())?))
            }
        };
        node.inputs.iter().map(source).collect()
    }
}

/// For each parameter the input of an operator whose gradient is left in parts, if it is one.
fn left(plan: &Plan, packing: &Packing, numbers: &[Option<usize>]) -> Vec<Option<Left>> {
    let mut all = vec![None; plan.parameters.len()];
    for (node, wanted) in plan.wanted.iter().enumerate() {
        let Some(operator) = numbers[node] else {
            continue;
        };
        for (input, wanted) in wanted.iter().enumerate() {
            if let Wanted::Parameter(parameter) = *wanted
                && packing.leaves_parts(operator, input)
            {
                let shape = plan.nodes[node].inputs[input].shape.clone();
                all[parameter] = Some(Left {
                    node,
                    operator,
                    input,
                    shape,
                });
            }
        }
    }
    all
}

/// The types of an operator's tensors, with those of features and of the model.
fn types(dtypes: [Dtype; 2], plan: &Plan, node: &Node) -> Dtypes {
    Dtypes {
        lanes: dtypes[usize::from(plan.values[node.output.value.0].wide)],
        params: dtypes[1],
    }
}

/// The elements of an input.
enum Source<'a> {
    Lent(&'a View<'a>),
    Own(View<'a>),
}

fn tensors<'a>(views: &'a [Source<'a>], node: &Node) -> Result<Vec<cuda::Tensor<'a>>, Error> {
    let tensor = |(view, input): (&'a Source<'a>, &Operand)| match view {
        Source::Lent(view) => view.tensor(&input.shape),
        Source::Own(view) => view.tensor(&input.shape),
    };
    views.iter().zip(&node.inputs).map(tensor).collect()
}

/// The first elements of a buffer.
fn view(storage: Option<&CudaStorage>, len: usize) -> Result<View<'_>, Error> {
    let view = storage.and_then(|storage| View::of(storage, 0..len));
    view.ok_or_else(|| misplaced("objective"))
}

fn take(place: &mut Option<CudaStorage>) -> Result<CudaStorage, Error> {
    place.take().ok_or_else(|| misplaced("objective"))
}

fn code(activation: Activation) -> network::Activation {
    match activation {
        Activation::Silu => network::Activation::Silu,
        Activation::Relu => network::Activation::Relu,
    }
}
