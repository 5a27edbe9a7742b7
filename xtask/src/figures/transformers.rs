//! Sections of geometric algebra transformers beside the published packages.

use std::path::Path;

use super::data::{Data, Place};
use super::markdown::{Table, digits, mebibytes, milliseconds, small, times};
use super::users::Users;
use crate::Error;

/// The file of the first section.
const ON_CPU: &str = "transformers-cpu.json";
/// The network of the front page.
const JET: &str = "L-GATr size 0, 1 x 50 items";

/// The packages and their versions.
fn packages(data: &Data) -> Result<String, Error> {
    let packages = data.packages()?.into_iter().map(|(_, shown)| shown);
    Ok(packages.collect::<Vec<_>>().join(", "))
}

pub(super) fn on_cpu(results: &Path) -> Result<String, Error> {
    let data = Data::read(results, ON_CPU)?;
    let machine = format!("{}, {}", data.text("machine")?, packages(&data)?);
    let command =
        "python3 benches/peers/transformers_cpu.py --commit HASH --c-library libflashcliff.so";
    Ok(format!(
        "\
## Transformers beside the published packages, on the CPU

Wall time, f32, with the same weights; outputs differ by at most {difference} of the largest number. Inference and training are called from
Python; a file of the network runs in C in the same process. A training step is the forward and the backward pass and fused AdamW, for both.
Medians of {samples} runs in turns. The other networks are `gatr.GATr` and `lgatr.LGATr`, not compiled.

{source}
{table}",
        difference = difference(&data)?,
        samples = data.number("samples")?,
        source = data.source_with_commit(&machine, command)?,
        table = cpu_table(&data)?,
    ))
}

/// The largest difference of an output from the package's.
fn difference(data: &Data) -> Result<String, Error> {
    let mut largest = 0.0;
    for run in data.root().get("runs")?.list()? {
        for case in run.get("cases")?.list()? {
            largest = f64::max(largest, case.get("difference")?.number()?);
        }
    }
    Ok(small(largest))
}

/// One inference on one core, from Python and from C, in a sentence.
pub(super) fn one_jet(results: &Path) -> Result<String, Error> {
    let data = Data::read(results, ON_CPU)?;
    let root = data.root();
    let mut cases = Vec::new();
    for run in root.get("runs")?.list()? {
        if run.get("threads")?.number()? == 1.0 {
            cases.extend(run.get("cases")?.list()?);
        }
    }
    for case in cases {
        if case.get("name")?.text()? != JET {
            continue;
        }
        let seconds = case.get("seconds")?.get("inference")?;
        let theirs = seconds.get("theirs")?.number()?;
        let [python, c] = ["flashcliff", "C"].map(|who| -> Result<_, Error> {
            let own = seconds.get(who)?.number()?;
            Ok((digits(own * 1e3), times(theirs / own)))
        });
        let ((python, by_python), (c, by_c)) = (python?, c?);
        return Ok(format!(
            "On one core of a CPU ({machine}), an inference of {JET} takes {python} ms from Python and {c} ms from C, \
             {by_python} and {by_c} as fast as the package.",
            machine = root.get("machine")?.text()?,
        ));
    }
    Err(Error::Data {
        path: ON_CPU.into(),
        expected: format!("{JET} with one thread"),
    })
}

fn cpu_table(data: &Data) -> Result<String, Error> {
    let mut table = Table::new(&[
        "network and input",
        "threads",
        "inference, ms",
        "the package takes",
        "a file in C, ms",
        "the package takes",
        "training step, ms",
        "the package takes",
    ]);
    for run in data.root().get("runs")?.list()? {
        let threads = run.get("threads")?.number()?;
        for case in run.get("cases")?.list()? {
            let mut row = vec![case.get("name")?.text()?.to_owned(), threads.to_string()];
            for (pass, own) in [
                ("inference", "flashcliff"),
                ("inference", "C"),
                ("training step", "flashcliff"),
            ] {
                let seconds = case.get("seconds")?.get(pass)?;
                // A run without the library for C has no file in C.
                let Some(own) = seconds.find(own) else {
                    row.extend([String::new(), String::new()]);
                    continue;
                };
                let own = own.number()?;
                row.push(digits(own * 1e3));
                row.push(times(seconds.get("theirs")?.number()? / own));
            }
            table.row(&row);
        }
    }
    Ok(table.text())
}

/// The variants of a network: their names in the data, and here.
const VARIANTS: [(&str, &str); 7] = [
    ("ours", "flashcliff"),
    ("ours-graph", "flashcliff, captured"),
    ("ours-graph-adamw", "captured, flashcliff's AdamW"),
    (
        "ours-graph-adamw-items",
        "the same, recomputed (`checkpoint_items`)",
    ),
    (
        "ours-graph-adamw-autocast",
        "the same, autocast to bfloat16",
    ),
    ("package", "the package"),
    ("package-compile", "the package, torch.compile"),
];

/// Whether a run had no time left for a variant.
fn is_left_out(variant: &Place<'_>) -> bool {
    let reason = variant.find("failed").and_then(|found| found.text().ok());
    reason.is_some_and(|text| text.starts_with("not begun"))
}

pub(super) fn on_gpu(results: &Path) -> Result<String, Error> {
    let data = Data::read(results, Users::NAME)?;
    let samples = data.number("samples")?;
    Ok(format!(
        "\
## Transformers beside the published packages, on a GPU

The networks of [users' sizes](#networks-of-users-sizes-beside-the-published-packages) again, with inference and memory. Wall time of a call until
the GPU is done, medians of {samples}, with TF32 matrix products for all. Captured: the whole call is one CUDA graph. Peak: what PyTorch
allocated for the call. Before, outputs and gradients were compared with the package's in f32: they differ by less than 2e-5 and 2e-4 of the
largest number, outputs under `torch.compile` and autocast by less than 2e-2. Autocast trains with tokens of 16 bits where there are more than
768 items, and infers in f32. Jets are packed; the package gets {xformers} for them.

{table}",
        xformers = data.root().get("packages")?.get("xformers")?.text()?,
        table = gpu_table(&data)?,
    ))
}

fn gpu_table(data: &Data) -> Result<String, Error> {
    let mut table = Table::new(&[
        "network and items",
        "variant",
        "inference, ms",
        "peak, MiB",
        "training step, ms",
        "peak, MiB",
    ]);
    for (name, case) in data.root().get("cases")?.entries()? {
        let variants = case.get("variants")?;
        let mut name = name.to_owned();
        for (key, shown) in VARIANTS {
            let Some(variant) = variants.find(key).filter(|found| !is_left_out(found)) else {
                continue;
            };
            let mut row = vec![std::mem::take(&mut name), shown.to_owned()];
            for kind in ["inference", "step"] {
                // A variant that failed, or that took too long to compile, has no times.
                let cells = match variant.find("seconds").and_then(|all| all.find(kind)) {
                    Some(seconds) => {
                        let peak = variant.get("peak")?.get(kind)?.number()?;
                        [
                            milliseconds(seconds.get("wall")?.number()?),
                            mebibytes(peak),
                        ]
                    }
                    None => ["none".to_owned(), String::new()],
                };
                row.extend(cells);
            }
            table.row(&row);
        }
    }
    Ok(table.text())
}
