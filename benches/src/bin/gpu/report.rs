//! The results of a measurement, as a table and as JSON.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::error::Error;
use crate::machine::Machine;
use crate::timing::Times;

/// The time that another time is compared with.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Floor {
    pub(crate) name: &'static str,
    pub(crate) seconds: f64,
}

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// The unit of `value` and `goal`: multiples of the floor, seconds, or MiB.
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
    pub(crate) goal: Option<f64>,
    pub(crate) met: Option<bool>,
    /// The median, the time that a tenth of the runs are below, and the time that a tenth are above.
    pub(crate) seconds: Option<[f64; 3]>,
    pub(crate) floor: Option<Floor>,
    /// The least number of bytes that must be moved, and the number of operations.
    pub(crate) bytes: Option<usize>,
    pub(crate) flops: Option<usize>,
    /// The largest difference from the CPU in `f64`, relative to the largest element.
    pub(crate) difference: Option<f64>,
}

impl Entry {
    fn new(name: String, unit: &'static str, value: f64, goal: Option<f64>) -> Self {
        Self {
            name,
            unit,
            value,
            goal,
            // NaN meets no goal.
            met: goal.map(|goal| value <= goal),
            seconds: None,
            floor: None,
            bytes: None,
            flops: None,
            difference: None,
        }
    }

    pub(crate) fn ratio(name: String, times: Times, floor: Floor, goal: Option<f64>) -> Self {
        Self {
            seconds: Some([times.median, times.low, times.high]),
            floor: Some(floor.clone()),
            ..Self::new(name, "x", times.median / floor.seconds, goal)
        }
    }

    pub(crate) fn time(name: String, times: Times, goal: Option<f64>) -> Self {
        Self {
            seconds: Some([times.median, times.low, times.high]),
            ..Self::new(name, "s", times.median, goal)
        }
    }

    pub(crate) fn memory(name: String, mib: f64, goal: Option<f64>) -> Self {
        Self::new(name, "MiB", mib, goal)
    }

    fn show(&self, value: f64) -> String {
        match self.unit {
            "s" => format!("{:.2} us", value * 1e6),
            "MiB" => format!("{value:.1} MiB"),
            _ => format!("{value:.3}x"),
        }
    }

    fn line(&self) -> String {
        let time = self.seconds.map_or(String::new(), |[median, ..]| {
            format!("{:9.2} us", median * 1e6)
        });
        let floor = self.floor.as_ref().map_or(String::new(), |floor| {
            format!("{:9.2} us {}", floor.seconds * 1e6, floor.name)
        });
        let goal = self.goal.map_or(String::new(), |goal| self.show(goal));
        let met = match self.met {
            None => "",
            Some(true) => "met",
            Some(false) => "MISSED",
        };
        let rate = |amount: Option<usize>, unit: &str| {
            let seconds = self.seconds.map_or(f64::NAN, |[median, ..]| median);
            amount.map_or(String::new(), |amount| {
                let (amount, rate) = (amount as f64, amount as f64 / seconds * 1e-12);
                format!("{:8.2} M{unit} {rate:6.2} T{unit}/s", amount * 1e-6)
            })
        };
        let (value, bytes) = (self.show(self.value), rate(self.bytes, "B"));
        let flops = rate(self.flops, "flop");
        let name = &self.name;
        format!("{name:54} {time:12} {floor:29} {value:>11} {goal:>11} {met:6} {bytes:27} {flops}")
            .trim_end()
            .to_owned()
    }
}

#[derive(Serialize)]
pub(crate) struct Report {
    machine: Machine,
    quick: bool,
    /// The speed of the large copy beside each case, in bytes read and written a second.
    copies: Vec<(String, f64)>,
    entries: Vec<Entry>,
}

impl Report {
    pub(crate) fn new(machine: &Machine, quick: bool) -> Self {
        Self {
            machine: machine.clone(),
            quick,
            copies: Vec::new(),
            entries: Vec::new(),
        }
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Adds a line and prints it, since the others may take a while.
    pub(crate) fn add(&mut self, entry: Entry) {
        println!("{}", entry.line());
        self.entries.push(entry);
    }

    pub(crate) fn copy(&mut self, case: &str, speed: f64) {
        self.copies.push((case.to_owned(), speed));
    }

    /// Prints the facts that all lines share.
    pub(crate) fn print(&self) {
        let Machine {
            gpu,
            driver,
            cuda,
            commit,
            ..
        } = &self.machine;
        println!("{gpu}, driver {driver}, CUDA {cuda}, commit {commit}");
        let mut speeds: Vec<f64> = self.copies.iter().map(|(_, speed)| *speed).collect();
        speeds.sort_unstable_by(f64::total_cmp);
        if let (Some(low), Some(high)) = (speeds.first(), speeds.last()) {
            let (low, high) = (low * 1e-12, high * 1e-12);
            println!("large copy: {low:.3} to {high:.3} TB/s, read and written");
        }
        let peak = self.machine.peak_flops() * 1e-12;
        println!("peak: {peak:.1} Tflop/s in f32");
        let goals = self.entries.iter().filter_map(|entry| entry.met);
        let (met, all) = (goals.clone().filter(|met| *met).count(), goals.count());
        let quick = if self.quick {
            ", quick: these times mean nothing"
        } else {
            ""
        };
        println!("{met} of {all} goals met{quick}");
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), Error> {
        let text = format!("{}\n", serde_json::to_string_pretty(self)?);
        let at = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        fs::write(path, text).map_err(at)
    }
}
