//! Section of training steps of the program on a GPU, launched one by one and captured.

use std::path::Path;

use super::data::{Data, Place};
use super::markdown::{Table, digits, mebibytes, times};
use crate::Error;

/// The measurements of `benches/peers/train_gpu.py`.
pub(super) struct Steps(Data);

impl Steps {
    /// The names of the files.
    pub(super) const NAMES: [&str; 2] = ["train-gpu-h200.json", "train-gpu-h100.json"];

    pub(super) fn read(results: &Path, name: &str) -> Result<Self, Error> {
        Data::read(results, name).map(Self)
    }

    /// The GPU with its driver: the first of a machine that has several.
    pub(super) fn machine(&self) -> Result<&str, Error> {
        Ok(self.text("gpu")?.lines().next().unwrap_or_default())
    }

    pub(super) fn commit(&self) -> Result<&str, Error> {
        self.text("commit")
    }

    pub(super) fn rounds(&self) -> Result<f64, Error> {
        self.0.root().get("rounds")?.number()
    }

    pub(super) fn table(&self) -> Result<String, Error> {
        let mut table = Table::new(&[
            "task",
            "batch",
            "precision",
            "step launched, ms",
            "step captured, ms",
            "gain",
            "process launched / captured, s",
            "most memory at once, captured, MiB",
        ]);
        for row in self.0.root().get("rows")?.list()? {
            let of =
                |way: &str, key: &str| -> Result<f64, Error> { row.get(way)?.get(key)?.number() };
            let (launched, captured) = (of("off", "step")?, of("on", "step")?);
            table.row(&[
                row.get("task")?.text()?.to_owned(),
                row.get("batch")?.number()?.to_string(),
                match row.get("precision")?.text()? {
                    "highest" => "f32",
                    "tf32" => "TF32",
                    other => other,
                }
                .to_owned(),
                digits(launched),
                digits(captured),
                times(launched / captured),
                format!(
                    "{} / {}",
                    digits(of("off", "process")?),
                    digits(of("on", "process")?)
                ),
                mebibytes(peak(&row)?),
            ]);
        }
        Ok(table.text())
    }

    fn text(&self, key: &str) -> Result<&str, Error> {
        self.0.root().get(key)?.text()
    }
}

/// The most bytes of the device that were in use at once.
fn peak(row: &Place<'_>) -> Result<f64, Error> {
    let memory = row.get("on")?.get("memory")?;
    memory.get("used_peak")?.number()
}
