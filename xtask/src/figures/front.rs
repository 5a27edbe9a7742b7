//! The block of `README.md`: five rows of speed, and what is slower.

use std::collections::BTreeSet;
use std::path::Path;

use super::markdown::{Table, digits, milliseconds, times};
use super::slower::{Lost, TwoGpus, lost};
use super::sweep::{GPU, OWN, Pass, Point, Sweep};
use super::sweeps::mark;
use crate::Error;

/// The shape of all rows.
const SHAPE: &str = "4096 x 512";
/// The others, as they are named in the data.
const OTHERS: [&str; 2] = ["flash-clifford", "torch.compile"];

pub(super) fn block(results: &Path) -> Result<String, Error> {
    let product = Sweep::read(results, GPU)?;
    let layer = Sweep::read(results, "gpu-h200-layer")?;
    let connected = Sweep::read(results, "gpu-h200-fcgp")?;
    let rows = [
        (&product, "sgp", 3.0, "f32"),
        (&product, "sgp", 2.0, "f32"),
        (&layer, "layer", 3.0, "TF32"),
        (&layer, "layer", 2.0, "TF32"),
        (&connected, "fcgp", 3.0, "TF32"),
    ];
    let first = format!("{SHAPE}, one H200, GPU time");
    let [flash, compiled] = OTHERS.map(|other| format!("{other} takes"));
    let mut table = Table::new(&[
        &first,
        "forward, ms",
        &flash,
        &compiled,
        "with backward, ms",
        &flash,
        &compiled,
    ]);
    for (sweep, operator, dim, arithmetic) in rows {
        let point = sweep.point(operator, dim, SHAPE)?;
        let mut cells = vec![format!("{}, {arithmetic}", point.operator_name())];
        for pass in Pass::ALL {
            let own = point
                .time(OWN, pass)
                .map(|time| milliseconds(time.seconds()));
            cells.push(own.unwrap_or_default());
            cells.extend(OTHERS.map(|other| {
                let ratio = point.ratio(other, pass).map(times).unwrap_or_default();
                format!("{ratio}{}", mark(point, other, pass, sweep.samples))
            }));
        }
        table.row(&cells);
    }
    let measured = [(&product, "sgp"), (&layer, "layer"), (&connected, "fcgp")];
    let points: Vec<&Point> = measured
        .iter()
        .flat_map(|(sweep, operator)| {
            sweep
                .points()
                .into_iter()
                .filter(|p| p.operator == *operator)
        })
        .collect();
    Ok(format!(
        "{table}\n† This time holds waits for the host. What is slower:\n\n{time}{host}{two}{memory}",
        table = table.text(),
        time = lost_time(&points),
        host = host(&product)?,
        two = two_gpus(results)?,
        memory = lost_memory(&points),
    ))
}

/// At how many shapes another library is ahead in time.
fn lost_time(points: &[&Point]) -> String {
    let lost = lost(points);
    let of = |pass: Pass| lost.iter().filter(move |lost| lost.pass == Some(pass));
    let timed = lost.iter().filter(|lost| lost.pass.is_some());
    format!(
        "- Small batches: of {all} measured shapes another library is faster forward at {forward}, and with the backward pass at \
         {both}. At the worst we take {worst} times as long.\n",
        all = points.len(),
        forward = shapes(of(Pass::Forward)),
        both = shapes(of(Pass::Both)),
        worst = worst(timed),
    )
}

/// At how many shapes another library needs less memory.
fn lost_memory(points: &[&Point]) -> String {
    let lost = lost(points);
    let memory = || lost.iter().filter(|lost| lost.pass.is_none());
    format!(
        "- Memory: another library needs less at {count} of these shapes. At the worst we need {worst} times as much.\n",
        count = shapes(memory()),
        worst = worst(memory()),
    )
}

/// How many shapes there are among lost points, each of which another library may lead.
fn shapes<'a>(lost: impl Iterator<Item = &'a Lost<'a>>) -> usize {
    let names = lost.map(|lost| (lost.point.operator_name(), lost.point.shape()));
    names.collect::<BTreeSet<_>>().len()
}

/// The largest factor among lost points.
fn worst<'a>(lost: impl Iterator<Item = &'a Lost<'a>>) -> String {
    digits(lost.map(|lost| lost.factor).fold(1.0, f64::max))
}

fn host(sweep: &Sweep) -> Result<String, Error> {
    let shape = "1024 x 128";
    let point = sweep.point("sgp", 3.0, shape)?;
    let Some(time) = point.time(OWN, Pass::Both) else {
        return Ok(String::new());
    };
    Ok(format!(
        "- Host: `sgp_norm`, 3-D, {shape}, with backward, takes {called} ms from Python; the GPU works for {queued} ms of them. CUDA \
         graphs avoid this.\n",
        called = milliseconds(time.called),
        queued = milliseconds(time.seconds()),
    ))
}

fn two_gpus(results: &Path) -> Result<String, Error> {
    let two = TwoGpus::read(results)?;
    Ok(format!(
        "- Two GPUs: a training step of a small network ({shape}, f32, DDP, wall time) takes {factor} times as long as on one.\n",
        shape = two.shape()?,
        factor = digits(two.factor()?),
    ))
}
