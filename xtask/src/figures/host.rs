//! Section of what a call from PyTorch costs on the host.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits, times};
use crate::Error;

/// The measurements of `benches/peers/host_cost.py` on a GPU.
pub(super) struct Host(Data);

/// The ways of a call in the data, and how the table names them.
const WAYS: [(&str, &str); 3] = [
    ("pytorch", "PyTorch"),
    ("native", "compiled"),
    ("python", "Python"),
];

impl Host {
    /// The name of the file.
    pub(super) const NAME: &str = "host-cost-gpu-h200.json";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        Data::read(results, Self::NAME).map(Self)
    }

    pub(super) fn commit(&self) -> Result<&str, Error> {
        self.0.root().get("commit")?.text()
    }

    /// The GPU and the versions of Python and PyTorch.
    pub(super) fn machine(&self) -> Result<String, Error> {
        let root = self.0.root();
        Ok(format!(
            "{}, Python {}, PyTorch {}",
            root.get("device")?.text()?,
            root.get("python")?.text()?,
            root.get("torch")?.text()?
        ))
    }

    pub(super) fn rounds(&self) -> Result<f64, Error> {
        self.0.root().get("rounds")?.number()
    }

    pub(super) fn table(&self) -> Result<String, Error> {
        let mut table = Table::new(&[
            "function",
            "call path",
            "forward, us",
            "x of `linear`",
            "with gradient, us",
            "x of `linear`",
            "forward and backward, us",
            "x of `linear`",
        ]);
        for (function, ways) in self.0.root().get("rows")?.entries()? {
            for (key, shown) in WAYS {
                let Some(row) = ways.find(key) else { continue };
                let mut cells = vec![format!("`{function}`"), shown.to_owned()];
                for pass in ["forward", "forward_with_gradient", "forward_and_backward"] {
                    let pass = row.get(pass)?;
                    cells.push(digits(pass.get("us")?.number()?));
                    cells.push(times(pass.get("to_linear")?.number()?));
                }
                table.row(&cells);
            }
        }
        Ok(table.text())
    }
}
