//! The kind of the machine, and the rates that it reaches in this run.

use std::path::Path;
use std::process::Command;

use flashcliff::Dtype;
use serde::{Deserialize, Serialize};

/// The facts that two runs must share for their times to be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kind {
    /// `cpu` or `cuda`.
    pub device: String,
    /// The name of the processor, as it gives itself.
    pub processor: String,
    /// The architecture of the host, or of the GPU.
    pub architecture: String,
    /// The widest vectors that the CPU has; `none` of a GPU.
    pub widest_simd: String,
    /// The number of threads in use on the CPU.
    pub threads: usize,
}

impl Kind {
    /// Whether the device is a GPU.
    pub fn is_gpu(&self) -> bool {
        self.device == "cuda"
    }
}

/// The rates of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Bytes a second of a large copy.
    pub copy_bytes: f64,
    /// Bytes a second of a large addition of two tensors.
    pub add_bytes: f64,
    /// Operations a second in f32: of multiply-adds on the CPU, of a large product of matrices on a GPU.
    pub flops_f32: f64,
    /// Operations a second in f64.
    pub flops_f64: f64,
    /// Operations a second of a product of matrices whose factors are rounded to TF32. Only of a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops_tf32: Option<f64>,
    /// Operations a second of a product of matrices of bf16. Only of a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops_bf16: Option<f64>,
    /// Operations a second of a product of matrices of f16. Only of a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops_f16: Option<f64>,
    /// Seconds of a call with next to no work; of the GPU where there is one.
    pub call_seconds: f64,
}

impl Rates {
    /// Operations a second in a type. On a GPU matrix products of 16 bits, and products that round to TF32, have their own rates.
    pub fn flops(&self, dtype: Dtype, of_matrix_products: bool, rounds_to_tf32: bool) -> f64 {
        let own = match dtype {
            Dtype::F64 => return self.flops_f64,
            Dtype::Bf16 if of_matrix_products => self.flops_bf16,
            Dtype::F16 if of_matrix_products => self.flops_f16,
            Dtype::F32 if of_matrix_products && rounds_to_tf32 => self.flops_tf32,
            _ => None,
        };
        own.unwrap_or(self.flops_f32)
    }
}

/// The name of this machine's CPU.
pub(crate) fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    line.unwrap_or_else(|| "unknown".to_owned())
}

/// The commit that the program was built from, as far as can be known: a file `COMMIT` beside the program says it, or git, if the
/// program lies in a working tree.
pub fn commit() -> String {
    let program = std::env::current_exe().ok();
    let folder = program.as_deref().and_then(Path::parent);
    let known = folder.and_then(|folder| {
        let file = std::fs::read_to_string(folder.join("COMMIT")).ok();
        file.or_else(|| described(folder))
    });
    known.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn described(folder: &Path) -> Option<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder);
    git.args([
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ]);
    let output = git.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_and_a_commit_are_one_line() {
        for text in [processor(), commit()] {
            assert!(!text.is_empty() && !text.contains('\n'), "{text}");
        }
    }
}
