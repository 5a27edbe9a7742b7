//! Tests of `flashcliff profile`.

mod common;

use common::Folder;
use serde_json::Value;

/// The report of a profile with these arguments.
fn report(folder: &Folder, arguments: &str) -> Value {
    folder.stdout(&format!(
        "profile {arguments} --quiet --overwrite --json profile.json"
    ));
    folder.json("profile.json")
}

fn number(value: &Value, name: &str) -> f64 {
    value[name]
        .as_f64()
        .unwrap_or_else(|| panic!("{name} of {value}"))
}

fn rows(report: &Value) -> &[Value] {
    report["rows"].as_array().unwrap()
}

fn sum(report: &Value, name: &str) -> f64 {
    rows(report).iter().map(|row| number(row, name)).sum()
}

/// Rows that left out a part of the step, or counted it twice, would differ from the step without a profile by the
/// share of that part. A step with a profile takes about as long as one without.
#[test]
fn the_rows_add_up_to_a_step_without_a_profile() {
    let folder = Folder::new();
    let [mut least, mut cheapest] = [f64::INFINITY; 2];
    for _ in 0..4 {
        let report = report(&folder, "hulls --batch 48 --steps 30");
        let (rows, step) = (sum(&report, "seconds"), number(&report, "plain_seconds"));
        assert!((rows / number(&report, "seconds") - 1.0).abs() < 1e-9);
        assert!((sum(&report, "share") - 1.0).abs() < 1e-9);
        let difference = rows / step - 1.0;
        assert!((difference - number(&report, "difference")).abs() < 1e-9);
        least = least.min(difference.abs());
        let cost = number(&report, "profiled_seconds") / step - 1.0;
        assert!((cost - number(&report, "cost")).abs() < 1e-9);
        cheapest = cheapest.min(cost.abs());
    }
    // The goal is 2 %, with the same noise.
    assert!(cheapest < 0.1, "{cheapest}");
    // The goal is 3 %; a shared machine may differ by more from step to step.
    assert!(least < 0.1, "{least}");
}

#[test]
fn rows_have_the_operations_of_the_network() {
    let folder = Folder::new();
    let report = report(&folder, "hulls --batch 4 --steps 30");
    assert_eq!(report["planned"], true);
    for (operator, phase, calls) in [
        ("steerable_product", "forward", 4.0),
        ("steerable_product", "backward", 4.0),
        ("mv_linear", "forward", 11.0),
        ("blade_norm", "backward", 1.0),
        ("adam", "", 1.0),
        ("batch", "", 1.0),
    ] {
        let is_same = |row: &&Value| row["operator"] == operator && row["phase"] == phase;
        let found: f64 = rows(&report)
            .iter()
            .filter(is_same)
            .map(|row| number(row, "calls"))
            .sum();
        assert_eq!(found, calls, "{operator} {phase}");
    }
    let products = rows(&report)
        .iter()
        .find(|row| row["operator"] == "steerable_product" && row["phase"] == "forward");
    let product = products.unwrap();
    assert_eq!(product["ours"], true);
    assert_eq!(product["algebra"], "cl500");
    assert_eq!(product["shapes"][0], serde_json::json!([32, 4, 32]));
    for field in ["bytes", "flops", "held_bytes", "roofline", "seconds"] {
        assert!(number(product, field) > 0.0, "{field}");
    }
    let last = rows(&report).last().unwrap();
    assert_eq!(
        (&last["operator"], &last["ours"]),
        (&"the rest".into(), &false.into())
    );
}

#[test]
fn networks_without_a_plan_have_rows_of_candle() {
    let folder = Folder::new();
    let report = report(&folder, "gravity --batch 2 --steps 2");
    assert_eq!(report["planned"], false);
    let has = |name: &str, phase: &str| {
        let mut all = rows(&report).iter();
        all.any(|row| row["operator"] == name && row["phase"] == phase)
    };
    for phase in ["forward", "backward"] {
        assert!(has("candle's operations", phase), "{phase}");
        assert!(has("block", phase), "{phase}");
    }
}

#[test]
fn a_profile_explains_the_plan_of_a_step() {
    let folder = Folder::new();
    let text = folder.stdout("profile regression --batch 3 --steps 3 --quiet --explain");
    let (_, page) = text.split_once("\nobjective: ").unwrap();
    for part in [
        "calls for 3 rows, features in f32, model in f32\n",
        "steerable_product gradient",
        "\nstage 0 modelled ",
    ] {
        assert!(page.contains(part), "no {part}:\n{text}");
    }
}

#[test]
fn a_trace_has_every_slice_of_a_step_in_order() {
    let folder = Folder::new();
    folder.stdout("profile regression --steps 3 --quiet --trace trace.json");
    let trace = folder.json("trace.json");
    let events = trace["traceEvents"].as_array().unwrap();
    let slices: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert!(
        slices
            .iter()
            .any(|slice| slice["name"] == "steerable_product backward")
    );
    let mut end = 0.0;
    for slice in slices {
        // One slice begins where another one ends.
        assert!((number(slice, "ts") - end).abs() < 1e-3, "{slice}");
        end = number(slice, "ts") + number(slice, "dur");
    }
    assert!(end > 0.0);
}
