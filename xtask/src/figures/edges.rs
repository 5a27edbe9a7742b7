//! Section of products of nodes and edges, beside libraries of equivariant products.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits};
use crate::Error;

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

pub(super) fn section(results: &Path) -> Result<String, Error> {
    let data = Data::read(results, "edge-products-gpu-h200.json")?;
    let programs = [
        ("PyTorch", "torch"),
        ("cuEquivariance", "cuequivariance"),
        ("OpenEquivariance", "openequivariance"),
    ];
    let versions = data.root().get("versions")?.versions(&programs)?;
    let machine = data.text("device")?.to_owned() + &versions;
    let command = "python3 benches/peers/edge_products_gpu.py --commit HASH";
    Ok(format!(
        "\
## Products of nodes and edges, beside OpenEquivariance and cuEquivariance

For {edges} edges between {nodes} nodes, f32: the geometric product of grades 0 and 1 of the sender, {channels} channels, with grades 0 and 1 of the edge, one
channel, with a weight for each edge, path and channel, summed at the receiver. In the words of e3nn: \"uvu\", 128x0e+128x1o with 0e+1o into
128x0e+128x1o+128x1e. Times of the GPU, medians: of the call as one CUDA graph, and in parentheses of the eager call between events, which waits
for the host where it is slow. \"Second derivatives\" are gradients of a loss on the gradient by the edges, as on forces. All outputs, gradients and second
derivatives differ from plain operations in f64 by less than 1e-5.

Each node has as many edges in as out, and each edge is there in both directions, since the backward pass of OpenEquivariance's deterministic algorithm is
written for such graphs. Each library has its arguments in its own layout. flashcliff sums in a fixed order.

{source}
{table}",
        edges = data.number("edges")?,
        nodes = data.number("nodes")?,
        channels = data.number("channels")?,
        source = data.source_with_commit(&machine, command)?,
        table = table(&data)?,
    ))
}

fn table(data: &Data) -> Result<String, Error> {
    let mut table = Table::new(&[
        "library",
        "forward, ms",
        "with gradients, ms",
        "second derivatives, ms",
        "memory of second derivatives, MB",
    ]);
    let root = data.root();
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
