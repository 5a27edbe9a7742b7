//! The samples that each step sees: shuffled epochs, addressed by the number of the step.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// The first random stream of a seed that shuffles use. Data use the streams below `3 << 48`.
const SHUFFLES: u64 = 3 << 48;

/// Batches of a training set.
///
/// Every epoch is a permutation drawn from its own stream. So the batch of a step depends on the seed and the step alone, and a resumed run
/// needs no state of a generator. Samples that are left of an epoch after its last whole batch are dropped. A set that is not larger than a
/// batch is one batch, in order.
#[derive(Debug)]
pub(super) struct Batches {
    len: usize,
    batch: usize,
    seed: u64,
    epoch: Option<u64>,
    order: Vec<usize>,
}

impl Batches {
    /// Batches of `batch` samples out of `len` samples.
    pub(super) fn new(len: usize, batch: usize, seed: u64) -> Self {
        Self {
            len,
            batch,
            seed,
            epoch: None,
            order: (0..len).collect(),
        }
    }

    /// The samples of a step, counted from 0.
    pub(super) fn at(&mut self, step: usize) -> &[usize] {
        if self.len <= self.batch {
            return &self.order;
        }
        let per_epoch = self.len / self.batch;
        let epoch = (step / per_epoch) as u64;
        if self.epoch != Some(epoch) {
            let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
            rng.set_stream(SHUFFLES | epoch);
            self.order.clear();
            self.order.extend(0..self.len);
            self.order.shuffle(&mut rng);
            self.epoch = Some(epoch);
        }
        let start = step % per_epoch * self.batch;
        &self.order[start..start + self.batch]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_epoch_shows_every_sample_at_most_once() {
        let mut batches = Batches::new(10, 3, 1);
        for epoch in 0..4 {
            let seen: Vec<usize> = (0..3)
                .flat_map(|i| batches.at(epoch * 3 + i).to_vec())
                .collect();
            assert_eq!(seen.len(), 9);
            assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 9);
        }
        let epoch = |batches: &mut Batches, e: usize| batches.at(e * 3).to_vec();
        assert_ne!(epoch(&mut batches, 0), epoch(&mut batches, 1));
    }

    #[test]
    fn a_step_is_the_same_from_wherever_one_starts() {
        let mut straight = Batches::new(50, 4, 9);
        let steps: Vec<Vec<usize>> = (0..40).map(|step| straight.at(step).to_vec()).collect();
        assert_eq!(Batches::new(50, 4, 9).at(31), steps[31]);
        assert_ne!(Batches::new(50, 4, 8).at(31), steps[31]);
    }

    #[test]
    fn a_small_set_is_one_batch() {
        assert_eq!(Batches::new(5, 5, 0).at(7), [0, 1, 2, 3, 4]);
        assert_eq!(Batches::new(2, 5, 0).at(7), [0, 1]);
        assert_eq!(Batches::new(6, 5, 0).at(7).len(), 5);
    }
}
