//! Layers, networks and training steps beside floors.
//!
//! Bytes and arithmetic are those of the operations of a run, which [`flashcliff_candle::timeline`] records; the floor is an addition for each.
//! Before anything is timed, results are compared with those of the same parameters in f64 on the CPU: outputs and gradients of layers,
//! predictions of networks, and for training steps losses, gradients and changed parameters, through candle's graph there.
//!
//! * `cases` - what is measured, and at which sizes.
//! * `layers`, `rotors` - the layers and the functions of rotors, and what they read.
//! * `work` - a case with its tensors, which can run.
//! * `check` - the comparison with f64; `tolerance` the differences that rounding explains.
//! * `memory` - the bytes that must be held, and the peak.
//! * `meter` - how a device measures: the CPU, and with the feature `cuda` a GPU.

mod cases;
mod check;
mod layers;
mod memory;
mod meter;
mod rotors;
mod tolerance;
mod work;

use std::collections::HashMap;
use std::sync::Arc;

use candle_core::Device;
use flashcliff_bench::machine::Rates;
use flashcliff_bench::measure::{Effort, Repeat};
use flashcliff_bench::report::{Counts, Memory, NetworkRow, Row};
use flashcliff_candle::timeline::Operation;

use super::suite::Suite;
use crate::error::Error;

pub(super) use cases::{NetworkCase, NetworkSelection, layer_names, network_names};
pub(super) use meter::{Host, Meter};
use work::Work;

/// Layers, networks and training steps on a device.
pub(super) struct Networks<'a> {
    meter: Box<dyn Meter + 'a>,
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

/// The operations of a run. Functions that a GPU composes of candle's operations have those of the CPU: one call each.
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

/// A case whose results were found right.
pub(super) struct Subject {
    case: NetworkCase,
    facts: Facts,
}

impl<'a> Networks<'a> {
    pub(super) fn new(meter: Box<dyn Meter + 'a>) -> Self {
        Self {
            meter,
            known: HashMap::new(),
        }
    }
}

impl Suite for Networks<'_> {
    type Case = NetworkCase;
    type Subject = Subject;
    type Facts = Facts;

    fn name(case: &NetworkCase) -> String {
        case.name()
    }

    fn sweeps(&self) -> usize {
        self.meter.sweeps()
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
                let mut work = Work::new(case, self.meter.device())?;
                let difference = check::check(case, &mut work, self.meter.device())?;
                let operations = operations(case, &mut work, self.meter.device())?;
                let parameters = work.parameters().element_count();
                drop(work);
                let counted = memory::counted(case, &operations, parameters);
                let facts = Facts {
                    memory: self.meter.memory(case, counted)?,
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
        // Every repeat has memory of its own.
        let mut work = Work::new(&subject.case, self.meter.device())?;
        let operations = &subject.facts.operations;
        let (repeat, reason) = self
            .meter
            .repeat(&subject.case, operations, effort, &mut || work.run())?;
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
