//! The section of what precision costs a transformer in accuracy.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits, small};
use crate::Error;

/// The measurements of `benches/peers/transformers_precision.py`.
pub(super) struct Precision(Data);

/// The precisions: their names in the data, and here.
const PRECISIONS: [(&str, &str); 5] = [
    ("highest", "f32"),
    ("tf32", "f32, matrix products in TF32"),
    ("bf16-attention", "the same, attention in bfloat16"),
    ("f16-attention", "the same, attention in float16"),
    ("bf16-autocast", "autocast to bfloat16"),
];

impl Precision {
    /// The name of the file.
    pub(super) const NAME: &str = "transformers-precision-h200.json";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        Data::read(results, Self::NAME).map(Self)
    }

    /// The GPU, and the versions of CUDA and of PyTorch.
    pub(super) fn machine(&self) -> Result<String, Error> {
        let root = self.0.root();
        let [device, cuda, torch] = ["device", "cuda", "torch"].map(|key| root.get(key)?.text());
        Ok(format!("{}, CUDA {}, torch {}", device?, cuda?, torch?))
    }

    pub(super) fn commit(&self) -> Result<&str, Error> {
        self.0.root().get("commit")?.text()
    }

    /// How the file was made.
    pub(super) fn command(&self) -> Result<&str, Error> {
        self.0.root().get("command")?.text()
    }

    pub(super) fn table(&self) -> Result<String, Error> {
        let mut table = Table::new(&[
            "precision",
            "seed",
            "validation error",
            "test error",
            "training, s",
        ]);
        let precisions = self.0.root().get("precisions")?;
        for (key, shown) in PRECISIONS {
            let Some(runs) = precisions.find(key) else {
                continue;
            };
            for run in runs.list()? {
                table.row(&[
                    shown.to_owned(),
                    run.get("seed")?.number()?.to_string(),
                    small(run.get("val")?.number()?),
                    small(run.get("test")?.number()?),
                    digits(run.get("seconds")?.number()?),
                ]);
            }
        }
        Ok(table.text())
    }
}
