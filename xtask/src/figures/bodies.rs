//! Section of charged bodies: steps of training beside CGENN's own code.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits, times};
use crate::Error;

/// The measurements of `benches/peers/nbody_gpu.py`.
pub(super) struct Bodies(pub(super) Data);

impl Bodies {
    /// The name of the file.
    pub(super) const NAME: &str = "nbody-gpu-h200.json";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        Data::read(results, Self::NAME).map(Self)
    }

    /// A row for each way of training; how many of our fastest steps a step takes.
    pub(super) fn table(&self) -> Result<String, Error> {
        let root = self.0.root();
        let mut rows = Vec::new();
        for (name, milliseconds) in root.get("milliseconds")?.entries()? {
            rows.push((name.to_owned(), milliseconds.number()?));
        }
        for (name, own) in root.get("ours")?.entries()? {
            let name = format!("flashcliff, captured, {name}");
            rows.push((name, own.get("milliseconds")?.number()?));
        }
        let least = rows.iter().map(|row| row.1).fold(f64::INFINITY, f64::min);
        let mut table = Table::new(&["step", "ms", "beside the fastest"]);
        for (name, milliseconds) in rows {
            table.row(&[name, digits(milliseconds), times(milliseconds / least)]);
        }
        Ok(table.text())
    }
}
