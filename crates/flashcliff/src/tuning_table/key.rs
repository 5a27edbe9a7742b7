//! Keys of a tuning table.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::names;
use super::precision::MatmulPrecision;
use crate::{Dtype, Pass};

/// A GPU, identified by what results and times depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// The name of the GPU, such as `NVIDIA H200`.
    pub name: String,
    /// The compute capability of the GPU, such as `(9, 0)`.
    pub compute_capability: (i32, i32),
}

impl Gpu {
    /// The name of the GPU's file: the letters and digits of its name, and its compute capability.
    pub fn file_name(&self) -> String {
        let (major, minor) = self.compute_capability;
        let mut name = String::new();
        for c in self.name.chars() {
            match c.is_ascii_alphanumeric() {
                true => name.push(c.to_ascii_lowercase()),
                false if name.is_empty() || name.ends_with('-') => {}
                false => name.push('-'),
            }
        }
        let name = name.trim_end_matches('-');
        format!("{name}-sm{major}{minor}.json")
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.compute_capability;
        write!(f, "{} of compute capability {major}.{minor}", self.name)
    }
}

/// The key of knobs: the matrix products of a pass, at some sizes.
///
/// The operator has no name here. The knobs say how a pass is cut into products, so what is the same for the products is the same key:
/// algebras whose grades are alike share entries, and products of fewer grades have their own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnobKey {
    /// For each grade of the output, in ascending order: its blades, and the products whose sum it is, which are the paths to it.
    pub grades: Vec<[usize; 2]>,
    /// The pass.
    #[serde(with = "names::pass")]
    pub pass: Pass,
    /// The type of tensors that have a batch axis.
    #[serde(with = "names::dtype")]
    pub dtype: Dtype,
    /// The rounding of matrix products.
    pub precision: MatmulPrecision,
    /// The batch.
    pub batch: usize,
    /// The channels of the input.
    #[serde(rename = "in")]
    pub in_channels: usize,
    /// The channels of the output.
    #[serde(rename = "out")]
    pub out_channels: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_after_gpus() {
        let file = |name: &str| {
            let gpu = Gpu {
                name: name.to_owned(),
                compute_capability: (9, 0),
            };
            gpu.file_name()
        };
        assert_eq!(file("NVIDIA H200"), "nvidia-h200-sm90.json");
        assert_eq!(
            file("NVIDIA H100 80GB HBM3"),
            "nvidia-h100-80gb-hbm3-sm90.json"
        );
        assert_eq!(file("../../etc/passwd "), "etc-passwd-sm90.json");
    }
}
