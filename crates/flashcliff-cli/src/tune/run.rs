//! The search on a GPU, its log and its tables.

use std::ops::ControlFlow;
use std::path::PathBuf;

use flashcliff::Dtype;
use flashcliff::cuda::tuning::{self, FileState};
use flashcliff::cuda::{Device, MatmulPrecision};
use flashcliff_candle::output_file::OutputFile;
use flashcliff_tuner::{Outcome, PassTimes, Roofline, Settings, Trial, Tuner, Workload};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use tracing::{info, warn};

use super::TuneArgs;
use super::workload::{Job, PrecisionName};
use crate::error::Error;
use crate::interrupt;
use crate::output::{Align, Table, print};

/// Runs the command on a device.
///
/// # Errors
/// The errors of the tuner; files that cannot be written.
pub(super) fn run(
    args: &TuneArgs,
    device: &Device,
    jobs: &[Job],
    log: Option<OutputFile>,
    quiet: bool,
) -> Result<(), Error> {
    let device = match args.clear {
        true => cleared(device)?,
        false => device.clone(),
    };
    let tables = device.tuning();
    if let FileState::Broken(error) = tables.file_state() {
        let path = tables.file().unwrap_or_default();
        let path = path.display();
        warn!("the tuning table of the user is not used: {path}: {error}");
    }
    if let Some(unknown) = &tables.place().unknown {
        let variable = tuning::TUNING_VARIABLE;
        warn!("expected all, builtin or none in {variable}, got {unknown}: taken for all");
    }
    if jobs.is_empty() {
        return Ok(());
    }
    interrupt::catch()?;
    let settings = Settings {
        candidates: args.candidates.into(),
        ..Settings::default()
    };
    let mut tuner = Tuner::new(&device, settings)?;
    if !args.dry_run {
        // It is better to know this now than after the search.
        tuner.check_save()?;
    }
    let (dtype, precision) = (args.dtype.dtype(), args.precision.precision());
    let roofline = tuner.roofline(dtype, precision)?;
    info!("{}", describe(&roofline, dtype, precision));
    let mut lines = Log::new(&device, &roofline, dtype, precision)?;
    let mut table = Report::new(roofline);
    let mut store = Store {
        dry_run: args.dry_run,
        saved: None,
    };
    let done = each(
        &mut tuner,
        jobs,
        (dtype, precision),
        |trial| lines.push(trial, &roofline),
        (&mut table, &mut store),
        quiet,
    );
    // However the search ended, the choices that were found are kept, and so is the log. The first error is the one to report.
    let stored = store.save(&tuner);
    let logged = match log {
        Some(file) => file.commit(lines.text.as_bytes()).map_err(Error::from),
        None => Ok(()),
    };
    let printed = print(&format!("{}\n{}\n", table.text(), store.text(&tuner)));
    done.and(stored).and(logged).and(printed)
}

/// The device without the choices of the user's file, which is removed.
fn cleared(device: &Device) -> Result<Device, Error> {
    if let Some(path) = device.tuning().file() {
        match tuning::forget(&path).map_err(flashcliff::Error::from)? {
            true => info!("forgot {}", path.display()),
            false => info!("nothing is stored in {}", path.display()),
        }
    }
    let place = device.tuning().place().clone();
    Ok(device.with_tuning(place)?)
}

fn each(
    tuner: &mut Tuner,
    jobs: &[Job],
    (dtype, precision): (Dtype, MatmulPrecision),
    mut log: impl FnMut(&Trial) -> Result<(), Error>,
    (report, store): (&mut Report, &mut Store),
    quiet: bool,
) -> Result<(), Error> {
    for job in jobs {
        if interrupt::requested() {
            report.interrupted = true;
            break;
        }
        let workload = Workload {
            operator: job.operator.clone(),
            dims: job.dims,
            dtype,
            precision,
        };
        let name = name(&workload);
        info!("{name}");
        let bar = bar(quiet);
        let mut failed = None;
        let outcome = tuner.tune(&workload, &mut |trial| {
            bar.set_length(trial.of as u64);
            bar.set_position(trial.number as u64);
            bar.set_message(trial.subject.clone());
            if trial.accepted {
                bar.suspend(|| info!("{}: {}", trial.subject, accepted(trial)));
            }
            failed = log(trial).err();
            match failed.is_some() || interrupt::requested() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        bar.finish_and_clear();
        if let Some(error) = failed {
            return Err(error);
        }
        report.push(name, &outcome?);
        // The next workloads may end the process.
        store.save(tuner)?;
    }
    Ok(())
}

fn name(workload: &Workload) -> String {
    let Workload {
        operator,
        dims,
        dtype,
        precision,
    } = workload;
    let algebra = operator.algebra().name();
    let (batch, from, to) = (dims.batch, dims.in_channels, dims.out_channels);
    let operator = operator.name();
    format!("{operator} {algebra} {batch}x{from}x{to} {dtype} {precision}")
}

fn accepted(trial: &Trial) -> String {
    let times = trial.before.zip(trial.times);
    let times = times.map_or(String::new(), |(before, after)| {
        let [before, after] = [before, after].map(|times| times.median * 1e6);
        format!("{before:.1} us -> {after:.1} us, ")
    });
    let choice = match (trial.configuration, trial.value) {
        (Some(configuration), _) => configuration.to_string(),
        (None, Some(value)) => value.to_string(),
        (None, None) => String::new(),
    };
    format!("{times}{choice}")
}

fn bar(quiet: bool) -> ProgressBar {
    let target = match quiet {
        true => ProgressDrawTarget::hidden(),
        false => ProgressDrawTarget::stderr(),
    };
    let bar = ProgressBar::with_draw_target(None, target);
    match ProgressStyle::with_template("tuning   {bar:32} {pos}/{len} candidates, {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// The choices that are stored.
struct Store {
    dry_run: bool,
    /// The number of choices that were saved, and the path of their file.
    saved: Option<(usize, PathBuf)>,
}

impl Store {
    /// Stores the choices that the tuner found.
    fn save(&mut self, tuner: &Tuner) -> Result<(), Error> {
        let count = tuner.found().len();
        if self.dry_run || count == 0 {
            return Ok(());
        }
        let saved = tuner.save()?;
        if let Some(broken) = &saved.broken {
            let path = broken.display();
            warn!("what was in the file before is no tuning table: kept as {path}");
        }
        self.saved = Some((count, saved.path));
        Ok(())
    }

    fn text(&self, tuner: &Tuner) -> String {
        let count = tuner.found().len();
        match &self.saved {
            _ if count == 0 => "Nothing faster was found; nothing is stored.".to_owned(),
            Some((stored, path)) => {
                format!("{stored} faster choices, stored in {}", path.display())
            }
            None if self.dry_run => {
                format!("{count} faster choices; nothing is stored (--dry-run).")
            }
            None => format!("{count} faster choices, not stored."),
        }
    }
}

fn describe(roofline: &Roofline, dtype: Dtype, precision: MatmulPrecision) -> String {
    let side = roofline.side;
    let (rate, ms) = (
        roofline.flops_per_second() / 1e12,
        roofline.times.median * 1e3,
    );
    format!(
        "roofline: {rate:.1} TFLOP/s, a product {side} x {side} x {side} of {dtype} ({precision}) in {ms:.3} ms"
    )
}

/// A line of JSON for the roofline, then one for each candidate.
struct Log {
    text: String,
}

#[derive(Serialize)]
struct FirstLine<'a> {
    gpu: &'a tuning::Gpu,
    dtype: String,
    precision: MatmulPrecision,
    roofline_side: usize,
    roofline_seconds: f64,
    roofline_flops_per_second: f64,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    trial: &'a Trial,
    /// The share of the roofline's speed.
    share: Option<f64>,
}

impl Log {
    fn new(
        device: &Device,
        roofline: &Roofline,
        dtype: Dtype,
        precision: MatmulPrecision,
    ) -> Result<Self, Error> {
        let line = serde_json::to_string(&FirstLine {
            gpu: device.tuning().gpu(),
            dtype: dtype.to_string(),
            precision,
            roofline_side: roofline.side,
            roofline_seconds: roofline.times.median,
            roofline_flops_per_second: roofline.flops_per_second(),
        })?;
        Ok(Self { text: line + "\n" })
    }

    fn push(&mut self, trial: &Trial, roofline: &Roofline) -> Result<(), Error> {
        let rate = trial.flops_per_second;
        let share = rate.map(|rate| rate / roofline.flops_per_second());
        self.text += &serde_json::to_string(&Line { trial, share })?;
        self.text.push('\n');
        Ok(())
    }
}

/// The table at the end.
struct Report {
    table: Table,
    roofline: Roofline,
    interrupted: bool,
}

impl Report {
    fn new(roofline: Roofline) -> Self {
        Self {
            table: Table::new(&[
                ("call", Align::Left),
                ("pass", Align::Left),
                ("before us", Align::Right),
                ("after us", Align::Right),
                ("ratio", Align::Right),
                ("TFLOP/s", Align::Right),
                ("of roofline", Align::Right),
                ("changed", Align::Right),
            ]),
            roofline,
            interrupted: false,
        }
    }

    fn push(&mut self, name: String, outcome: &Outcome) {
        for (index, times) in outcome.passes.iter().enumerate() {
            let PassTimes {
                pass,
                flops,
                before,
                after,
            } = times;
            let rate = *flops as f64 / after.median;
            // The values of the whole call stand beside its first pass.
            let (name, changed) = match index {
                0 => (
                    name.clone(),
                    format!("{} of {}", outcome.changed, outcome.choices),
                ),
                _ => Default::default(),
            };
            self.table.row([
                name,
                pass.to_string(),
                format!("{:.1}", before.median * 1e6),
                format!("{:.1}", after.median * 1e6),
                format!("{:.3}", after.median / before.median),
                format!("{:.1}", rate / 1e12),
                format!("{:.1} %", 100.0 * rate / self.roofline.flops_per_second()),
                changed,
            ]);
        }
        self.interrupted |= outcome.interrupted;
    }

    fn text(&self) -> String {
        let ended = if self.interrupted {
            "Interrupted.\n"
        } else {
            ""
        };
        format!("{}{ended}", self.table.render())
    }
}

impl PrecisionName {
    fn precision(self) -> MatmulPrecision {
        match self {
            Self::Highest => MatmulPrecision::Highest,
            Self::Tf32 => MatmulPrecision::Tf32,
            Self::Bf16 => MatmulPrecision::Bf16,
            Self::F16 => MatmulPrecision::F16,
        }
    }
}
