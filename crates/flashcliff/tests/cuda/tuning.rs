//! Tuning tables on a GPU: entries are used, wrong ones are not and are reported, and choices can be seen and forced.

use std::fs;

use flashcliff::cuda::tuning::{
    self, Algorithm, FileState, KnobKey, MatrixProduct, Place, Seen, Source, Table, WatchedDevice,
};
use flashcliff::cuda::{Array, Device, Dtypes, MatmulPrecision};
use flashcliff::ops::{LinearOptions, ProductOptions};
use flashcliff::{
    Algebra, Dims, Dtype, Error, Gate, GradeSet, Norm, Operator, Pass, Signature, ops,
};
use serde_json::Value;

use crate::bits;
use crate::device::device;
use crate::random::Random;
use crate::trials::{Needs, Tests};

pub(crate) fn add(tests: &mut Tests) {
    let all: [(&str, fn()); 8] = [
        ("an_entry_is_used", used),
        ("a_corrupted_entry_falls_back", corrupted),
        ("a_broken_file_falls_back", broken),
        ("knobs_are_read_and_must_be_among_their_values", knobs),
        ("a_pass_asks_for_knobs_by_its_products", asked),
        ("a_watched_device_says_and_takes_choices", watched),
        ("a_product_by_itself_is_right", product),
        ("a_product_of_matrices_that_do_not_fit_is_refused", refused),
    ];
    for (name, test) in all {
        tests.add(Needs::CublasLt, format!("tuning::{name}"), test);
    }
}

const DIMS: Dims = Dims {
    batch: 96,
    in_channels: 64,
    out_channels: 48,
    scalar_channels: 0,
};

const PRECISION: MatmulPrecision = MatmulPrecision::Tf32;

fn linear() -> Operator {
    let algebra = Algebra::new(Signature::of(3, 0, 0)).expect("shipped");
    ops::mv_linear(algebra, &LinearOptions::default()).expect("an operator")
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

/// The output and all gradients of a linear map, as bits.
fn results(device: &Device) -> Vec<Vec<u32>> {
    bits::results(device, &linear(), &DIMS, PRECISION)
}

/// The choices that both passes of the linear map ask for.
fn seen(watched: &WatchedDevice) -> Seen {
    watched.take_seen();
    results(watched.device());
    watched.take_seen()
}

/// A table with the last algorithm that is proposed for each product of the linear map, which is not the first.
fn others() -> Table {
    let watched = WatchedDevice::new(&untuned()).expect("a device");
    let mut table = Table::new(untuned().tuning().gpu().clone());
    for problem in seen(&watched).products {
        let in_use = watched.in_use(&problem).expect("an algorithm");
        let proposals = watched.proposals(&problem, 8).expect("proposals");
        let other = proposals.iter().rev().find(|a| *a != in_use.algorithm());
        if let Some(other) = other {
            table.set_algorithm(problem, *other, None);
        }
    }
    assert!(!table.is_empty(), "a single algorithm for every product");
    table
}

fn file_of(device: &Device) -> std::path::PathBuf {
    device.tuning().file().expect("a folder was given")
}

/// The algorithms of the products of the linear map on a device of the same place, in order.
fn algorithms(device: &Device) -> Vec<Algorithm> {
    let watched = WatchedDevice::new(device).expect("a device");
    let products = seen(&watched).products.into_iter();
    let in_use = products.map(|problem| *watched.in_use(&problem).expect("a plan").algorithm());
    in_use.collect()
}

fn used() {
    let folder = tempfile::tempdir().expect("a folder");
    let table = others();
    tuning::save(&file_of(&with_folder(&folder)), &table).expect("a file");
    let device = with_folder(&folder);
    let entries = table.len();
    assert_eq!(*device.tuning().file_state(), FileState::Read { entries });
    tuning::check(&device).expect("cuBLASLt");
    assert_eq!(device.tuning().ignored(), []);
    let pairs = algorithms(&device).into_iter().zip(algorithms(&untuned()));
    assert_eq!(
        pairs.filter(|(tuned, plain)| tuned != plain).count(),
        entries
    );
    assert_eq!(results(&device), results(&with_folder(&folder)));
}

/// With an entry that is wrong in any way, the results equal the results of the heuristics.
fn corrupted() {
    let want = results(&untuned());
    let folder = tempfile::tempdir().expect("a folder");
    let table = others();
    let path = file_of(&with_folder(&folder));
    tuning::save(&path, &table).expect("a file");
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
        assert_eq!(results(&device), want, "{what}");
        assert_eq!(!device.tuning().ignored().is_empty(), by_calls, "{what}");
        tuning::check(&device).expect("cuBLASLt");
        let ignored = device.tuning().ignored();
        assert_eq!(ignored.len(), table.len(), "{what}: {ignored:?}");
        assert!(ignored.iter().all(|i| i.source == Source::User), "{what}");
    }
}

fn broken() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(file_of(&with_folder(&folder)), "{\"format\": 2").expect("a file");
    let device = with_folder(&folder);
    let state = device.tuning().file_state();
    assert!(matches!(state, FileState::Broken(_)), "{state:?}");
    let want = results(&untuned());
    assert_eq!(results(&device), want);
}

fn knobs() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = KnobKey {
        grades: vec![[1, 4], [1, 4], [3, 6], [3, 6]],
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
    // A search forces what a knob may be, and nothing else.
    let watched = WatchedDevice::new(&after).expect("a device");
    let rows = |values| watched.device().knob(&key, "rows", 64, values);
    assert_eq!(rows(&[32, 64, 128]), 128);
    watched.force_knob(key.clone(), "rows".to_owned(), 32);
    assert_eq!(rows(&[32, 64, 128]), 32);
    assert_eq!(rows(&[64, 128]), 128);
    let knobs = watched.take_seen().knobs;
    assert_eq!(knobs.len(), 1, "{knobs:?}");
    assert_eq!(
        (knobs[0].value, &knobs[0].values[..]),
        (128, &[32, 64, 128][..])
    );
    assert_eq!(after.knob(&key, "rows", 64, &[32, 64, 128]), 128);
}

/// The key of a pass has the grades that its products have, whatever the algebra and the options are.
fn asked() {
    let watched = WatchedDevice::new(&untuned()).expect("a device");
    let grades = |name: &str, options: ProductOptions| {
        let algebra: Algebra = name.parse().expect("an algebra");
        let op = ops::fcgp_norm(algebra, &options).expect("an operator");
        let op = op.on_cuda(watched.device()).expect("kernels");
        let dtypes = Dtypes::uniform(Dtype::Bf16);
        op.workspace_bytes(&DIMS, Pass::Backward, dtypes)
            .expect("kernels");
        let knobs = watched.take_seen().knobs;
        assert_eq!(knobs.len(), 1, "{knobs:?}");
        let KnobKey { grades, .. } = &knobs[0].key;
        let key = KnobKey {
            grades: grades.clone(),
            pass: Pass::Backward,
            dtype: Dtype::Bf16,
            precision: MatmulPrecision::Highest,
            batch: DIMS.batch,
            in_channels: DIMS.in_channels,
            out_channels: DIMS.out_channels,
        };
        assert_eq!(knobs[0].key, key);
        grades.clone()
    };
    let space = grades("cl300", ProductOptions::default());
    assert_eq!(space, [[1, 4], [1, 4], [3, 6], [3, 6]]);
    let plane = grades("cl200", ProductOptions::default());
    assert_eq!(plane, [[1, 3], [1, 3], [2, 4]]);
    // The signs of an algebra do not matter, and neither do gates and norms.
    let plain = ProductOptions::default()
        .with_gate(Gate::None)
        .with_norm(Norm::None);
    assert_eq!(grades("cl020", plain), plane);
    let vectors = Some(GradeSet::single(1));
    let of_vectors = ProductOptions::default()
        .with_left(vectors)
        .with_right(vectors);
    assert_eq!(grades("cl300", of_vectors), [[1, 1], [3, 1]]);
}

fn watched() {
    let watched = WatchedDevice::new(&untuned()).expect("a device");
    let Seen { products, .. } = seen(&watched);
    assert!(products.len() >= 3, "{products:?}");
    let table = others();
    let first = algorithms(&untuned());
    let mut forced = 0;
    for (problem, plain) in products.iter().zip(&first) {
        assert_eq!(watched.in_use(problem).expect("a plan").algorithm(), plain);
        let proposals = watched.proposals(problem, 8).expect("proposals");
        let Some(other) = proposals.iter().rev().find(|other| *other != plain) else {
            continue;
        };
        let candidate = watched.candidate(problem, other).expect("cuBLASLt");
        candidate.expect("a proposal can compute it").force();
        assert_eq!(watched.in_use(problem).expect("a plan").algorithm(), other);
        forced += 1;
    }
    // The table has the same choices, and no other device has them.
    assert_eq!(forced, table.len());
    let folder = tempfile::tempdir().expect("a folder");
    tuning::save(&file_of(&with_folder(&folder)), &table).expect("a file");
    assert_eq!(results(watched.device()), results(&with_folder(&folder)));
    assert_eq!(algorithms(&untuned()), first);

    let wrong = Algorithm {
        cublaslt: 1,
        ..first[0]
    };
    let reason = watched.candidate(&products[0], &wrong).expect("cuBLASLt");
    let reason = reason.expect_err("another version");
    assert!(reason.contains("version"), "{reason}");

    let work = || {
        results(watched.device());
        Ok::<(), Error>(())
    };
    let (seconds, launches) = watched.seconds_of(&products[0], work).expect("times");
    assert!(seconds > 0.0 && launches == 1, "{launches} in {seconds} s");
    let nothing = watched.seconds_of(&products[0], || Ok::<(), Error>(()));
    assert_eq!(nothing, Ok((0.0, 0)));
}

/// A product of small integers is exact in every type, whatever its operands are rounded to.
fn product() {
    let (rows, channels, out) = (40, 24, 56);
    let device = untuned();
    let stream = device.new_stream().expect("a stream");
    let mut random = Random::new(7);
    let x = random.integers(rows * channels);
    let w = random.integers(out * channels);
    let mut want = Vec::new();
    for row in x.chunks(channels) {
        for weights in w.chunks(channels) {
            want.push(row.iter().zip(weights).map(|(x, w)| x * w).sum::<f64>());
        }
    }
    assert!(want.iter().any(|value| *value != 0.0));
    for dtype in [Dtype::F32, Dtype::F64, Dtype::Bf16, Dtype::F16] {
        let array = |values: &[f64], rows| {
            Array::from_f64(&stream, dtype, values, &[rows, channels]).expect("memory")
        };
        let operands = [array(&x, rows), array(&w, out)];
        let product = MatrixProduct::new(&device, &stream, operands, PRECISION);
        let mut product = product.expect("a product");
        product.launch().expect("cuBLASLt");
        let got = product.output().to_f64(&stream).expect("a copy");
        let want: Vec<f64> = want.iter().map(|&value| dtype.nearest(value)).collect();
        assert_eq!(got, want, "{dtype}");
    }
}

fn refused() {
    let device = untuned();
    let stream = device.new_stream().expect("a stream");
    let product = |x: (Dtype, &[usize]), w: (Dtype, &[usize])| {
        let array = |(dtype, shape)| Array::zeros(&stream, dtype, shape).expect("memory");
        MatrixProduct::new(&device, &stream, [array(x), array(w)], PRECISION).map(drop)
    };
    let (f32, f64) = (Dtype::F32, Dtype::F64);
    assert_eq!(product((f32, &[8, 16]), (f32, &[4, 16])), Ok(()));
    let shape = |tensor: &str, result| {
        let found = matches!(&result, Err(Error::ShapeMismatch { tensor: t, .. }) if t == tensor);
        assert!(found, "{result:?}");
    };
    shape("x", product((f32, &[8, 2, 8]), (f32, &[4, 16])));
    shape("w", product((f32, &[8, 16]), (f32, &[16, 4])));
    shape("w", product((f32, &[8, 16]), (f32, &[64])));
    let dtype = product((f32, &[8, 16]), (f64, &[4, 16]));
    assert!(
        matches!(dtype, Err(Error::DtypeMismatch { .. })),
        "{dtype:?}"
    );
}
