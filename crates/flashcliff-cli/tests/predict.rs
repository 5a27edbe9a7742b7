//! Tests of `flashcliff calibrate` and `flashcliff predict`.

mod common;

use common::{Folder, arg, flashcliff, run, stdout, text};
use serde_json::Value;

#[test]
fn a_calibration_has_rates_of_every_operator() {
    let text = stdout(&["calibrate", "--quick", "--json", "--quiet"]);
    let rates: Value = serde_json::from_str(&text).unwrap();
    for operator in flashcliff::ops::TABLE {
        for dtype in ["f32", "f64"] {
            let all = rates["operators"].as_array().unwrap();
            let is_same =
                |rate: &&Value| rate["operator"] == operator.name && rate["dtype"] == dtype;
            assert!(
                all.iter().filter(is_same).count() >= 12,
                "{} {dtype}",
                operator.name
            );
        }
    }
    let bytes = rates["levels"].as_array().unwrap().iter();
    let bytes: Vec<u64> = bytes
        .map(|level| level["bytes"].as_u64().unwrap())
        .collect();
    assert!(bytes.is_sorted() && bytes.len() > 3, "{bytes:?}");
}

#[test]
fn a_prediction_without_rates_says_how_to_get_them() {
    let folder = Folder::new();
    let cache = folder.path("cache");
    let mut command = flashcliff();
    command.env("FLASHCLIFF_CACHE_DIR", arg(&cache));
    let output = command
        .args(["predict", "sgp_norm", "--shape", "4x4"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(
        error.contains("run `flashcliff calibrate`") && error.contains(arg(&cache)),
        "{error}"
    );
}

/// No limit can be met by an error that is not negative, and any error meets a limit that is large enough.
#[test]
fn a_check_compares_and_has_a_status() {
    let args = [
        "predict", "--check", "--quick", "--quiet", "--json", "--median", "1e12", "--worst", "1e12",
    ];
    let errors: Value = serde_json::from_str(&stdout(&args)).unwrap();
    let cases = errors["cases"].as_array().unwrap();
    assert!(cases.len() >= 4 * flashcliff::ops::TABLE.len());
    for case in cases {
        let [predicted, measured, error] = ["predicted_seconds", "measured_seconds", "error"]
            .map(|name| case[name].as_f64().unwrap());
        assert!(predicted > 0.0 && measured > 0.0);
        assert!((error - (predicted - measured).abs() / measured).abs() < 1e-9 * (1.0 + error));
    }
    let missed = run(&["predict", "--check", "--quick", "--quiet", "--worst", "0"]);
    assert_eq!(missed.status.code(), Some(3));
}

/// A check of steps measures few steps, so only their number and the arithmetic are certain.
#[test]
fn training_steps_are_predicted_and_checked() {
    let args = [
        "predict",
        "regression",
        "volumes",
        "--check",
        "--quick",
        "--quiet",
        "--json",
    ];
    let output = run(&args);
    assert!([Some(0), Some(3)].contains(&output.status.code()));
    let errors: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let steps = errors["steps"].as_array().unwrap();
    let tasks: Vec<&str> = steps
        .iter()
        .map(|step| step["task"].as_str().unwrap())
        .collect();
    assert_eq!(tasks, ["regression", "volumes"]);
    for step in steps {
        for (kind, error) in [("seconds", "error"), ("bytes", "memory_error")] {
            let [predicted, measured] = ["predicted", "measured"]
                .map(|name| step[format!("{name}_{kind}")].as_f64().unwrap());
            let expected = (predicted - measured).abs() / measured;
            assert!(predicted > 0.0 && measured > 0.0);
            assert!((step[error].as_f64().unwrap() - expected).abs() < 1e-9);
        }
        // Memory is counted, not timed: 3 samples lie on the line of 2 and 4.
        assert!(step["memory_error"].as_f64().unwrap() < 0.05, "{step}");
    }
    let args = [
        "predict",
        "regression",
        "--check",
        "--quick",
        "--quiet",
        "--worst",
        "0",
    ];
    assert_eq!(run(&args).status.code(), Some(3));
}

#[test]
fn names_that_mean_nothing_together_are_refused() {
    for (args, expected) in [
        (
            &["hulls", "sgp_norm", "--batch", "4"][..],
            "the names of tasks only",
        ),
        (&["hulls", "--shape", "4x4"], "tasks with --batch"),
        (&["hulls"], "tasks with --batch"),
        (&[], "tasks with --batch"),
        (&["sgp_norm"], "operators with --shape"),
        (&["sgp_norm", "hulls"], "not both"),
        (&["sgp_norm", "--batch", "4"], "the names of tasks only"),
        (&["--batch", "4"], "the names of tasks"),
        (&["sgp_norm", "--check"], "no name, or the names of tasks"),
    ] {
        let all: Vec<&str> = ["predict"]
            .into_iter()
            .chain(args.iter().copied())
            .collect();
        let output = run(&all);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains(expected), "{message}");
    }
}
