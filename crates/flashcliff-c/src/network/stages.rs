//! The memory of a plan whose gradients come later.

use std::ffi::c_void;

use flashcliff::host_memory::Span;
use flashcliff::memory;
use flashcliff_network::{Error, Kept, Number, Plan, Room, Scales, Value};

use super::tensors::{Gradients, Lent, Place, Read, Tensor, check_count, spans};
use crate::status::Failure;

/// The memory of a plan of two stages: the outputs, and gradients.
pub(super) struct Stages<T> {
    kept: Vec<T>,
    arena: Vec<T>,
    workspace: Vec<T>,
    /// Whether a run has left what gradients need.
    has_run: bool,
    /// The gradients of the outputs.
    of_outputs: Vec<Tensor>,
    /// The gradients that are wanted, and their numbers among those of all inputs and parameters.
    of_wanted: Vec<Tensor>,
    wanted: Vec<usize>,
    count: usize,
}

impl<T: Number> Stages<T> {
    /// Takes the memory. `wanted` says for each input and each parameter whether there is a gradient.
    pub(super) fn new(
        plan: &Plan,
        outputs: &[(String, Value)],
        wanted: &[bool],
    ) -> Result<Self, Failure> {
        let rooms = [0, 1].map(|stage| plan.room::<T>(stage));
        let (kept, arena) = (rooms[0][0], rooms[0][1].max(rooms[1][1]));
        let bytes = (kept as u128 + arena as u128) * size_of::<T>() as u128;
        memory::check("the memory of a plan", bytes, |_| {
            "make the batch smaller".to_owned()
        })?;
        let network = plan.network();
        // The gradients of outputs are the last inputs of the network.
        let count = wanted.len();
        let ends = network.inputs().len() - outputs.len();
        let names = network.inputs()[..ends].iter().chain(network.parameters());
        let names: Vec<&str> = names.map(|&value| network.name(value)).collect();
        let wanted: Vec<usize> = (0..count).filter(|&at| wanted[at]).collect();
        let gradient =
            |name: &str, value: Value| Tensor::new(plan, &format!("the gradient of {name}"), value);
        let seeds = outputs.iter().zip(&network.inputs()[ends..]);
        let results = wanted.iter().zip(&plan.outputs()[outputs.len()..]);
        Ok(Self {
            kept: vec![T::default(); kept],
            arena: vec![T::default(); arena],
            workspace: Vec::new(),
            has_run: false,
            of_outputs: seeds
                .map(|((name, _), &value)| gradient(name, value))
                .collect(),
            of_wanted: results
                .map(|(&at, &value)| gradient(names[at], value))
                .collect(),
            wanted,
            count,
        })
    }

    /// Checks that there is a run before, and that there are the gradients that were planned.
    pub(super) fn check(&self, gradients: &Gradients<'_>) -> Result<(), Failure> {
        if !self.has_run {
            return Err(Failure::Argument(
                "runner: expected a run before its gradients, got none".to_owned(),
            ));
        }
        let (outputs, grads) = (gradients.outputs, gradients.grads);
        check_count("gradients of outputs", self.of_outputs.len(), outputs.len())?;
        check_count(
            "gradients of inputs and parameters",
            self.count,
            grads.len(),
        )?;
        let mut others = (0..self.count).filter(|at| !self.wanted.contains(at));
        match others.find(|&at| !grads[at].is_null()) {
            None => Ok(()),
            Some(at) => Err(Failure::Argument(format!(
                "gradient {at}: expected NULL, because the runner was planned without it, got an address"
            ))),
        }
    }

    /// The memory of gradients.
    pub(super) fn spans<'a>(
        &'a self,
        call: &'a str,
        gradients: &'a Gradients<'_>,
    ) -> impl Iterator<Item = Result<Span<'a>, flashcliff::Error>> + Clone {
        let size = size_of::<T>();
        let outputs = gradients.outputs.iter().map(|start| start.addr());
        let grads = self.wanted.iter().map(|&at| gradients.grads[at].addr());
        let outputs = spans(call, &self.of_outputs, outputs, (size, false));
        outputs.chain(spans(call, &self.of_wanted, grads, (size, true)))
    }

    /// Runs the first stage.
    pub(super) fn run(
        &mut self,
        plan: &Plan,
        lent: &Lent<'_, T>,
        places: &mut [Place<T>],
        scales: Scales<'_>,
    ) -> Result<(), Error> {
        self.has_run = false;
        self.make_room(plan, 0);
        let mut outputs: Vec<&mut [T]> = places.iter_mut().map(AsMut::as_mut).collect();
        let room = Room {
            kept: Kept::Written(&mut self.kept),
            arena: &mut self.arena,
            workspace: &mut self.workspace,
        };
        plan.run_stage(0, lent, (&mut outputs, room), scales, &mut |_| {})?;
        self.has_run = true;
        Ok(())
    }

    /// Runs the second stage.
    pub(super) fn backward(
        &mut self,
        plan: &Plan,
        lent: Lent<'_, T>,
        gradients: &Gradients<'_>,
        scales: Scales<'_>,
    ) -> Result<(), Error> {
        self.make_room(plan, 1);
        let [inputs, _] = lent.inputs;
        let lent = Lent {
            inputs: [inputs, Read(&self.of_outputs, gradients.outputs)],
            ..lent
        };
        let starts = self.wanted.iter().map(|&at| gradients.grads[at]);
        let places = self.of_wanted.iter().zip(starts);
        let mut places: Vec<Place<T>> = places
            .map(|(tensor, start): (_, *mut c_void)| Place {
                start: start.cast(),
                len: tensor.len,
            })
            .collect();
        let mut outputs: Vec<&mut [T]> = places.iter_mut().map(AsMut::as_mut).collect();
        let room = Room {
            kept: Kept::Read(&self.kept),
            arena: &mut self.arena,
            workspace: &mut self.workspace,
        };
        plan.run_stage(1, &lent, (&mut outputs, room), scales, &mut |_| {})
    }

    /// Makes room for the workspace of a stage, which grows with the threads.
    fn make_room(&mut self, plan: &Plan, stage: usize) {
        let [_, _, workspace] = plan.room::<T>(stage);
        if self.workspace.len() < workspace {
            self.workspace.resize(workspace, T::default());
        }
    }
}
