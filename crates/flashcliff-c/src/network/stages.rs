//! The memory of a plan whose gradients come later.

use std::ffi::c_void;

use flashcliff::memory;
use flashcliff_network::{Error, Kept, Number, Plan, Room, Scales, Value};

use super::tensors::{Gradients, Lent, Place, Read};
use super::wanted::Wanted;
use crate::status::Failure;

/// The memory of a plan of two stages: the outputs, and gradients.
pub(super) struct Stages<T> {
    kept: Vec<T>,
    arena: Vec<T>,
    workspace: Vec<T>,
    /// Whether a run has left what gradients need.
    has_run: bool,
    pub(super) wanted: Wanted,
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
        Ok(Self {
            kept: vec![T::default(); kept],
            arena: vec![T::default(); arena],
            workspace: Vec::new(),
            has_run: false,
            wanted: Wanted::new(plan, outputs, wanted),
        })
    }

    /// Checks that there is a run before, and that there are the gradients that were planned.
    pub(super) fn check(&self, gradients: &Gradients<'_>) -> Result<(), Failure> {
        if !self.has_run {
            return Err(Failure::Argument(
                "runner: expected a run before its gradients, got none".to_owned(),
            ));
        }
        self.wanted.check(gradients)
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
            inputs: [inputs, Read(&self.wanted.of_outputs, gradients.outputs)],
            ..lent
        };
        let starts = self.wanted.numbers.iter().map(|&at| gradients.grads[at]);
        let places = self.wanted.gradients.iter().zip(starts);
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
