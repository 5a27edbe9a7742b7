//! What a report of `flashcliff bench` lacks, beside the table of operators and the list of layers.

use flashcliff::ops;
use serde_json::Value;

use super::{run, text};

/// The layers and functions of rotors that `--layer` takes, as the program lists them.
fn layers() -> Vec<String> {
    let refused = text(&run("bench --layer ?").stderr);
    let (_, names) = refused.split_once("[possible values: ").unwrap();
    let (names, _) = names.split_once(']').unwrap();
    names.split(", ").map(str::to_owned).collect()
}

/// The rows that a report should have and lacks: every operator of the table with both passes in each of some types,
/// and once as a call that allocates; every layer with both passes, in each type that it takes. Transformers and rotors
/// take no 16 bits.
pub(crate) fn lacking(report: &Value, dtypes: &[&str]) -> Vec<String> {
    let rows = report["cases"].as_array().unwrap();
    let has = |test: &dyn Fn(&Value) -> bool| rows.iter().any(test);
    let mut lacking = Vec::new();
    let mut need = |name: String, is_there: bool| {
        if !is_there {
            lacking.push(name);
        }
    };
    for operator in ops::TABLE {
        let name = operator.name;
        let is_own = |row: &Value, allocates: bool| {
            let of = &row["operator"];
            of["name"] == name && (of["allocates"] == true) == allocates
        };
        for dtype in dtypes {
            for passes in ["forward", "both"] {
                let is_same = |row: &Value| {
                    let of = &row["operator"];
                    is_own(row, false) && of["dtype"] == *dtype && of["passes"] == passes
                };
                need(format!("{name} {dtype} {passes}"), has(&is_same));
            }
        }
        need(format!("{name} allocating"), has(&|row| is_own(row, true)));
    }
    let halves = "MVLinear GradeNorm MVLayerNorm MVSiLU FlashCliffordLayer";
    let halves: Vec<&str> = halves.split(' ').collect();
    for layer in layers() {
        for dtype in dtypes {
            let is_half = ["bf16", "f16"].contains(dtype);
            let first = layer.split('.').next().unwrap_or_default();
            if is_half && !halves.contains(&first) {
                continue;
            }
            for work in ["forward", "forward+backward"] {
                let is_same = |row: &Value| {
                    let of = &row["network"];
                    of["name"] == layer && of["dtype"] == *dtype && of["work"] == work
                };
                need(format!("{layer} {dtype} {work}"), has(&is_same));
            }
        }
    }
    lacking
}
