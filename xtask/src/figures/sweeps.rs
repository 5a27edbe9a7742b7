//! Sections of the sweeps beside other libraries.

use std::path::Path;

use super::markdown::{
    Table, digits, extremes, mebibytes, milliseconds, percent, range, small, times,
};
use super::sweep::{OWN, Pass, Point, Sweep};
use crate::Error;

/// From here on a batch fills the GPU.
const LARGE: f64 = 2048.0;

/// A mark beside a time that holds waits for the host.
pub(super) fn mark(point: &Point, other: &str, pass: Pass, samples: f64) -> &'static str {
    match point.waits(other, pass, samples) {
        true => " †",
        false => "",
    }
}

/// Ranges over the shapes of every operator: how many times as long others take, and our share of their memory.
pub(super) fn ranges(sweep: &Sweep) -> String {
    let mut table = Table::new(&[
        "operator",
        "other",
        "shapes",
        "forward",
        "forward, batch 2048 and more",
        "with backward",
        "with backward, batch 2048 and more",
        "our peak memory over theirs",
    ]);
    for group in sweep.groups() {
        for other in group[0].others() {
            let waits = |pass: Pass| {
                let waiting = |point: &&Point| point.waits(other, pass, sweep.samples);
                if group.iter().any(waiting) {
                    " †"
                } else {
                    ""
                }
            };
            let over = |pass: Pass, least: f64| {
                let points = group.iter().filter(|point| point.batch >= least);
                let ratios = points.filter_map(|point| point.ratio(other, pass));
                format!("{}{}", range(ratios, times), waits(pass))
            };
            let memory = group.iter().filter_map(|point| point.memory(other));
            table.row(&[
                group[0].operator_name(),
                other.to_owned(),
                group.len().to_string(),
                over(Pass::Forward, 0.0),
                over(Pass::Forward, LARGE),
                over(Pass::Both, 0.0),
                over(Pass::Both, LARGE),
                range(memory, digits),
            ]);
        }
    }
    table.text()
}

/// Every shape of a sweep in a row.
pub(super) fn shapes(sweep: &Sweep) -> String {
    let points = sweep.points();
    let Some(first) = points.first() else {
        return String::new();
    };
    let others = sweep.variants();
    let mut heads = vec!["operator".to_owned(), "shape".to_owned()];
    for pass in Pass::ALL {
        heads.push(format!("{}, ms", pass.name()));
        heads.extend(
            others
                .iter()
                .map(|other| format!("{other}, {}", pass.name())),
        );
    }
    let has_memory = first.peak().is_some();
    if has_memory {
        heads.push("peak, MiB".to_owned());
        heads.extend(
            others
                .iter()
                .map(|other| format!("our peak over that of {other}")),
        );
    }
    let has_share = first.share(Pass::Forward).is_some();
    if has_share {
        heads.extend(Pass::ALL.map(|pass| format!("share of the matmul rate, {}", pass.name())));
    }
    let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for point in points {
        let mut cells = vec![point.operator_name(), point.shape()];
        for pass in Pass::ALL {
            let own = point
                .time(OWN, pass)
                .map(|time| milliseconds(time.seconds()));
            cells.push(own.unwrap_or_default());
            cells.extend(others.iter().map(|other| {
                let ratio = point.ratio(other, pass).map(times).unwrap_or_default();
                format!("{ratio}{}", mark(point, other, pass, sweep.samples))
            }));
        }
        if has_memory {
            cells.push(point.peak().map(mebibytes).unwrap_or_default());
            let parts = others.iter().map(|other| point.memory(other));
            cells.extend(parts.map(|part| part.map(digits).unwrap_or_default()));
        }
        if has_share {
            let shares = Pass::ALL.map(|pass| point.share(pass).map(percent));
            cells.extend(shares.map(Option::unwrap_or_default));
        }
        table.row(&cells);
    }
    table.text()
}

/// How far results are from float64, over all shapes.
pub(super) fn differences(sweep: &Sweep) -> String {
    let points = sweep.points();
    let Some((_, tensors)) = points
        .first()
        .and_then(|point| point.differences.first_key_value())
    else {
        return String::new();
    };
    let mut heads = vec!["who".to_owned()];
    heads.extend(tensors.iter().map(|(tensor, _)| match tensor.as_str() {
        "output" => "output".to_owned(),
        tensor => format!("gradient of `{tensor}`"),
    }));
    let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    let variants = points[0].differences.keys();
    for variant in variants {
        let mut cells = vec![variant.clone()];
        for (tensor, _) in tensors {
            let off = points.iter().filter_map(|point| {
                let found = point.differences.get(variant)?.iter();
                Some(found.clone().find(|(name, _)| name == tensor)?.1)
            });
            cells.push(range(off, small));
        }
        table.row(&cells);
    }
    table.text()
}

/// Times and memory where a limit is set for a block of rows.
pub(super) fn blocks(results: &Path) -> Result<(String, Sweep), Error> {
    let sweep = Sweep::read(results, "gpu-h200-blocks")?;
    let mut table = Table::new(&[
        "operator",
        "shape",
        "limit",
        "forward, ms",
        "over no limit",
        "with backward, ms",
        "over no limit",
        "peak, MiB",
    ]);
    for point in sweep.points() {
        for variant in [OWN].into_iter().chain(point.others()) {
            let limit = variant.strip_prefix("blocks of ");
            let limit = limit.unwrap_or("none");
            let mut cells = vec![point.operator_name(), point.shape(), limit.to_owned()];
            for pass in Pass::ALL {
                let time = point
                    .time(variant, pass)
                    .map(|time| milliseconds(time.seconds()));
                cells.push(time.unwrap_or_default());
                cells.push(point.ratio(variant, pass).map(times).unwrap_or_default());
            }
            let memory = point.memory(variant);
            let peak = point.peak().zip(memory).map(|(own, part)| own / part);
            cells.push(peak.map(mebibytes).unwrap_or_default());
            table.row(&cells);
        }
    }
    Ok((table.text(), sweep))
}

/// Whether a matrix product exceeds the rate that it is set beside.
pub(super) fn exceeds_the_rate(sweep: &Sweep) -> bool {
    let points = sweep.points();
    let shares = points
        .iter()
        .flat_map(|point| Pass::ALL.map(|pass| point.share(pass)));
    extremes(shares.flatten()).is_some_and(|(_, greatest)| greatest > 1.0)
}
