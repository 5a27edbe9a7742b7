//! Networks on GPUs.

#[path = "relations.rs"]
mod relations;
#[path = "weights.rs"]
mod weights;

use std::ffi::c_void;
use std::sync::Arc;

use flashcliff::Dtype;
use flashcliff::cuda::cudarc::driver::CudaStream;
use flashcliff::cuda::{Device, MatmulPrecision, Tensor, driver_error};
use flashcliff::host_memory::Span;
use flashcliff_network::cuda::{Gpu, Lent, Replays, Sequences};
use flashcliff_network::{Machine, Plan, Value};

use super::super::tensors::{Given, Gradients, Tensors, check_memory_of_many};
use super::super::wanted::Wanted;
use super::{CudaNetworkCall, CudaNetworkSizes, Request};
use crate::operator::{F32, F64, no_dtype};
use crate::status::Failure;
pub(in super::super) use relations::OnGpus;
use weights::Weights;

/// The names of both stages in messages.
const NAMES: [&str; 2] = ["fc_cuda_network_run", "fc_cuda_network_backward"];

/// The multiples at which tensors begin, and the memory that is lent besides.
const OF_TENSORS: usize = 16;
const OF_MEMORY: usize = 256;

/// A network on a GPU: a plan of two stages, since their memory is the caller's.
pub(super) struct Planned {
    replays: Replays,
    gpu: Gpu,
    device: Device,
    weights: Weights,
    tensors: Tensors,
    wanted: Wanted,
}

impl Planned {
    pub(super) fn new(request: &Request<'_>) -> Result<Self, Failure> {
        let network = request.network;
        let dtype = match request.dtype {
            F32 => Dtype::F32,
            F64 => Dtype::F64,
            other => return Err(no_dtype(other)),
        };
        let (ordinal, tf32) = request.target;
        let precision = match tf32 {
            true => MatmulPrecision::Tf32,
            false => MatmulPrecision::Highest,
        };
        let device = Device::cuda(ordinal)?;
        let (graph, outputs) = (network.stored.network(), network.stored.outputs());
        let values: Vec<Value> = outputs.iter().map(|&(_, value)| value).collect();
        let none = || vec![false; graph.inputs().len() + graph.parameters().len()];
        let wanted = request.wanted.clone().unwrap_or_else(none);
        let own = graph.differentiated(&values, &wanted);
        let own = own.map_err(Failure::network)?;
        let (stages, types) = (own.stages(), [dtype; 2]);
        let gpu = Gpu::new(
            own.network(),
            &stages,
            request.rows,
            types,
            &device,
            precision,
        );
        let gpu = gpu.map_err(Failure::network)?;
        let tensors = Tensors::new(&network.stored, gpu.plan());
        let mut all = tensors.inputs.iter().chain(&tensors.outputs);
        if let Some(empty) = all.find(|tensor| tensor.len == 0) {
            let name = &empty.name;
            return Err(Failure::Argument(format!(
                "{name}: expected some elements on a GPU, got a batch without any"
            )));
        }
        let weights = match dtype {
            Dtype::F64 => Weights::new(&device, &network.parameters(&network.wide)?),
            _ => Weights::new(&device, &network.parameters(&network.narrow)?),
        };
        Ok(Self {
            wanted: Wanted::new(gpu.plan(), outputs, &wanted),
            weights: weights?,
            tensors,
            device,
            replays: Replays::default(),
            gpu,
        })
    }

    pub(super) fn sizes(&self) -> CudaNetworkSizes {
        CudaNetworkSizes {
            kept_bytes: self.plan().kept_bytes(),
            run_workspace_bytes: self.gpu.memory_bytes(0),
            backward_workspace_bytes: self.gpu.memory_bytes(1),
        }
    }

    pub(super) fn explain(&self, machine: Option<&Machine>) -> Result<String, Failure> {
        let page = match machine {
            Some(machine) => self.gpu.explain_on(machine),
            None => self.gpu.explain(),
        };
        page.map_err(Failure::network)
    }

    /// # Safety
    /// The contract of `fc_cuda_network_run` holds.
    pub(super) unsafe fn run(
        &self,
        call: &CudaNetworkCall,
        given: &Given<'_>,
    ) -> Result<(), Failure> {
        self.tensors.check(given)?;
        let spans = self.tensors.spans(NAMES[0], given, (self.size(), true));
        check_memory_of_many(NAMES[0], spans.chain(self.memory(0, call)))?;
        let outputs = given.outputs.iter().map(|start| start.addr() as u64);
        // SAFETY: the caller promises it.
        unsafe { self.launch(0, call, given, &[], &outputs.collect::<Vec<_>>()) }
    }

    /// # Safety
    /// The contract of `fc_cuda_network_backward` holds.
    pub(super) unsafe fn backward(
        &self,
        call: &CudaNetworkCall,
        given: &Given<'_>,
        gradients: &Gradients<'_>,
    ) -> Result<(), Failure> {
        self.tensors.check(given)?;
        self.wanted.check(gradients)?;
        let spans = self.tensors.spans(NAMES[1], given, (self.size(), false));
        let spans = spans
            .chain(self.wanted.spans(NAMES[1], gradients, self.size()))
            .chain(self.memory(1, call));
        check_memory_of_many(NAMES[1], spans)?;
        let outputs = given.outputs.iter().map(|start| start.addr() as u64);
        let numbers = self.wanted.numbers.iter();
        let grads = numbers.map(|&at| gradients.grads[at].addr() as u64);
        let outputs: Vec<u64> = outputs.chain(grads).collect();
        // SAFETY: the caller promises it.
        unsafe { self.launch(1, call, given, gradients.outputs, &outputs) }
    }

    fn plan(&self) -> &Plan {
        self.gpu.plan()
    }

    /// The bytes of an element.
    fn size(&self) -> usize {
        self.plan().types()[0].bytes()
    }

    /// The memory that is lent besides tensors.
    fn memory<'a>(
        &self,
        stage: usize,
        call: &'a CudaNetworkCall,
    ) -> impl Iterator<Item = Result<Span<'a>, flashcliff::Error>> + use<'a> {
        let parts = [
            ("kept", call.kept, self.plan().kept_bytes(), stage == 0),
            (
                "workspace",
                call.workspace,
                self.gpu.memory_bytes(stage),
                true,
            ),
        ];
        // Whole multiples, which the memory itself need not be.
        parts.into_iter().map(move |(what, start, bytes, written)| {
            let count = bytes.div_ceil(OF_MEMORY);
            Span::new(
                NAMES[stage],
                what,
                [start.addr(), count, OF_MEMORY],
                written,
            )
        })
    }

    /// Launches a stage.
    ///
    /// # Safety
    /// The contract of the pass holds; `seeds` are the gradients of outputs, and `outputs` the addresses of outputs
    /// and then of the gradients that are wanted.
    unsafe fn launch(
        &self,
        stage: usize,
        call: &CudaNetworkCall,
        given: &Given<'_>,
        seeds: &[*const c_void],
        outputs: &[u64],
    ) -> Result<(), Failure> {
        let lent_bytes = [
            ("kept", self.plan().kept_bytes(), call.kept_bytes),
            (
                "workspace",
                self.gpu.memory_bytes(stage),
                call.workspace_bytes,
            ),
        ];
        if let Some((what, expected, got)) = lent_bytes.iter().find(|own| own.2 < own.1) {
            return Err(Failure::Argument(format!(
                "{what}: expected {expected} bytes, got {got}"
            )));
        }
        let network = self.plan().network();
        let inputs = given.inputs.iter().chain(seeds);
        let read = inputs.clone().chain(given.parameters);
        let read = read.map(|start| start.addr());
        let written = outputs.iter().map(|&address| address as usize);
        check_alignment(NAMES[stage], read.chain(written))?;
        let inputs = inputs.map(|start| start.addr() as u64);
        // SAFETY: the caller promises it.
        let inputs = unsafe { self.views(network.inputs(), inputs)? };
        let own: Vec<u64> = match given.parameters {
            [] => self.weights.addresses.clone(),
            own => own.iter().map(|start| start.addr() as u64).collect(),
        };
        // SAFETY: the caller promises it of the parameters that it gives, and the parameters of the file are there.
        let parameters = unsafe { self.views(network.parameters(), own.into_iter())? };
        let devices = [call.device_offsets, call.device_context_offsets];
        if let Some(offsets) = given.offsets {
            let mut pairs = offsets.iter().zip(devices);
            if pairs.any(|(own, device)| !own.is_empty() && device.is_null()) {
                return Err(Failure::null("device_offsets"));
            }
        }
        let relations = relations::addresses_of(given.relations, &self.device)?;
        let lent = Lent {
            inputs: &inputs,
            parameters: &parameters,
            outputs,
            kept: call.kept.addr() as u64,
            error_scale: 1.0,
            adds_error: false,
            loss_scale: None,
            sequences: given.offsets.map(|offsets| {
                [0, 1].map(|at| Sequences {
                    bounds: offsets[at],
                    address: devices[at].addr() as u64,
                })
            }),
            relations: &relations,
            draw: None,
        };
        let context = self.device.context();
        let bound = context.bind_to_thread();
        bound.map_err(driver_error("cuCtxSetCurrent"))?;
        // SAFETY: the caller promises a stream of the context; the wrapper is dropped with this call, and the memory is there.
        let done = unsafe {
            let stream: Arc<CudaStream> = context.wrap_borrowed_stream(call.stream.cast());
            let place = (stage, call.workspace.addr() as u64);
            self.gpu.run_again(&self.replays, place, &stream, lent)
        };
        done.map_err(Failure::network)
    }

    /// Tensors at addresses, with the shapes of the plan.
    ///
    /// # Safety
    /// At the addresses there are the elements of the values.
    unsafe fn views<'a>(
        &self,
        values: &[Value],
        addresses: impl Iterator<Item = u64>,
    ) -> Result<Vec<Tensor<'a>>, Failure> {
        let ordinal = self.device.ordinal();
        let views = values.iter().zip(addresses).map(|(&value, address)| {
            let (shape, dtype) = match self.plan().tensor(value) {
                Some((shape, dtype)) => (shape, dtype),
                None => (&[][..], self.plan().types()[0]),
            };
            // SAFETY: the caller promises it. No call reads a value that the plan does not have.
            unsafe { Tensor::from_raw(address, dtype, shape, ordinal) }
        });
        Ok(views.collect::<Result<_, _>>()?)
    }
}

/// Checks that tensors begin at multiples that kernels read by.
fn check_alignment(call: &str, mut addresses: impl Iterator<Item = usize>) -> Result<(), Failure> {
    match addresses.find(|address| !address.is_multiple_of(OF_TENSORS)) {
        None => Ok(()),
        Some(address) => Err(Failure::Argument(format!(
            "{call}: expected tensors at multiples of {OF_TENSORS} bytes, got the address {address:#x}"
        ))),
    }
}
