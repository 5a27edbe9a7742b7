//! Section of a layer of messages on a large graph, beside PyTorch Geometric.

use std::path::Path;

use super::data::{Data, Place};
use super::markdown::{Table, digits, times};
use crate::Error;

pub(super) fn section(results: &Path) -> Result<String, Error> {
    let data = Data::read(results, "messages-gpu-h200.json")?;
    let floor = data.root().get("floor_ms")?;
    let machine = data.machine("device", &[("PyTorch", "torch")])?;
    let command = "python3 benches/peers/messages_gpu.py --commit HASH";
    Ok(format!(
        "\
## Messages on a large graph, beside PyTorch Geometric

CGENN's layer `nn.EGCL`, Cl(3,0,0), f32, {channels} channels, {nodes} nodes and {edges} edges, and a `MessagePassing` of PyTorch Geometric whose messages and updates are
the same modules of flashcliff. Times of the GPU, medians; memory in a step beyond what was there before. Outputs and gradients differ by {difference:.1e}. The
layer keeps values of all edges, as PyTorch Geometric does, unless `edges_at_once` is given: matrix products of a step take {flops} ms at the rate of a large product, and memory of nodes {bytes} ms.
The step is far from both.

{source}
{table}",
        channels = data.number("channels")?,
        nodes = data.number("nodes")?,
        edges = data.number("edges")?,
        difference = data.number("difference")?,
        flops = digits(floor.get("flops")?.number()?),
        bytes = digits(floor.get("bytes")?.number()?),
        source = data.source_with_commit(&machine, command)?,
        table = table(&data)?,
    ))
}

fn table(data: &Data) -> Result<String, Error> {
    let root = data.root();
    let mut table = Table::new(&[
        "layer",
        "forward, ms",
        "both passes, ms",
        "captured, ms",
        "peak memory, GB",
    ]);
    let (ours, theirs) = (root.get("ours")?, root.get("pyg")?);
    let cell = |own: &Place<'_>, key: &str| Ok::<_, Error>(digits(own.get(key)?.number()?));
    let in_parts = root.get("in_parts")?;
    for (name, own) in [
        ("flashcliff", &ours),
        ("the same, `edges_at_once` a sixteenth", &in_parts),
        ("PyTorch Geometric", &theirs),
    ] {
        let peak = own.get("peak")?.number()? / 1e9;
        let captured = own.find("captured_ms").map(|ms| ms.number().map(digits));
        table.row(&[
            name.to_owned(),
            cell(own, "forward_ms")?,
            cell(own, "ms")?,
            captured.transpose()?.unwrap_or_default(),
            digits(peak),
        ]);
    }
    let ratio = |key: &str| -> Result<String, Error> {
        Ok(times(theirs.get(key)?.number()? / ours.get(key)?.number()?))
    };
    table.row(&[
        "PyTorch Geometric over flashcliff".to_owned(),
        ratio("forward_ms")?,
        ratio("ms")?,
        String::new(),
        ratio("peak")?,
    ]);
    Ok(table.text())
}
