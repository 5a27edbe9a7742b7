//! Tuning tables on a GPU: choices that were found are stored, read and used; wrong entries are not used, and are
//! reported.

use std::fs;
use std::ops::ControlFlow;

use flashcliff::cuda::tuning::{
    self, Effort, FileState, KnobKey, Place, Settings, Source, Table, Tuner, Workload,
};
use flashcliff::cuda::{Array, Device, Dtypes, MatmulPrecision};
use flashcliff::ops::{LinearOptions, ProductOptions};
use flashcliff::{Algebra, Dims, Dtype, Error, Operator, Pass, Signature, ops};
use serde_json::Value;

use crate::device::device;
use crate::random::Random;
use crate::trials::{Needs, Tests};

pub(crate) fn add(tests: &mut Tests) {
    let lt = Needs::CublasLt;
    let all: [(&str, fn()); 7] = [
        ("candidates_are_tried_in_both_passes", both_passes),
        ("what_is_found_is_stored_and_used", stored_and_used),
        ("a_table_can_force_any_candidate", any_candidate),
        ("a_corrupted_entry_falls_back", corrupted),
        ("a_broken_file_falls_back", broken),
        ("an_interrupted_search_keeps_what_was_found", interrupted),
        ("knobs_are_read_and_must_be_among_their_values", knobs),
    ];
    for (name, test) in all {
        tests.add(lt, format!("tuning::{name}"), test);
    }
    tests.add(lt, "tuning::a_roofline_is_plausible", roofline);
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
    let stream = device.new_stream().expect("a stream");
    let gpu = operator.on_cuda(device).expect("an operator");
    let gpu = gpu.with_precision(*precision);
    let mut random = Random::new(5);
    let mut array = |shape: &[usize]| {
        let values = random.reals(shape.iter().product());
        let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
        Array::from_host(&stream, &values, shape).expect("memory")
    };
    let specs = operator.inputs().iter();
    let inputs: Vec<Array> = specs.map(|spec| array(&spec.shape(dims))).collect();
    let grad = array(&operator.output_shape(dims));
    let views: Result<Vec<_>, Error> = inputs.iter().map(Array::view).collect();
    let views = views.expect("views");
    let evaluation = gpu.evaluate(&stream, &views).expect("a forward pass");
    let grads = gpu
        .gradients(&stream, &views, &evaluation, grad.view().expect("a view"))
        .expect("a backward pass");
    let all = [&evaluation.output].into_iter().chain(&grads);
    let bits = |array: &Array| -> Vec<u32> {
        let host = array.to_host::<f32>(&stream).expect("a copy");
        host.into_iter().map(f32::to_bits).collect()
    };
    all.map(bits).collect()
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

/// With an entry that is wrong in any way, the results are those of the heuristics.
fn corrupted() {
    let workload = tiny();
    let want = results(&untuned(), &workload);
    let folder = tempfile::tempdir().expect("a folder");
    let found = tuned(&folder, &workload);
    assert!(!found.is_empty(), "a single algorithm for every product");
    let path = file_of(&with_folder(&folder));
    let text = fs::read_to_string(&path).expect("a file");
    type Corruption = fn(&mut Value);
    let corruptions: [(&str, Corruption, bool); 5] = [
        ("digits", |entry| entry["data"] = "zz".into(), true),
        ("checksum", |entry| entry["checksum"] = "0".into(), true),
        (
            "configuration",
            |e| e["configuration"]["tile"] = 9999.into(),
            true,
        ),
        (
            "order",
            |e| e["configuration"]["reduction_scheme"] = 1.into(),
            true,
        ),
        // The entry is not wrong, but for another version of cuBLASLt: calls do not look at it.
        ("version", |entry| entry["cublaslt"] = 1.into(), false),
    ];
    for (what, corrupt, by_calls) in corruptions {
        let mut value: Value = serde_json::from_str(&text).expect("JSON");
        for entry in value["matmul"].as_array_mut().expect("entries") {
            corrupt(&mut entry["algorithm"]);
        }
        fs::write(&path, value.to_string()).expect("a file");
        let device = with_folder(&folder);
        assert_eq!(results(&device, &workload), want, "{what}");
        assert_eq!(!device.tuning().ignored().is_empty(), by_calls, "{what}");
        tuning::check(&device).expect("cuBLASLt");
        let ignored = device.tuning().ignored();
        assert_eq!(ignored.len(), found.len(), "{what}: {ignored:?}");
        assert!(ignored.iter().all(|i| i.source == Source::User), "{what}");
    }
}

fn broken() {
    let workload = tiny();
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(file_of(&with_folder(&folder)), "{\"format\": 1").expect("a file");
    let device = with_folder(&folder);
    let state = device.tuning().file_state();
    assert!(matches!(state, FileState::Broken(_)), "{state:?}");
    let want = results(&untuned(), &workload);
    assert_eq!(results(&device, &workload), want);
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

fn knobs() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = KnobKey {
        operator: "fcgp_norm".into(),
        algebra: Signature::of(3, 0, 0),
        pass: Pass::Forward,
        dtype: Dtype::F32,
        precision: MatmulPrecision::Tf32,
        batch: 96,
        in_channels: 64,
        out_channels: 48,
    };
    let before = with_folder(&folder);
    assert_eq!(before.knob(&key, "rows", 64, &[32, 64, 128]), 64);
    let mut table = Table::new(before.tuning().gpu().clone());
    table.set_knob(key.clone(), "rows", 128);
    tuning::save(&file_of(&before), &table).expect("a file");
    // The table is read when a device is opened, not later.
    assert_eq!(before.knob(&key, "rows", 64, &[32, 64, 128]), 64);
    let after = with_folder(&folder);
    assert_eq!(after.knob(&key, "rows", 64, &[32, 64, 128]), 128);
    assert_eq!(after.knob(&key, "rows", 64, &[32, 64]), 64);
    assert_eq!(after.knob(&key, "columns", 1, &[1, 2]), 1);
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
