//! Section of CUDA kernels that are compiled when they are first used.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits, microseconds, times};
use crate::Error;

/// The measurements of `gpu --compiled`.
pub(super) struct Compiled(Data);

impl Compiled {
    /// The name of the file.
    pub(super) const NAME: &str = "gpu-h200-compiled.json";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        Data::read(results, Self::NAME).map(Self)
    }

    /// The machine, with the commit.
    pub(super) fn machine(&self) -> Result<String, Error> {
        let machine = self.0.root().get("machine")?;
        let text = |key: &str| machine.get(key)?.text();
        Ok(format!(
            "{}, CUDA {}. Commit: {}",
            text("gpu")?,
            text("cuda")?,
            text("commit")?
        ))
    }

    /// The waits of first calls: with an empty cache, and with a full one.
    pub(super) fn waits(&self) -> Result<String, Error> {
        let mut table = Table::new(&["first call", "empty cache, ms", "full cache, ms"]);
        let entries = self.0.root().get("entries")?;
        for entry in entries.list()? {
            let name = entry.get("name")?.text()?;
            let Some(call) = name.strip_suffix(", empty cache") else {
                continue;
            };
            let full = entries.named(&format!("{call}, full cache"))?;
            let shown = |seconds: f64| digits(seconds * 1e3);
            table.row(&[
                call.strip_prefix("first ").unwrap_or(call).to_owned(),
                shown(entry.get("value")?.number()?),
                shown(full.get("value")?.number()?),
            ]);
        }
        Ok(table.text())
    }

    /// Kernels beside those of the build.
    pub(super) fn speeds(&self) -> Result<String, Error> {
        let mut table = Table::new(&["`sgp_norm`", "us", "x of the built kernel"]);
        for entry in self.0.root().get("entries")?.list()? {
            if entry.get("unit")?.text()? == "x" {
                let seconds = entry.get("seconds")?.numbers()?;
                table.row(&[
                    entry.get("name")?.text()?.to_owned(),
                    microseconds(seconds[0]),
                    times(entry.get("value")?.number()?),
                ]);
            }
        }
        Ok(table.text())
    }
}
