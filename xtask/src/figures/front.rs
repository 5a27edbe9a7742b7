//! The block of `README.md`: training steps of networks, one inference on a CPU, one operator, and what is slower.

use std::collections::BTreeSet;
use std::path::Path;

use super::markdown::{digits, milliseconds, times};
use super::slower::{Lost, TwoGpus, lost};
use super::sweep::{GPU, OWN, Pass, Point, Sweep};
use super::users::Users;
use super::{RESULTS, transformers};
use crate::Error;

/// The shape at which one operator is compared.
const SHAPE: &str = "4096 x 512";

pub(super) fn block(results: &Path) -> Result<String, Error> {
    let users = Users::read(results)?;
    let product = Sweep::read(results, GPU)?;
    let connected = Sweep::read(results, "gpu-h200-fcgp")?;
    let measured = [(&product, "sgp"), (&product, "layer"), (&connected, "fcgp")];
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
        "{table}\n![Bars: how many times as fast as the published package]({RESULTS}/{picture})\n\n\
         {jet} {operator}\n\nWhere it is slower, or needs more memory:\n\n{networks}{time}{host}{two}{memory}",
        table = users.front()?,
        picture = Users::PICTURE,
        jet = transformers::one_jet(results)?,
        operator = operator(&product)?,
        networks = users.behind()?,
        time = lost_time(&points),
        host = host(&product)?,
        two = two_gpus(results)?,
        memory = lost_memory(&points, results)?,
    ))
}

/// One operator beside another library, in a sentence.
fn operator(sweep: &Sweep) -> Result<String, Error> {
    let point = sweep.point("sgp", 3.0, SHAPE)?;
    let ratio = |pass| point.ratio("flash-clifford", pass).map(times);
    let [forward, both] = [Pass::Forward, Pass::Both].map(|pass| ratio(pass).unwrap_or_default());
    Ok(format!(
        "One operator, `sgp_norm` in space at {SHAPE} (batch x channels, float32, one H200, GPU time): flash-clifford takes \
         {forward} our time forward, and {both} with the backward pass. [All measurements](benches/README.md): sizes, conditions, commands, \
         accuracy, CPUs."
    ))
}

/// At how many shapes another library is ahead in time.
fn lost_time(points: &[&Point]) -> String {
    let lost = lost(points);
    let of = |pass: Pass| lost.iter().filter(move |lost| lost.pass == Some(pass));
    let timed = lost.iter().filter(|lost| lost.pass.is_some());
    format!(
        "- Operators in float32: of {all} measured shapes another library is faster at {forward} in the forward pass, and at {both} with \
         the backward pass, by at most {worst}x.\n",
        all = points.len(),
        forward = shapes(of(Pass::Forward)),
        both = shapes(of(Pass::Both)),
        worst = worst(timed),
    )
}

/// At how many shapes another library needs less memory.
fn lost_memory(points: &[&Point], results: &Path) -> Result<String, Error> {
    let sixteen_bits = Sweep::read(results, "gpu-h200-fcgp-bf16")?;
    let of_bits = sixteen_bits.points();
    let (found, bits) = (lost(points), lost(&of_bits));
    let memory = || found.iter().filter(|lost| lost.pass.is_none());
    Ok(format!(
        "- Memory of operators: another library needs less at {count} of these shapes, by at most {worst}x; with \
         `fcgp_norm` in bfloat16, by at most {bits}x.\n",
        count = shapes(memory()),
        worst = worst(memory()),
        bits = worst(bits.iter().filter(|lost| lost.pass.is_none())),
    ))
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
        "- Host: `sgp_norm`, 3-D, {shape}, with backward, takes {called} ms from Python, of which the GPU is busy for {queued} ms. CUDA \
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
