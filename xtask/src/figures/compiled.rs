//! Section of CUDA kernels that are compiled when they are first used.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits, microseconds, times};
use crate::Error;

/// The measurements of the program `compiled` of the benchmarks.
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
        for call in self.0.root().get("first_calls")?.list()? {
            let shown = |cache: &str| Ok::<_, Error>(digits(call.get(cache)?.number()? * 1e3));
            let algebra = call.get("algebra")?.text()?;
            table.row(&[
                format!("sgp_norm of Cl({algebra}), both passes"),
                shown("empty_cache")?,
                shown("full_cache")?,
            ]);
        }
        Ok(table.text())
    }

    /// Kernels beside the kernels of the build.
    pub(super) fn speeds(&self) -> Result<String, Error> {
        let mut table = Table::new(&["`sgp_norm`", "us", "x of the built kernel"]);
        for speed in self.0.root().get("speeds")?.list()? {
            let seconds = speed.get("seconds")?.number()?;
            table.row(&[
                format!("{}, compiled when used", speed.get("name")?.text()?),
                microseconds(seconds),
                times(seconds / speed.get("built_seconds")?.number()?),
            ]);
        }
        Ok(table.text())
    }
}
