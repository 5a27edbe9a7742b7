//! The work of one task: the stages of a program on the rows of its chunks.

use std::ops::Range;

use super::ahead::askers;
use super::bound::{Bound, Kind, Rest, RowSums};
use super::layout::{Layout, width_of_cut};
use super::place::{Place, Row};
use super::{Call, Operand, Parameter};
use crate::Element;
use crate::few::Few;
use flashcliff_kernels::program::{Slot, StageCall};
use flashcliff_program::ir::Width;

/// The stages for which a task has its own room. Few plans have more.
const OWN_STAGES: usize = 9;

/// The stages of a program, in order.
enum Stages<'a, T, const N: usize> {
    Own(Few<Bound<'a, T, N>, OWN_STAGES>),
    Many(Vec<Bound<'a, T, N>>),
}

impl<'a, T: Copy, const N: usize> Stages<'a, T, N> {
    /// The stages of a call that compute what somebody wants.
    fn of(call: &'a Call<'a, T>, bind: impl Fn((usize, &'a StageCall)) -> Bound<'a, T, N>) -> Self {
        let all = call.plan.stages.iter().enumerate();
        let all = all.filter(|(_, stage)| call.wants(stage));
        match call.plan.stages {
            [first, ..] if call.plan.stages.len() <= OWN_STAGES => {
                Self::Own(Few::of(bind((0, first)), all.map(&bind)))
            }
            _ => Self::Many(all.map(bind).collect()),
        }
    }

    /// All of them. A row goes over a plain slice: an iterator over optional stages takes some hundredths of a short row.
    fn all(&mut self) -> &mut [Bound<'a, T, N>] {
        match self {
            Self::Own(stages) => stages,
            Self::Many(stages) => stages,
        }
    }
}

/// A task: the bound stages of a program that has at most `N` of anything, with scratch memory.
pub(super) struct Task<'a, T, const N: usize> {
    call: &'a Call<'a, T>,
    layout: &'a Layout,
    stages: Stages<'a, T, N>,
    sums: RowSums<T>,
    /// The places of the inputs: in memory, or in scratch memory if rows are ragged.
    inputs: [Place<T>; N],
    /// The places of the outputs: in scratch memory if they are staged or unwanted, else in memory.
    outputs: [Place<T>; N],
    /// What stages of the channels share, and stages of the scalar channels.
    rest: [Rest<T>; 2],
}

impl<'a, T: Element, const N: usize> Task<'a, T, N> {
    /// `params` are the parameters as stages read them; `partial` takes the sums over the batch of the chunk.
    pub(super) fn new(
        call: &'a Call<'a, T>,
        layout: &'a Layout,
        scratch: &mut [T],
        params: *mut T,
        partial: &mut [T],
    ) -> Self {
        partial.fill(T::default());
        if layout.is_ragged() {
            // The padding of inputs must be finite. Nothing writes it later.
            scratch.fill(T::default());
        }
        let mut next = scratch.as_mut_ptr();
        let mut take = |len: usize| {
            let part = next;
            next = next.wrapping_add(len);
            part
        };
        let mut cuts = [Place::NONE; N];
        for (cut, (place, &components)) in cuts.iter_mut().zip(call.plan.cuts).enumerate() {
            let rows = layout.rows(width_of_cut(call.plan, cut));
            *place = Place::scratch(take(rows.private_len(components)), rows.planar_stride);
        }
        let mut inputs = [Place::NONE; N];
        for (place, operand) in inputs.iter_mut().zip(call.inputs) {
            let rows = layout.rows(operand.width);
            *place = match rows.ragged {
                true => {
                    let stride = rows.input_stride;
                    Place::scratch(take(operand.components * stride), stride)
                }
                false => Place::memory(operand),
            };
        }
        let mut outputs = [Place::NONE; N];
        for (place, operand) in outputs.iter_mut().zip(call.outputs) {
            let rows = layout.rows(operand.width);
            let stride = rows.output_stride;
            *place = match layout.stages(operand.width) || operand.is_unwanted() {
                true => Place::waiting(take(operand.components * stride), stride, rows.padded),
                false => Place::memory(operand),
            };
        }
        let params: [Place<T>; N] = parameters(params, call.params, layout);
        let partial: [Place<T>; N] = parameters(partial.as_mut_ptr(), call.sums, layout);
        let askers: [Option<usize>; N] = askers(call.plan.stages, call.inputs);
        let bind = |(number, stage): (usize, &'a StageCall)| {
            let source = |slot: &Slot| match *slot {
                Slot::External(index) if askers[index].unwrap_or(number) == number => inputs[index],
                Slot::External(index) => inputs[index].here(),
                Slot::Cut(index) => cuts[index],
            };
            let target = |slot: &Slot| match *slot {
                Slot::External(index) => outputs[index],
                Slot::Cut(index) => cuts[index],
            };
            Bound::new(stage, call.tier)
                .list(Kind::Inputs, stage.inputs.iter().map(source))
                .list(Kind::Outputs, stage.outputs.iter().map(target))
                .list(Kind::Params, stage.params.iter().map(|&p| params[p]))
                .list(Kind::Sums, stage.sums.iter().map(|&sum| partial[sum]))
        };
        Self {
            call,
            layout,
            stages: Stages::of(call, bind),
            sums: RowSums::new(),
            inputs,
            outputs,
            rest: Width::ALL.map(|width| Rest {
                groups: layout.rows(width).padded / T::lanes(call.tier),
                channels: layout.rows(width).channels,
                gate: call.gate,
                eps: T::from_f64(call.eps),
                inv_channels: T::from_f64(1.0 / (call.channels[0] / layout.beside) as f64),
                counts: call
                    .channels
                    .map(|count| T::from_f64((count / layout.beside) as f64)),
            }),
        }
    }

    /// Works on some rows, at most as many as the layout lets wait for their outputs.
    ///
    /// # Safety
    /// The contract of [`run`](super::run) holds, and nothing else works on the rows.
    pub(super) unsafe fn rows(&mut self, rows: Range<usize>) {
        for (waiting, index) in rows.clone().enumerate() {
            // SAFETY: the caller promises it.
            unsafe { self.row(Row { index, waiting }) };
        }
        // SAFETY: the caller promises it.
        unsafe { self.write(rows) };
    }

    /// # Safety
    /// The contract of [`Self::rows`] holds.
    unsafe fn row(&mut self, row: Row) {
        let (call, plan) = (self.call, self.call.plan);
        if self.layout.is_ragged() {
            // SAFETY: the caller promises it.
            unsafe { self.bring(row) };
        }
        let saved = |sum: usize| call.saved.wrapping_add(sum * call.saved_stride + row.index);
        for (index, sum) in self.sums.all[..plan.saved_row_sums].iter_mut().enumerate() {
            // SAFETY: the caller promises it.
            *sum = unsafe { *saved(index) };
        }
        let values = self.sums.all[plan.row_sums..].iter_mut();
        for (number, value) in values.zip(call.row_values) {
            // SAFETY: the caller promises it.
            *number = unsafe { *value.ptr.add(row.index) };
        }
        for stage in self.stages.all() {
            // SAFETY: the caller promises it, and every place holds whole vectors. The tier was checked when the
            // operator was made.
            unsafe { stage.run(row, &mut self.sums, &self.rest) };
        }
        if plan.saved_row_sums == 0 && !call.saved.is_null() {
            for (index, &sum) in self.sums.all[..plan.row_sums].iter().enumerate() {
                // SAFETY: the caller promises it.
                unsafe { *saved(index) = sum };
            }
        }
        let parts = &self.sums.all[plan.row_sums + call.row_values.len()..];
        for (total, parts) in call.totals.iter().zip(parts.chunks_exact(2)) {
            if !total.ptr.is_null() {
                // SAFETY: the caller promises it. A part that no stage computes is zero.
                unsafe {
                    let total = total.ptr.add(row.index);
                    *total = parts[0];
                    *total += parts[1];
                }
            }
        }
    }

    /// Copies ragged inputs to whole vectors.
    ///
    /// # Safety
    /// The contract of [`Self::rows`] holds.
    unsafe fn bring(&self, row: Row) {
        let inputs = self.inputs.iter().zip(self.call.inputs);
        for (place, operand) in inputs.filter(|(_, o)| self.layout.rows(o.width).ragged) {
            let (from, to) = (Place::memory(operand).lanes(row), place.lanes(row));
            for k in 0..operand.components {
                // SAFETY: the rows of the operand and of the scratch memory hold the channels.
                unsafe {
                    let (from, to) = (from.at(k, 0), to.at(k, 0));
                    from.copy_to_nonoverlapping(to, self.layout.rows(operand.width).channels);
                }
            }
        }
    }

    /// Writes the waiting outputs, component by component.
    ///
    /// # Safety
    /// The contract of [`Self::rows`] holds.
    unsafe fn write(&self, rows: Range<usize>) {
        let outputs = self.outputs.iter().zip(self.call.outputs);
        let waits = |(_, operand): &(&Place<T>, &Operand<T>)| {
            !operand.is_unwanted() && self.layout.stages(operand.width)
        };
        for (place, operand) in outputs.filter(waits) {
            let to = Place::memory(operand);
            let own = self.layout.rows(operand.width);
            // Rows that are contiguous on both sides are copied as one run.
            let run = match operand.row_stride == own.padded {
                true => rows.len(),
                false => 1,
            };
            for k in 0..operand.components {
                for (waiting, index) in rows.clone().enumerate().step_by(run) {
                    let row = Row { index, waiting };
                    let (from, to) = (place.lanes(row), to.lanes(row));
                    // SAFETY: the scratch memory and the operand hold the rows.
                    unsafe {
                        let (from, to) = (from.at(k, 0), to.at(k, 0));
                        self.layout.writer.copy(from, to, run * own.channels);
                    }
                }
            }
        }
    }
}

/// The places of parameters in scratch memory, one after the other.
fn parameters<T, const N: usize>(
    ptr: *mut T,
    params: &[Parameter<T>],
    layout: &Layout,
) -> [Place<T>; N] {
    let mut places = [Place::NONE; N];
    let mut next = ptr;
    for (place, param) in places.iter_mut().zip(params) {
        let rows = layout.rows(param.width);
        *place = Place::scratch(next, rows.planar_stride);
        next = next.wrapping_add(rows.private_len(param.count));
    }
    places
}
