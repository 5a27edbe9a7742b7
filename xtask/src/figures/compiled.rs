//! Section of CUDA kernels that are compiled when they are first used.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits, microseconds, times};
use crate::Error;

pub(super) fn section(results: &Path) -> Result<String, Error> {
    let data = Data::read(results, "gpu-h200-compiled.json")?;
    let machine = data.machine_and_commit(&[("CUDA", "cuda")])?;
    let command = "cargo run --release -p flashcliff-benches --features cuda --bin compiled --";
    Ok(format!(
        "\
## Kernels that are compiled when they are first used

Wall time from making the operator to its first result, both passes loaded, f32, on an open device, each in its own process. A
full cache holds the code of the run before. Cl(3,0,0) is precompiled, so its row shows only the time to load the kernels. The second table
sets GPU time of kernels that were compiled when used beside GPU time of the kernels of the build.

{source}
{waits}
{speeds}",
        source = data.source(&data.link(), &machine, command),
        waits = waits(&data)?,
        speeds = speeds(&data)?,
    ))
}

/// The waits of first calls: with an empty cache, and with a full one.
fn waits(data: &Data) -> Result<String, Error> {
    let mut table = Table::new(&["first call", "empty cache, ms", "full cache, ms"]);
    for call in data.root().get("first_calls")?.list()? {
        let shown = |cache: &str| Ok::<_, Error>(digits(call.get(cache)?.number()? * 1e3));
        let algebra = call.get("algebra")?.text()?;
        table.row(&[
            format!("sgp_norm of Cl({algebra}), both passes"),
            shown("empty_cache")?,
            shown("full_cache")?,
        ]);
    }
    Ok(table.text())
}

/// Kernels beside the kernels of the build.
fn speeds(data: &Data) -> Result<String, Error> {
    let mut table = Table::new(&["`sgp_norm`", "us", "x of the built kernel"]);
    for speed in data.root().get("speeds")?.list()? {
        let seconds = speed.get("seconds")?.number()?;
        table.row(&[
            format!("{}, compiled when used", speed.get("name")?.text()?),
            microseconds(seconds),
            times(seconds / speed.get("built_seconds")?.number()?),
        ]);
    }
    Ok(table.text())
}
