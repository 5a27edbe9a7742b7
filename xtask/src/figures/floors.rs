//! Sections of the benchmarks that set times beside a floor: the bytes that an operator must move.

use std::path::Path;

use super::data::{Data, Place, source};
use super::markdown::{
    Table, digits, extremes, median, microseconds, milliseconds, percent, range, small, times,
};
use crate::Error;

/// The repeated runs on the CPU.
pub(super) struct Cpu {
    repeats: Data,
    one: Data,
}

const TRAINING_STEP: &str = "hulls training step cl500 batch 128";

impl Cpu {
    pub(super) const REPEATS: &str = "bench-cpu-repeats.json";
    pub(super) const ONE: &str = "bench-cpu.json";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        Ok(Self {
            repeats: Data::read(results, Self::REPEATS)?,
            one: Data::read(results, Self::ONE)?,
        })
    }

    /// The machine, as the data names it.
    pub(super) fn machine(&self) -> Result<String, Error> {
        let one = self.one.root();
        let repeats = self.repeats.root();
        Ok(format!(
            "{}, {}, {} threads",
            one.get("architecture")?.text()?,
            repeats.get("simd")?.text()?,
            repeats.get("threads")?.number()?
        ))
    }

    /// How the file was made.
    pub(super) fn command(&self) -> Result<String, Error> {
        let command = self.repeats.root().get("command")?.text()?;
        // The text after the first comma says how often it ran.
        Ok(command
            .split_once(',')
            .map_or(command, |(command, _)| command)
            .to_owned())
    }

    /// The number of runs.
    pub(super) fn runs(&self) -> Result<usize, Error> {
        let cases = self.repeats.root().get("cases")?.list()?;
        let counts = cases
            .iter()
            .map(|case| Ok(case.get("seconds")?.list()?.len()));
        let counts: Result<Vec<usize>, Error> = counts.collect();
        Ok(counts?.into_iter().min().unwrap_or(0))
    }

    pub(super) fn table(&self) -> Result<String, Error> {
        let mut table = Table::new(&[
            "case",
            "wall time, ms",
            "x of the floor",
            "least to greatest of the runs",
            "floor, ms, least to greatest",
        ]);
        for case in self.repeats.root().get("cases")?.list()? {
            let name = case.get("name")?.text()?;
            let seconds = case.get("seconds")?.numbers()?;
            let seconds = median(&seconds).map(milliseconds).unwrap_or_default();
            let name = name.replace("forward+backward", "with backward");
            // A training step has no floor: its list is one of nulls.
            let floors = case.get("floor_seconds")?.numbers();
            let mut cells = vec![code(&name), seconds];
            cells.extend(match floors {
                Ok(floors) => {
                    let ratios = case.get("ratio")?.numbers()?;
                    let middle = median(&ratios).map(times).unwrap_or_default();
                    [middle, range(ratios, times), range(floors, milliseconds)]
                }
                Err(_) => [const { String::new() }; 3],
            });
            table.row(&cells);
        }
        Ok(table.text())
    }

    /// The largest factor by which the floor itself varied between runs.
    pub(super) fn spread(&self) -> Result<String, Error> {
        let mut greatest = 1.0_f64;
        for case in self.repeats.root().get("cases")?.list()? {
            if let Ok(floors) = case.get("floor_seconds")?.numbers() {
                let spread = extremes(floors).map(|(least, most)| most / least);
                greatest = greatest.max(spread.unwrap_or(1.0));
            }
        }
        Ok(digits(greatest))
    }

    /// The memory that a training step holds at its peak.
    pub(super) fn memory(&self) -> Result<String, Error> {
        let cases = self.one.root().get("cases")?;
        let memory = cases.named(TRAINING_STEP)?.get("memory")?;
        let number = |key: &str| memory.get(key)?.number();
        let mut table = Table::new(&[
            "case",
            "peak, MiB",
            "parameters, Adam's moments and saved activations, MiB",
            "peak over these",
        ]);
        let mebibytes = |bytes: f64| digits(bytes / f64::from(1 << 20));
        table.row(&[
            TRAINING_STEP.to_owned(),
            mebibytes(number("peak_bytes")?),
            mebibytes(number("counted_bytes")?),
            times(number("ratio")?),
        ]);
        Ok(table.text())
    }
}

/// The first word of a case is the name of an operator, if it looks like one.
fn code(case: &str) -> String {
    match case.split_once(' ') {
        Some((name, rest)) if name.contains('_') => format!("`{name}` {rest}"),
        _ => case.to_owned(),
    }
}

pub(super) fn beside_floors(results: &Path) -> Result<String, Error> {
    let data = Data::read(results, "gpu-h200-operators.json")?;
    let (machine, cases) = (data.root().get("machine")?, data.root().get("cases")?);
    let command = "flashcliff bench --device cuda --json gpu-h200-operators.json";
    Ok(format!(
        "\
## All operators on a GPU, beside their floors

Each operator with the defaults of its options, called from Rust. The floor is an addition of tensors that moves the bytes of the operator; GPU time of
CUDA graphs, with other data in the second-level cache. Efficiency is the least time by bytes and operations over the time that was measured. Launched and
captured: wall time of a call with backward, by single launches and as a CUDA graph. Outputs and gradients differ from float64 by at most
{difference} of the largest number in f32.

{source}
{table}",
        difference = greatest_difference(&cases)?,
        source = source(
            &data.link_and_commit()?,
            machine.get("processor")?.text()?,
            command
        ),
        table = operators(&cases)?,
    ))
}

/// A row for each operator, algebra, shape and type, with both passes.
fn operators(cases: &Place<'_>) -> Result<String, Error> {
    let mut table = Table::new(&[
        "operator",
        "algebra",
        "shape",
        "type",
        "forward, us",
        "x of the floor",
        "efficiency",
        "with backward, us",
        "x of the floor",
        "efficiency",
        "launched, us",
        "captured, us",
    ]);
    let all = cases.list()?;
    for forward in &all {
        let Some(operator) = forward.find("operator") else {
            continue;
        };
        let is_other = |key: &str| {
            Ok::<_, Error>(operator.find(key).map(|v| v.truth()).transpose()? == Some(true))
        };
        if operator.get("passes")?.text()? != "forward"
            || is_other("allocates")?
            || is_other("is_interpreted")?
        {
            continue;
        }
        let name = forward.get("name")?.text()?;
        let both = cases.named(&name.replace("forward", "forward+backward"))?;
        let mut row = vec![
            format!("`{}`", operator.get("name")?.text()?),
            operator.get("algebra")?.text()?.to_owned(),
            operator.shape(["batch", "in_channels"])?,
            operator.get("dtype")?.text()?.to_owned(),
        ];
        for case in [forward, &both] {
            let efficiency = case.get("roofline")?.get("efficiency")?;
            row.push(microseconds(case.get("seconds")?.number()?));
            row.push(times(case.get("ratio")?.number()?));
            row.push(percent(efficiency.number()?));
        }
        for key in ["wall_seconds", "captured_seconds"] {
            row.push(microseconds(both.get(key)?.number()?));
        }
        table.row(&row);
    }
    Ok(table.text())
}

/// How far results of f32 are from float64 at most, relative to the largest.
fn greatest_difference(cases: &Place<'_>) -> Result<String, Error> {
    let mut greatest = 0.0_f64;
    for case in cases.list()? {
        let operator = case
            .find("operator")
            .and_then(|operator| operator.find("dtype"));
        if operator.is_some_and(|dtype| dtype.text().is_ok_and(|dtype| dtype == "f32")) {
            greatest = greatest.max(case.get("relative_difference")?.number()?);
        }
    }
    Ok(small(greatest))
}
