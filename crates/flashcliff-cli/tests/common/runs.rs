//! Small training runs, and the files that they write.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::SafeTensors;
use serde_json::Value;

/// A run of a few seconds at most, with results in a folder and further options.
pub(crate) fn tiny(task: &str, out: &str, options: &str) -> String {
    let sizes = "--samples 40 --val-samples 20 --test-samples 20";
    let steps = match options.contains("--steps") {
        true => "",
        false => "--steps 12",
    };
    let seed = match options.contains("--seed") {
        true => "",
        false => "--seed 3",
    };
    format!("train {task} {sizes} {steps} --batch 8 {seed} --out \"{out}\" {options}")
}

pub(crate) fn metrics(out: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(out.join("metrics.json")).unwrap()).unwrap()
}

/// All tensors of a file as bytes. They are compared alone, since a state also holds times, which differ.
pub(crate) fn raw(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    file.tensors()
        .iter()
        .map(|(name, view)| (name.clone(), view.data().to_vec()))
        .collect()
}

/// Checks that both runs ended with the same values, bit for bit.
pub(crate) fn same(a: &Path, b: &Path) {
    assert_eq!(
        raw(&a.join("state.safetensors")),
        raw(&b.join("state.safetensors"))
    );
    let best = |out: &Path| std::fs::read(out.join("best.safetensors")).unwrap();
    assert_eq!(best(a), best(b));
    let (a, b) = (metrics(a), metrics(b));
    for key in [
        "train_losses",
        "validations",
        "errors",
        "settings",
        "published",
    ] {
        assert_eq!(a[key], b[key], "{key}");
    }
}
