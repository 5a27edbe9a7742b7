//! A plan on a GPU.
//!
//! * `operators` - the operators of a plan, and the packing of their weights.
//! * `buffers` - its memory.
//! * `forward`, `backward` - the launches of both passes of a node; `launch` - what they share.
//! * `beside` - the stream of branches of a captured step.
//!
//! Weights are packed for matrix products by one kernel before the first part of a batch, and their gradients are added up by one behind
//! the backward pass, or behind the part of it that completes a bucket ([`Packing`](flashcliff::cuda::Packing)).

mod backward;
mod beside;
mod buffers;
mod forward;
mod launch;
mod operators;

use std::ops::Range;

use candle_core::backend::BackendDevice;
use candle_core::{CudaDevice, CudaStorage, DType, Storage, Tensor};
use flashcliff::cuda::cudarc::driver::CudaSlice;
use flashcliff::cuda::{self, Packed, PackedGradient, Scratch};
use flashcliff::{Device, Dtype, Pass};

use super::buckets::Bucket;
use super::operations::Reports;
use super::plan::{Holder, Plan, Work};
use super::planned::Part;
use super::room::Room;
use crate::Error;
use crate::op::gpu::library;
use crate::op::gpu::memory::{self, View, misplaced, with_views, writable};
use crate::op::node;
use crate::optim::LossScale;
use beside::{Beside, Line, is_captured};
use buffers::{Buffers, view};
use launch::Given;
use operators::Operators;

/// A plan with its operators and its memory on a GPU.
#[derive(Debug)]
pub(super) struct OnGpu {
    device: CudaDevice,
    library: Device,
    /// The type of the features, and that of the model: of parameters and of wide values.
    dtypes: [Dtype; 2],
    operators: Operators,
    buffers: Buffers,
    /// The memory of packed weights and of the parts of their gradients.
    packed: Option<CudaSlice<u8>>,
    beside: Option<Beside>,
    /// Whether work is launched beside the line now.
    forks: bool,
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

impl OnGpu {
    /// Takes the memory of a plan, if the device has room for it. `candle` are the types of the features and of the model.
    pub(super) fn new(
        plan: &Plan,
        device: &CudaDevice,
        candle: [DType; 2],
        parts: usize,
        model: &str,
    ) -> Result<(Self, Room), Error> {
        let library = library::device(device)?;
        let dtypes = buffers::types(candle)?;
        let operators = Operators::new(plan, &library, dtypes)?;
        let beside = Beside::new(&device.cuda_stream())?;
        let workspaces = [
            operators.workspace_bytes(plan, Line::Main)?,
            match beside {
                Some(_) => operators.workspace_bytes(plan, Line::Beside)?,
                None => 0,
            },
        ];
        let room = Room::of(plan, dtypes, parts).on_gpu(
            operators.saved.iter().sum::<usize>() * dtypes[1].bytes(),
            operators.packing.bytes(),
            workspaces.iter().sum(),
        );
        room.check(model, &candle_core::Device::Cuda(device.clone()))?;
        let taken = (&operators.saved[..], workspaces);
        let packed = memory::allocate_bytes(device, operators.packing.bytes())?;
        let loss = Storage::Cuda(device.zeros_impl(&1.into(), candle[1])?);
        let own = Self {
            buffers: Buffers::new(plan, device, candle, parts, taken)?,
            operators,
            packed: Some(packed),
            beside,
            forks: false,
            loss: node::constant(loss, &[]),
            device: device.clone(),
            library,
            dtypes,
        };
        Ok((own, room))
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
        if let (Err(_), Some(beside)) = (&done, &mut self.beside) {
            beside.forget();
        }
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
        // Marks of a timeline lie between nodes on one line.
        let is_recorded = reports.0.is_some();
        self.forks =
            self.beside.is_some() && !is_recorded && is_captured(&self.device.cuda_stream())?;
        let packing = self.operators.packing.clone();
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
        let ahead = match self.forks {
            true => plan.ahead(),
            false => Vec::new(),
        };
        let others = (0..plan.nodes.len()).filter(|at| !ahead.contains(at));
        for at in ahead.iter().copied().chain(others) {
            reports.node(at, Pass::Forward);
            self.forward(plan, given, packed, at, true)?;
        }
        reports.error();
        self.error(plan, given, part, loss_scale)?;
        let mut settled = plan.nodes.len();
        for at in (0..plan.nodes.len()).rev() {
            for &again in plan.blocks.again(at) {
                reports.node(again, Pass::Forward);
                self.forward(plan, given, packed, again, false)?;
            }
            reports.node(at, Pass::Backward);
            self.backward(plan, given, packed, at, part)?;
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
        for (at, node) in plan.nodes.iter().enumerate() {
            let (Work::Operator(operator, _), Some(number)) =
                (&node.work, self.operators.number(at))
            else {
                continue;
            };
            let mut own = Vec::new();
            if self.operators.packing.packs(number) {
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
        if let Some(beside) = &mut self.beside {
            beside.join(&self.device.cuda_stream())?;
        }
        let places = match part.adds {
            true => &mut self.buffers.shares,
            false => &mut self.buffers.sums,
        };
        let mut views = Vec::new();
        for (place, left) in places.iter_mut().zip(&self.operators.left) {
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
        self.buffers.sums[parameter].as_ref()
    }
}
