//! The state of Adam in device memory: one allocation with four parts.

use std::mem::{offset_of, size_of};
use std::ops::Range;

use flashcliff_sys as sys;

use crate::Error;

/// The records of adaptive clipping that count.
const RECORDS: usize = sys::FC_CLIP_RECORDS as usize;

/// The alignment of the parts.
const ALIGNMENT: usize = 256;

/// Where the parts lie.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    slots: usize,
    pub(super) steps: usize,
    pub(super) coefficients: usize,
    pub(super) sums: usize,
    pub(super) bytes: usize,
}

/// The counts of steps so far.
#[derive(Clone, Debug, PartialEq)]
pub struct AdamState {
    /// The learning rate before the schedule.
    pub learning_rate: f64,
    /// The learning rate of the last step.
    pub rate: f64,
    /// The norm of all gradients in the last step, without the scale of the loss.
    pub norm: f64,
    /// The factor of clipping in the last step.
    pub clip: f64,
    /// The steps that were asked for.
    pub calls: u64,
    /// The number of steps that were refused.
    pub refused: u64,
    /// The first of these, counted from 0 among the steps that were asked for.
    pub first_refused: Option<u64>,
    /// The steps that each parameter has done.
    pub steps: Vec<u32>,
    /// The records of adaptive clipping, the oldest first.
    pub clip_records: Vec<f64>,
}

impl Layout {
    /// The bytes of the learning rate.
    pub(super) const LEARNING_RATE: Range<usize> = {
        let at = offset_of!(sys::fc_adam_state, learning_rate);
        at..at + size_of::<f64>()
    };

    pub(super) fn of(counts: &[usize]) -> Self {
        let slots = counts.len();
        let steps = size_of::<sys::fc_adam_state>().next_multiple_of(ALIGNMENT);
        let coefficients = (steps + slots * size_of::<u32>()).next_multiple_of(ALIGNMENT);
        let own = slots * size_of::<sys::fc_adam_coefficients>();
        let sums = (coefficients + own).next_multiple_of(ALIGNMENT);
        let block = sys::FC_ADAM_BLOCK as usize;
        let ctas: usize = counts.iter().map(|count| count.div_ceil(block)).sum();
        Self {
            slots,
            steps,
            coefficients,
            sums,
            bytes: sums + ctas.max(1) * size_of::<f64>(),
        }
    }

    pub(super) fn encode(
        &self,
        learning_rate: f64,
        steps: &[u32],
        clip_records: &[f64],
    ) -> Result<Vec<u8>, Error> {
        self.check("steps", self.slots, steps.len())?;
        let mut bytes = vec![0; self.bytes];
        bytes[Self::LEARNING_RATE].copy_from_slice(&learning_rate.to_ne_bytes());
        let none = offset_of!(sys::fc_adam_state, refused_at);
        bytes[none..none + 8].copy_from_slice(&(-1_i64).to_ne_bytes());
        // Older records than the last ones count no more.
        let last = clip_records.len().saturating_sub(RECORDS);
        let last = &clip_records[last..];
        let recorded = offset_of!(sys::fc_adam_state, recorded);
        bytes[recorded..recorded + 8].copy_from_slice(&(last.len() as i64).to_ne_bytes());
        let records = offset_of!(sys::fc_adam_state, records);
        for (own, record) in bytes[records..].chunks_exact_mut(8).zip(last) {
            own.copy_from_slice(&record.to_ne_bytes());
        }
        let own = bytes[self.steps..].chunks_exact_mut(size_of::<u32>());
        for (own, step) in own.zip(&steps[..self.slots]) {
            own.copy_from_slice(&step.to_ne_bytes());
        }
        Ok(bytes)
    }

    pub(super) fn decode(&self, bytes: &[u8]) -> Result<AdamState, Error> {
        self.check("state", self.coefficients, bytes.len())?;
        let word = |at: usize| -> [u8; 8] { std::array::from_fn(|byte| bytes[at + byte]) };
        let number = |at| f64::from_ne_bytes(word(at));
        let count = |at| i64::from_ne_bytes(word(at));
        let steps = bytes[self.steps..].chunks_exact(4).take(self.slots);
        let steps = steps.map(|own| u32::from_ne_bytes([own[0], own[1], own[2], own[3]]));
        let recorded = usize::try_from(count(offset_of!(sys::fc_adam_state, recorded)));
        let recorded = recorded.unwrap_or(0);
        let records = offset_of!(sys::fc_adam_state, records);
        let record = |at: usize| number(records + at % RECORDS * size_of::<f64>());
        let clip_records = (recorded.saturating_sub(RECORDS)..recorded).map(record);
        Ok(AdamState {
            clip_records: clip_records.collect(),
            learning_rate: number(offset_of!(sys::fc_adam_state, learning_rate)),
            rate: number(offset_of!(sys::fc_adam_state, rate)),
            norm: number(offset_of!(sys::fc_adam_state, norm)),
            clip: number(offset_of!(sys::fc_adam_state, clip)),
            calls: count(offset_of!(sys::fc_adam_state, calls)) as u64,
            refused: count(offset_of!(sys::fc_adam_state, refused)) as u64,
            first_refused: u64::try_from(count(offset_of!(sys::fc_adam_state, refused_at))).ok(),
            steps: steps.collect(),
        })
    }

    fn check(&self, buffer: &'static str, expected: usize, got: usize) -> Result<(), Error> {
        if got >= expected {
            return Ok(());
        }
        Err(Error::BufferTooSmall {
            operator: super::launch::NAME.to_owned(),
            buffer,
            expected,
            got,
        })
    }
}
