//! Tests of `flashcliff bench`.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::coverage::lacking;
use common::{Folder, text};
use serde_json::Value;

const NOTHING: [&str; 0] = [];

/// The report of a quick run with further arguments.
fn report(folder: &Folder, more: &str) -> Value {
    folder.stdout(&format!(
        "bench --quick --quiet --overwrite --json bench.json {more}"
    ));
    folder.json("bench.json")
}

fn cases(report: &Value) -> &[Value] {
    report["cases"].as_array().unwrap()
}

fn names(report: &Value) -> Vec<&str> {
    let names = cases(report).iter().map(|case| case["name"].as_str());
    names.map(Option::unwrap).collect()
}

#[test]
fn all_operators_run_in_all_types_and_passes() {
    let folder = Folder::new();
    let report = report(&folder, "");
    assert_eq!(lacking(&report, &["f32", "f64"]), NOTHING);
    for case in cases(&report) {
        let number = |value: &Value| value.as_f64().unwrap();
        let roofline = &case["roofline"];
        let (seconds, least) = (number(&case["seconds"]), number(&roofline["seconds"]));
        assert!(seconds > 0.0 && least > 0.0);
        assert!((number(&roofline["efficiency"]) - least / seconds).abs() < 1e-9);
        let class = roofline["class"].as_str().unwrap();
        assert!(class.ends_with("-bound"), "{class}");
    }
    for rate in [
        "copy_bytes",
        "add_bytes",
        "flops_f32",
        "flops_f64",
        "call_seconds",
    ] {
        assert!(report["rates"][rate].as_f64().unwrap() > 0.0, "{rate}");
    }
}

/// A report without the rows of one kind is found to lack them.
#[test]
fn what_bench_does_not_cover_is_found() {
    let folder = Folder::new();
    let whole = report(&folder, "--operator gate --layer MVSiLU");
    let of_gate = |missing: &str| lacking(&whole, &[missing]);
    assert!(!of_gate("f32").contains(&"gate f32 forward".to_owned()));
    let all = of_gate("bf16");
    for passes in ["forward", "both"] {
        assert!(all.contains(&format!("gate bf16 {passes}")), "{all:?}");
    }
    // Another operator has no row at all, and another layer neither.
    for name in [
        "product f32 forward",
        "norm allocating",
        "MVLinear f32 forward",
    ] {
        assert!(of_gate("f32").contains(&name.to_owned()), "{name}");
    }
    for place in 0..cases(&whole).len() {
        let mut less = whole.clone();
        less["cases"].as_array_mut().unwrap().remove(place);
        let dtypes = ["f32", "f64"];
        let (before, after) = (lacking(&whole, &dtypes), lacking(&less, &dtypes));
        assert_eq!(
            after.len(),
            before.len() + 1,
            "{}",
            cases(&whole)[place]["name"]
        );
    }
}

#[test]
fn operator_algebra_shape_and_type_choose_the_cases() {
    let folder = Folder::new();
    let chosen = "--operator fcgp_norm --algebra 1,3,0 --shape 6x4x3 --dtype f64";
    let report = report(&folder, chosen);
    assert_eq!(
        names(&report),
        [
            "fcgp_norm cl130 6x4->3 f64 forward",
            "fcgp_norm cl130 6x4->3 f64 forward+backward"
        ]
    );
}

/// A small call is all cost of the call; a product of all channels with all has many operations for its bytes.
#[test]
fn classes_come_from_measured_rates() {
    let folder = Folder::new();
    let class = |chosen: &str| {
        let report = report(&folder, &format!("{chosen} --dtype f32"));
        let class = cases(&report)[0]["roofline"]["class"].as_str();
        class.unwrap().to_owned()
    };
    assert_eq!(class("--operator reverse --shape 1x1"), "launch-bound");
    assert_eq!(
        class("--operator fcgp_norm --shape 256x64"),
        "compute-bound"
    );
}

#[test]
fn the_benchmark_runs_and_writes_json() {
    let folder = Folder::new();
    let chosen = "bench --quick --only \"sgp_norm cl200\" --json bench.json";
    let text = folder.stdout(chosen);
    assert!(text.contains("sgp_norm cl200") && text.contains("floor ms"));
    let report = folder.json("bench.json");
    assert_eq!(cases(&report).len(), 2);
    for case in cases(&report) {
        for number in ["seconds", "floor_seconds", "flops"] {
            assert!(case[number].as_f64().unwrap() > 0.0, "{number}");
        }
    }
}

/// A training step holds what its documentation counts, and takes next to no memory once it runs.
#[test]
fn the_memory_of_a_training_step_is_counted() {
    let folder = Folder::new();
    let report = report(&folder, "--only \"hulls training step\"");
    let memory = &cases(&report)[0]["memory"];
    let bytes = |name: &str| memory[name].as_u64().unwrap();
    // Parameters with gradients and two moments, 13 tensors of 32 blades and 3 tensors of one blade, for a batch of
    // 8; and the four gradients of the backward pass of a product.
    let elements = 4 * 58_849 + (17 * 32 + 3) * 8 * 32;
    let counted = bytes("counted_bytes") as f64 / f64::from(4 * elements);
    // Besides there are points as multivectors, row sums, and predictions.
    assert!((1.0..1.02).contains(&counted), "{counted}");
    assert!(bytes("peak_bytes") > bytes("counted_bytes"));
    // A step takes no memory for tensors: the gradient of a layer's matrix has 24 KiB, an activation 32. What is left are the packed
    // operands of small matrix products, and lists.
    assert!(bytes("largest_block_bytes") < 16 << 10);
    assert!(bytes("allocated_bytes") < 2 << 20);
}

#[test]
fn layers_and_networks_are_chosen_by_name() {
    let folder = Folder::new();
    let report = report(&folder, "--layer MVLinear --network volumes");
    assert_eq!(
        names(&report),
        [
            "MVLinear cl300 32x8 forward",
            "MVLinear cl300 32x8 forward+backward",
            "MVLinear cl300 32x8 f64 forward",
            "MVLinear cl300 32x8 f64 forward+backward",
            "volumes inference cl300 batch 8",
            "volumes training step cl300 batch 8",
        ]
    );
    // A linear map has 4 grades of 8 x 8 numbers and 8 of its bias: 2 operations for each of 8 blades, and the addition of the bias.
    let linear = &cases(&report)[0];
    let number = |name: &str| linear[name].as_u64().unwrap();
    assert_eq!(number("bytes"), 4 * (2 * 8 * 32 * 8 + 4 * 64 + 8));
    let products = 2 * 8 * 32 * 64;
    assert!((products..products + 8 * 32 * 8 + 1).contains(&number("flops")));
    assert_eq!(linear["network"]["calls"], 1);
    for case in cases(&report) {
        assert!(case["roofline"]["efficiency"].as_f64().unwrap() > 0.0);
        assert!(case["memory"]["peak_bytes"].as_u64() > Some(0));
        assert!(case["relative_difference"].as_f64().unwrap() < 1e-5);
        assert!(!case["repeats"].as_array().unwrap().is_empty());
    }
}

/// Functions of rotors are measured as layers are, in space and with motions.
#[test]
fn rotors_are_measured() {
    let folder = Folder::new();
    let chosen = "--layer rotors::exp --layer rotors::interpolate --dtype f32";
    let report = report(&folder, chosen);
    assert_eq!(cases(&report).len(), 8);
    let exp = &cases(&report)[0];
    assert_eq!(exp["name"], "rotors::exp cl300 32x8 forward");
    // Three blades of a bivector, and four of a rotor, in `f64`.
    let number = 8 * 32 * 8;
    let (bivector, rotor) = (3 * number, 4 * number);
    assert_eq!(exp["bytes"], bivector + rotor);
    assert_eq!(exp["network"]["calls"], 1);
    let both = &cases(&report)[5];
    assert_eq!(
        both["name"],
        "rotors::interpolate cl300 32x8 forward+backward"
    );
    assert_eq!(both["network"]["calls"], 8);
    // Two normalisations, the logarithm of two rotors, and a rotor times the exponential of a number of bivectors:
    // inputs are read twice and their gradients written, outputs are written and their gradients read.
    let inputs = 2 * rotor + 2 * rotor + rotor + bivector + number;
    let outputs = 2 * rotor + bivector + rotor;
    assert_eq!(both["bytes"], 3 * inputs + 2 * outputs);
    for case in cases(&report) {
        assert!(case["relative_difference"].as_f64().unwrap() < 1e-5);
    }
}

/// Layers and networks have verdicts beside a stored run.
#[test]
fn layers_and_networks_are_compared() {
    let folder = Folder::new();
    let chosen = "--layer MVSiLU --network hulls";
    store(&folder, chosen);
    let (report, _) = beside(&folder, None, &format!("{chosen} --fail 100000"));
    let verdicts = report["comparisons"].as_array().unwrap();
    assert_eq!(verdicts.len(), 6);
}

/// The report of a quick run beside a stored one, and the exit status.
fn beside(folder: &Folder, tier: Option<&str>, more: &str) -> (Value, i32) {
    let files = "--overwrite --json now.json --baseline before.json";
    let mut command = folder.command(&format!("bench --quick --quiet {files} {more}"));
    command.envs(tier.map(|tier| ("FLASHCLIFF_SIMD", tier)));
    let output = command.output().unwrap();
    let status = output.status.code().unwrap();
    assert!([0, 3, 4].contains(&status), "{}", text(&output.stderr));
    (folder.json("now.json"), status)
}

/// Stores a run of more repeats than a quick one has, so that intervals can be narrow.
fn store(folder: &Folder, chosen: &str) {
    folder.stdout(&format!(
        "bench --quick --quiet --repeats 30 --overwrite --json before.json {chosen}"
    ));
}

const PRODUCT: &str = "--operator sgp_norm --shape 512x64 --dtype f32 --algebra cl300";

/// The fresh pairs of runs until every case has a verdict. Other work of the machine can leave a pair without one.
const PAIRS: usize = 5;

/// Runs the product with vectors, then with the scalar tier, until every case has the verdict that is wanted.
///
/// A pair of runs may say of a case that it cannot be compared, no other wrong verdict, and its exit status must be
/// that of its verdicts. If noise leaves a case without a verdict in all pairs, its times still prove the loss: the
/// median of its ratios is beyond a failure.
fn finds_lost_vectors(wanted: &str, more: &str) {
    let mut ratios: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut decided = BTreeSet::new();
    for _ in 0..PAIRS {
        let folder = Folder::new();
        store(&folder, PRODUCT);
        let (report, status) = beside(&folder, Some("scalar"), &format!("{PRODUCT} {more}"));
        let verdicts = report["comparisons"].as_array().unwrap();
        assert_eq!(verdicts.len(), 2);
        let mut is_found = false;
        for comparison in verdicts {
            let case = comparison["case"].as_str().unwrap().to_owned();
            let verdict = comparison["verdict"].as_str().unwrap();
            if verdict == wanted {
                is_found = true;
                assert!(
                    comparison["interval"]["low"].as_f64() > Some(1.0),
                    "{comparison}"
                );
                decided.insert(case.clone());
            } else {
                assert_eq!(verdict, "not-comparable", "{comparison}");
            }
            let ratio = comparison["interval"]["ratio"].as_f64();
            ratios.entry(case).or_default().extend(ratio);
        }
        let expected = match (is_found, wanted) {
            (false, _) => 0,
            (true, "slower-failure") => 4,
            (true, _) => 3,
        };
        assert_eq!(status, expected, "{report}");
        if decided.len() == verdicts.len() {
            return;
        }
    }
    for (case, ratios) in ratios {
        let middle = flashcliff_bench::measure::median(ratios.clone());
        assert!(
            decided.contains(&case) || middle > 1.25,
            "{case}: {ratios:?}"
        );
    }
}

/// The scalar tier takes many times as long as vectors. A machine without vectors has nothing to lose.
#[test]
fn a_lost_vectorisation_fails() {
    if flashcliff::Tier::available().count() == 1 {
        return;
    }
    finds_lost_vectors("slower-failure", "");
    // A limit beyond the loss makes a warning of it.
    finds_lost_vectors("slower-warning", "--fail 100000");
}

/// A stored run whose times are changed by far more than any noise. The status follows from the limits; what runs
/// beside the test can only make the floors of both runs differ too much, so that it is tried again.
#[test]
fn the_status_is_3_after_a_warning_and_4_after_a_failure() {
    let gate = "--operator gate --shape 512x64 --dtype f32 --algebra cl300";
    let planted = |factor: f64, more: &str| {
        for _ in 0..PAIRS {
            let folder = Folder::new();
            store(&folder, gate);
            let mut before = folder.json("before.json");
            for case in before["cases"].as_array_mut().unwrap() {
                for repeat in case["repeats"].as_array_mut().unwrap() {
                    repeat["seconds"] = (repeat["seconds"].as_f64().unwrap() * factor).into();
                }
            }
            std::fs::write(folder.path("before.json"), before.to_string()).unwrap();
            let (report, status) = beside(&folder, None, &format!("{gate} {more}"));
            let verdicts = report["comparisons"].as_array().unwrap().iter();
            let verdicts: BTreeSet<String> = verdicts
                .map(|verdict| verdict["verdict"].as_str().unwrap().to_owned())
                .collect();
            if !verdicts.contains("not-comparable") {
                return (verdicts.into_iter().collect::<Vec<_>>(), status);
            }
        }
        panic!("the floors of two runs were never alike");
    };
    let only = |verdict: &str| vec![verdict.to_owned()];
    assert_eq!(planted(0.01, "--fail 100000"), (only("slower-warning"), 3));
    assert_eq!(planted(0.01, ""), (only("slower-failure"), 4));
    assert_eq!(planted(100.0, ""), (only("faster"), 0));
}

#[test]
fn what_cannot_be_compared_is_no_failure() {
    let folder = Folder::new();
    store(&folder, PRODUCT);
    let other = "--operator gate --shape 8x8 --dtype f32";
    let (report, status) = beside(&folder, None, other);
    let verdicts = report["comparisons"].as_array().unwrap();
    assert!(verdicts.iter().all(|v| v["verdict"] == "not-comparable"));
    assert_eq!((verdicts.len(), status), (2, 0));
    assert!(
        verdicts[0]["reason"]
            .as_str()
            .unwrap()
            .contains("no such case")
    );
    let (report, status) = beside(&folder, Some("scalar"), &format!("{PRODUCT} --threads 1"));
    let reason = report["comparisons"][0]["reason"].as_str().unwrap();
    match flashcliff::threads::count() {
        1 => {}
        _ => assert!(reason.contains("threads were"), "{reason}"),
    }
    assert!([0, 4].contains(&status));
}
