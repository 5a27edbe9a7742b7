//! Section of training steps of the program on a GPU, launched one by one and captured.

use std::path::Path;

use super::data::{Data, Place};
use super::markdown::{Table, digits, mebibytes, times};
use crate::Error;

pub(super) fn section(results: &Path) -> Result<String, Error> {
    let data = Data::read(results, "train-gpu-h200.json")?;
    let file = format!(
        "{}, {} runs",
        data.link_and_commit()?,
        data.number("rounds")?
    );
    // The first of a machine that has several.
    let gpu = data.text("gpu")?.lines().next().unwrap_or_default();
    let command = "python3 benches/peers/train_gpu.py PROGRAM --commit HASH";
    Ok(format!(
        "\
## Whole training steps of the program, on a GPU

Wall time of a step of `flashcliff train TASK --device cuda`, median over the intervals between validations: batch, forward and
backward pass, Adam. Precision: that of matrix products, or with bf16 the type of the values between layers. Launched: `--capture off`. Captured: the step is one CUDA graph. Process: the whole program, with data, validations
and kernels that were compiled before; its number of steps is in the file. Weights of both ways were equal bit for bit. Medians of
runs in turns.

{source}
{table}",
        source = data.source(&file, gpu, command),
        table = table(&data)?,
    ))
}

fn table(data: &Data) -> Result<String, Error> {
    let mut table = Table::new(&[
        "task",
        "batch",
        "precision",
        "step launched, ms",
        "step captured, ms",
        "gain",
        "process launched / captured, s",
        "most memory at once, captured, MiB",
    ]);
    for row in data.root().get("rows")?.list()? {
        let of = |way: &str, key: &str| -> Result<f64, Error> { row.get(way)?.get(key)?.number() };
        let (launched, captured) = (of("off", "step")?, of("on", "step")?);
        table.row(&[
            row.get("task")?.text()?.to_owned(),
            row.get("batch")?.number()?.to_string(),
            match row.get("precision")?.text()? {
                "highest" => "f32",
                "tf32" => "TF32",
                other => other,
            }
            .to_owned(),
            digits(launched),
            digits(captured),
            times(launched / captured),
            format!(
                "{} / {}",
                digits(of("off", "process")?),
                digits(of("on", "process")?)
            ),
            mebibytes(peak(&row)?),
        ]);
    }
    Ok(table.text())
}

/// The most bytes of the device that were in use at once.
fn peak(row: &Place<'_>) -> Result<f64, Error> {
    let memory = row.get("on")?.get("memory")?;
    memory.get("used_peak")?.number()
}
