//! Runs of a plan on a GPU.

use std::sync::LazyLock;

use flashcliff::cuda::segments::Addresses;
use flashcliff::cuda::{MatmulPrecision, Tensor};
use flashcliff::{Device, Dtype};
use flashcliff_network::cuda::{Draw, Gpu, Lent, Replays, Sequences};
use flashcliff_network::{Error, Network, Plan, Rows, Value};

use super::plan::{Given, KEY, Planned, PySegments};
use crate::devices::Devices;

static DEVICES: LazyLock<Devices> = LazyLock::new(Devices::default);

/// A plan on a GPU.
pub(crate) struct OnGpu {
    replays: Replays,
    gpu: Gpu,
    device: Device,
}

impl OnGpu {
    pub(crate) fn new(
        network: &Network,
        stages: &[&[Value]],
        rows: Rows,
        types: [Dtype; 2],
        (ordinal, tf32): (usize, bool),
    ) -> Result<Self, Error> {
        let device = DEVICES.device(ordinal)?;
        let precision = match tf32 {
            true => MatmulPrecision::Tf32,
            false => MatmulPrecision::Highest,
        };
        let gpu = Gpu::new(network, stages, rows, types, &device, precision)?;
        Ok(Self {
            replays: Replays::default(),
            gpu,
            device,
        })
    }

    pub(super) fn plan(&self) -> &Plan {
        self.gpu.plan()
    }

    /// The page of the plan, with the names of kernels.
    pub(super) fn explain(&self) -> Result<String, Error> {
        self.gpu.explain()
    }

    /// The bytes of memory that each stage needs while it runs.
    pub(super) fn spaces(&self) -> [usize; 2] {
        [0, 1].map(|stage| self.gpu.memory_bytes(stage))
    }

    /// Launches a stage.
    ///
    /// # Safety
    /// The addresses in `given` belong to contiguous tensors on the device, aligned to 16 bytes, with the shapes
    /// of the plan; `kept` is aligned to 128, and `space` to 256. The stream belongs to the primary context of the
    /// device, and orders the uses of all memory.
    pub(crate) unsafe fn run(
        &self,
        planned: &Planned,
        stage: usize,
        given: &Given,
    ) -> Result<(), Error> {
        let (ordinal, dtype) = (self.device.ordinal(), self.plan().types()[1]);
        // SAFETY: the caller promises it.
        let tensor = |address: usize, shape: &[usize]| unsafe {
            Tensor::from_raw(address as u64, dtype, shape, ordinal)
        };
        let own = given.inputs.iter().enumerate();
        let inputs: Result<Vec<_>, _> = own
            .map(|(at, &own)| tensor(own, planned.input_shape(at)))
            .collect();
        let own = given.parameters.iter().enumerate();
        let parameters: Result<Vec<_>, _> = own
            .map(|(at, &own)| tensor(own, planned.parameter_shape(at)))
            .collect();
        let outputs: Vec<u64> = given.outputs.iter().map(|&own| own as u64).collect();
        let sequences = given.sequences.as_ref();
        let addresses = |&((target, starts, order), rows, targets): &PySegments| Addresses {
            target: target as u64,
            starts: starts as u64,
            order: order as u64,
            rows,
            targets,
        };
        let relations: Vec<Addresses> = given.relations.iter().map(addresses).collect();
        let lent = Lent {
            inputs: &inputs?,
            parameters: &parameters?,
            outputs: &outputs,
            kept: given.kept as u64,
            error_scale: 1.0,
            adds_error: false,
            loss_scale: None,
            sequences: sequences.map(|own| {
                own.each_ref().map(|(bounds, address)| Sequences {
                    bounds,
                    address: *address as u64,
                })
            }),
            relations: &relations,
            draw: given.draw.map(|step| Draw { key: KEY, step }),
        };
        let stream = std::ptr::with_exposed_provenance_mut(given.stream);
        // SAFETY: the caller promises it; the wrapper is dropped with this call.
        unsafe {
            let stream = self.device.context().wrap_borrowed_stream(stream);
            let place = (stage, given.space as u64);
            self.gpu.run_again(&self.replays, place, &stream, lent)
        }
    }
}
