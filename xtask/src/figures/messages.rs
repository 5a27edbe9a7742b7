//! Section of a layer of messages on a large graph, beside PyTorch Geometric.

use std::path::Path;

use super::data::{Data, Place};
use super::markdown::{Table, digits, times};
use crate::Error;

/// The measurements of `benches/peers/messages_gpu.py`.
pub(super) struct Messages(pub(super) Data);

impl Messages {
    /// The name of the file.
    pub(super) const NAME: &str = "messages-gpu-h200.json";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        Data::read(results, Self::NAME).map(Self)
    }

    /// The floor of a step, ms: matrix products, and memory of nodes.
    pub(super) fn floor(&self) -> Result<[String; 2], Error> {
        let floor = self.0.root().get("floor_ms")?;
        Ok([
            digits(floor.get("flops")?.number()?),
            digits(floor.get("bytes")?.number()?),
        ])
    }

    pub(super) fn table(&self) -> Result<String, Error> {
        let root = self.0.root();
        let mut table = Table::new(&["layer", "forward, ms", "both passes, ms", "peak memory, GB"]);
        let (ours, theirs) = (root.get("ours")?, root.get("pyg")?);
        let cell = |own: &Place<'_>, key: &str| Ok::<_, Error>(digits(own.get(key)?.number()?));
        for (name, own) in [("flashcliff", &ours), ("PyTorch Geometric", &theirs)] {
            let peak = own.get("peak")?.number()? / 1e9;
            table.row(&[
                name.to_owned(),
                cell(own, "forward_ms")?,
                cell(own, "ms")?,
                digits(peak),
            ]);
        }
        let ratio = |key: &str| -> Result<String, Error> {
            Ok(times(theirs.get(key)?.number()? / ours.get(key)?.number()?))
        };
        table.row(&[
            "ratio".to_owned(),
            ratio("forward_ms")?,
            ratio("ms")?,
            ratio("peak")?,
        ]);
        Ok(table.text())
    }
}
