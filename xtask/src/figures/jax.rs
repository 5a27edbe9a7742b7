//! Section of calls from JAX beside a CUDA graph of PyTorch.

use std::path::Path;

use super::data::{Data, Place};
use super::markdown::{Table, digits, times};
use crate::Error;

pub(super) fn section(results: &Path) -> Result<String, Error> {
    let data = Data::read(results, "jax-gpu-h200.json")?;
    let machine = data.machine("gpu", &[("JAX", "jax"), ("PyTorch", "torch")])?;
    let (rounds, calls) = (data.number("rounds")?, data.number("calls")?);
    let cases = data.root().get("cases")?.list()?;
    let shapes = cases.iter().map(|case| case.shape(["batch", "channels"]));
    let shapes = shapes
        .collect::<Result<Vec<_>, _>>()?
        .join(",")
        .replace(' ', "");
    let command = format!(
        "python3 benches/peers/jax_gpu.py --shapes {shapes} --rounds {rounds} --calls {calls} --commit HASH"
    );
    Ok(format!(
        "\
## A call from JAX, beside a CUDA graph of PyTorch

`sgp_norm` with all its gradients, Cl(3,0,0), f32: one program of `jax.jit`, one captured graph of PyTorch, and the eager call for
orientation. Wall time of a call among {calls} that wait in the queue; medians of {rounds} rounds in turns, and the median of the ratios of a round.
A program of JAX costs time on the host that a small call does not hide. A graph costs less.

{source}
{table}",
        source = data.source_with_commit(&machine, &command)?,
        table = table(&cases)?,
    ))
}

fn table(cases: &[Place<'_>]) -> Result<String, Error> {
    let mut table = Table::new(&[
        "shape",
        "JAX, us",
        "CUDA graph of PyTorch",
        "PyTorch, eager",
        "JAX over the graph",
        "bits of JAX and PyTorch",
    ]);
    for case in cases {
        let us = case.get("microseconds")?;
        let same = case.get("same_bits")?.truth()?;
        table.row(&[
            case.shape(["batch", "channels"])?,
            digits(us.get("jax")?.number()?),
            digits(us.get("pytorch_graph")?.number()?),
            digits(us.get("pytorch_eager")?.number()?),
            times(case.get("jax_over_graph")?.number()?),
            if same { "the same" } else { "others" }.to_owned(),
        ]);
    }
    Ok(table.text())
}
