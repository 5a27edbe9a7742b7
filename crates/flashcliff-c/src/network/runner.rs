//! A plan with its memory, on tensors of the caller.

use std::ffi::c_void;
use std::sync::Arc;

use flashcliff_network::file::Stored;
use flashcliff_network::{Cpu, Number, Plan, Rows, Scales, Segments, Settled, Value};

use super::relation::segments_of;
use super::stages::Stages;
use super::tensors::{Given, Gradients, Place, Read, Tensors, check_memory, check_memory_of_many};
use crate::status::Failure;

/// The names of runs in messages.
const RUN: &str = "fc_network_run";
const BACKWARD: &str = "fc_network_backward";

/// A plan with its memory.
pub(super) struct Runner<T> {
    plan: Plan,
    memory: Memory<T>,
    parameters: Arc<Vec<Vec<T>>>,
    tensors: Tensors,
    /// The places of outputs, whose list is kept so that runs allocate nothing.
    places: Vec<Place<T>>,
    /// The relations of a call, whose list is kept, too.
    relations: Vec<Segments>,
}

/// The memory of a plan: of one stage, or of two where gradients were asked for.
enum Memory<T> {
    /// With the parameters of the file, once a run has read them.
    Whole(Cpu<T>, Option<Settled<T>>),
    Stages(Stages<T>),
}

impl<T: Number> Runner<T> {
    /// Plans a network. `wanted` says for each input and each parameter whether there are gradients.
    pub(super) fn new(
        stored: &Stored,
        rows: Rows,
        parameters: Arc<Vec<Vec<T>>>,
        wanted: Option<&[bool]>,
    ) -> Result<Self, Failure> {
        let (network, outputs) = (stored.network(), stored.outputs());
        let values: Vec<Value> = outputs.iter().map(|&(_, value)| value).collect();
        let types = [T::DTYPE; 2];
        let (plan, memory) = match wanted {
            None => {
                let plan = network.plan(&values, rows, types);
                let plan = plan.map_err(Failure::network)?;
                let memory = Cpu::new(&plan).map_err(Failure::network)?;
                (plan, Memory::Whole(memory, None))
            }
            Some(wanted) => {
                let own = network.differentiated(&values, wanted);
                let own = own.map_err(Failure::network)?;
                let plan = own.network().plan_stages(&own.stages(), rows, types);
                let plan = plan.map_err(Failure::network)?;
                let memory = Stages::new(&plan, outputs, wanted)?;
                (plan, Memory::Stages(memory))
            }
        };
        Ok(Self {
            tensors: Tensors::new(stored, &plan),
            places: Vec::with_capacity(values.len()),
            relations: Vec::with_capacity(network.relations().len()),
            memory,
            parameters,
            plan,
        })
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs the plan, and keeps what its gradients need.
    ///
    /// # Safety
    /// At each input, parameter and output there are the elements of the plan, of the type `T`. Nobody writes to
    /// inputs and parameters, and nobody else uses outputs, during the call.
    pub(super) unsafe fn run(&mut self, given: &Given<'_>) -> Result<(), Failure> {
        let tensors = &self.tensors;
        tensors.check(given)?;
        check_memory(RUN, tensors.spans(RUN, given, (size_of::<T>(), true)))?;
        self.places.clear();
        let outputs = tensors.outputs.iter().zip(given.outputs);
        self.places.extend(outputs.map(|(tensor, start)| Place {
            start: start.cast(),
            len: tensor.len,
        }));
        let lent = tensors.lent(given, &self.parameters);
        let (plan, places) = (&self.plan, &mut self.places);
        let scales = scales(given, &mut self.relations)?;
        let done = match &mut self.memory {
            // Parameters of the caller may change from run to run.
            Memory::Whole(memory, _) if !given.parameters.is_empty() => {
                memory.run(plan, &lent, places, scales, &mut |_| {})
            }
            Memory::Whole(memory, settled) => {
                let own = match settled {
                    Some(own) => own,
                    None => settled.insert(Settled::new(plan, &lent).map_err(Failure::network)?),
                };
                memory.run_settled(plan, own, &lent, places, scales, &mut |_| {})
            }
            Memory::Stages(memory) => memory.run(plan, &lent, places, scales),
        };
        done.map_err(Failure::network)
    }

    /// Writes gradients, from what the last run kept.
    ///
    /// # Safety
    /// The promises of [`Self::run`] hold, but that outputs have what the last run wrote, and nobody writes there. At
    /// each gradient there are the elements of what it is of, and nobody else uses those that are written, during the
    /// call.
    pub(super) unsafe fn backward(
        &mut self,
        given: &Given<'_>,
        gradients: &Gradients<'_>,
    ) -> Result<(), Failure> {
        let Memory::Stages(memory) = &mut self.memory else {
            return Err(Failure::Argument(
                "runner: expected one that was planned with gradients, got one without".to_owned(),
            ));
        };
        let (tensors, size) = (&self.tensors, size_of::<T>());
        tensors.check(given)?;
        memory.check(gradients)?;
        let spans = tensors.spans(BACKWARD, given, (size, false));
        let spans = spans.chain(memory.wanted.spans(BACKWARD, gradients, size));
        check_memory_of_many(BACKWARD, spans)?;
        let outputs = given.outputs.iter().map(|start| start.cast_const());
        let outputs: Vec<*const c_void> = outputs.collect();
        let mut lent = tensors.lent(given, &self.parameters);
        lent.outputs = Read(&tensors.outputs, &outputs);
        let scales = scales(given, &mut self.relations)?;
        let done = memory.backward(&self.plan, lent, gradients, scales);
        done.map_err(Failure::network)
    }
}

/// What a call has besides tensors, with a list of its relations.
fn scales<'a>(given: &Given<'a>, relations: &'a mut Vec<Segments>) -> Result<Scales<'a>, Failure> {
    relations.clear();
    for own in segments_of(given.relations) {
        relations.push(own?);
    }
    Ok(Scales {
        sequences: given.offsets,
        relations,
        ..Scales::default()
    })
}
