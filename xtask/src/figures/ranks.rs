//! Section of training on several GPUs by the program.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits, small, times};
use crate::Error;

pub(super) fn section(results: &Path) -> Result<String, Error> {
    let data = Data::read(results, "ranks-gpu-h100-x2.json")?;
    let differences = data.root().get("differences")?;
    let gpus = data.root().get("gpus")?.list()?;
    let first = gpus.first().ok_or_else(|| data.root().lacks("gpus"))?;
    let command = "python3 benches/peers/ranks_gpu.py PROGRAM --commit HASH";
    Ok(format!(
        "\
## Training on two GPUs, by the program

`train hulls --gpus 2`, captured steps; medians over intervals, wall time. NCCL averages the gradients within the step, after the backward
pass. The losses on one and on two GPUs with the same batches differ by at most {largest} over {steps} steps, relatively.

{source}
{table}",
        largest = small(differences.get("largest")?.number()?),
        steps = differences.get("steps")?.number()?,
        source = data.source_with_commit(&format!("two of {}", first.text()?), command)?,
        table = table(&data)?,
    ))
}

fn table(data: &Data) -> Result<String, Error> {
    let mut table = Table::new(&["GPUs", "batch of all", "step, ms", "samples a second"]);
    for (_, case) in data.root().get("cases")?.entries()? {
        let number = |key: &str| -> Result<f64, Error> { case.get(key)?.number() };
        table.row(&[
            number("gpus")?.to_string(),
            number("batch")?.to_string(),
            digits(number("step")?),
            times(number("speedup")?),
        ]);
    }
    Ok(table.text())
}
