use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::keep_on;

const SIZES: Sizes = Sizes {
    train: 4,
    val: 1,
    test: 1,
};

/// The FNV-1a hash.
fn hash(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325;
    bytes.into_iter().fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The hash of the bits of charges, positions and velocities of each system, then of more positions.
fn checksum<'a, const D: usize>(
    systems: impl Iterator<Item = (&'a System<D>, Option<&'a Axes<D>>)>,
) -> u64 {
    let numbers = systems.flat_map(|(system, more)| {
        let axes = [&system.positions, &system.velocities].into_iter();
        let axes = axes.chain(more).flat_map(|axes| axes.as_flattened());
        system.charges.iter().chain(axes)
    });
    hash(numbers.flat_map(|number| number.to_le_bytes()))
}

fn check_starts<const D: usize>(expected: u64) {
    let starts = starts::<D>(DRAWN, SEED);
    assert_eq!(starts.len(), 14_000);
    let sum = checksum(starts.iter().map(|start| (start, None)));
    assert_eq!(sum, expected, "{D}D: {sum:#x}");
}

/// NumPy computed the checksums: `benches/peers/bodies_numpy.py`.
#[test]
fn all_trajectories_begin_as_the_published_ones() {
    check_starts::<3>(0x2179_cea6_768a_de70);
    check_starts::<5>(0x5aed_fedd_f4b3_d82a);
}

/// NumPy printed the numbers: `benches/peers/bodies_numpy.py`. Unlike checksums they can be
/// compared by eye.
#[test]
fn the_first_bodies_in_five_dimensions_are_those_of_numpy() {
    let start = starts::<5>(SIZES, SEED).remove(0);
    let of_first = |axes: &Axes<5>| axes.map(|axis| axis[0]);
    assert_eq!(start.charges, [-1.0, 1.0, -1.0, -1.0, -1.0]);
    let positions = [
        0.406_094_210_414_111,
        1.491_401_044_401_078_3,
        -0.518_850_506_306_054_2,
        0.336_883_056_310_462_1,
        -0.307_988_843_214_290_93,
    ];
    assert_eq!(of_first(&start.positions), positions);
    let velocities = [
        0.008_466_799_570_848_844,
        0.229_562_701_201_121_1,
        -0.275_810_416_833_083_9,
        0.345_691_336_098_565_84,
        0.040_686_528_913_398_7,
    ];
    assert_eq!(of_first(&start.velocities), velocities);
    let targets = [
        1.350_035_996_896_735_5,
        2.991_792_762_429_553_5,
        -2.043_193_213_386_264,
        1.535_029_642_954_775_2,
        0.936_576_196_362_607_5,
    ];
    assert_eq!(of_first(&Sample::of(start).to), targets);
}

fn check_samples<const D: usize>(expected: u64) {
    let starts = starts::<D>(SIZES, SEED).into_iter();
    let samples: Vec<Sample<D>> = starts.map(Sample::of).collect();
    let sum = checksum(
        samples
            .iter()
            .map(|sample| (&sample.from, Some(&sample.to))),
    );
    assert_eq!(sum, expected, "{D}D: {sum:#x}");
}

/// NumPy computed the checksums, on x86-64 Linux: `benches/peers/bodies_numpy.py`.
#[test]
fn bodies_move_as_the_published_ones() {
    check_samples::<3>(0x4325_0bfc_fa52_f739);
    check_samples::<5>(0x877e_018a_e526_6f87);
}

fn check_stored<const D: usize>(expected: [u64; 3]) {
    let with_threads = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let make = || generate_in::<D>(SIZES, SEED, &keep_on).unwrap();
        pool.build().unwrap().install(make)
    };
    let data = with_threads(1);
    assert_eq!(data, with_threads(3));
    let sums = [&data.train, &data.val, &data.test].map(|split| {
        let vectors = [&split.charges, &split.positions, &split.velocities];
        let numbers = vectors.into_iter().chain([&split.targets]).flatten();
        hash(numbers.flat_map(|number| number.to_le_bytes()))
    });
    assert_eq!(sums, expected, "{D}D: {sums:#x?}");
}

/// NumPy computed the checksums, on x86-64 Linux: `benches/peers/bodies_numpy.py`.
#[test]
fn stored_data_are_the_published_ones_for_every_number_of_threads() {
    check_stored::<3>([
        0x7a49_81a7_fddc_e252,
        0x90f8_1c46_79b2_f280,
        0x42fa_19f0_fd55_e7fd,
    ]);
    check_stored::<5>([
        0xcaa6_bd08_dd74_d022,
        0xd71e_879c_d338_e0b9,
        0x273b_fa3a_70e9_afaa,
    ]);
}

/// The rows of samples have the same numbers as the parts, in the order that other programs read.
#[test]
fn samples_of_the_task_in_five_dimensions_are_rows_of_the_parts() {
    let parts = generate_in::<5>(SIZES, SEED, &keep_on).unwrap().train;
    let rows = Task::Bodies5d.generate(SIZES, u64::from(SEED)).unwrap();
    assert_eq!(rows.task, Task::Bodies5d);
    let rows = rows.train;
    assert_eq!((rows.shape, rows.target_len), ([4, 5, 11], 25));
    assert_eq!(rows.targets, parts.targets);
    for (at, row) in rows.inputs.chunks_exact(11).enumerate() {
        assert_eq!(row[0], parts.charges[at]);
        assert_eq!(row[1..6], parts.positions[5 * at..][..5]);
        assert_eq!(row[6..], parts.velocities[5 * at..][..5]);
    }
}

#[test]
fn smaller_sets_are_the_first_samples_of_larger_ones() {
    let small = Sizes { train: 2, ..SIZES };
    let (all, few) = (starts::<5>(SIZES, 5), starts::<5>(small, 5));
    assert_eq!(few[..2], all[..2]);
    assert_eq!(few[2..], all[4..]);
    assert_ne!(all[0], starts::<5>(small, 6)[0]);
}

fn check_kind_of_starts<const D: usize>() {
    let starts = starts::<D>(PUBLISHED, 1);
    let mut positive = 0;
    for start in &starts {
        assert!(start.charges.iter().all(|q| q.abs() == 1.0));
        positive += start.charges.iter().filter(|&&q| q > 0.0).count();
        for body in 0..BODIES {
            let speed = start.velocities.map(|v| v[body]);
            let length = speed.iter().map(|v| v * v).sum::<f64>().sqrt();
            assert!((length - 0.5).abs() < 1e-15);
        }
        let mut positions = start.positions.as_flattened().iter();
        assert!(positions.all(|x| x.abs() <= 5.0));
    }
    let bodies = (BODIES * starts.len()) as f64;
    // Four standard deviations.
    assert!((positive as f64 - bodies / 2.0).abs() < 2.0 * bodies.sqrt());
}

#[test]
fn starts_have_their_charges_lengths_and_box() {
    check_kind_of_starts::<3>();
    check_kind_of_starts::<5>();
}

#[test]
fn edges_of_a_batch_stay_within_its_graphs() {
    let one = edges(1);
    assert_eq!(one.receivers[..5], [0, 0, 0, 0, 1]);
    assert_eq!(one.senders[..5], [1, 2, 3, 4, 0]);
    let three = edges(3);
    assert_eq!([three.receivers.len(), three.senders.len()], [60, 60]);
    for (edge, (to, from)) in three.receivers.iter().zip(&three.senders).enumerate() {
        let first = 5 * (edge / 20) as u32;
        assert_eq!(*to, one.receivers[edge % 20] + first);
        assert_eq!(*from, one.senders[edge % 20] + first);
    }
    assert!(edges(0).senders.is_empty());
}

#[test]
fn sizes_beyond_the_published_ones_and_no_training_set_are_errors() {
    let none = generate(Sizes { train: 0, ..SIZES }, 0, &keep_on).unwrap_err();
    assert!(matches!(none, TaskError::TooFewSamples { expected: 1, .. }));
    for test in [2001, usize::MAX] {
        let error = generate(Sizes { test, ..SIZES }, 0, &keep_on).unwrap_err();
        let expected = TaskError::TooManySamples {
            split: SplitName::Test,
            most: 2000,
            got: test,
        };
        assert_eq!(error, expected);
    }
}

#[test]
fn the_observer_counts_samples_and_ends_the_work() {
    let done = AtomicUsize::new(0);
    let count = |samples| {
        done.fetch_add(samples, Ordering::Relaxed);
        ControlFlow::Continue(())
    };
    generate(SIZES, 0, &count).unwrap();
    assert_eq!(done.into_inner(), SIZES.total());
    let stopped = generate(SIZES, 0, &|_| ControlFlow::Break(()));
    assert_eq!(stopped, Err(TaskError::Stopped));
}

#[test]
fn the_metric_is_a_mean_over_coordinates_bodies_and_samples() {
    let one = Sizes {
        train: 2,
        val: 0,
        test: 0,
    };
    let data = generate(one, 0, &keep_on).unwrap();
    let mut predictions = data.train.targets.clone();
    predictions[17] += 3.0;
    let error = data.train.mean_squared_error(&predictions).unwrap();
    assert!((error - 9.0 / 30.0).abs() < 1e-5, "{error}");
    assert!(data.train.mean_squared_error(&[0.0]).is_err());
    assert!(data.val.is_empty() && data.train.len() == 2);
}

#[test]
fn reported_errors_fall() {
    assert!(REPORTED.is_sorted_by(|a, b| a.error > b.error));
}
