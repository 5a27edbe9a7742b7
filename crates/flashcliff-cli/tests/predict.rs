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
