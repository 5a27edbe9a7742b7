//! Section of training on several GPUs by the program.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits, small, times};
use crate::Error;

/// The measurements of `benches/peers/ranks_gpu.py`.
pub(super) struct Ranks(pub(super) Data);

impl Ranks {
    /// The name of the file.
    pub(super) const NAME: &str = "ranks-gpu-h100-x2.json";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        Data::read(results, Self::NAME).map(Self)
    }

    /// One of the GPUs, with its driver.
    pub(super) fn machine(&self) -> Result<&str, Error> {
        let gpus = self.0.root().get("gpus")?;
        let gpus = gpus.list()?;
        let first = gpus.first().ok_or_else(|| self.0.root().lacks("gpus"))?;
        first.text()
    }

    /// The largest relative difference of a loss on one and on two GPUs, and over how many steps.
    pub(super) fn differences(&self) -> Result<String, Error> {
        let differences = self.0.root().get("differences")?;
        let largest = differences.get("largest")?.number()?;
        let steps = differences.get("steps")?.number()?;
        Ok(format!("{} over {steps} steps", small(largest)))
    }

    pub(super) fn table(&self) -> Result<String, Error> {
        let mut table = Table::new(&["GPUs", "batch of all", "step, ms", "samples a second"]);
        for (_, case) in self.0.root().get("cases")?.entries()? {
            let number = |key: &str| -> Result<f64, Error> { case.get(key)?.number() };
            table.row(&[
                number("gpus")?.to_string(),
                number("batch")?.to_string(),
                digits(number("step")?),
                times(number("speedup")?),
            ]);
        }
        Ok(table.text())
    }
}
