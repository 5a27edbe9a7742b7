//! Section of geometric algebra transformers beside the published packages.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits, small, times};
use crate::Error;

/// The measurements of `benches/peers/transformers_cpu.py`.
pub(super) struct Transformers(Data);

impl Transformers {
    /// The name of the file.
    pub(super) const NAME: &str = "transformers-cpu.json";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        Data::read(results, Self::NAME).map(Self)
    }

    /// The CPU, the threads, and the versions of PyTorch and of the packages.
    pub(super) fn machine(&self) -> Result<String, Error> {
        let root = self.0.root();
        let mut packages = Vec::new();
        for (name, version) in root.get("packages")?.entries()? {
            packages.push(format!("{name} {}", version.text()?));
        }
        Ok(format!(
            "{}, {} threads, {}",
            root.get("machine")?.text()?,
            root.get("threads")?.number()?,
            packages.join(", ")
        ))
    }

    pub(super) fn commit(&self) -> Result<String, Error> {
        Ok(self.0.root().get("commit")?.text()?.to_owned())
    }

    pub(super) fn samples(&self) -> Result<f64, Error> {
        self.0.root().get("samples")?.number()
    }

    /// The largest difference of an output from the package's.
    pub(super) fn difference(&self) -> Result<String, Error> {
        let mut largest = 0.0;
        for case in self.0.root().get("cases")?.list()? {
            largest = f64::max(largest, case.get("difference")?.number()?);
        }
        Ok(small(largest))
    }

    pub(super) fn table(&self) -> Result<String, Error> {
        let mut table = Table::new(&[
            "network and input",
            "inference, ms",
            "the package takes",
            "training step, ms",
            "the package takes",
        ]);
        for case in self.0.root().get("cases")?.list()? {
            let mut row = vec![case.get("name")?.text()?.to_owned()];
            for pass in ["inference", "training step"] {
                let seconds = case.get("seconds")?.get(pass)?;
                let own = seconds.get("flashcliff")?.number()?;
                row.push(digits(own * 1e3));
                row.push(times(seconds.get("theirs")?.number()? / own));
            }
            table.row(&row);
        }
        Ok(table.text())
    }
}
