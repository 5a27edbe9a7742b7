//! The batches of training steps that are measured, and those that predictions are tried on.

use super::Site;
use crate::train::TaskName;

/// The batches whose steps `calibrate` measures.
pub(super) fn calibrated(site: &Site, task: TaskName, quick: bool) -> &'static [usize] {
    match (task, quick, site.is_gpu()) {
        (_, true, _) => &[2, 4],
        // A transformer, whose samples take as long as a hundred others.
        (TaskName::Gravity, _, false) => &[2, 4, 8, 16, 32, 64],
        (TaskName::Gravity, _, true) => &[2, 8, 16, 32, 64, 128, 256],
        // Near batches that are multiples of 32, which lie differently in memory, others too.
        (_, _, false) => &[
            2, 4, 8, 16, 29, 32, 61, 64, 125, 128, 253, 256, 509, 512, 1021, 1024,
        ],
        // The fewest samples take as long as some dozens: a GPU waits for launches.
        (_, _, true) => &[2, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384],
    }
}

/// Batches that no calibration has measured.
pub(crate) fn held_out(site: &Site, task: TaskName, quick: bool) -> &'static [usize] {
    match (task, quick, site.is_gpu()) {
        (_, true, _) => &[3],
        (TaskName::Gravity, _, false) => &[3, 12, 24, 48],
        (TaskName::Gravity, _, true) => &[4, 12, 24, 48, 96, 192],
        (_, _, false) => &[3, 6, 12, 24, 48, 100, 192, 300, 384, 700],
        (_, _, true) => &[8, 48, 100, 192, 384, 700, 1500, 3000, 6000, 12_000],
    }
}

/// Batches from the least to the largest of some, each larger by a part of itself, one `share`th, or by one.
pub(super) fn between(batches: &[usize], share: usize) -> Vec<usize> {
    let (Some(&first), Some(&last)) = (batches.first(), batches.last()) else {
        return Vec::new();
    };
    let next = |&batch: &usize| (batch < last).then(|| (batch + (batch / share).max(1)).min(last));
    std::iter::successors(Some(first), next).collect()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    use crate::device::DeviceName;

    #[test]
    fn no_batch_is_both_measured_and_held_out() {
        for name in [DeviceName::Cpu, DeviceName::Cuda(0)] {
            let site = Site::unopened(name);
            for &task in TaskName::value_variants() {
                for quick in [false, true] {
                    let known = calibrated(&site, task, quick);
                    let tried = held_out(&site, task, quick);
                    assert!(known.is_sorted() && tried.is_sorted());
                    assert!(tried.iter().all(|batch| !known.contains(batch)));
                    let (least, most) = (known[0], known[known.len() - 1]);
                    assert!(tried.iter().all(|batch| (least..most).contains(batch)));
                }
            }
        }
    }

    #[test]
    fn batches_between_grow_by_a_share() {
        assert_eq!(between(&[2, 16], 4), [2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 16]);
        assert_eq!(between(&[2, 16], 2), [2, 3, 4, 6, 9, 13, 16]);
        assert_eq!(between(&[3], 4), [3]);
        assert!(between(&[], 4).is_empty());
    }
}
