//! Rows side by side, for programs that know no rows.
//!
//! A program without sums over a row computes each lane by itself. So rows that follow each other in memory may be
//! one row of as many lanes, with the parameters over and over. Channels that fill no whole vectors then need no
//! copies to whole vectors, and short rows cost less for each call of a stage.

use super::{Call, MAX_TENSORS, Operand};
use crate::Element;
use crate::few::Few;

/// The lanes that a row should have at least: fewer are soon done, beside what a stage does for each row.
const ENOUGH_LANES: usize = 64;
/// The same for interpreted stages, which do more for each row.
const ENOUGH_INTERPRETED: usize = 256;
/// The most lanes of rows side by side, whose scratch memory stays in the first cache.
const MOST_LANES: usize = 512;

/// Rows of a call that are computed side by side.
pub(super) struct Beside<T> {
    /// How many rows are one.
    pub(super) count: usize,
    inputs: Few<Operand<T>, MAX_TENSORS>,
    outputs: Few<Operand<T>, MAX_TENSORS>,
}

impl<T: Element> Beside<T> {
    /// The rows of a call that may be side by side; `None` if none are.
    pub(super) fn of(call: &Call<'_, T>) -> Option<Self> {
        let count = count(call);
        if count == 1 {
            return None;
        }
        let wider = |own: &Operand<T>| Operand {
            row_stride: own.row_stride * count,
            ..*own
        };
        Some(Self::each(call, count, wider))
    }

    fn each(call: &Call<'_, T>, count: usize, of: impl Fn(&Operand<T>) -> Operand<T>) -> Self {
        let none = Operand::contiguous(std::ptr::null_mut(), 0, 0, 0);
        Self {
            count,
            inputs: Few::of(none, call.inputs.iter().map(&of)),
            outputs: Few::of(none, call.outputs.iter().map(&of)),
        }
    }

    /// The call on all rows that have their number beside them.
    pub(super) fn rows<'a>(&'a self, call: &Call<'a, T>) -> Call<'a, T> {
        Call {
            batch: call.batch / self.count,
            channels: call.channels.map(|channels| channels * self.count),
            ..self.call(call)
        }
    }

    /// The other rows, one by one; `None` if there are none.
    pub(super) fn rest(&self, call: &Call<'_, T>) -> Option<Self> {
        let others = call.batch % self.count;
        let first = call.batch - others;
        let later = |own: &Operand<T>| match own.is_unwanted() {
            true => *own,
            false => Operand {
                ptr: own.ptr.wrapping_add(first * own.row_stride),
                ..*own
            },
        };
        (others > 0).then(|| Self::each(call, others, later))
    }

    /// The call on these tensors, for the rows that are not beside others.
    pub(super) fn call<'a>(&'a self, call: &Call<'a, T>) -> Call<'a, T> {
        Call {
            inputs: &self.inputs,
            outputs: &self.outputs,
            batch: self.count,
            ..*call
        }
    }
}

/// How many rows of a call are one row; 1 where a row knows that it is one, or tensors have gaps.
fn count<T: Element>(call: &Call<'_, T>) -> usize {
    let plan = call.plan;
    let sums = plan.row_sums + plan.saved_row_sums;
    let is_empty = call.channels == [0, 0];
    if is_empty || sums > 0 || !call.row_values.is_empty() || !call.totals.is_empty() {
        return 1;
    }
    let mut tensors = call.inputs.iter().chain(call.outputs);
    if !tensors.all(|own| own.row_stride == call.channels[own.width.index()]) {
        return 1;
    }
    let (lanes, [channels, scalars]) = (T::lanes(call.tier), call.channels);
    let width = if channels > 0 { channels } else { scalars };
    let whole = lanes / gcd(width, lanes);
    // Sums over the batch have the bits of compiled stages: each lane has a sum first.
    let enough = match plan.is_interpreted() && call.sums.is_empty() {
        true => ENOUGH_INTERPRETED,
        false => ENOUGH_LANES,
    };
    let enough = enough.div_ceil(width * whole);
    let count = whole * enough.min(call.batch / whole);
    let is_short = width.max(scalars) * count <= MOST_LANES;
    if is_short { count.max(1) } else { 1 }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
