//! Section of charged bodies: steps of training beside CGENN's own code.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits, times};
use crate::Error;

const COMMAND: &str = "python3 benches/peers/nbody_gpu.py CLONE nbody.safetensors --ours f32=run/metrics.json --commit HASH";

pub(super) fn section(results: &Path) -> Result<String, Error> {
    let data = Data::read(results, "nbody-gpu-h200.json")?;
    Ok(format!(
        "\
## Charged bodies beside CGENN's own code

A step of training of CGENN's network on 100 samples of five bodies, with Adam; wall time. CGENN's steps are medians of rounds that take turns. Ours are the
mean of a whole run of the program, with its validations.

{source}
{table}",
        source = data.source_with_commit(data.text("gpu")?, COMMAND)?,
        table = table(&data)?,
    ))
}

/// A row for each way of training; how many of our fastest steps a step takes.
fn table(data: &Data) -> Result<String, Error> {
    let root = data.root();
    let mut rows = Vec::new();
    for (name, milliseconds) in root.get("milliseconds")?.entries()? {
        rows.push((name.to_owned(), milliseconds.number()?));
    }
    for (name, own) in root.get("ours")?.entries()? {
        let name = format!("flashcliff, captured, {name}");
        rows.push((name, own.get("milliseconds")?.number()?));
    }
    let least = rows.iter().map(|row| row.1).fold(f64::INFINITY, f64::min);
    let mut table = Table::new(&["step", "ms", "beside the fastest"]);
    for (name, milliseconds) in rows {
        table.row(&[name, digits(milliseconds), times(milliseconds / least)]);
    }
    Ok(table.text())
}
