//! A network as a node on a GPU.
//!
//! All memory is allocated through candle's device, in the order of its stream, on which everything is launched:
//! nothing waits, nothing is copied to the host.

use std::iter;
use std::sync::Arc;

use candle_core::{CudaDevice, CudaStorage, Device, Storage, Tensor};
use flashcliff::Dtype;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use flashcliff::cuda::{self, MatmulPrecision};
use flashcliff_network::cuda::{Course, Draw, Gpu, Lent, Moment, Sequences};
use flashcliff_network::{Network, Rows, Value};

use super::OnGpu;
use super::library::{self, core_dtype};
use super::memory::{self, View, misplaced, with_views};
use super::operator::{dtype, tensors};
use crate::layers::transformer::Sequences as Ragged;
use crate::op::network::{Key, NetworkFunction, Staged};
use crate::op::node::{self, Argument, Backward};
use crate::op::once::{self, Gradient};
use crate::{Error, explain, precision};

/// The key of a plan on a GPU.
#[derive(Debug, PartialEq)]
pub(in crate::op) struct Place {
    key: Key,
    ordinal: usize,
    precision: MatmulPrecision,
}

impl OnGpu for NetworkFunction {
    fn apply_on_gpu(self: &Arc<Self>, arguments: &[Argument]) -> Result<Tensor, Error> {
        let (inputs, shapes) = node::lay_out(arguments)?;
        let Some(Device::Cuda(device)) = inputs.first().map(Tensor::device) else {
            return Err(misplaced(self.shared.name));
        };
        let device = device.clone();
        let all: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let rows = self.rows(&all)?;
        let staged = self.staged(rows, &inputs, &device)?;
        let call = Call {
            function: self.clone(),
            shape: self.result_shape(rows),
            seed: self.result_in_network(rows),
            kept: memory::allocate_bytes(&device, staged.plan.plan().kept_bytes())?,
            staged,
            device,
            shapes: self.seen_by_network(rows),
        };
        let output = call.forward(&inputs)?.swap_remove(0);
        let shape = call.shape.clone();
        node::record(inputs, Storage::Cuda(output), shape, call)
    }
}

impl NetworkFunction {
    /// Computes the results of a network of gradients.
    pub(in crate::op) fn results_on_gpu(
        &self,
        rows: Rows,
        arguments: &[Tensor],
        device: &CudaDevice,
    ) -> Result<Vec<Storage>, Error> {
        let staged = self.staged(rows, arguments, device)?;
        let call = Call {
            function: Arc::new(self.clone()),
            kept: memory::allocate_bytes(device, staged.plan.plan().kept_bytes())?,
            staged,
            device: device.clone(),
            shapes: self.seen_by_network(rows),
            shape: Vec::new(),
            seed: Vec::new(),
        };
        let made = call.forward(arguments)?;
        Ok(made.into_iter().map(Storage::Cuda).collect())
    }

    /// The plan for some inputs.
    fn staged(
        &self,
        rows: Rows,
        inputs: &[Tensor],
        device: &CudaDevice,
    ) -> Result<Arc<Staged<Gpu>>, Error> {
        let own = library::device(device)?;
        let is_gradient = self.shared.is_gradient;
        let place = Place {
            key: Key {
                rows,
                types: self.types(inputs)?,
                wanted: inputs
                    .iter()
                    .map(|own| own.track_op() && !is_gradient)
                    .collect(),
            },
            ordinal: own.ordinal(),
            precision: precision::of_operators(),
        };
        let staged = self.shared.on_gpu.get(place, |place| {
            let Place { key, precision, .. } = place;
            let plan = |network: &Network, stages: &[&[Value]]| {
                Gpu::new(network, stages, key.rows, key.types, &own, *precision)
            };
            if is_gradient {
                let gpu = plan(&self.shared.network, &self.alone())?;
                return Ok(Staged::new(gpu, &key.wanted, &[]));
            }
            let halves = self.halves(&key.wanted)?;
            let gpu = plan(halves.network(), &halves.stages())?;
            Ok::<_, Error>(Staged::new(gpu, &key.wanted, halves.found()))
        })?;
        self.check_types(inputs, &staged.plan)?;
        Ok(staged)
    }

    /// The types of the features and of the model: that of the first input, and that of the first parameter.
    fn types(&self, inputs: &[Tensor]) -> Result<[Dtype; 2], Error> {
        let all: Result<Vec<Dtype>, Error> = inputs
            .iter()
            .enumerate()
            .map(|(at, input)| dtype(self.shared.name, at, input))
            .collect();
        let all = all?;
        let features = all.first().copied().unwrap_or(Dtype::F32);
        let model = all.get(self.input_count()).copied().unwrap_or(features);
        Ok([features, model])
    }

    /// Checks that inputs have the types of the plan.
    fn check_types(&self, inputs: &[Tensor], gpu: &Gpu) -> Result<(), Error> {
        let network = gpu.plan().network();
        let (own, _) = network.inputs().split_at(self.input_count());
        let values = own.iter().chain(network.parameters());
        for (at, (&value, input)) in values.zip(inputs).enumerate() {
            let expected = gpu.plan().tensor(value).map(|(_, dtype)| dtype);
            if expected.is_some_and(|own| core_dtype(input.dtype()) != Some(own)) {
                return Err(Error::InputType {
                    operator: self.shared.name.to_owned(),
                    input: at,
                    expected: "the type of the parameters, or that of input 0 for features",
                    got: input.dtype(),
                });
            }
        }
        Ok(())
    }
}

/// A forward pass, with the values that its gradients read.
struct Call {
    function: Arc<NetworkFunction>,
    staged: Arc<Staged<Gpu>>,
    device: CudaDevice,
    kept: CudaSlice<u8>,
    /// The shapes in which the network sees its inputs.
    shapes: Vec<Vec<usize>>,
    /// The shape of the result.
    shape: Vec<usize>,
    /// The shape in which the network sees the gradient of the result.
    seed: Vec<usize>,
}

impl Call {
    fn gpu(&self) -> &Gpu {
        &self.staged.plan
    }

    /// The results of the first stage.
    fn forward(&self, inputs: &[Tensor]) -> Result<Vec<CudaStorage>, Error> {
        let count = self.function.shared.outputs.len();
        let outputs: Result<Vec<CudaStorage>, Error> =
            (0..count).map(|at| self.output(at)).collect();
        let outputs = outputs?;
        let stream = self.device.cuda_stream();
        let addresses: Result<Vec<CUdeviceptr>, Error> =
            outputs.iter().map(|own| address(own, &stream)).collect();
        with_views(inputs, |views| {
            let all = tensors(views, &self.shapes)?;
            let ends = all.split_at(self.function.input_count());
            self.launch(0, &stream, ends, &addresses?)
        })?;
        Ok(outputs)
    }

    /// Memory for an output of the plan.
    fn output(&self, output: usize) -> Result<CudaStorage, Error> {
        let plan = self.gpu().plan();
        let (shape, dtype) = plan
            .tensor(plan.outputs()[output])
            .ok_or_else(|| misplaced(self.name()))?;
        memory::allocate(&self.device, dtype, shape.iter().product())
    }

    /// The bounds of sequences on the device: of items, and of their context.
    fn bounds(&self) -> Result<Vec<(&Ragged, Tensor)>, Error> {
        let around = self.function.around.as_ref();
        let Some((items, context)) = around.and_then(|own| own.sequences.as_ref()) else {
            return Ok(Vec::new());
        };
        let device = Device::Cuda(self.device.clone());
        let all = iter::once(items).chain(context);
        let bounds = all.map(|own| Ok((own, own.bounds(&device)?)));
        bounds.collect()
    }

    /// Launches a stage with inputs and parameters, and the addresses of outputs up to its last one.
    fn launch(
        &self,
        stage: usize,
        stream: &Arc<CudaStream>,
        (inputs, parameters): (&[cuda::Tensor<'_>], &[cuda::Tensor<'_>]),
        outputs: &[CUdeviceptr],
    ) -> Result<(), Error> {
        let gpu = self.gpu();
        let mut memory = gpu.allocate(stage, stream)?;
        let around = self.function.around.as_ref();
        // The tensors of both live as long as the work on them is launched.
        let bounds = self.bounds()?;
        let mut sequences = [Sequences::default(); 2];
        for (to, (own, bounds)) in sequences.iter_mut().zip(&bounds) {
            *to = Sequences {
                bounds: own.offsets(),
                address: memory::indices(bounds, stream, self.name())?,
            };
        }
        let sequences = (!bounds.is_empty()).then_some(sequences);
        let draw = match around.and_then(|own| own.draw.as_ref()) {
            Some(draw) => Some(Draw {
                key: draw.key(),
                step: memory::indices(draw.step(), stream, self.name())?,
            }),
            None => None,
        };
        let relations = match around.and_then(|own| own.graphs.as_ref()) {
            Some(graphs) => {
                graphs.addresses(self.device.cuda_stream().context().ordinal(), stream)?
            }
            None => Vec::new(),
        };
        let lent = Lent {
            inputs,
            parameters,
            outputs,
            kept: self.kept.device_ptr(stream).0,
            error_scale: 1.0,
            adds_error: false,
            loss_scale: None,
            sequences,
            draw,
            relations: &relations,
        };
        let course = Course {
            forks: false,
            stops: &[],
        };
        explain::add(self.function.shared.name, |machine| {
            Ok(gpu.page(&gpu.kernels(sequences)?, machine)?)
        })?;
        self.function
            .reporting((&self.staged, gpu.plan()), stage, |report| {
                let mut hear = |moment| -> Result<(), Error> {
                    if let Moment::Call(call) = moment {
                        report(call);
                    }
                    Ok(())
                };
                #[allow(
                    unsafe_code,
                    reason = "candle lends the memory of a tensor for reading only"
                )]
                // SAFETY: outputs are memory of this call, or of a tensor that is alive and locked, with the elements
                // and the type of the plan; what is kept is as long as the plan says, and the first stage comes
                // before the second. All work on them is launched on this stream.
                unsafe {
                    gpu.run(&mut memory, stream, lent, course, &mut hear)
                }
            })
    }
}

impl Backward for Call {
    fn name(&self) -> &str {
        self.function.shared.name
    }

    fn gradients(
        &self,
        inputs: &[Tensor],
        tracked: &[usize],
        output: &Tensor,
        grad_output: &Tensor,
    ) -> candle_core::Result<Vec<Option<Gradient>>> {
        let ends = [output.contiguous()?, grad_output.contiguous()?];
        let stream = self.device.cuda_stream();
        let found = &self.staged.found;
        let count = found.iter().filter(|found| **found).count();
        let made: Result<Vec<CudaStorage>, Error> = (1..=count).map(|at| self.output(at)).collect();
        let made = made?;
        with_views(inputs, |views| {
            with_views(&ends, |ends| {
                let seed = ends[1].tensor(&self.seed)?;
                let mut all = tensors(views, &self.shapes)?;
                all.insert(self.function.input_count(), seed);
                let mut outputs = vec![ends[0].address(&stream)];
                for gradient in &made {
                    outputs.push(address(gradient, &stream)?);
                }
                let given = all.split_at(self.function.input_count() + 1);
                self.launch(1, &stream, given, &outputs)
            })
        })?;
        let made: Vec<Storage> = made.into_iter().map(Storage::Cuda).collect();
        if !once::keeps_graph() {
            let by = tracked.iter().zip(found);
            let by = by.map(|(&at, &found)| (&inputs[at], found));
            return Gradient::among(made.into_iter().map(Gradient::Made), by);
        }
        let rows = self.gpu().plan().batch();
        let seed = Some(grad_output.clone());
        let again = self.function.again(rows, (inputs, tracked), &[seed])?;
        again.handed(made)
    }
}

fn address(storage: &CudaStorage, stream: &CudaStream) -> Result<CUdeviceptr, Error> {
    let view = View::of(storage, 0..1).ok_or_else(|| misplaced("flashcliff"))?;
    Ok(view.address(stream))
}
