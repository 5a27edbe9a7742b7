//! Time and memory of training steps, from those of their operations at some batches.
//!
//! A step is the list of its operations. Each was timed at some batches; between two of them its time follows the batch on a straight line, and
//! beyond the largest it goes on as between the last two. Batches grow by factors of two, so caches and threads bend the curve at a batch that was
//! measured, or near one.

use serde::{Deserialize, Serialize};

/// The operations of the training step of a network, with their times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRates {
    /// The task of the network, as `hulls`.
    pub task: String,
    /// The batches that were measured, ascending.
    pub batches: Vec<usize>,
    /// The most bytes that were held at once, for each batch.
    pub peak_bytes: Vec<f64>,
    /// The operations in the order of the step.
    pub operations: Vec<OperationTimes>,
}

/// The times of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationTimes {
    /// The operator.
    pub operator: String,
    /// The algebra; empty where there is none.
    pub algebra: String,
    /// `forward`, `backward`, or empty.
    pub phase: String,
    /// The shapes of the inputs at the largest batch.
    pub shapes: Vec<Vec<usize>>,
    /// Seconds for each batch.
    pub seconds: Vec<f64>,
}

/// The expected time and memory of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepPrediction {
    /// The task.
    pub task: String,
    /// The samples of the step.
    pub batch: usize,
    /// Seconds of the step.
    pub seconds: f64,
    /// Seconds of all forward passes.
    pub forward_seconds: f64,
    /// Seconds of all backward passes.
    pub backward_seconds: f64,
    /// Seconds of the optimiser, the choice of the samples and the rest.
    pub other_seconds: f64,
    /// The most bytes that are held at once: parameters, the state of the optimiser, data, values, gradients, workspaces.
    pub peak_bytes: f64,
}

/// The number that a batch gives, by numbers at batches that ascend.
fn at(batches: &[usize], numbers: &[f64], batch: usize) -> f64 {
    let Some(last) = batches.len().checked_sub(2) else {
        return numbers.first().copied().unwrap_or(0.0);
    };
    let above = batches.partition_point(|&known| known <= batch);
    let low = above.saturating_sub(1).min(last);
    let [from, to] = [low, low + 1].map(|place| batches[place] as f64);
    let slope = (numbers[low + 1] - numbers[low]) / (to - from);
    (numbers[low] + slope * (batch as f64 - from)).max(0.0)
}

impl StepRates {
    /// Whether every batch has a number of each kind, none of which means nothing.
    pub(crate) fn is_sound(&self) -> bool {
        let lists = self.operations.iter().map(|operation| &operation.seconds);
        let count = self.batches.len();
        let are_numbers = |list: &Vec<f64>| {
            list.len() == count
                && list
                    .iter()
                    .all(|number| number.is_finite() && *number >= 0.0)
        };
        let ascend = self.batches.windows(2).all(|pair| pair[0] < pair[1]);
        count > 1 && ascend && lists.chain([&self.peak_bytes]).all(are_numbers)
    }

    /// The expected time and memory of a step of so many samples.
    pub fn predict(&self, batch: usize) -> StepPrediction {
        let [mut forward, mut backward, mut other] = [0.0; 3];
        for operation in &self.operations {
            *match operation.phase.as_str() {
                "forward" => &mut forward,
                "backward" => &mut backward,
                _ => &mut other,
            } += at(&self.batches, &operation.seconds, batch);
        }
        StepPrediction {
            task: self.task.clone(),
            batch,
            seconds: forward + backward + other,
            forward_seconds: forward,
            backward_seconds: backward,
            other_seconds: other,
            peak_bytes: self.peak(batch),
        }
    }

    fn peak(&self, batch: usize) -> f64 {
        at(&self.batches, &self.peak_bytes, batch)
    }

    /// The largest batch whose step needs at most so many bytes; 0 if none does.
    pub fn largest_batch(&self, available: u128) -> usize {
        let available = available as f64;
        let pairs = self.batches.windows(2).zip(self.peak_bytes.windows(2));
        let mut largest = 0;
        for (batches, peaks) in pairs {
            let slope = (peaks[1] - peaks[0]) / (batches[1] - batches[0]) as f64;
            let more = (available - peaks[0]) / slope.max(f64::MIN_POSITIVE);
            // A number that is too large for its type becomes the largest one.
            let batch = (batches[0] as f64 + more).max(0.0) as usize;
            let is_last = self.batches.last() == Some(&batches[1]);
            if batch <= batches[1] || is_last {
                return batch;
            }
            largest = batches[1];
        }
        largest
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A step of two operations, one of which takes longer by the byte from 20 samples on.
    pub(crate) fn rates() -> StepRates {
        let operation = |phase: &str, seconds: [f64; 3]| OperationTimes {
            operator: "sgp_norm".to_owned(),
            algebra: "cl300".to_owned(),
            phase: phase.to_owned(),
            shapes: vec![vec![8, 40, 4]],
            seconds: seconds.to_vec(),
        };
        StepRates {
            task: "hulls".to_owned(),
            batches: vec![10, 20, 40],
            peak_bytes: vec![1100.0, 1200.0, 1400.0],
            operations: vec![
                operation("forward", [1.0, 2.0, 6.0]),
                operation("backward", [2.0, 4.0, 8.0]),
                operation("", [0.5, 0.5, 0.5]),
            ],
        }
    }

    #[test]
    fn a_step_is_the_sum_of_its_operations() {
        let prediction = rates().predict(30);
        assert_eq!(prediction.forward_seconds, 4.0);
        assert_eq!(prediction.backward_seconds, 6.0);
        assert_eq!(prediction.other_seconds, 0.5);
        assert_eq!(prediction.seconds, 10.5);
        assert_eq!(prediction.peak_bytes, 1300.0);
    }

    #[test]
    fn outside_of_what_was_measured_the_ends_go_on() {
        let rates = rates();
        assert_eq!(rates.predict(80).forward_seconds, 14.0);
        assert_eq!(rates.predict(5).forward_seconds, 0.5);
        assert_eq!(rates.predict(20).forward_seconds, 2.0);
        let falling = [5.0, 1.0];
        // No time is below zero.
        assert_eq!(at(&[1, 2], &falling, 10), 0.0);
    }

    #[test]
    fn the_largest_batch_fits_and_the_next_does_not() {
        let rates = rates();
        assert_eq!(rates.largest_batch(1300), 30);
        assert_eq!(rates.largest_batch(1000), 0);
        assert_eq!(rates.largest_batch(11_000), 1000);
    }

    #[test]
    fn numbers_that_mean_nothing_are_found() {
        assert!(rates().is_sound());
        let broken: [fn(&mut StepRates); 4] = [
            |r| r.batches[1] = 10,
            |r| r.peak_bytes.clear(),
            |r| r.operations[0].seconds[2] = f64::NAN,
            |r| r.batches.truncate(1),
        ];
        for change in broken {
            let mut rates = rates();
            change(&mut rates);
            assert!(!rates.is_sound(), "{rates:?}");
        }
    }
}
