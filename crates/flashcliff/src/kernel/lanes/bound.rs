//! A stage, ready to run.

use super::place::{Place, Row};
use crate::Element;
use crate::Gate;
use crate::simd::Tier;
use flashcliff_kernels::program::StageCall;
use flashcliff_kernels::stage::{Lanes, StageArgs, StageFn};

/// The most tensors and parameters of a stage: the operators have no stage of more, whatever the algebra.
pub(super) const MAX_SLOTS: usize = 12;
/// The most row sums of a pass: forward and backward, for each of the 9 grades of 8 dimensions.
pub(super) const MAX_ROW_SUMS: usize = 18;

/// What stands in the four lists of a stage.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Inputs,
    Outputs,
    Params,
    ParamGrads,
}

/// What all stages are told alike.
pub(super) struct Rest<T> {
    pub(super) groups: usize,
    pub(super) channels: usize,
    pub(super) gate: Gate,
    pub(super) eps: T,
    pub(super) inv_channels: T,
}

/// A stage and the places of its tensors, list after list. It runs on very many rows, so little is
/// left to do for each.
pub(super) struct Bound<'a, T> {
    call: &'a StageCall,
    function: StageFn<T>,
    places: [Place<T>; MAX_SLOTS],
    lanes: [Lanes<T>; MAX_SLOTS],
    /// Where the lists end.
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

    /// Fills the next list; they come in order.
    pub(super) fn list(mut self, kind: Kind, places: impl Iterator<Item = Place<T>>) -> Self {
        let mut end = self.ends[kind as usize];
        for place in places {
            self.places[end] = place;
            end += 1;
        }
        self.ends[kind as usize..].fill(end);
        self
    }

    /// Runs the stage on a row, given its sums so far.
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
        // SAFETY: the caller's.
        unsafe { (self.function)(&mut args) };
        for (index, &slot) in self.call.row_sums.iter().enumerate() {
            sums[slot] = new_sums[index];
        }
    }
}
