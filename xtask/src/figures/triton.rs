//! Section of Triton kernels beside the CUDA kernels.

use std::path::Path;

use super::data::{Data, Place};
use super::markdown::{Table, digits, times};
use crate::Error;

/// The passes in the data.
const PASSES: [&str; 2] = ["forward", "forward and backward"];

pub(super) fn section(results: &Path) -> Result<String, Error> {
    let data = Data::read(results, "triton-gpu-h200.json")?;
    let machine = data.machine("device", &[("PyTorch", "torch"), ("Triton", "triton")])?;
    let command = "python3 benches/peers/triton_gpu.py --quick --rounds 20 --commit HASH";
    Ok(format!(
        "\
## Triton kernels beside CUDA kernels

`sgp_norm`, GPU time of captured calls, medians of rounds in turns. Triton kernels are for GPUs of AMD and Intel, and run here on one of NVIDIA, so
that both kinds can be compared. Both passes take one choice of tiles in each row: a bound on the registers of a thread, and the tiles that are on
their way ahead. Calls take choice 4 for passes without sums over the batch, such as the forward pass, and choice 2 for passes with sums
([record 127](../docs/decisions/127-triton-kernels-of-programs.md)).

{source}
{table}",
        source = data.source_with_commit(&machine, command)?,
        table = table(&data)?,
    ))
}

fn table(data: &Data) -> Result<String, Error> {
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
    let root = data.root();
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
            row.shape(["batch", "channels"])?,
            row.get("type")?.text()?.to_owned(),
            shown(data, kernels)?,
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
fn shown(data: &Data, kernels: &str) -> Result<String, Error> {
    let Some(at) = kernels.strip_prefix("triton ") else {
        return Ok(match kernels {
            "triton" => "Triton, as calls choose".to_owned(),
            _ => "CUDA".to_owned(),
        });
    };
    let choices = data.root().get("choices")?;
    let list = choices.list()?;
    let choice = at.parse().ok().and_then(|at: usize| list.get(at));
    let choice = choice.ok_or_else(|| choices.lacks(&format!("a choice {at}")))?;
    Ok(format!(
        "Triton {at}: {} registers, {} ahead",
        choice.get("registers")?.number()?,
        choice.get("stages")?.number()?
    ))
}

fn is(row: &Place<'_>, key: &str, text: &str) -> bool {
    row.get(key).and_then(|place| place.text()).ok() == Some(text)
}
