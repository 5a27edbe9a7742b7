//! Layers, networks and training steps beside floors.
//!
//! Bytes and arithmetic come from the operations of a run, which [`flashcliff_candle::timeline`] records; the floor is
//! an addition for each. Before anything is timed, results are compared with the results of the same parameters in f64
//! on the CPU: outputs and gradients of layers, predictions of networks, and for training steps losses, gradients and
//! changed parameters, through candle's graph there.
//!
//! * `cases` - what is measured, and at which sizes.
//! * `layers`, `rotors` - the layers and the functions of rotors, and what they read.
//! * `work` - a case with its tensors, which can run.
//! * `check` - the comparison with f64; `tolerance` the differences that rounding explains.
//! * `memory` - the bytes that must be held, and the peak.

mod cases;
mod check;
mod layers;
mod memory;
mod rotors;
mod tolerance;
mod work;

use std::collections::HashMap;
use std::sync::Arc;

use candle_core::Device;
use flashcliff_bench::Target;
use flashcliff_bench::machine::Rates;
use flashcliff_bench::measure::{Effort, Repeat};
use flashcliff_bench::report::{Counts, Memory, NetworkRow, Row};
use flashcliff_bench::work::Call;
use flashcliff_candle::timeline::Operation;

use super::suite::Suite;
use crate::error::Error;

pub(super) use cases::{NetworkCase, NetworkSelection, layer_names, network_names};
use work::Work;

/// Layers, networks and training steps on a device.
pub(super) struct Networks<'a, T> {
    device: &'a Device,
    target: &'a mut T,
    /// The facts of the cases that were checked. A check takes longer than a sweep.
    known: HashMap<String, Facts>,
}

/// What is known of a case without timing it.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    operations: Vec<Arc<Operation>>,
    difference: f64,
    memory: Memory,
    parameters: usize,
    not_captured: Option<String>,
}

/// The operations of a run. Functions that a GPU composes of candle's operations have the operations of the CPU: one
/// call each.
fn operations(
    case: &NetworkCase,
    work: &mut Work,
    device: &Device,
) -> Result<Vec<Arc<Operation>>, Error> {
    let own = match case.is_of_rotors() {
        true => Vec::new(),
        false => work.operations(device)?,
    };
    match own.is_empty() {
        true => Work::new(case, &Device::Cpu)?.operations(&Device::Cpu),
        false => Ok(own),
    }
}

/// An operation as one call. The last layer of a network of 16 bits is of f32.
fn call(operation: &Operation, case: &NetworkCase) -> Call {
    Call {
        bytes: operation.tensor_bytes,
        flops: operation.flops.unwrap_or(0),
        dtype: operation.dtype.unwrap_or(case.dtype),
        has_matrix_products: operation.has_matrix_products,
    }
}

/// Keeps candle's uploads of shapes for a capture.
#[cfg(feature = "cuda")]
fn keep_uploads(device: &Device) -> Option<impl Sized> {
    match device {
        Device::Cuda(device) => Some(device.enable_cuda_graph_htod_cache()),
        _ => None,
    }
}

#[cfg(not(feature = "cuda"))]
fn keep_uploads(_: &Device) -> Option<()> {
    None
}

/// A case whose results were found right.
pub(super) struct Subject {
    case: NetworkCase,
    facts: Facts,
}

impl<'a, T: Target> Networks<'a, T> {
    pub(super) fn new(device: &'a Device, target: &'a mut T) -> Self {
        Self {
            device,
            target,
            known: HashMap::new(),
        }
    }
}

impl<T: Target> Suite for Networks<'_, T> {
    type Case = NetworkCase;
    type Subject = Subject;
    type Facts = Facts;

    fn name(case: &NetworkCase) -> String {
        case.name()
    }

    fn sweeps(&self) -> usize {
        self.target.sweeps()
    }

    fn check_room(&self, _: &NetworkCase) -> Result<(), Error> {
        // Sizes are a few megabytes, and every operator checks its own room.
        Ok(())
    }

    fn subject(&mut self, _: Option<Subject>, case: &NetworkCase) -> Result<Subject, Error> {
        let name = case.name();
        let facts = match self.known.get(&name) {
            Some(facts) => facts.clone(),
            None => {
                let mut work = Work::new(case, self.device)?;
                let difference = check::check(case, &mut work, self.device)?;
                let operations = operations(case, &mut work, self.device)?;
                let parameters = work.parameters().element_count();
                drop(work);
                let counted = memory::counted(case, &operations, parameters);
                let facts = Facts {
                    memory: memory::measure(case, self.device, counted)?,
                    operations,
                    difference,
                    parameters,
                    not_captured: None,
                };
                self.known.insert(name, facts.clone());
                facts
            }
        };
        Ok(Subject {
            case: case.clone(),
            facts,
        })
    }

    fn facts(&self, subject: &Subject) -> Facts {
        subject.facts.clone()
    }

    fn bytes(facts: &Facts) -> usize {
        let bytes = |operation: &Arc<Operation>| operation.tensor_bytes;
        facts.operations.iter().map(bytes).sum()
    }

    fn repeat(&mut self, subject: &mut Subject, effort: Effort) -> Result<Repeat, Error> {
        // Every repeat has its own memory.
        let mut work = Work::new(&subject.case, self.device)?;
        let operations = subject.facts.operations.iter();
        let calls: Vec<Call> = operations.map(|own| call(own, &subject.case)).collect();
        let device = self.device;
        let (repeat, reason) = self.target.repeat(&calls, effort, || {
            let _kept = keep_uploads(device);
            work.run()
        })?;
        subject.facts.not_captured = reason;
        Ok(repeat)
    }

    fn row(case: &NetworkCase, facts: Facts, repeats: Vec<Repeat>, rates: &Rates) -> Row {
        let counts = Counts {
            bytes: Self::bytes(&facts),
            flops: facts.operations.iter().filter_map(|o| o.flops).sum(),
            difference: facts.difference,
        };
        let network = NetworkRow {
            name: case.subject_name().to_owned(),
            algebra: case.signature.name(),
            work: case.run.name().to_owned(),
            batch: case.batch,
            dtype: case.dtype.to_string(),
            parameters: facts.parameters,
            calls: facts.operations.len(),
            not_captured: facts.not_captured,
        };
        Row::of_network(case.name(), network, (counts, facts.memory), repeats, rates)
    }
}
