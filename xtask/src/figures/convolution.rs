//! Section of layers on grids, beside cliffordlayers and the real convolution.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits, small, times};
use crate::Error;

pub(super) fn section(results: &Path) -> Result<String, Error> {
    let data = Data::read(results, "convolution-gpu-h200.json")?;
    let machine = data.machine("device", &[("PyTorch", "torch")])?;
    let command = "python3 benches/peers/convolution_gpu.py CLONE --commit HASH";
    Ok(format!(
        "\
## Layers on grids, beside cliffordlayers

Layers of fluids and of Maxwell's equations, f32, TF32 allowed for all, with the same weights: a step is the forward pass and the gradients of the input
and of all parameters. Times of the GPU, medians; memory in a step beyond what was there before. The floor is the real convolution alone, with
a kernel that is there already. In float64 results and gradients differ by at most {difference} of the largest number.

{source}
{table}",
        difference = difference(&data)?,
        source = data.source_with_commit(&machine, command)?,
        table = table(&data)?,
    ))
}

/// The largest difference of a result or a gradient.
fn difference(data: &Data) -> Result<String, Error> {
    let mut greatest = 0.0;
    for (_, case) in data.root().get("cases")?.entries()? {
        greatest = f64::max(greatest, case.get("difference")?.number()?);
    }
    Ok(small(greatest))
}

fn table(data: &Data) -> Result<String, Error> {
    let mut table = Table::new(&[
        "layer",
        "cliffordlayers, ms",
        "flashcliff, ms",
        "captured, ms",
        "floor, ms",
        "gain",
        "cliffordlayers, MB",
        "flashcliff, MB",
    ]);
    for (name, case) in data.root().get("cases")?.entries()? {
        let number = |who: &str, key: &str| case.get(who)?.get(key)?.number();
        let (theirs, ours) = (
            number("cliffordlayers", "milliseconds")?,
            number("flashcliff", "milliseconds")?,
        );
        let floor = case.find("floor");
        let floor = floor.map(|floor| floor.get("milliseconds")?.number().map(digits));
        table.row(&[
            name.to_owned(),
            digits(theirs),
            digits(ours),
            digits(number("flashcliff, captured", "milliseconds")?),
            floor.transpose()?.unwrap_or_default(),
            times(theirs / ours),
            digits(number("cliffordlayers", "megabytes")?),
            digits(number("flashcliff", "megabytes")?),
        ]);
    }
    Ok(table.text())
}
