//! A stage, ready to run.

use super::place::{Place, Row};
use crate::Gate;
use crate::{Element, Tier};
use flashcliff_kernels::program::StageCall;
use flashcliff_kernels::stage::{Lanes, StageArgs, StageFn};
use flashcliff_program::plan::Limits;

/// The largest number of tensors and parameters of a stage.
pub(super) const MAX_SLOTS: usize = Limits::CPU.slots;
/// The largest number of row sums of a pass.
pub(super) const MAX_ROW_SUMS: usize = Limits::CPU.row_sums;

/// The four lists of tensors and parameters of a stage.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Inputs,
    Outputs,
    Params,
    ParamGrads,
}

/// The arguments that all stages of a call share.
pub(super) struct Rest<T> {
    pub(super) groups: usize,
    pub(super) channels: usize,
    pub(super) gate: Gate,
    pub(super) eps: T,
    pub(super) inv_channels: T,
}

/// A stage with the places of its tensors, list after list. It is made once a task and runs on many rows, so `run` has
/// little left to do.
#[derive(Clone, Copy)]
pub(super) struct Bound<'a, T> {
    call: &'a StageCall,
    function: StageFn<T>,
    places: [Place<T>; MAX_SLOTS],
    lanes: [Lanes<T>; MAX_SLOTS],
    /// The end of each list in `places`.
    ends: [usize; 4],
}

impl<'a, T: Element> Bound<'a, T> {
    pub(super) fn new(call: &'a StageCall, tier: Tier) -> Self {
        Self {
            call,
            function: match T::tiers(call.stage).get(tier) {
                Some(function) => function,
                // Operators ask for a program that runs on their tier: `Algebra::runnable`.
                None => unreachable!("a stage that was not compiled for {tier}"),
            },
            places: [Place::NONE; MAX_SLOTS],
            lanes: [Lanes::NONE; MAX_SLOTS],
            ends: [0; 4],
        }
    }

    /// Fills the next list. The lists must be filled in the order of [`Kind`].
    pub(super) fn list(mut self, kind: Kind, places: impl Iterator<Item = Place<T>>) -> Self {
        let mut end = self.ends[kind as usize];
        for place in places {
            self.places[end] = place;
            end += 1;
        }
        self.ends[kind as usize..].fill(end);
        self
    }

    /// Runs the stage on a row. `sums` has the row sums of the stages before it, and takes those of this stage.
    ///
    /// # Safety
    /// All places hold the row; the CPU supports the tier.
    #[inline]
    pub(super) unsafe fn run(&mut self, row: Row, sums: &mut [T; MAX_ROW_SUMS], rest: &Rest<T>) {
        let [inputs, outputs, params, param_grads] = self.ends;
        for slot in 0..param_grads {
            self.lanes[slot] = self.places[slot].lanes(row);
        }
        let mut rows = [T::default(); MAX_ROW_SUMS];
        for (index, &slot) in self.call.rows.iter().enumerate() {
            rows[index] = sums[slot];
        }
        let mut new_sums = [T::default(); MAX_ROW_SUMS];
        let mut args = StageArgs {
            inputs: &self.lanes[..inputs],
            outputs: &self.lanes[inputs..outputs],
            params: &self.lanes[outputs..params],
            param_grads: &self.lanes[params..param_grads],
            rows: &rows,
            sums: &mut new_sums,
            groups: rest.groups,
            channels: rest.channels,
            gate: rest.gate,
            eps: rest.eps,
            inv_channels: rest.inv_channels,
            code: self.call.stage.code,
        };
        // SAFETY: the caller promises it.
        unsafe { (self.function)(&mut args) };
        for (index, &slot) in self.call.row_sums.iter().enumerate() {
            sums[slot] = new_sums[index];
        }
    }
}
