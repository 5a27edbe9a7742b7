//! A plan on a GPU: memory of candle for what it reads and writes.

use candle_core::backend::BackendDevice;
use candle_core::{CudaDevice, CudaStorage, DType, Storage, Tensor};
use flashcliff::cuda::cudarc::driver::CudaStream;
use flashcliff::cuda::cudarc::driver::sys::{CUdeviceptr, CUstreamCaptureStatus};
use flashcliff::cuda::segments::Addresses;
use flashcliff::cuda::{self, LossScaling, driver_error, network};
use flashcliff::{Device, Dtype};
use flashcliff_network::cuda::{Course, Gpu, Lent, Memory, Moment};
use flashcliff_network::{Machine, Network, Plan, Rows, Value};

use super::buckets::Bucket;
use super::operations::Reports;
use super::planned::{Batch, Part};
use super::room::Room;
use crate::Error;
use crate::op::gpu::library;
use crate::op::gpu::memory::{View, misplaced, with_views, writable};
use crate::op::graphs::Graphs;
use crate::op::node;
use crate::optim::LossScale;
use crate::precision;

/// A plan with its memory on a GPU.
#[derive(Debug)]
pub(super) struct OnGpu {
    device: CudaDevice,
    library: Device,
    gpu: Gpu,
    memory: Memory,
    /// The error of all parts so far.
    loss: Tensor,
    /// The gradients of parameters: the outputs after the first one.
    sums: Vec<CudaStorage>,
    /// The gradients of parameters for one part of a batch, if there are several.
    shares: Vec<CudaStorage>,
}

/// A function that is called with memory that is complete, and its number of elements.
pub(super) type Ready<'a> = dyn FnMut(&[(&View<'_>, usize)]) -> Result<(), Error> + 'a;

/// An observer of the backward pass.
pub(super) struct Watch<'a> {
    /// The buckets of gradients, in the order of the pass.
    pub(super) buckets: &'a [Bucket],
    pub(super) ready: &'a mut Ready<'a>,
}

impl OnGpu {
    /// Takes the memory of a plan, if the device has room for it. The types are the types of the features and of the
    /// model.
    pub(super) fn new(
        (network, outputs): (&Network, &[Value]),
        (batch, rows): (Batch<'_>, Rows),
        device: &CudaDevice,
        types: [Dtype; 2],
    ) -> Result<(Self, Room), Error> {
        let library = library::device(device)?;
        let precision = precision::of_operators();
        let gpu = Gpu::new(network, &[outputs], rows, types, &library, precision)?;
        let [packed, workspaces] = [gpu.packed_bytes(0), gpu.workspace_bytes(0)];
        let room = Room::of(gpu.plan(), batch).on_gpu(packed, workspaces);
        room.check(batch.name, &candle_core::Device::Cuda(device.clone()))?;
        let memory = gpu.allocate(0, &device.cuda_stream())?;
        let dtype = match types[1] {
            Dtype::F64 => DType::F64,
            _ => DType::F32,
        };
        let zeros = || -> Result<Vec<CudaStorage>, Error> {
            let gradients = gpu.plan().outputs()[1..].iter();
            let lens = gradients.map(|&value| len(gpu.plan(), value).max(1));
            lens.map(|len| Ok(device.zeros_impl(&len.into(), dtype)?))
                .collect()
        };
        let sums = zeros()?;
        let shares = if batch.parts > 1 {
            zeros()?
        } else {
            Vec::new()
        };
        let loss = Storage::Cuda(device.zeros_impl(&1.into(), dtype)?);
        let own = Self {
            device: device.clone(),
            library,
            loss: node::constant(loss, &[]),
            sums,
            shares,
            gpu,
            memory,
        };
        Ok((own, room))
    }

    /// The plan.
    pub(super) fn plan(&self) -> &Plan {
        self.gpu.plan()
    }

    /// The page of the plan, with times of a machine if there is one.
    pub(super) fn page(&self, machine: Option<&Machine>) -> Result<String, Error> {
        Ok(self.gpu.page(&self.gpu.kernels(None)?, machine)?)
    }

    /// The sum of the errors of the parts so far.
    pub(super) fn loss(&self) -> &Tensor {
        &self.loss
    }

    /// An output: the gradient of a parameter.
    pub(super) fn output(&self, output: usize) -> Option<&CudaStorage> {
        self.sums.get(output.checked_sub(1)?)
    }

    /// Launches the error of a batch, part by part, and its gradients. Buckets of them are complete in the last part.
    /// Gradients are multiplied by the scale of the loss.
    pub(super) fn run(
        &mut self,
        (parameters, graphs): (&[Tensor], Option<&Graphs>),
        parts: &[(Part, Vec<Tensor>)],
        loss_scale: Option<&LossScale>,
        reports: Reports<'_>,
        mut watch: Option<Watch<'_>>,
    ) -> Result<(), Error> {
        let (stream, ordinal) = (self.device.cuda_stream(), self.library.ordinal());
        let relations = graphs.map(|own| own.addresses(ordinal, &stream));
        let relations = relations.transpose()?.unwrap_or_default();
        // Marks of a timeline lie between calls on one line.
        let forks = reports.0.is_none() && is_captured(&self.device.cuda_stream())?;
        with_views(parameters, |parameters| {
            for (at, (part, batch)) in parts.iter().enumerate() {
                let watch = watch.take_if(|_| at + 1 == parts.len());
                let scale = loss_scale.map(|scale| scale.tensor().clone());
                let ends: Vec<Tensor> = [self.loss.clone()].into_iter().chain(scale).collect();
                with_views(batch, |batch| {
                    with_views(&ends, |ends| {
                        let given = [parameters, batch, ends];
                        self.run_part((given, &relations), *part, forks, reports, watch)
                    })
                })?;
            }
            Ok(())
        })
    }

    /// Launches a part from the parameters, the batch, and the error with the scale of the loss.
    fn run_part(
        &mut self,
        ([parameters, batch, ends], relations): ([&[View<'_>]; 3], &[Addresses]),
        part: Part,
        forks: bool,
        reports: Reports<'_>,
        mut watch: Option<Watch<'_>>,
    ) -> Result<(), Error> {
        let Self {
            device,
            library,
            gpu,
            memory,
            sums,
            shares,
            ..
        } = self;
        let stream = device.cuda_stream();
        let network = gpu.plan().network();
        let inputs = tensors(gpu.plan(), batch, network.inputs())?;
        let parameters = tensors(gpu.plan(), parameters, network.parameters())?;
        let lens: Vec<usize> = gpu
            .plan()
            .outputs()
            .iter()
            .map(|&value| len(gpu.plan(), value))
            .collect();
        let places = if part.adds { &shares[..] } else { &sums[..] };
        let outputs = addresses(&ends[0], places, &stream)?;
        let loss_scale = ends.get(1).map(|own| own.tensor(&[LossScaling::NUMBERS]));
        let lent = Lent {
            inputs: &inputs,
            parameters: &parameters,
            outputs: &outputs,
            kept: 0,
            error_scale: part.scale,
            adds_error: part.adds,
            loss_scale: loss_scale.transpose()?,
            sequences: None,
            draw: None,
            relations,
        };
        let buckets = watch.as_ref().map_or(&[][..], |watch| watch.buckets);
        let stops: Vec<usize> = buckets.iter().map(|bucket| bucket.call).collect();
        let course = Course {
            forks,
            stops: &stops,
        };
        let add = |sums: &mut [CudaStorage], outputs: &[usize]| -> Result<(), Error> {
            for &output in outputs.iter().filter(|_| part.adds) {
                let len = lens[output];
                let mut sum = writable(&mut sums[output - 1], len)?;
                let share = View::of(&shares[output - 1], 0..len);
                let share = share.ok_or_else(|| misplaced("objective"))?;
                network::accumulate(library, &stream, sum.tensor(&[len])?, share.tensor(&[len])?)?;
            }
            Ok(())
        };
        let mut hear = |moment| -> Result<(), Error> {
            match (moment, &mut watch) {
                (Moment::Call(call), _) => reports.call(call),
                (Moment::End, _) => reports.call(usize::MAX),
                (Moment::Stop(number), Some(watch)) => {
                    let bucket = &watch.buckets[number];
                    add(sums, &bucket.outputs)?;
                    let is_last = number + 1 == watch.buckets.len();
                    let loss = is_last.then_some(&ends[0]);
                    tell(watch, bucket, (sums, &lens), loss)?;
                }
                (Moment::Stop(_), None) => {}
            }
            Ok(())
        };
        #[allow(
            unsafe_code,
            reason = "candle lends the memory of a tensor for reading only"
        )]
        // SAFETY: the error is alive and locked for reading, so its memory stays; gradients are memory of this
        // objective, which stays where it is. All work on both is launched on this stream, so the plan comes after
        // earlier work and before later work.
        unsafe {
            gpu.run(memory, &stream, lent, course, &mut hear)?;
        }
        match watch {
            None => add(sums, &(1..lens.len()).collect::<Vec<_>>()),
            Some(_) => Ok(()),
        }
    }
}

/// Tells the observer of a complete bucket, and with the last bucket of the error.
fn tell(
    watch: &mut Watch<'_>,
    bucket: &Bucket,
    (sums, lens): (&[CudaStorage], &[usize]),
    loss: Option<&View<'_>>,
) -> Result<(), Error> {
    let mut views = Vec::with_capacity(bucket.outputs.len());
    for &output in &bucket.outputs {
        let view = View::of(&sums[output - 1], 0..lens[output]);
        views.push((view.ok_or_else(|| misplaced("objective"))?, lens[output]));
    }
    let gradients = views.iter().map(|(view, len)| (view, *len));
    let all: Vec<_> = gradients.chain(loss.map(|view| (view, 1))).collect();
    (watch.ready)(&all)
}

/// Elements of candle as tensors of some values.
fn tensors<'a>(
    plan: &Plan,
    views: &'a [View<'a>],
    values: &[Value],
) -> Result<Vec<cuda::Tensor<'a>>, Error> {
    let network = plan.network();
    let pairs = views.iter().zip(values);
    let tensors = pairs.map(|(view, &value)| {
        let axes = network.shape(value).unwrap_or_default().iter();
        let shape: Vec<usize> = axes.map(|axis| axis.size(plan.batch())).collect();
        view.tensor(&shape)
    });
    tensors.collect()
}

/// The addresses of the error and of gradients.
fn addresses(
    loss: &View<'_>,
    gradients: &[CudaStorage],
    stream: &CudaStream,
) -> Result<Vec<CUdeviceptr>, Error> {
    let mut all = vec![loss.address(stream)];
    for storage in gradients {
        let view = View::of(storage, 0..1).ok_or_else(|| misplaced("objective"))?;
        all.push(view.address(stream));
    }
    Ok(all)
}

fn len(plan: &Plan, value: Value) -> usize {
    plan.tensor(value)
        .map_or(0, |(shape, _)| shape.iter().product())
}

/// Whether what is launched on a stream now becomes a graph.
fn is_captured(stream: &CudaStream) -> Result<bool, Error> {
    let status = stream.capture_status();
    let status = status.map_err(driver_error("cuStreamIsCapturing"))?;
    Ok(status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE)
}
