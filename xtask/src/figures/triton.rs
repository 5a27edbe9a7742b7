//! Section of Triton kernels beside the CUDA kernels.

use std::path::Path;

use super::data::{Data, Place};
use super::markdown::{Table, digits, times};
use crate::Error;

/// The measurements of `benches/peers/triton_gpu.py`.
pub(super) struct Triton(pub(super) Data);

/// The passes in the data.
const PASSES: [&str; 2] = ["forward", "forward and backward"];

impl Triton {
    /// The name of the file.
    pub(super) const NAME: &str = "triton-gpu-h200.json";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        Data::read(results, Self::NAME).map(Self)
    }

    /// The GPU and the versions of PyTorch and Triton.
    pub(super) fn machine(&self) -> Result<String, Error> {
        self.0
            .machine("device", &[("PyTorch", "torch"), ("Triton", "triton")])
    }

    pub(super) fn table(&self) -> Result<String, Error> {
        let mut table = Table::new(&[
            "algebra",
            "shape",
            "type",
            "kernels",
            "forward, us",
            "x of CUDA",
            "forward and backward, us",
            "x of CUDA",
        ]);
        let root = self.0.root();
        let rows = root.get("rows")?.list()?;
        for row in rows.iter().filter(|row| is(row, "pass", PASSES[0])) {
            let kernels = row.get("kernels")?.text()?;
            let same = |other: &&Place<'_>| {
                let keys = ["algebra", "batch", "channels", "type", "kernels"];
                is(other, "pass", PASSES[1]) && keys.iter().all(|key| row.agrees(other, key))
            };
            let both = rows.iter().find(same);
            let both = both.ok_or_else(|| row.lacks(&format!("a row of `{}`", PASSES[1])))?;
            let mut cells = vec![
                row.get("algebra")?.text()?.to_owned(),
                format!(
                    "{} x {}",
                    row.get("batch")?.number()?,
                    row.get("channels")?.number()?
                ),
                row.get("type")?.text()?.to_owned(),
                self.shown(kernels)?,
            ];
            for pass in [row, both] {
                cells.push(digits(pass.get("us")?.number()?));
                cells.push(times(pass.get("of_cuda")?.number()?));
            }
            table.row(&cells);
        }
        Ok(table.text())
    }

    /// How the table names kernels. A choice has its numbers in the name.
    fn shown(&self, kernels: &str) -> Result<String, Error> {
        let Some(at) = kernels.strip_prefix("triton ") else {
            return Ok(match kernels {
                "triton" => "Triton, as calls choose".to_owned(),
                _ => "CUDA".to_owned(),
            });
        };
        let choices = self.0.root().get("choices")?;
        let list = choices.list()?;
        let choice = at.parse().ok().and_then(|at: usize| list.get(at));
        let choice = choice.ok_or_else(|| choices.lacks(&format!("a choice {at}")))?;
        Ok(format!(
            "Triton {at}: {} registers, {} ahead",
            choice.get("registers")?.number()?,
            choice.get("stages")?.number()?
        ))
    }
}

fn is(row: &Place<'_>, key: &str, text: &str) -> bool {
    row.get(key).and_then(|place| place.text()).ok() == Some(text)
}
