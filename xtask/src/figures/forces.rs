//! Section of a potential of atoms on a GPU.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits, times};
use crate::Error;

/// The measurements of `benches/peers/forces_gpu.py`.
pub(super) struct Forces(pub(super) Data);

impl Forces {
    /// The name of the file.
    pub(super) const NAME: &str = "forces-gpu-h200.json";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        Data::read(results, Self::NAME).map(Self)
    }

    /// The GPU and the version of PyTorch.
    pub(super) fn machine(&self) -> Result<String, Error> {
        self.0.machine("device", &[("PyTorch", "torch")])
    }

    /// Times of training steps.
    pub(super) fn training(&self) -> Result<String, Error> {
        let mut table = Table::new(&[
            "atoms",
            "step on energies, ms",
            "on energies and forces, ms",
            "ratio",
            "energies and forces without a step, ms",
            "peak memory of the step on forces, MB",
        ]);
        for case in self.0.root().get("training")?.list()? {
            let us = case.get("us")?;
            let ms = |key: &str| Ok::<_, Error>(digits(us.get(key)?.number()? / 1e3));
            let peak = case.get("peak_bytes")?.get("energies and forces")?;
            table.row(&[
                case.get("atoms")?.number()?.to_string(),
                ms("energies")?,
                ms("energies and forces")?,
                times(case.get("ratio")?.number()?),
                ms("forces alone")?,
                digits(peak.number()? / 1e6),
            ]);
        }
        Ok(table.text())
    }

    /// Steps of dynamics.
    pub(super) fn dynamics(&self) -> Result<String, Error> {
        let mut table = Table::new(&[
            "atoms",
            "steps a second",
            "without searches for neighbours",
            "a search, ms",
            "drift of the energy an atom",
        ]);
        for case in self.0.root().get("dynamics")?.list()? {
            let own = |key: &str| Ok::<_, Error>(digits(case.get(key)?.number()?));
            table.row(&[
                case.get("atoms")?.number()?.to_string(),
                own("steps_a_second")?,
                own("steps_a_second_without_searches")?,
                own("ms_a_search")?,
                format!("{:.1e}", case.get("drift_an_atom")?.number()?),
            ]);
        }
        Ok(table.text())
    }
}
