//! Time and memory of training steps, from those of their operations at some batches.
//!
//! A step is the list of its operations. Each was timed at some batches; between two of them its time follows the batch on a straight line, and
//! beyond the largest it goes on as between the last two. Batches grow by factors of two, so caches and threads bend the curve at a batch that was
//! timed, or near one. Memory jumps where products of matrices begin to pack their operands, so it was counted at more batches.
//!
//! On a GPU the operations are those of a step that the host launches one by one. A step that is captured as a CUDA graph was timed as a whole.

use serde::{Deserialize, Serialize};

/// The operations of the training step of a network, with their times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRates {
    /// The task of the network, as `hulls`.
    pub task: String,
    /// The batches that were timed, ascending.
    pub batches: Vec<usize>,
    /// The batches whose memory was counted, ascending.
    pub peak_batches: Vec<usize>,
    /// The most bytes that were held at once, for each of these.
    pub peak_bytes: Vec<f64>,
    /// The operations in the order of the step.
    pub operations: Vec<OperationTimes>,
    /// Seconds of a captured step for each batch; none on the CPU, and where a step cannot be captured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub captured_seconds: Vec<f64>,
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
    /// Seconds of the step; on a GPU launched operation by operation.
    pub seconds: f64,
    /// Seconds of the step on a GPU, captured as a CUDA graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub captured_seconds: Option<f64>,
    /// Seconds of all forward passes.
    pub forward_seconds: f64,
    /// Seconds of all backward passes.
    pub backward_seconds: f64,
    /// Seconds of the optimiser, the choice of the samples and the rest.
    pub other_seconds: f64,
    /// The most bytes that are held at once: parameters, the state of the optimiser, data, values, gradients, workspaces.
    pub peak_bytes: f64,
}

/// The batch of whose multiples the planes of blades of rows of 128 bytes and more lie whole pages apart. They then compete for the same places
/// in the first cache, which makes some operators slower by a quarter and more, so times follow those of batches of the same kind.
const PAGES: usize = 32;

/// The number that a batch gives, by numbers at batches that ascend.
fn at(known: &[(usize, f64)], batch: usize) -> f64 {
    let Some(last) = known.len().checked_sub(2) else {
        return known.first().map_or(0.0, |(_, number)| *number);
    };
    let above = known.partition_point(|(known, _)| *known <= batch);
    let low = above.saturating_sub(1).min(last);
    let [(from, first), (to, second)] = [known[low], known[low + 1]];
    let slope = (second - first) / (to - from) as f64;
    (first + slope * (batch as f64 - from as f64)).max(0.0)
}

fn pairs<'a>(batches: &'a [usize], numbers: &'a [f64]) -> impl Iterator<Item = (usize, f64)> + 'a {
    batches.iter().copied().zip(numbers.iter().copied())
}

impl StepRates {
    /// Whether every batch has a number of each kind, none of which means nothing.
    pub(crate) fn is_sound(&self) -> bool {
        let is_curve = |batches: &[usize], numbers: &[f64]| {
            let is_number = |number: &f64| number.is_finite() && *number >= 0.0;
            let ascend = batches.windows(2).all(|pair| pair[0] < pair[1]);
            let fit = batches.len() > 1 && numbers.len() == batches.len();
            fit && ascend && numbers.iter().all(is_number)
        };
        let mut times = self.operations.iter().map(|operation| &operation.seconds);
        let captured = &self.captured_seconds;
        is_curve(&self.peak_batches, &self.peak_bytes)
            && (captured.is_empty() || is_curve(&self.batches, captured))
            && times.all(|seconds| is_curve(&self.batches, seconds))
    }

    /// The expected time and memory of a step of so many samples.
    pub fn predict(&self, batch: usize) -> StepPrediction {
        let [mut forward, mut backward, mut other] = [0.0; 3];
        for operation in &self.operations {
            *match operation.phase.as_str() {
                "forward" => &mut forward,
                "backward" => &mut backward,
                _ => &mut other,
            } += self.seconds(&operation.seconds, batch);
        }
        let captured = &self.captured_seconds;
        StepPrediction {
            task: self.task.clone(),
            batch,
            seconds: forward + backward + other,
            captured_seconds: (!captured.is_empty()).then(|| self.seconds(captured, batch)),
            forward_seconds: forward,
            backward_seconds: backward,
            other_seconds: other,
            peak_bytes: self.peak(batch),
        }
    }

    /// The time at a batch, by those at the batches of the same kind.
    fn seconds(&self, times: &[f64], batch: usize) -> f64 {
        let all = || pairs(&self.batches, times);
        let is_same = |known: usize| known.is_multiple_of(PAGES) == batch.is_multiple_of(PAGES);
        let same: Vec<(usize, f64)> = all().filter(|(known, _)| is_same(*known)).collect();
        let largest = |known: &[(usize, f64)]| known.last().map_or(0, |(known, _)| *known);
        let all: Vec<(usize, f64)> = all().collect();
        // A line that goes on for long beyond what was timed is worse than one between batches of both kinds.
        let reaches = largest(&same) + largest(&same) / 8 >= batch.min(largest(&all));
        match reaches && same.len() > 1 {
            true => at(&same, batch),
            false => at(&all, batch),
        }
    }

    fn peak(&self, batch: usize) -> f64 {
        let known: Vec<(usize, f64)> = pairs(&self.peak_batches, &self.peak_bytes).collect();
        at(&known, batch)
    }

    /// The largest batch whose step needs at most so many bytes; 0 if none does.
    pub fn largest_batch(&self, available: u128) -> usize {
        let available = available as f64;
        let peaks = self.peak_bytes.windows(2);
        let pairs = self.peak_batches.windows(2).zip(peaks);
        let mut largest = 0;
        for (batches, peaks) in pairs {
            let slope = (peaks[1] - peaks[0]) / (batches[1] - batches[0]) as f64;
            let more = (available - peaks[0]) / slope.max(f64::MIN_POSITIVE);
            // A number that is too large for its type becomes the largest one.
            let batch = (batches[0] as f64 + more).max(0.0) as usize;
            let is_last = self.peak_batches.last() == Some(&batches[1]);
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
            peak_batches: vec![10, 20, 40],
            peak_bytes: vec![1100.0, 1200.0, 1400.0],
            operations: vec![
                operation("forward", [1.0, 2.0, 6.0]),
                operation("backward", [2.0, 4.0, 8.0]),
                operation("", [0.5, 0.5, 0.5]),
            ],
            captured_seconds: Vec::new(),
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
        assert_eq!(prediction.captured_seconds, None);
    }

    #[test]
    fn a_captured_step_has_times_of_its_own() {
        let mut rates = rates();
        rates.captured_seconds = vec![1.0, 1.5, 3.5];
        assert!(rates.is_sound());
        let prediction = rates.predict(30);
        assert_eq!(prediction.captured_seconds, Some(2.5));
        assert_eq!(prediction.seconds, 10.5);
    }

    #[test]
    fn outside_of_what_was_measured_the_ends_go_on() {
        let rates = rates();
        assert_eq!(rates.predict(80).forward_seconds, 14.0);
        assert_eq!(rates.predict(5).forward_seconds, 0.5);
        assert_eq!(rates.predict(20).forward_seconds, 2.0);
        let falling = [(1, 5.0), (2, 1.0)];
        // No time is below zero.
        assert_eq!(at(&falling, 10), 0.0);
    }

    #[test]
    fn times_follow_batches_of_the_same_kind() {
        let mut rates = rates();
        rates.batches = vec![30, 32, 62, 64];
        for operation in &mut rates.operations {
            operation.seconds = vec![3.0, 8.0, 6.2, 16.0];
        }
        let seconds = |batch: usize| rates.predict(batch).forward_seconds;
        assert!((seconds(46) - 4.6).abs() < 1e-12);
        assert_eq!(seconds(96), 24.0);
        assert!((seconds(100) - 10.0).abs() < 1e-12);
        // Without a batch of its kind near, one between both kinds.
        rates.batches = vec![15, 30, 64, 128];
        let half = rates.predict(47).forward_seconds;
        assert_eq!(half, (8.0 + 6.2) / 2.0);
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
        let broken: [fn(&mut StepRates); 7] = [
            |r| r.captured_seconds = vec![1.0],
            |r| r.captured_seconds = vec![1.0, -1.0, 2.0],
            |r| r.batches[1] = 10,
            |r| r.peak_bytes.clear(),
            |r| r.peak_batches[2] = 0,
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
