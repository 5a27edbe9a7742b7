//! Section of a potential of atoms on a GPU.

use std::path::Path;

use super::data::Data;
use super::markdown::{Table, digits, times};
use crate::Error;

pub(super) fn section(results: &Path) -> Result<String, Error> {
    let data = Data::read(results, "forces-gpu-h200.json")?;
    let machine = data.machine("device", &[("PyTorch", "torch")])?;
    let command = "python3 benches/peers/forces_gpu.py --commit HASH";
    Ok(format!(
        "\
## Energies and forces of atoms, on a GPU

`nn.Potential` with {channels} channels and {layers} layers on shaken silicon with 28 neighbours an atom, f32. Each step is one captured graph: a training step with AdamW, or velocity
Verlet. Times of the GPU, medians of replays in turns. vesin looks for neighbours, on the CPU.

{source}
{training}
{dynamics}",
        channels = data.number("channels")?,
        layers = data.number("layers")?,
        source = data.source_with_commit(&machine, command)?,
        training = training(&data)?,
        dynamics = dynamics(&data)?,
    ))
}

/// Times of training steps.
fn training(data: &Data) -> Result<String, Error> {
    let mut table = Table::new(&[
        "atoms",
        "step on energies, ms",
        "on energies and forces, ms",
        "ratio",
        "energies and forces without a step, ms",
        "peak memory of the step on forces, MB",
    ]);
    for case in data.root().get("training")?.list()? {
        let us = case.get("us")?;
        let ms = |key: &str| Ok::<_, Error>(digits(us.get(key)?.number()? / 1e3));
        let peak = case.get("peak_bytes")?.get("energies and forces")?;
        table.row(&[
            case.get("atoms")?.number()?.to_string(),
            ms("energies")?,
            ms("energies and forces")?,
            times(case.get("ratio")?.number()?),
            ms("forces alone")?,
            digits(peak.number()? / 1e6),
        ]);
    }
    Ok(table.text())
}

/// Steps of dynamics.
fn dynamics(data: &Data) -> Result<String, Error> {
    let mut table = Table::new(&[
        "atoms",
        "steps a second",
        "without searches for neighbours",
        "a search, ms",
        "drift of the energy an atom",
    ]);
    for case in data.root().get("dynamics")?.list()? {
        let own = |key: &str| Ok::<_, Error>(digits(case.get(key)?.number()?));
        table.row(&[
            case.get("atoms")?.number()?.to_string(),
            own("steps_a_second")?,
            own("steps_a_second_without_searches")?,
            own("ms_a_search")?,
            format!("{:.1e}", case.get("drift_an_atom")?.number()?),
        ]);
    }
    Ok(table.text())
}
