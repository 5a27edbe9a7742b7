//! Section of products of nodes and edges, beside libraries of equivariant products.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits};
use crate::Error;

/// The measurements of `benches/peers/edge_products_gpu.py`.
pub(super) struct Edges(pub(super) Data);

/// The cases of the table, by their keys.
const CASES: [(&str, &str); 7] = [
    ("ours", "flashcliff, `graphs.messages`"),
    (
        "composed",
        "flashcliff, `gather`, the operator and `segment_sum`",
    ),
    ("cuequivariance", "cuEquivariance, `SegmentedPolynomial`"),
    (
        "cuequivariance_channelwise",
        "cuEquivariance, `ChannelWiseTensorProduct`",
    ),
    (
        "openequivariance_deterministic_ir_mul",
        "OpenEquivariance, deterministic",
    ),
    ("openequivariance_atomic_ir_mul", "OpenEquivariance, atomic"),
    ("pytorch", "plain operations of PyTorch"),
];

/// The passes of the table.
const PASSES: [&str; 3] = ["forward", "both", "second"];

impl Edges {
    /// The name of the file.
    pub(super) const NAME: &str = "edge-products-gpu-h200.json";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        Data::read(results, Self::NAME).map(Self)
    }

    /// The GPU and the versions of the libraries.
    pub(super) fn machine(&self) -> Result<String, Error> {
        let mut machine = self.0.text("device")?.to_owned();
        let versions = self.0.root().get("versions")?;
        for (name, key) in [
            ("PyTorch", "torch"),
            ("cuEquivariance", "cuequivariance"),
            ("OpenEquivariance", "openequivariance"),
        ] {
            machine += &format!(", {name} {}", versions.get(key)?.text()?);
        }
        Ok(machine)
    }

    pub(super) fn table(&self) -> Result<String, Error> {
        let mut table = Table::new(&[
            "library",
            "forward, ms",
            "with gradients, ms",
            "second derivatives, ms",
            "memory of second derivatives, MB",
        ]);
        let root = self.0.root();
        let cases = root.get("cases")?;
        for (key, name) in CASES {
            let case = cases.get(key)?;
            let mut row = vec![name.to_owned()];
            for pass in PASSES {
                let pass = case.get(pass)?;
                let eager = digits(pass.get("ms")?.number()?);
                row.push(match pass.find("captured_ms") {
                    Some(captured) => format!("{} ({eager})", digits(captured.number()?)),
                    None => format!("- ({eager})"),
                });
            }
            row.push(digits(case.get("second")?.get("peak")?.number()? / 1e6));
            table.row(&row);
        }
        let floor = root.get("floor_ms")?;
        let mut row = vec!["floor: each tensor of each pass once".to_owned()];
        for pass in PASSES {
            row.push(digits(floor.get(pass)?.number()?));
        }
        row.push(String::new());
        table.row(&row);
        Ok(table.text())
    }
}
