//! The commits whose times on a GPU the page has: files that `benches/gpu.sh` writes name at most three.

use std::path::Path;

use super::data::Data;
use crate::Error;

/// The most commits that the files name.
const MOST: usize = 3;

/// The files that `benches/gpu.sh` writes, and where each has its commit.
const MEASURED: [(&str, &[&str]); 15] = [
    ("users-gpu.json", &["commit"]),
    ("gpu-h200-sweep.json", &["environment", "flashcliff_commit"]),
    ("gpu-h200-fcgp.json", &["environment", "flashcliff_commit"]),
    (
        "gpu-h200-fcgp-bf16.json",
        &["environment", "flashcliff_commit"],
    ),
    (
        "gpu-h200-blocks.json",
        &["environment", "flashcliff_commit"],
    ),
    ("gpu-h200-operators.json", &["commit"]),
    ("gpu-h200-compiled.json", &["machine", "commit"]),
    ("host-cost-gpu-h200.json", &["commit"]),
    ("jax-gpu-h200.json", &["commit"]),
    ("triton-gpu-h200.json", &["commit"]),
    ("train-gpu-h200.json", &["commit"]),
    ("nbody-gpu-h200.json", &["commit"]),
    ("forces-gpu-h200.json", &["commit"]),
    ("messages-gpu-h200.json", &["commit"]),
    ("convolution-gpu-h200.json", &["commit"]),
];

/// The commits that these files name, in the order of the files: one, and others where parts were measured again after a change of theirs.
pub(super) fn measured(results: &Path) -> Result<Vec<String>, Error> {
    let mut found: Vec<String> = Vec::new();
    for (name, keys) in MEASURED {
        let data = Data::read(results, name)?;
        let mut place = data.root();
        for key in keys {
            place = place.get(key)?;
        }
        let commit = place.text()?;
        if found.iter().any(|own| own == commit) {
            continue;
        }
        if found.len() == MOST {
            return Err(place.lacks(&format!("one of the commits {}", found.join(", "))));
        }
        found.push(commit.to_owned());
    }
    Ok(found)
}
