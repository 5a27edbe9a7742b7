//! The data of all tasks: checksums, shapes, splits, threads, errors.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use flashcliff_tasks::{Dataset, Sizes, SplitName, Task, TaskError};

/// These sizes are not multiples of the sampling block, so that partial blocks are covered.
const SIZES: Sizes = Sizes {
    train: 131,
    val: 70,
    test: 5,
};

/// More samples than a few blocks.
const LARGE: Sizes = Sizes {
    train: 3000,
    val: 2048,
    test: 4096,
};

/// Seeds, and checksums of the data of each. They were computed with the first generators on x86-64
/// Linux: for gravity, complexes, bodies in five dimensions and forces here, for the other tasks
/// when they
/// were a part of the program. For bodies with the seed 43 NumPy has the same checksum, by the
/// functions of `benches/peers/bodies_numpy.py`. Tests beside the module of bodies have more
/// checksums of NumPy.
#[rustfmt::skip]
const CHECKSUMS: [(Task, Sizes, u64, u64); 26] = [
    (Task::Hulls, SIZES, 0, 0x51bb_a21d_6f20_72da),
    (Task::Hulls, SIZES, 1, 0x581e_4677_e166_c52e),
    (Task::Hulls, SIZES, 42, 0x7c79_b8c4_ee5c_cf84),
    (Task::Hulls, SIZES, u64::MAX, 0x5bb8_956a_a7fc_c012),
    (Task::Hulls, LARGE, 0, 0x80b2_e23b_2832_7652),
    (Task::Regression, SIZES, 0, 0x1738_cd5f_5ec9_b61a),
    (Task::Regression, SIZES, 1, 0x8157_b714_8bc7_a365),
    (Task::Regression, SIZES, 42, 0xda70_18a2_6337_3932),
    (Task::Regression, SIZES, u64::MAX, 0x89aa_5beb_ce88_630b),
    (Task::Regression, LARGE, 0, 0x1ad2_bc1f_f0d8_e4cb),
    (Task::Volumes, SIZES, 0, 0xc5dc_3425_bb0e_5f46),
    (Task::Volumes, SIZES, 1, 0x26d7_e28f_61e0_dca6),
    (Task::Volumes, SIZES, 42, 0x30d5_3fde_8b16_7dc1),
    (Task::Volumes, SIZES, u64::MAX, 0x6bca_7760_5462_d8b1),
    (Task::Volumes, LARGE, 0, 0x6ccb_7b22_47fc_42b5),
    (Task::Gravity, SIZES, 0, 0xff20_be0d_2419_1bad),
    (Task::Gravity, SIZES, 1, 0x7f55_7c1b_415b_2938),
    (Task::Gravity, SIZES, 42, 0xbb6d_65fe_f3aa_5cdb),
    (Task::Gravity, SIZES, u64::MAX, 0xe9c8_8afa_2b31_977f),
    (Task::Gravity, LARGE, 0, 0x751a_8320_7fab_f60f),
    (Task::Complexes, SIZES, 0, 0xafe3_6406_fba6_ad7c),
    (Task::Bodies5d, SIZES, 0, 0xd38e_efe9_4bc2_e00e),
    (Task::Bodies5d, SIZES, 43, 0xbc8c_bba2_28b0_2d2d),
    (Task::Forces, SIZES, 0, 0x7d32_c68d_2967_ff6f),
    (Task::Forces, SIZES, 1, 0xc181_d8d4_a69f_ceed),
    (Task::Forces, LARGE, 0, 0xcc46_a571_a78a_1ede),
];

/// The FNV-1a hash of the bits of all numbers: inputs and targets of each split, then scale and shift.
fn checksum(data: &Dataset) -> u64 {
    let splits = [&data.train, &data.val, &data.test].into_iter();
    let numbers = splits.flat_map(|split| split.inputs.iter().chain(&split.targets));
    let numbers = numbers.chain([&data.target_scale, &data.target_shift]);
    let bytes = numbers.flat_map(|number| number.to_bits().to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn with_threads(threads: usize, task: Task, seed: u64) -> Dataset {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap()
        .install(|| task.generate(SIZES, seed).unwrap())
}

#[test]
fn the_data_of_a_seed_never_change() {
    for (task, sizes, seed, expected) in CHECKSUMS {
        let data = task.generate(sizes, seed).unwrap();
        let got = checksum(&data);
        assert_eq!(got, expected, "{task}, seed {seed}: got {got:#x}");
    }
}

#[test]
fn every_number_counts_in_the_checksum() {
    let data = Task::Volumes.generate(SIZES, 0).unwrap();
    let sum = checksum(&data);
    let changes: [fn(&mut Dataset); 5] = [
        |data| data.train.inputs[0] = -data.train.inputs[0],
        |data| data.val.inputs.swap(8, 9),
        |data| data.test.targets[4] = data.test.targets[4].next_up(),
        |data| data.target_scale = data.target_scale.next_up(),
        |data| data.target_shift = -data.target_shift,
    ];
    for change in changes {
        let mut changed = data.clone();
        change(&mut changed);
        assert_ne!(checksum(&changed), sum);
    }
}

#[test]
fn thread_count_does_not_change_the_data() {
    for task in Task::ALL {
        assert_eq!(with_threads(1, task, 7), with_threads(2, task, 7));
    }
}

#[test]
fn seeds_and_splits_differ() {
    for task in Task::ALL {
        let (a, b) = (with_threads(2, task, 7), with_threads(2, task, 8));
        let [train, val, test] = [&a.train, &a.val, &a.test].map(|split| &split.inputs[..]);
        assert_ne!(train, b.train.inputs);
        assert_ne!(train[..val.len()], *val, "{task}");
        assert_ne!(val[..test.len()], *test, "{task}");
    }
}

/// Data of other seeds are other data, also where the seeds differ in the higher bits alone, or there are none.
#[test]
fn all_bits_of_a_seed_count() {
    let beyond = 7 + (1 << 32);
    for task in Task::ALL {
        match task.generate(SIZES, beyond) {
            Ok(data) => assert_ne!(data.train.inputs, with_threads(2, task, 7).train.inputs),
            Err(TaskError::SeedTooLarge { most, got }) => {
                assert!(matches!(task, Task::Bodies | Task::Bodies5d), "{task}");
                assert_eq!((most, got), (u64::from(u32::MAX), beyond));
            }
            Err(error) => panic!("{task}: {error}"),
        }
    }
}

#[test]
fn shapes_are_as_documented() {
    for (task, points, dim) in [
        (Task::Hulls, 16, 5),
        (Task::Regression, 2, 5),
        (Task::Volumes, 3, 3),
        (Task::Gravity, 4, 7),
        (Task::Bodies, 5, 7),
        (Task::Bodies5d, 5, 11),
        (Task::Complexes, 92, 11),
        (Task::Forces, 43, 4),
    ] {
        let data = with_threads(2, task, 1);
        assert_eq!(data.task, task);
        assert_eq!((task.points(), task.dim()), (points, dim));
        for (split, len) in [(&data.train, 131), (&data.val, 70), (&data.test, 5)] {
            assert_eq!(split.shape, [len, points, dim]);
            assert_eq!(split.len(), len);
            assert_eq!(split.targets.len(), len * task.target_len());
            assert_eq!(split.inputs.len(), len * points * dim);
            let mut numbers = split.inputs.iter().chain(&split.targets);
            assert!(numbers.all(|v| v.is_finite()));
        }
    }
}

#[test]
fn small_training_set_is_a_prefix() {
    let small = Sizes {
        train: 100,
        ..SIZES
    };
    let a = Task::Hulls.generate(small, 3).unwrap();
    let b = Task::Hulls.generate(SIZES, 3).unwrap();
    assert_eq!(a.train.inputs, b.train.inputs[..a.train.inputs.len()]);
    assert_eq!(a.train.targets, b.train.targets[..100]);
    assert_eq!(a.val, b.val);
}

#[test]
fn the_observer_counts_every_sample_once() {
    for task in Task::ALL {
        let done = AtomicUsize::new(0);
        let count = |samples| {
            done.fetch_add(samples, Ordering::Relaxed);
            ControlFlow::Continue(())
        };
        task.generate_observed(SIZES, 0, &count).unwrap();
        assert_eq!(done.into_inner(), SIZES.total());
    }
}

#[test]
fn the_observer_ends_the_work_soon() {
    let calls = AtomicUsize::new(0);
    let stop = |_| {
        calls.fetch_add(1, Ordering::Relaxed);
        ControlFlow::Break(())
    };
    let result = Task::Volumes.generate_observed(LARGE, 0, &stop);
    assert_eq!(result, Err(TaskError::Stopped));
    // Every thread finishes at most the block that it has begun.
    assert!(calls.into_inner() <= rayon::current_num_threads());
}

#[test]
fn sizes_without_statistics_are_errors() {
    for task in Task::ALL {
        let least = if task == Task::Regression { 2 } else { 1 };
        for train in 0..=least {
            let result = task.generate(Sizes { train, ..SIZES }, 0);
            let expected = TaskError::TooFewSamples {
                split: SplitName::Train,
                expected: least,
                got: train,
            };
            match train < least {
                true => assert_eq!(result, Err(expected)),
                false => assert!(result.is_ok()),
            }
        }
    }
}

#[test]
fn empty_validation_and_test_sets_are_allowed() {
    let sizes = Sizes {
        train: 2,
        val: 0,
        test: 0,
    };
    for task in Task::ALL {
        let data = task.generate(sizes, 0).unwrap();
        assert_eq!(data.val.shape, [0, task.points(), task.dim()]);
        assert!(data.test.is_empty());
        assert!(data.test.mean_squared_error(&[]).unwrap().is_nan());
    }
}

#[test]
fn sizes_beyond_the_memory_are_errors() {
    for task in Task::ALL {
        for test in [usize::MAX, usize::MAX / 8, usize::MAX / (8 * 80)] {
            let error = task.generate(Sizes { test, ..SIZES }, 0).unwrap_err();
            let is_right = match error {
                // There are no more samples than the published program draws.
                TaskError::TooManySamples { split, got, .. }
                    if matches!(task, Task::Bodies | Task::Bodies5d) =>
                {
                    split == SplitName::Test && got == test
                }
                TaskError::OutOfMemory { split, samples, .. } => {
                    split == SplitName::Test && samples == test
                }
                _ => false,
            };
            assert!(is_right, "{task}");
        }
    }
    let all = Sizes {
        train: usize::MAX,
        val: 1,
        test: 1,
    };
    assert_eq!(all.total(), usize::MAX);
}

#[test]
fn the_metric_is_the_mean_of_squares_in_f64() {
    let mut data = Task::Volumes.generate(SIZES, 0).unwrap();
    data.test.targets = vec![1.0, 2.0, 3.0, 4.0, 5.0];
    let error = |predictions: &[f32]| data.test.mean_squared_error(predictions);
    assert_eq!(error(&[1.0, 2.0, 3.0, 4.0, 5.0]), Ok(0.0));
    assert_eq!(error(&[2.0, 0.0, 3.0, 4.0, 5.0]), Ok(1.0));
    // The square is beyond `f32`.
    assert!((error(&[1.0, 2.0, 3.0, 4.0, 3e30]).unwrap() / 1.8e60 - 1.0).abs() < 1e-6);
    for got in [4, 6] {
        let expected = TaskError::PredictionCount { expected: 5, got };
        assert_eq!(error(&vec![0.0; got]), Err(expected));
    }
}

#[test]
fn units_of_the_target_are_those_of_the_scale() {
    let data = Task::Regression.generate(SIZES, 0).unwrap();
    let raw =
        |values: &[f32]| -> Vec<f32> { values.iter().map(|&v| data.in_target_units(v)).collect() };
    let stored = data.test.mean_squared_error(&[0.5; 5]).unwrap();
    let mut own = data.test.clone();
    own.targets = raw(&own.targets);
    let in_units = own.mean_squared_error(&raw(&[0.5; 5])).unwrap();
    let expected = data.error_in_target_units(stored);
    assert!(
        (in_units - expected).abs() < 1e-5 * expected,
        "{in_units} {expected}"
    );
}
