//! Adaptive clipping: the largest norm follows the norms of the last steps.

use std::collections::VecDeque;

/// The records that count.
const RECORDS: usize = 50;
/// The record before the first step.
const FIRST: f64 = 1e5;
/// The factor of the mean of the records.
const MEAN: f64 = 1.5;
/// The factor of their standard deviation.
const DEVIATION: f64 = 2.0;

/// The records of the last steps, the oldest first. A GPU does the same operations in the same order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Records(VecDeque<f64>);

impl Records {
    /// The records that a run left.
    pub(super) fn of(records: &[f64]) -> Self {
        let last = records.len().saturating_sub(RECORDS);
        Self(records[last..].iter().copied().collect())
    }

    /// The records, the oldest first.
    pub(super) fn to_vec(&self) -> Vec<f64> {
        self.0.iter().copied().collect()
    }

    /// The largest norm of the next step.
    pub(super) fn bound(&self) -> f64 {
        if self.0.is_empty() {
            return MEAN * FIRST;
        }
        let count = self.0.len() as f64;
        let mean = self.0.iter().sum::<f64>() / count;
        let squares = self.0.iter().map(|record| {
            let distance = record - mean;
            distance * distance
        });
        let deviation = (squares.sum::<f64>() / count).sqrt();
        MEAN * mean + DEVIATION * deviation
    }

    /// Notes the norm of a step that had a bound.
    pub(super) fn note(&mut self, norm: f64, bound: f64) {
        if self.0.is_empty() {
            self.0.push_back(FIRST);
        }
        if self.0.len() == RECORDS {
            self.0.pop_front();
        }
        self.0.push_back(norm.min(bound));
    }
}
