//! A stage, ready to run.

use super::place::{Place, Row};
use crate::Gate;
use crate::{Element, Tier};
use flashcliff_kernels::program::StageCall;
use flashcliff_kernels::stage::{Lanes, StageArgs, StageFn};
use flashcliff_program::plan::Limits;

/// The largest number of numbers of a row.
const MAX_ROW_SUMS: usize = Limits::CPU.row_sums;

/// The four lists of tensors and parameters of a stage.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Inputs,
    Outputs,
    Params,
    Sums,
}

/// The arguments that all stages of the channels share, or all of the scalar channels.
pub(super) struct Rest<T> {
    pub(super) groups: usize,
    pub(super) channels: usize,
    pub(super) gate: Gate,
    pub(super) eps: T,
    pub(super) inv_channels: T,
    pub(super) counts: [T; 2],
}

/// The numbers of a row: row sums, row values and totals. They are memory of the task, which no row has to clear.
pub(super) struct RowSums<T> {
    /// All of them, by their numbers in the plan.
    pub(super) all: [T; MAX_ROW_SUMS],
    /// Those that a stage reads, by its slots.
    read: [T; MAX_ROW_SUMS],
    /// Those that a stage computes, by its slots.
    new: [T; MAX_ROW_SUMS],
}

impl<T: Element> RowSums<T> {
    pub(super) fn new() -> Self {
        let zeros = [T::default(); MAX_ROW_SUMS];
        Self {
            all: zeros,
            read: zeros,
            new: zeros,
        }
    }
}

/// A stage with the places of its tensors, at most `N`, list after list. It is made once a task and runs on many rows, so `run` has
/// little left to do.
#[derive(Clone, Copy)]
pub(super) struct Bound<'a, T, const N: usize> {
    call: &'a StageCall,
    function: StageFn<T>,
    places: [Place<T>; N],
    lanes: [Lanes<T>; N],
    /// The end of each list in `places`.
    ends: [usize; 4],
}

impl<'a, T: Element, const N: usize> Bound<'a, T, N> {
    pub(super) fn new(call: &'a StageCall, tier: Tier) -> Self {
        Self {
            call,
            function: match T::tiers(call.stage).get(tier) {
                Some(function) => function,
                // Operators ask for a program that runs on their tier: `Algebra::runnable`.
                None => unreachable!("a stage that was not compiled for {tier}"),
            },
            places: [Place::NONE; N],
            lanes: [Lanes::NONE; N],
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

    /// Runs the stage on a row. `sums` has the row sums of the stages before it, and takes the row sums of this stage.
    ///
    /// # Safety
    /// All places hold the row; the CPU supports the tier.
    #[inline]
    pub(super) unsafe fn run(&mut self, row: Row, sums: &mut RowSums<T>, rest: &[Rest<T>; 2]) {
        let rest = &rest[usize::from(self.call.is_of_scalars)];
        let [inputs, outputs, params, batch_sums] = self.ends;
        for slot in 0..batch_sums {
            self.lanes[slot] = self.places[slot].lanes(row);
        }
        let RowSums { all, read, new } = sums;
        for (value, &slot) in read.iter_mut().zip(self.call.rows) {
            *value = all[slot];
        }
        let mut args = StageArgs {
            inputs: &self.lanes[..inputs],
            outputs: &self.lanes[inputs..outputs],
            params: &self.lanes[outputs..params],
            sums: &self.lanes[params..batch_sums],
            rows: &read[..self.call.rows.len()],
            row_sums: &mut new[..self.call.row_sums.len()],
            groups: rest.groups,
            channels: rest.channels,
            gate: rest.gate,
            eps: rest.eps,
            inv_channels: rest.inv_channels,
            counts: rest.counts,
            code: self.call.stage.code,
        };
        // SAFETY: the caller promises it.
        unsafe { (self.function)(&mut args) };
        for (value, &slot) in new.iter().zip(self.call.row_sums) {
            all[slot] = *value;
        }
    }
}
