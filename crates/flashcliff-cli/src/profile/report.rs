//! A profile as JSON and as a table.

use flashcliff::{Dtype, threads};
use flashcliff_bench::Target;
use flashcliff_bench::machine::{Kind, Rates, commit};
use flashcliff_candle::explain::Machine;
use flashcliff_candle::timeline::Operation;
use serde::Serialize;

use super::measure::Steps;
use super::rows::{Row, gather};
use crate::device::DeviceName;
use crate::error::Error;
use crate::output::{Align, Table};
use crate::train::{Play, PrecisionName, Rehearsal};

/// The format that is written.
const FORMAT: u32 = 2;

/// All numbers of a profile. The numbers of rows are for one step.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// [`FORMAT`].
    format: u32,
    version: &'static str,
    commit: String,
    task: String,
    batch: usize,
    precision: String,
    device: String,
    machine: Kind,
    rates: Rates,
    threads: usize,
    /// Whether steps go through a plan, not through candle's graph.
    planned: bool,
    /// The sum of all rows.
    pub(super) seconds: f64,
    /// Seconds of a step with a profile: with the marks of a part of its operations.
    profiled_seconds: f64,
    /// What the profile costs: the relative difference of steps with and without one.
    cost: f64,
    /// Seconds of a step without a profile.
    pub(super) plain_seconds: f64,
    /// The relative difference of the sum of all rows and the step without a profile.
    pub(super) difference: f64,
    /// Seconds of a captured step on a GPU, if it can be captured.
    captured_seconds: Option<f64>,
    pub(super) rows: Vec<Row>,
}

impl Report {
    /// Puts the operations of steps beside what the device reaches.
    pub(super) fn new(
        play: Play,
        device: DeviceName,
        rehearsal: &Rehearsal,
        steps: &Steps,
        target: &mut impl Target,
    ) -> Result<Self, Error> {
        let rates = target.rates()?;
        let rounds_to_tf32 = play.precision == PrecisionName::Tf32;
        let mut rows = Vec::new();
        for (operation, mut row) in gather(&steps.sampled.timeline) {
            row.compare(&operation, target, &rates, rounds_to_tf32)?;
            rows.push(row);
        }
        let seconds = rows.iter().map(|row| row.seconds).sum();
        let (plain_seconds, profiled_seconds) =
            (steps.sampled.plain_seconds, steps.sampled.seconds);
        Ok(Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            commit: commit(),
            task: play.task.task().name().to_owned(),
            batch: play.batch(),
            precision: play.precision(),
            device: device.to_string(),
            machine: target.kind()?,
            rates,
            threads: threads::count(),
            planned: rehearsal.is_planned(),
            seconds,
            profiled_seconds,
            cost: profiled_seconds / plain_seconds - 1.0,
            plain_seconds,
            difference: seconds / plain_seconds - 1.0,
            captured_seconds: steps.captured,
            rows,
        })
    }

    /// The rates for times of a model, in steps of a precision.
    pub(super) fn machine(&self, precision: PrecisionName) -> Machine {
        let dtype = match precision {
            PrecisionName::Highest | PrecisionName::Tf32 => Dtype::F32,
            PrecisionName::Bf16 => Dtype::Bf16,
            PrecisionName::F16 => Dtype::F16,
        };
        let rounds_to_tf32 = precision == PrecisionName::Tf32;
        Machine {
            bytes_per_second: self.rates.copy_bytes,
            flops_per_second: self.rates.flops(dtype, true, rounds_to_tf32),
            seconds_per_call: self.rates.call_seconds,
        }
    }

    /// The report as a table, with what the columns do not say.
    pub(super) fn text(&self) -> String {
        let mut table = Table::new(&[
            ("operator", Align::Left),
            ("pass", Align::Left),
            ("algebra", Align::Left),
            ("shapes", Align::Left),
            ("type", Align::Left),
            ("calls", Align::Right),
            ("ms", Align::Right),
            ("us/call", Align::Right),
            ("share", Align::Right),
            ("MB", Align::Right),
            ("GB/s", Align::Right),
            ("Mflop", Align::Right),
            ("roofline", Align::Right),
            ("limit", Align::Left),
            ("saved MB", Align::Right),
            ("held MB", Align::Right),
        ]);
        for row in &self.rows {
            table.row(cells(row));
        }
        let ours: f64 = self
            .rows
            .iter()
            .filter(|row| row.ours)
            .map(|row| row.share)
            .sum();
        let way = match self.planned {
            true => "through its plan",
            false => "through candle's graph",
        };
        let mut text = format!(
            "{}\n{} batch {} on {}, {way}: a step takes {:.3} ms, {:.1} % of it ours; the rows add up to {:.3} ms, {:+.1} %; the profile costs {:+.1} %\n",
            table.render(),
            self.task,
            self.batch,
            self.device,
            1e3 * self.plain_seconds,
            1e2 * ours,
            1e3 * self.seconds,
            1e2 * self.difference,
            1e2 * self.cost,
        );
        if let Some(seconds) = self.captured_seconds {
            text += &format!("a captured step takes {:.3} ms\n", 1e3 * seconds);
        }
        text
    }
}

fn cells(row: &Row) -> [String; 16] {
    let or_dash = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    let mega = |number: f64| match number {
        0.0 => String::new(),
        number => format!("{:.3}", 1e-6 * number),
    };
    let shape = |shape: &Vec<usize>| {
        let axes: Vec<String> = shape.iter().map(usize::to_string).collect();
        axes.join("x")
    };
    let shapes: Vec<String> = row.shapes.iter().map(shape).collect();
    let moves = row.bytes > 0.0 && row.seconds > 0.0;
    let pass = match row.gradients.is_empty() {
        true => row.phase.to_owned(),
        false => format!("{} of {}", row.phase, row.gradients.join(", ")),
    };
    [
        row.operator.clone(),
        pass,
        row.algebra.clone(),
        shapes.join(" "),
        row.dtype.clone(),
        match row.operator == Operation::rest().operator {
            true => String::new(),
            false => format!("{:.0}", row.calls),
        },
        format!("{:.3}", 1e3 * row.seconds),
        format!("{:.1}", 1e6 * row.seconds / row.calls.max(1.0)),
        format!("{:.1} %", 1e2 * row.share),
        mega(row.bytes),
        or_dash(moves.then(|| format!("{:.1}", 1e-9 * row.bytes / row.seconds))),
        or_dash(row.flops.map(|flops| format!("{:.3}", 1e-6 * flops))),
        or_dash(row.roofline.map(|share| format!("{:.0} %", 1e2 * share))),
        row.class
            .map_or(String::new(), |class| class.name().to_owned()),
        mega(row.saved_bytes),
        mega(row.held_bytes),
    ]
}
