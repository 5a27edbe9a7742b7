//! The section of what precision costs a transformer in accuracy.

use std::path::Path;

use super::data::{Data, Place};
use super::markdown::{Table, digits, range, small};
use crate::Error;

/// The measurements of `benches/peers/transformers_precision.py` of one task.
pub(super) struct Precision {
    data: Data,
    /// The name of the file.
    pub(super) name: String,
}

/// The precisions: their names in the data, and here. The data have autocast too, of a commit at which it rounded all tokens.
const PRECISIONS: [(&str, &str); 4] = [
    ("highest", "f32"),
    ("tf32", "f32, matrix products in TF32"),
    ("bf16-attention", "the same, attention in bfloat16"),
    ("f16-attention", "the same, attention in float16"),
];

impl Precision {
    pub(super) fn read(results: &Path, task: &str) -> Result<Self, Error> {
        let name = format!("transformers-precision-{task}-h200.json");
        let data = Data::read(results, &name)?;
        Ok(Self { data, name })
    }

    /// The GPU, and the versions of CUDA and of PyTorch.
    pub(super) fn machine(&self) -> Result<String, Error> {
        let root = self.data.root();
        let [device, cuda, torch] = ["device", "cuda", "torch"].map(|key| root.get(key)?.text());
        Ok(format!("{}, CUDA {}, torch {}", device?, cuda?, torch?))
    }

    pub(super) fn commit(&self) -> Result<&str, Error> {
        self.data.root().get("commit")?.text()
    }

    /// How the file was made.
    pub(super) fn command(&self) -> Result<&str, Error> {
        self.data.root().get("command")?.text()
    }

    /// The error of the best possible classifier on the test split, in percent.
    pub(super) fn bound(&self) -> Result<String, Error> {
        let bound = self.data.root().get("bound")?.get("test")?.number()?;
        Ok(digits(100.0 * bound))
    }

    /// Mean squared errors.
    pub(super) fn squares(&self) -> Result<String, Error> {
        self.table("mean test error", small)
    }

    /// Shares of jets on the wrong side.
    pub(super) fn shares(&self) -> Result<String, Error> {
        self.table("mean test error, %", |share| digits(100.0 * share))
    }

    fn table(&self, head: &str, show: fn(f64) -> String) -> Result<String, Error> {
        let mut table = Table::new(&["precision", "seeds", head, "of all seeds", "s a seed"]);
        let precisions = self.data.root().get("precisions")?;
        for (key, shown) in PRECISIONS {
            let Some(runs) = precisions.find(key) else {
                continue;
            };
            let runs = runs.list()?;
            let errors = numbers(&runs, "test")?;
            table.row(&[
                shown.to_owned(),
                runs.len().to_string(),
                show(mean(&errors)),
                range(errors.iter().copied(), show),
                digits(mean(&numbers(&runs, "seconds")?)),
            ]);
        }
        Ok(table.text())
    }
}

fn numbers(runs: &[Place<'_>], key: &str) -> Result<Vec<f64>, Error> {
    runs.iter().map(|run| run.get(key)?.number()).collect()
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}
