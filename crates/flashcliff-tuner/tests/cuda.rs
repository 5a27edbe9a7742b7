//! Tests of the search on an NVIDIA GPU: choices that were found are right, are stored, and are used.
//!
//! Without a GPU, or without kernels of all algebras (features `flashcliff/jit`, `flashcliff/all-algebras`), every test
//! counts as ignored, and the last lines say how many were ignored and why; with `FLASHCLIFF_REQUIRE_GPU=1` they fail
//! instead.

#[path = "../../flashcliff/tests/cuda/bits.rs"]
mod bits;
#[allow(dead_code, reason = "the tests of the library use the rest")]
#[path = "../../flashcliff/tests/cuda/device.rs"]
mod device;
#[allow(dead_code, reason = "the tests of the library use the rest")]
#[path = "../../flashcliff/tests/suite/random.rs"]
mod random;
#[allow(dead_code, reason = "the tests of the library use the rest")]
#[path = "../../flashcliff/tests/cuda/trials.rs"]
mod trials;

use std::ops::ControlFlow;
use std::process::ExitCode;

use flashcliff::cuda::tuning::{self, FileState, Place, Table};
use flashcliff::cuda::{Device, Dtypes, MatmulPrecision};
use flashcliff::ops::{LinearOptions, ProductOptions};
use flashcliff::{Algebra, Dims, Dtype, Operator, Signature, ops};
use flashcliff_tuner::{Effort, Settings, Tuner, Workload};

use device::device;
use trials::{Needs, Tests};

fn main() -> ExitCode {
    let mut tests = Tests::new();
    let all: [(&str, fn()); 5] = [
        ("candidates_are_tried_in_both_passes", both_passes),
        ("what_is_found_is_stored_and_used", stored_and_used),
        ("a_table_can_force_any_candidate", any_candidate),
        ("an_interrupted_search_keeps_what_was_found", interrupted),
        ("a_roofline_is_plausible", roofline),
    ];
    for (name, test) in all {
        tests.add(Needs::CublasLt, name, test);
    }
    tests.run()
}

fn linear() -> Operator {
    let algebra = Algebra::new(Signature::of(3, 0, 0)).expect("shipped");
    ops::mv_linear(algebra, &LinearOptions::default()).expect("an operator")
}

fn fully_connected() -> Operator {
    let algebra = Algebra::new(Signature::of(3, 0, 0)).expect("shipped");
    ops::fcgp_norm(algebra, &ProductOptions::default()).expect("an operator")
}

fn workload(operator: Operator, dtype: Dtype, precision: MatmulPrecision) -> Workload {
    Workload {
        operator,
        dims: Dims {
            batch: 96,
            in_channels: 64,
            out_channels: 48,
            scalar_channels: 0,
        },
        dtype,
        precision,
    }
}

fn tiny() -> Workload {
    workload(linear(), Dtype::F32, MatmulPrecision::Tf32)
}

/// Settings that accept slower candidates too, so that there is something to find.
fn eager() -> Settings {
    Settings {
        candidates: 8,
        effort: Effort {
            rounds: 3,
            confirming_rounds: 3,
            lead: -100.0,
            sweeps: 1,
        },
    }
}

/// A device that reads no table but the one in a folder.
fn with_folder(folder: &tempfile::TempDir) -> Device {
    let place = Place {
        builtin: false,
        ..Place::folder(folder.path())
    };
    device().with_tuning(place).expect("a device")
}

fn untuned() -> Device {
    device().with_tuning(Place::none()).expect("a device")
}

/// The output and all gradients, as bits.
fn results(device: &Device, workload: &Workload) -> Vec<Vec<u32>> {
    let Workload {
        operator,
        dims,
        precision,
        ..
    } = workload;
    bits::results(device, operator, dims, *precision)
}

/// Tunes until something is found, stores it, and returns the table.
fn tuned(folder: &tempfile::TempDir, workload: &Workload) -> Table {
    let mut tuner = Tuner::new(&with_folder(folder), eager()).expect("a tuner");
    let outcome = tuner.tune(workload, &mut |_| ControlFlow::Continue(()));
    let outcome = outcome.expect("an outcome");
    assert!(outcome.choices > 0 && !outcome.interrupted, "{outcome:?}");
    tuner.save().expect("a file");
    tuner.found().clone()
}

fn file_of(device: &Device) -> std::path::PathBuf {
    device.tuning().file().expect("a folder was given")
}

fn both_passes() {
    for (operator, dtype, precision) in [
        (linear(), Dtype::F32, MatmulPrecision::Tf32),
        (linear(), Dtype::F32, MatmulPrecision::Highest),
        (linear(), Dtype::Bf16, MatmulPrecision::Highest),
        (linear(), Dtype::F64, MatmulPrecision::Highest),
        (fully_connected(), Dtype::F32, MatmulPrecision::Highest),
        (fully_connected(), Dtype::F64, MatmulPrecision::Highest),
    ] {
        let workload = workload(operator, dtype, precision);
        let settings = Settings {
            candidates: 4,
            ..Settings::default()
        };
        let mut tuner = Tuner::new(&untuned(), settings).expect("a tuner");
        let mut passes = Vec::new();
        let outcome = tuner.tune(&workload, &mut |trial| {
            assert!(!trial.verdict.is_empty());
            if let Some(configuration) = trial.configuration {
                assert!(configuration.has_fixed_order(), "{configuration}");
            }
            passes.push(trial.pass);
            ControlFlow::Continue(())
        });
        let outcome = outcome.unwrap_or_else(|e| panic!("{e}: {workload:?}"));
        assert_eq!(outcome.passes.len(), 2);
        for times in &outcome.passes {
            assert!(times.before.median > 0.0 && times.after.median > 0.0);
        }
        assert!(outcome.choices >= 3, "{outcome:?} of {workload:?}");
        assert_eq!(tuner.found().len(), outcome.changed);
    }
}

fn stored_and_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let workload = tiny();
    let found = tuned(&folder, &workload);
    let device = with_folder(&folder);
    let entries = found.len();
    assert_eq!(*device.tuning().file_state(), FileState::Read { entries });
    tuning::check(&device).expect("cuBLASLt");
    assert_eq!(device.tuning().ignored(), []);
    let first = results(&device, &workload);
    assert_eq!(first, results(&with_folder(&folder), &workload));
    // The new device has only the table that the search ended with.
    let again = tempfile::tempdir().expect("a folder");
    tuning::save(&file_of(&with_folder(&again)), &found).expect("a file");
    assert_eq!(first, results(&with_folder(&again), &workload));
}

/// A table need not hold faster choices: every candidate that is stored is used, and computes the map.
fn any_candidate() {
    let workload = tiny();
    let want = results(&untuned(), &workload);
    let folder = tempfile::tempdir().expect("a folder");
    let mut tuner = Tuner::new(&with_folder(&folder), eager()).expect("a tuner");
    let mut stops = 0;
    // The search stops after the first accepted candidate, so that this one is stored.
    let outcome = tuner.tune(&workload, &mut |trial| match trial.accepted {
        true => {
            stops += 1;
            ControlFlow::Break(())
        }
        false => ControlFlow::Continue(()),
    });
    let outcome = outcome.expect("an outcome");
    assert_eq!(outcome.changed, stops, "{outcome:?}");
    tuner.save().expect("a file");
    let got = results(&with_folder(&folder), &workload);
    for (want, got) in want.iter().zip(&got) {
        let value = |bits: &u32| f64::from(f32::from_bits(*bits));
        let scale = want.iter().map(value).fold(0.0, |s: f64, v| s.max(v.abs()));
        let pairs = want.iter().zip(got);
        let off = pairs.map(|(want, got)| (value(want) - value(got)).abs());
        let off = off.fold(0.0, f64::max);
        assert!(off <= 1e-2 * scale, "{off} of {scale}");
    }
}

fn interrupted() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut tuner = Tuner::new(&with_folder(&folder), eager()).expect("a tuner");
    let mut count = 0;
    let outcome = tuner.tune(&tiny(), &mut |_| {
        count += 1;
        ControlFlow::Break(())
    });
    let outcome = outcome.expect("an outcome");
    assert_eq!(outcome.interrupted, count == 1);
    assert!(count <= 1 && outcome.changed <= 1, "{outcome:?}");
    assert_eq!(tuner.found().len(), outcome.changed);
}

fn roofline() {
    let mut tuner = Tuner::new(&untuned(), Settings::default()).expect("a tuner");
    let measured = tuner.roofline(Dtype::Bf16, MatmulPrecision::Highest);
    let rate = measured.expect("a roofline").flops_per_second();
    // The rate is between that of a small GPU and more than any GPU has.
    assert!((1e12..1e17).contains(&rate), "{rate:e}");
    // A pass of an operator can still run on the same device.
    let dtypes = Dtypes::uniform(Dtype::F32);
    let operator = linear().on_cuda(device()).expect("an operator");
    operator.prepare(&tiny().dims, dtypes).expect("plans");
}
